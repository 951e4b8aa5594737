//! The nearest name to a misspelt one. Pure.

use crate::sanitize::sanitize;

/// The candidate that was probably meant, if one is near enough.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Nobody misspells a name at this length, and the distance costs the square of it.
    if name.len() > 64 {
        return None;
    }
    let name = name.to_lowercase();
    let near = candidates.into_iter().filter_map(|candidate| {
        let last = candidate.rsplit('.').next().unwrap_or(candidate).to_lowercase();
        let distance = strsim::damerau_levenshtein(&name, &candidate.to_lowercase())
            .min(strsim::damerau_levenshtein(&name, &last));
        let allowed = (name.chars().count().max(last.chars().count()) / 3).max(1);
        (distance <= allowed).then_some((distance, candidate))
    });
    near.min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `; did you mean `x`?`, or nothing.
pub(crate) fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map_or_else(String::new, |near| format!("; did you mean `{}`?", sanitize(near)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name_and_a_stranger_finds_none() {
        assert_eq!(nearest("checkuot", ["frontend", "checkout"]), Some("checkout"));
        assert_eq!(nearest("atempts", ["fault", "retry.attempts"]), Some("retry.attempts"));
        assert_eq!(nearest("no-such-scenario", ["per-hop", "single-owner"]), None);
        assert_eq!(nearest(&"a".repeat(1 << 20), ["attempts"]), None);
    }
}
