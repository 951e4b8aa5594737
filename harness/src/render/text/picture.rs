//! The picture: a letter per arrival, a bar where there are too many, or the chain with its factors.

use super::{
    number,
    words::{self, WIDTH},
};
use crate::report::{Arrival, Count, Report, Service, ServiceKind};
use chassis::call::{AttemptPath, Step};

/// Most letters in a row.
const LETTERS: u64 = 27;
/// Most rows in which proxies stand among the services.
const ROWS: usize = 8;
/// Columns of that many letters in groups of three.
pub(super) const GROUPED: usize = 37;
/// Columns of names and of the blanks behind them, at least.
const NAMES: usize = 13;
/// Columns of a bar, at most.
const BAR: u128 = 50;

/// One row: a service, what stands beside it, its count.
pub(super) struct Row {
    /// The service, in full.
    pub(super) service: String,
    /// Letters, a bar, or words in brackets.
    pub(super) content: String,
    /// What arrived.
    pub(super) count: String,
}

/// Columns that names take, with three blanks behind the longest of them, and at most `most`.
pub(super) fn name_columns<'a>(names: impl Iterator<Item = &'a str>, most: usize) -> usize {
    names
        .map(|name| words::shown(name).len() + 3)
        .max()
        .unwrap_or(0)
        .max(NAMES)
        .min(most)
}

/// The services of the chain, without the proxies between them.
pub(super) fn services(report: &Report) -> impl Iterator<Item = &Service> {
    report.services.iter().filter(|row| row.kind == ServiceKind::Service)
}

/// One row per service, and per proxy where the rows stay few: letters for a single request, bars otherwise.
pub(super) fn rows(report: &Report) -> Vec<Row> {
    let marks_of = |row: &Service| marks(report, &row.service, row.received);
    let needs_bar = |row: &Service| marks_of(row).is_none() && row.received.is_some_and(|received| received > 0);
    // Letters and bars have no scale in common: one row that needs a bar makes bars of all. A proxy's is no reason: an
    // Envoy has no letters.
    let bars = services(report).any(needs_bar);
    let all = report.services.len() <= ROWS && (bars || !report.services.iter().any(needs_bar));
    let rows: Vec<&Service> = if all {
        report.services.iter().collect()
    } else {
        services(report).collect()
    };
    let most = rows.iter().filter_map(|row| row.received).max().unwrap_or(0);
    let marks: Vec<Option<String>> = rows.iter().map(|row| marks_of(row)).collect();
    rows.into_iter()
        .zip(marks)
        .map(|(row, marks)| {
            let received = row.received.unwrap_or(0);
            let content = match (marks, row.received, sent_to(report, &row.service)) {
                (_, None, _) => "(its count could not be read)".to_owned(),
                (_, Some(0), Some(sent)) if sent > 0 => format!("({} sent, none arrived)", number::whole(sent)),
                (Some(marks), ..) if !bars => marks,
                _ => bar(received.into(), most.into()),
            };
            Row {
                service: row.service.clone(),
                content,
                count: number::cell_or_dash(row.received),
            }
        })
        .collect()
}

/// What callers put on the links to a service.
pub(in crate::render) fn sent_to(report: &Report, service: &str) -> Option<u64> {
    report
        .links
        .iter()
        .find(|link| link.to == service)
        .and_then(|link| link.sent)
}

/// The rows laid out: names, contents, counts.
pub(super) fn lay_out(rows: &[Row]) -> Vec<String> {
    let content = rows.iter().map(|row| row.content.len()).max().unwrap_or(0);
    let count = rows.iter().map(|row| row.count.len()).max().unwrap_or(0).max(2);
    let names = name_columns(
        rows.iter().map(|row| row.service.as_str()),
        WIDTH.saturating_sub(content + 3 + count),
    );
    rows.iter()
        .map(|row| {
            let name = words::name(&row.service, names.saturating_sub(1));
            format!("{name:<names$}{:<content$}   {:>count$}", row.content, row.count)
        })
        .collect()
}

/// A letter per arrival of the one request of a run: `x` failed, `o` answered, `?` without an end. `None` when the
/// receipt does not show exactly what was counted, or there are too many.
pub(super) fn marks(report: &Report, service: &str, received: Option<u64>) -> Option<String> {
    let [receipt] = report.receipts.as_slice() else {
        return None;
    };
    if report.operations.requested != 1 || received.is_none_or(|received| received > LETTERS) {
        return None;
    }
    let mut arrivals: Vec<&Arrival> = receipt
        .attempts
        .iter()
        .filter(|arrival| arrival.service == service)
        .collect();
    if Some(arrivals.len() as u64) != received {
        return None;
    }
    arrivals.sort_by_cached_key(|arrival| steps(&arrival.path));
    let paths: Vec<Vec<u64>> = arrivals.iter().map(|arrival| steps(&arrival.path)).collect();
    // A layer that makes one attempt groups nothing: its step is the same everywhere and does not part letters.
    let depth = paths.iter().map(Vec::len).max().unwrap_or(0);
    let layers: Vec<usize> = (0..depth)
        .filter(|layer| paths.iter().any(|path| path.get(*layer) != paths[0].get(*layer)))
        .collect();
    let letters = |apart: bool| {
        let mut text = String::new();
        for (place, arrival) in arrivals.iter().enumerate() {
            if apart && place > 0 {
                let parted = |layer: &usize| paths[place - 1].get(*layer) != paths[place].get(*layer);
                let level = layers.iter().position(parted).map_or(0, |at| layers.len() - 1 - at);
                text.push_str(&" ".repeat(level.min(2)));
            }
            text.push(match arrival.code.as_str() {
                "OK" => 'o',
                "in_flight" => '?',
                _ => 'x',
            });
        }
        text
    };
    let apart = letters(true);
    // Many small groups would spread the letters over the line.
    Some(if apart.len() <= GROUPED { apart } else { letters(false) })
}

/// The request, then each layer's step, in the order in which they stand; behind all others for what is no path.
pub(in crate::render) fn steps(path: &str) -> Vec<u64> {
    let Some(path) = AttemptPath::read(path) else {
        return vec![u64::MAX];
    };
    let steps = path.attempts.into_iter().map(Step::number);
    std::iter::once(path.request).chain(steps).collect()
}

/// A bar as long as its share of the largest.
fn bar(number: u128, largest: u128) -> String {
    if number == 0 || largest == 0 {
        return String::new();
    }
    let length = ((BAR * number + largest / 2) / largest).clamp(1, BAR);
    "#".repeat(usize::try_from(length).unwrap_or(1))
}

/// A name in the chain and what stands under it.
pub(super) struct Node {
    /// The name, in full.
    pub(super) name: String,
    /// A figure, or nothing.
    pub(super) under: String,
}

/// What stands between two names where nothing is hidden: `--->`, `==x3==>`.
pub(super) fn arrow(attempts: u64) -> String {
    layers(attempts, None, 1, None)
}

/// The layers between two names: attempts in the code and of the proxy, and what is hidden above and below the proxy.
/// `==x3*3==>`, `==x3==?x4==>`.
pub(super) fn layers(code: u64, above: Option<String>, proxy: u64, below: Option<String>) -> String {
    let mut parts = Vec::new();
    match (above, proxy > 1) {
        (None, true) => parts.push(format!("x{code}*{proxy}")),
        (above, true) => {
            parts.push(format!("x{code}"));
            parts.extend(above);
            parts.push(format!("*{proxy}"));
        }
        (above, false) => {
            parts.extend((code > 1).then(|| format!("x{code}")));
            parts.extend(above);
        }
    }
    parts.extend(below);
    if parts.is_empty() {
        "--->".to_owned()
    } else {
        format!("=={}==>", parts.join("=="))
    }
}

/// The chain across the screen with a figure under each name, in as many rows as it takes. `arrows[n]` stands between
/// node n and the next.
pub(super) fn chain(nodes: &[Node], arrows: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut above, mut below) = (String::new(), String::new());
    for (place, node) in nodes.iter().enumerate() {
        let name = words::name(&node.name, 50);
        let arrow = if place == 0 {
            ""
        } else {
            arrows.get(place - 1).map_or("--->", String::as_str)
        };
        let put = |above: &mut String, below: &mut String| {
            let middle = |start: usize| (start + start + name.len()).saturating_sub(node.under.len()) / 2;
            if !arrow.is_empty() {
                if !above.is_empty() {
                    above.push(' ');
                }
                // A figure stays in the middle under its name: where figures would meet, the arrow is longer.
                let (shaft, point) = arrow.split_at(arrow.len() - 1);
                above.push_str(shaft);
                let least = if below.is_empty() { 0 } else { below.len() + 2 };
                let start = above.len() + point.len() + 1;
                if !node.under.is_empty() {
                    let more = least.saturating_sub(middle(start));
                    above.push_str(&shaft[shaft.len().saturating_sub(1)..].repeat(more));
                }
                above.push_str(point);
                above.push(' ');
            }
            let start = above.len();
            above.push_str(&name);
            if !node.under.is_empty() {
                let at = middle(start).max(below.len());
                below.push_str(&" ".repeat(at - below.len()));
                below.push_str(&node.under);
            }
        };
        let (mut longer, mut deeper) = (above.clone(), below.clone());
        put(&mut longer, &mut deeper);
        if place > 0 && longer.len().max(deeper.len()) > WIDTH {
            lines.push(std::mem::replace(&mut above, "   ".to_owned()));
            lines.push(std::mem::take(&mut below));
            put(&mut above, &mut below);
        } else {
            (above, below) = (longer, deeper);
        }
    }
    lines.extend([above, below]);
    lines
}

/// Attempts of each caller as a chain line declares them: `web x3*2` is 3 at `web` and 2 at `web-proxy`.
pub(in crate::render) fn declared(chain: &str) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for caller in chain.split('>') {
        let mut words = caller.split_whitespace();
        let Some(name) = words.next() else { continue };
        let tries = words.find_map(|word| {
            let (code, proxy) = word
                .strip_prefix('x')
                .map(|rest| rest.split_once('*').unwrap_or((rest, "1")))?;
            Some((code.parse::<u64>().ok()?, proxy.parse::<u64>().ok()?))
        });
        let (code, proxy) = tries.unwrap_or((1, 1));
        found.push((name.to_owned(), code));
        found.push((format!("{name}-proxy"), proxy));
    }
    found
}

/// What the chain line says of its last name beside the name: `down`, `fail:first=2`, or nothing.
pub(super) fn bottom_fault(chain: &str) -> Option<&str> {
    chain
        .rsplit('>')
        .next()?
        .trim()
        .split_once(char::is_whitespace)
        .map(|(_, fault)| fault.trim())
}

/// A count in the picture of the chain.
pub(super) fn under(count: Option<u64>) -> String {
    count.map_or_else(|| "-".to_owned(), |count| number::count(Count::Of(count.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(rows: &[(&str, &str)]) -> Vec<Node> {
        rows.iter()
            .map(|(name, under)| Node {
                name: (*name).to_owned(),
                under: (*under).to_owned(),
            })
            .collect()
    }

    #[test]
    fn the_chain_stands_over_its_counts() {
        let nodes = nodes(&[
            ("client", ""),
            ("frontend", "1"),
            ("checkout", "3"),
            ("pricing", "9"),
            ("inventory", "27"),
        ]);
        let arrows = [arrow(1), arrow(3), arrow(3), arrow(3)];
        assert_eq!(
            chain(&nodes, &arrows),
            [
                "client ---> frontend ==x3==> checkout ==x3==> pricing ==x3==> inventory",
                "               1                3                9               27",
            ]
        );
    }

    #[test]
    fn a_long_chain_takes_several_rows() {
        let long = "a".repeat(40);
        let nodes = nodes(&[("client", ""), (&long, "1"), (&long, "3"), ("db", "more than 3.4e38")]);
        let lines = chain(
            &nodes,
            &[arrow(1), arrow(3), layers(100, None, 1, Some("?x4".to_owned()))],
        );
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{lines:#?}");
        assert_eq!(lines.len(), 4, "{lines:#?}");
        assert!(lines[2].contains("==x100==?x4==> db"), "{lines:#?}");
    }

    #[test]
    fn arrows_say_what_is_declared_and_what_is_not() {
        let hidden = || Some("?x4".to_owned());
        assert_eq!(arrow(1), "--->");
        assert_eq!(arrow(3), "==x3==>");
        assert_eq!(layers(3, None, 1, hidden()), "==x3==?x4==>");
        assert_eq!(layers(1, None, 1, hidden()), "==?x4==>");
        assert_eq!(layers(1, None, 3, None), "==x1*3==>");
        assert_eq!(layers(3, None, 3, hidden()), "==x3*3==?x4==>");
        assert_eq!(layers(3, hidden(), 3, None), "==x3==?x4==*3==>");
    }

    #[test]
    fn chain_lines_are_read_for_their_attempts() {
        assert_eq!(
            declared("client > web x3*2 > db fail:first=2")[..4],
            [
                ("client".into(), 1),
                ("client-proxy".into(), 1),
                ("web".into(), 3),
                ("web-proxy".into(), 2)
            ]
        );
        assert_eq!(bottom_fault("client > web x3 > db fail:first=2"), Some("fail:first=2"));
        assert_eq!(bottom_fault("client > web x3 > db"), None);
    }

    #[test]
    fn paths_stand_in_the_order_of_their_numbers_and_foreign_ones_behind_them() {
        let mut paths = ["b", "1:2-1.1", "1:10.1", "1:2.10", "1:2.2", "1:x", "1:2"];
        paths.sort_by_cached_key(|path| steps(path));
        assert_eq!(paths, ["1:2", "1:2.2", "1:2.10", "1:10.1", "1:2-1.1", "b", "1:x"]);
    }

    #[test]
    fn bars_grow_with_their_figures() {
        assert_eq!(bar(0, 10), "");
        assert_eq!(bar(1, 27_000).len(), 1);
        assert_eq!(bar(27_000, 27_000).len(), 50);
        assert_eq!(bar(81, 243).len(), 17);
    }
}
