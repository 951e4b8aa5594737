//! Layers that no configuration declares: on which links they sit, how that is known, and how to declare them.

use super::{
    command, evidence, number, picture,
    words::{LABEL, shown},
};
use crate::report::{Count, Link, Reason, Report, Service, ServiceKind, Times};
use chassis::policy::MAX_ATTEMPTS;

/// Names in a sentence, at most.
const NAMED: usize = 4;
/// The flags that say how often a proxy tries.
const PROXY_FLAGS: [&str; 3] = ["--undeclared", "--sidecar-attempts-at", "--sidecar-retries-at"];

/// The links that carry a hidden layer, the top one first.
pub(super) fn links(report: &Report) -> impl Iterator<Item = &Link> {
    let proven = has(report, "link_surplus");
    // Strangers carry no attempt path: where none came twice, they are the surplus.
    let single = |link: &Link| witnesses(link).any(|times| times.most <= 1);
    report
        .links
        .iter()
        .filter(move |link| proven && more(link) > 0 && evidence::is_here(report, link) && !single(link))
}

/// The link whose port is closed and on which something else answered. Below a closed port nothing is sent.
pub(super) fn answered_for(report: &Report) -> Option<&Link> {
    let proven = has(report, "answered_for");
    let mut sent = report
        .links
        .iter()
        .rev()
        .filter(|link| link.sent.is_some_and(|sent| sent > 0));
    sent.find(|link| proven && evidence::is_closed(report, link))
}

/// Whether it is this one.
pub(super) fn answers_for(report: &Report, link: &Link) -> bool {
    answered_for(report).is_some_and(|answered| std::ptr::eq(answered, link))
}

fn has(report: &Report, kind: &str) -> bool {
    report.reasons.iter().any(|reason| reason.kind == kind)
}

fn more(link: &Link) -> u64 {
    link.received
        .zip(link.sent)
        .map_or(0, |(received, sent)| received.saturating_sub(sent))
}

fn witnesses(link: &Link) -> impl Iterator<Item = &Times> {
    let repeats = link.repeats.iter();
    repeats.flat_map(|repeats| repeats.by_path.iter().chain(&repeats.by_parent))
}

/// What the layer makes of every attempt; `None` where it is not the same of all, or not all has come to its end.
fn multiplier(report: &Report, link: &Link) -> Option<u64> {
    if report.operations.unfinished > 0 {
        return None;
    }
    let (received, sent) = (link.received?, link.sent.filter(|sent| *sent > 0)?);
    let even = received.is_multiple_of(sent) && witnesses(link).all(|times| times.least == times.most);
    even.then_some(received / sent)
}

/// What stands in the arrow of a link: `?x4`, or `?` where no one number is true; nothing where nothing is hidden.
pub(in crate::render) fn mark(report: &Report, link: &Link) -> Option<String> {
    if answers_for(report, link) {
        return Some("?".to_owned());
    }
    links(report)
        .any(|hidden| std::ptr::eq(hidden, link))
        .then(|| multiplier(report, link).map_or_else(|| "?".to_owned(), |times| format!("?x{}", number::whole(times))))
}

/// What a link that parts prediction and count does, in a sentence.
pub(super) fn what_it_does(report: &Report, link: &Link) -> String {
    let (from, to) = (shown(&link.from), shown(&link.to));
    if answers_for(report, link) {
        return format!("Something between {from} and {to} answers for {to}, and no configuration declares it.");
    }
    let hidden = links(report).any(|hidden| std::ptr::eq(hidden, link));
    // A path that comes more often than it was sent counts retries of the layer; an Envoy's own come under one path too.
    let whole = witnesses(link).find(|times| Some(times.different) == link.sent);
    // What stops as soon as a call works may have had more attempts left.
    let makes = if report.operations.ok > 0 { "made" } else { "makes" };
    let calls = match (multiplier(report, link), whole) {
        (Some(times), _) if hidden => Some(number::whole(times)),
        (None, Some(times)) if hidden => Some(format!("up to {}", number::whole(times.most))),
        _ => None,
    };
    match calls {
        Some(calls) => format!(
            "Something between {from} and {to} {makes} {calls} calls out of 1, and no configuration declares it."
        ),
        _ if more(link) > 0 && !hidden && has(report, "strangers") => {
            let carried = if more(link) == 1 { "carries" } else { "carry" };
            format!(
                "{} at {to} {carried} no attempt path of this run: somebody else called it.",
                number::of(more(link), "call")
            )
        }
        _ if more(link) > 0 => format!(
            "{} more arrived at {to} than {from} sent, and nothing in the configuration sends that.",
            number::of(more(link), "call")
        ),
        _ => format!("Calls that {from} sent never arrived at {to}, and no fault asks for that."),
    }
}

/// How it is known, in sentences: what each witness says, link by link.
pub(super) fn how_we_know(report: &Report) -> Vec<String> {
    let mut said: Vec<String> = links(report).flat_map(|link| of_link(report, link)).collect();
    said.extend(further_down(report));
    said
}

fn of_link(report: &Report, link: &Link) -> Vec<String> {
    let (from, to) = (shown(&link.from), shown(&link.to));
    let sent = link.sent.unwrap_or(0);
    let (path, parent) = match &link.repeats {
        Some(repeats) => (repeats.by_path, repeats.by_parent),
        None => (None, None),
    };
    let declared_envoy = row(report, &link.from).is_some_and(|row| row.envoy.is_some());
    let count = if declared_envoy { "statistics" } else { "count" };
    let spans = if parent.is_some_and(|times| times.different == sent) {
        " and by its spans"
    } else {
        ""
    };
    let mut said = vec![format!(
        "{from} sent {}, by its own {count}{spans}.",
        number::of(sent, "attempt")
    )];
    let received = |times: Times, under: &str| {
        let often = match (times.least, times.most) {
            (2, 2) => "exactly twice".to_owned(),
            (least, most) if least == most => format!("exactly {} times", number::whole(most)),
            (least, most) => format!("between {} and {} times", number::whole(least), number::whole(most)),
        };
        match times.different {
            1 if sent == 1 => format!("{to} received it {often}, under the same {under}."),
            different if different == sent => format!(
                "{to} received each of these {} {often}, under the same {under}.",
                number::whole(sent)
            ),
            different => {
                let under = under.replace(" and ", &format!("{} and ", if different == 1 { "" } else { "s" }));
                format!(
                    "{to} received calls under {}, {often} each.",
                    number::of(different, &format!("different {under}"))
                )
            }
        }
    };
    match (path, parent) {
        (Some(path), Some(parent)) if path == parent => {
            let (both, as_many) = ("attempt path and the same parent span", "attempt path and parent span");
            said.push(received(path, if path.different == sent { both } else { as_many }));
        }
        (None, None) => said.push(format!("{to} received {}.", number::whole(link.received.unwrap_or(0)))),
        _ => {
            let witnesses = [(path, "attempt path"), (parent, "parent span")];
            let mut told: Vec<(Times, &str)> = witnesses
                .into_iter()
                .filter_map(|(times, under)| Some((times?, under)))
                .collect();
            // Paths come once more for each hidden layer above: who tells the attempts apart speaks first.
            told.sort_by_key(|(times, _)| times.different != sent);
            said.extend(told.into_iter().map(|(times, under)| received(times, under)));
        }
    }
    // A declared Envoy sets the header itself: it then tells nothing of what is hidden.
    if let Some(repeats) = link.repeats.as_ref().filter(|_| !declared_envoy)
        && let Some(last) = repeats.envoy_attempts.keys().last().filter(|last| **last > 1)
    {
        let counts = repeats.envoy_attempts.keys();
        let ran: Vec<String> = counts.take(10).map(u32::to_string).collect();
        let on = if repeats.envoy_attempts.len() > 10 { " ..." } else { "" };
        let all = witnesses(link).all(|times| times.most == u64::from(*last));
        said.push(format!(
            "x-envoy-attempt-count ran {}{on}: {}",
            ran.join(" "),
            if all {
                "the layer is an Envoy."
            } else {
                "an Envoy has a part in it."
            }
        ));
    }
    said
}

/// What arrived below the first hidden layer too often, and only because of it.
fn further_down(report: &Report) -> Option<String> {
    let first = links(report).next()?;
    if !is_all(report) {
        return None;
    }
    let below = report
        .services
        .iter()
        .skip_while(|row| row.service != first.to)
        .skip(1)
        .filter(|row| row.kind == ServiceKind::Service && !links(report).any(|link| link.to == row.service));
    let names: Vec<String> = below.map(|row| shown(&row.service)).collect();
    let from = if links(report).count() > 1 { "them" } else { "it" };
    let whose = match names.as_slice() {
        [] => return None,
        [one] => format!("at {one}"),
        [first @ .., last] if names.len() <= NAMED => format!("at {} and {last}", first.join(", ")),
        [.., last] => format!("at the {} services down to {last}", names.len()),
    };
    Some(format!("What arrived too often {whose} follows from {from}."))
}

/// Whether the hidden layers alone explain every count: each is what was predicted, times what is hidden above it.
fn is_all(report: &Report) -> bool {
    let mut times = 1_u128;
    report.links.iter().all(|link| {
        if links(report).any(|hidden| std::ptr::eq(hidden, link)) {
            match multiplier(report, link) {
                Some(more) => times = times.saturating_mul(more.into()),
                None => return false,
            }
        }
        row(report, &link.to).is_some_and(|row| {
            let expected = number::times(row.predicted.max, times);
            row.predicted.min == row.predicted.max
                && row
                    .received
                    .is_some_and(|received| expected == Some(Count::Of(received.into())))
        })
    })
}

/// Whether a reason says nothing that [`how_we_know`] does not.
pub(super) fn tells(report: &Report, reason: &Reason) -> bool {
    links(report).next().is_some()
        && match reason.kind.as_str() {
            "link_surplus" => true,
            "surplus" | "sent_surplus" => is_all(report),
            _ => false,
        }
}

fn row<'a>(report: &'a Report, name: &str) -> Option<&'a Service> {
    report.services.iter().find(|row| row.service == name)
}

fn is_proxy(report: &Report, name: &str) -> bool {
    row(report, name).is_some_and(|row| row.kind == ServiceKind::Sidecar)
}

/// Where the layer may be; `None` where nothing is hidden.
pub(super) fn look_for(report: &Report) -> Option<String> {
    let hidden: Vec<&Link> = links(report).collect();
    let text = match hidden.as_slice() {
        [] if answered_for(report).is_some() => {
            "a sidecar, a gateway or a load balancer on that link, which makes an answer of the failure that it meets."
                .to_owned()
        }
        [] => return None,
        [one] if is_proxy(report, &one.from) => format!(
            "a second proxy or a gateway behind {}, a load balancer that replays.",
            shown(&one.from)
        ),
        [one] => format!(
            "a sidecar or gateway on that link, an SDK with retries of its own under {}'s loop, a load balancer that \
             replays.",
            shown(&one.from)
        ),
        _ => "sidecars or gateways on these links, SDKs with retries of their own under the callers' loops, load \
              balancers that replay."
            .to_owned(),
    };
    Some(text)
}

/// The command that declares what was found as proxies. Nothing where the services are not ours to start, and where no
/// number of attempts would make it.
pub(super) fn declared(report: &Report, program: &str) -> Vec<String> {
    if report.processes.iter().any(|process| !process.owned) {
        return Vec::new();
    }
    let attempts = picture::declared(&report.chain);
    let mut typed = report.command.clone();
    let mut flags = String::new();
    for link in links(report).filter(|link| !is_proxy(report, &link.to)) {
        let caller = if is_proxy(report, &link.from) {
            link.from.strip_suffix("-proxy").unwrap_or(&link.from)
        } else {
            &link.from
        };
        let there = attempts.iter().find(|(name, _)| *name == link.from && name != caller);
        let together =
            multiplier(report, link).and_then(|times| times.checked_mul(there.map_or(1, |(_, there)| *there)));
        if let Some(together) = together.filter(|together| *together <= MAX_ATTEMPTS.into()) {
            typed = command::without(&typed, &PROXY_FLAGS, &format!("{caller}="));
            flags.push_str(" --sidecar-attempts-at ");
            flags.push_str(&command::word(&format!("{caller}={together}")));
        }
    }
    if flags.is_empty() {
        return Vec::new();
    }
    // A scenario that hides its layer itself would hide it once more: its chain line has none.
    let hides = report.scenario.get("undeclared").is_some() && !report.command.contains(PROXY_FLAGS[0]);
    if hides {
        let chain = report.chain.strip_prefix("client > ").unwrap_or(&report.chain);
        typed = format!("run {}", command::word(chain));
    }
    let label = format!("{:<LABEL$}declare it:  ", "Meant to be?");
    command::wrapped(&label, program, &(typed + &flags))
}
