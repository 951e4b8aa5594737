//! Calls on their way down a chain: a mark for each that arrived at each service, below the one that caused it; a bar where
//! there are too many, or where a run had many requests. Several chains have one scale.

use super::{
    page::Page,
    rows::{Chain, Row, draw},
    tree::{Fate, Mark},
};
use crate::{
    render::text::{
        comparison as several, fan_out, hidden, number,
        picture::{self, steps},
        prediction as sums, run as single,
        words::shown,
    },
    report::{Arrival, Comparison, Count, Prediction, PredictionKind, Report, Service, ServiceKind, Verdict},
};
use std::{collections::HashMap, fmt::Write as _};

/// The chain of one run, a mark for each call that arrived.
pub fn run(report: &Report) -> String {
    let chain = Chain::counted(report);
    let mut page = Page::new(&single::headline(report), &shown(&report.chain), chain.description());
    draw(&mut page, &[chain]);
    page.caption(&about(report), &[&report.command]);
    page.finish()
}

/// The chains of several runs under each other.
pub fn comparison(comparison: &Comparison) -> String {
    let runs = &comparison.runs;
    let chains: Vec<Chain> = (1..)
        .zip(runs)
        .map(|(number, report)| {
            let mut heading = format!("Run {number}");
            if !report.name().is_empty() {
                let _ = write!(heading, ": {}", shown(report.name()));
            }
            if report.verdict != Verdict::AsPredicted {
                let _ = write!(
                    heading,
                    " ({})",
                    verdict(report.verdict).trim_end_matches('.').to_lowercase()
                );
            }
            Chain {
                heading,
                line: shown(&report.chain),
                ..Chain::counted(report)
            }
        })
        .collect();
    let description: Vec<String> = chains.iter().map(Chain::description).collect();
    let mut page = Page::new(&several::headline(runs), "", description.join(" "));
    draw(&mut page, &chains);
    let about: Vec<String> = runs.iter().map(about).collect();
    let about = match about.first() {
        Some(first) if about.iter().all(|one| one == first) => format!("Each run: {first}"),
        _ => {
            let each = (1..)
                .zip(&about)
                .map(|(number, about)| format!("Run {number}: {about}"));
            each.collect::<Vec<_>>().join(" ")
        }
    };
    let commands: Vec<&str> = runs.iter().map(|report| report.command.as_str()).collect();
    page.caption(&about, &commands);
    page.finish()
}

/// The chain as predicted.
pub fn prediction(prediction: &Prediction) -> String {
    let chain = Chain::predicted(prediction);
    let mut page = Page::new(
        &sums::headline(prediction),
        &shown(&prediction.chain),
        chain.description(),
    );
    draw(&mut page, &[chain]);
    let about = format!(
        "Predicted, nothing was sent. {}",
        origin(prediction.seed, Some(env!("CARGO_PKG_VERSION")))
    );
    page.caption(&about, &[&prediction.command]);
    page.finish()
}

/// What the figure of a run rests on.
fn about(report: &Report) -> String {
    format!(
        "{}. {} {}",
        number::of(report.operations.requested, "request"),
        verdict(report.verdict),
        origin(report.seed, version(report))
    )
}

/// A verdict in words.
pub(super) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::AsPredicted => "As predicted.",
        Verdict::NotAsPredicted => "Not as predicted.",
        Verdict::Incomplete => "No verdict: the evidence is not whole.",
    }
}

/// What measured and what drew the faults, in sentences.
pub(super) fn origin(seed: u64, version: Option<&str>) -> String {
    let version = version.map(|version| format!(" Retryscope {}.", shown(version)));
    format!("Seed {seed}.{}", version.unwrap_or_default())
}

/// What measured.
pub(super) fn version(report: &Report) -> Option<&str> {
    report.versions.get("retryscope").map(String::as_str)
}

impl Chain {
    fn counted(report: &Report) -> Self {
        let marks = marks(report).into_iter();
        let client = report.links.first().map_or("client", |link| &link.from);
        let rows = report.services.iter().zip(marks);
        Self {
            heading: String::new(),
            line: String::new(),
            unit: match report.operations.requested {
                1 => "calls received",
                _ => "calls received for 1 request, on average",
            },
            rows: rows.map(|(row, marks)| counted(report, row, marks)).collect(),
            is_predicted: false,
        }
        .under_its_client(client)
    }

    fn predicted(prediction: &Prediction) -> Self {
        let requests = sums::requests(prediction);
        let client = prediction.links.first().map_or("client", |link| &link.from);
        let has_means = prediction.services.iter().all(|row| row.predicted.mean.is_some());
        let is_drawn = prediction
            .services
            .iter()
            .any(|row| row.predicted.kind == PredictionKind::Statistical);
        let sent: Vec<Count> = prediction
            .services
            .iter()
            .map(|row| sent_to(prediction, &row.service))
            .collect();
        let marks = regular(prediction, &sent).into_iter();
        let rows = prediction
            .services
            .iter()
            .zip(sent)
            .zip(marks)
            .map(|((row, sent), marks)| {
                let mean = row.predicted.mean_for_one(requests).filter(|mean| mean.is_finite());
                let most = row.predicted.most_for_one(requests);
                let mut beside = Vec::new();
                if row.predicted.max == Count::Of(0) && sent > Count::Of(0) {
                    beside.push(format!("{} sent", number::cell(sent)));
                }
                if has_means && is_drawn && row.predicted.max != Count::Beyond && mean.is_some_and(|mean| mean < most) {
                    beside.push(format!("{} at most", number::factor(most)));
                }
                Row {
                    name: row.service.clone(),
                    is_proxy: row.kind == ServiceKind::Sidecar,
                    tries: tries(
                        (&prediction.chain, &prediction.scenario),
                        caller(prediction, &row.service),
                        || None,
                    ),
                    count: match mean.filter(|_| has_means) {
                        Some(mean) if is_drawn => number::mean(mean),
                        Some(mean) if requests > 1 => number::factor(mean),
                        _ => number::expected(&row.predicted),
                    },
                    beside,
                    marks,
                    bar: [mean.unwrap_or(0.0), if is_drawn || mean.is_none() { most } else { 0.0 }],
                }
            });
        Self {
            heading: String::new(),
            line: String::new(),
            unit: match (requests, has_means) {
                (1, false) => "calls predicted",
                (_, false) => "calls predicted for all requests",
                (_, true) if is_drawn => "calls predicted for 1 request, on average",
                (_, true) => "calls predicted for 1 request",
            },
            rows: rows.collect(),
            is_predicted: true,
        }
        .under_its_client(client)
    }
}

fn counted(report: &Report, row: &Service, marks: Option<Vec<Mark>>) -> Row {
    let requests = report.operations.requested;
    let mut beside = Vec::new();
    match (row.received, picture::sent_to(report, &row.service)) {
        (None, _) => beside.push("not read".to_owned()),
        (Some(0), Some(sent)) if sent > 0 => beside.push(format!("{} sent", number::cell(whole(sent)))),
        _ => {}
    }
    beside.extend(predicted_beside(row, requests));
    if requests != 1 {
        beside.extend(
            row.received
                .map(|received| format!("{} in all", number::cell(whole(received)))),
        );
    }
    let predicted = &row.predicted;
    let agrees = row.received.is_none_or(|received| predicted.agrees(received));
    let missed = predicted
        .mean_for_one(requests)
        .unwrap_or_else(|| predicted.most_for_one(requests));
    let link = report.links.iter().find(|link| link.to == row.service);
    Row {
        name: row.service.clone(),
        is_proxy: row.kind == ServiceKind::Sidecar,
        tries: tries(
            (&report.chain, &report.scenario),
            link.map_or("", |link| &link.from),
            || link.and_then(|link| hidden::mark(report, link)),
        ),
        count: match (requests, row.amplification.filter(|of_one| of_one.is_finite())) {
            (1, _) | (_, None) => number::cell_or_dash(row.received),
            (_, Some(of_one)) => number::factor(of_one),
        },
        beside,
        marks,
        bar: [row.amplification.unwrap_or(0.0), if agrees { 0.0 } else { missed }],
    }
}

fn whole(number: u64) -> Count {
    Count::Of(number.into())
}

/// What was predicted for a service where that is not the very count.
fn predicted_beside(row: &Service, requests: u64) -> Option<String> {
    let predicted = &row.predicted;
    let is_met = predicted.min == predicted.max && row.received.map(whole) == Some(predicted.max);
    if is_met {
        return None;
    }
    let figure = match predicted.mean_for_one(requests) {
        Some(mean) if predicted.min != predicted.max || requests != 1 => number::factor(mean),
        _ => number::expected(predicted),
    };
    Some(format!("{figure} predicted"))
}

/// How often a caller calls and tries, and what is hidden on its link.
fn tries(
    (chain, scenario): (&str, &serde_json::Value),
    caller: &str,
    hidden: impl FnOnce() -> Option<String>,
) -> String {
    let calls = fan_out::calls(scenario, caller).map(|calls| format!("{calls} calls"));
    let declared = picture::declared(chain);
    let declared = declared.iter().find(|(name, _)| name == caller);
    let declared = declared
        .filter(|(_, attempts)| *attempts > 1)
        .map(|(_, attempts)| format!("x{attempts}"));
    let parts: Vec<String> = calls.into_iter().chain(declared).chain(hidden()).collect();
    parts.join(" ")
}

/// The calls of the one request of a run, service by service: `None` where the receipt does not show exactly what was
/// counted.
fn marks(report: &Report) -> Vec<Option<Vec<Mark>>> {
    let [receipt] = report.receipts.as_slice() else {
        return vec![None; report.services.len()];
    };
    if report.operations.requested != 1 {
        return vec![None; report.services.len()];
    }
    let mut arrivals: HashMap<&str, Vec<&Arrival>> = HashMap::new();
    for arrival in &receipt.attempts {
        arrivals.entry(&arrival.service).or_default().push(arrival);
    }
    // Where each path arrived: several times, where something hidden sent it on several times.
    let mut places: HashMap<&str, Vec<(usize, usize)>> = HashMap::new();
    let mut rows: Vec<Option<Vec<Mark>>> = Vec::new();
    for (row, service) in report.services.iter().enumerate() {
        let arrived = arrivals.remove(service.service.as_str()).unwrap_or_default();
        if service.received != Some(arrived.len() as u64) {
            rows.push(None);
            continue;
        }
        let sent = picture::sent_to(report, &service.service).filter(|_| arrived.is_empty());
        if let Some(sent) = sent.filter(|sent| *sent > 0) {
            let sent = usize::try_from(sent).unwrap_or(usize::MAX);
            rows.push(spread(&rows, sent, Fate::Lost));
            continue;
        }
        let found = below(&places, arrived);
        for (place, (_, arrival)) in found.iter().enumerate() {
            places.entry(&arrival.path).or_default().push((row, place));
        }
        rows.push(Some(
            found
                .into_iter()
                .map(|(parent, arrival)| mark(parent, arrival))
                .collect(),
        ));
    }
    rows
}

fn mark(parent: Option<(usize, usize)>, arrival: &Arrival) -> Mark {
    Mark {
        parent,
        fate: match arrival.code.as_str() {
            "OK" => Fate::Answered,
            "in_flight" => Fate::Open,
            _ => Fate::Failed,
        },
    }
}

/// Arrivals with the places of those that caused them, in the order in which they stand. Where a path came several times, its
/// calls are shared out among all that came.
fn below<'a>(
    places: &HashMap<&str, Vec<(usize, usize)>>,
    mut arrived: Vec<&'a Arrival>,
) -> Vec<(Option<(usize, usize)>, &'a Arrival)> {
    arrived.sort_by_cached_key(|arrival| (steps(&arrival.path), arrival.start_us));
    let mut times: HashMap<&str, (usize, usize)> = HashMap::new();
    for arrival in &arrived {
        times.entry(&arrival.path).or_default().1 += 1;
    }
    let mut found: Vec<_> = arrived
        .into_iter()
        .map(|arrival| {
            let (before, all) = times.get_mut(arrival.path.as_str()).expect("each path was counted");
            let parents = arrival.parent.as_deref().and_then(|path| places.get(path));
            let parent = parents.and_then(|parents| parents.get(*before * parents.len() / *all).copied());
            *before += 1;
            (parent, arrival)
        })
        .collect();
    // Stable: siblings stay in the order of their paths.
    found.sort_by_key(|(parent, _)| (parent.is_none(), *parent));
    found
}

/// So many calls, the same number under each of the row above; `None` where that does not come out even.
fn spread(rows: &[Option<Vec<Mark>>], number: usize, fate: Fate) -> Option<Vec<Mark>> {
    /// More marks than any row takes.
    const MOST: usize = 10_000;
    let above = rows
        .iter()
        .enumerate()
        .rev()
        .find_map(|(row, marks)| Some((row, marks.as_ref()?.len())));
    let (row, callers) = above.unwrap_or((0, 0));
    if number > MOST || (callers > 0 && !number.is_multiple_of(callers)) {
        return None;
    }
    let each = number.checked_div(callers);
    let parent = |place: usize| each.filter(|each| *each > 0).map(|each| (row, place / each));
    let marks = (0..number).map(|place| Mark {
        parent: parent(place),
        fate,
    });
    Some(marks.collect())
}

fn caller<'a>(prediction: &'a Prediction, service: &str) -> &'a str {
    let link = prediction.links.iter().find(|link| link.to == service);
    link.map_or("", |link| &link.from)
}

/// What callers should put on the links to a service, for one request; nothing where that is no sure number.
fn sent_to(prediction: &Prediction, service: &str) -> Count {
    let link = prediction.links.iter().find(|link| link.to == service);
    link.map_or(Count::Of(0), |link| link.sent.max)
}

/// The calls of one request as predicted, where each service is called equally often by each call to the one above it.
fn regular(prediction: &Prediction, sent: &[Count]) -> Vec<Option<Vec<Mark>>> {
    let requests = sums::requests(prediction);
    let mut rows = Vec::new();
    for (row, sent) in prediction.services.iter().zip(sent) {
        let of_one = |count: Count| usize::try_from(count.for_one(requests)?).ok();
        let is_exact = row.predicted.min == row.predicted.max;
        let marks = of_one(row.predicted.max)
            .filter(|_| is_exact)
            .and_then(|number| match number {
                0 => spread(&rows, of_one(*sent)?, Fate::Lost),
                _ => spread(&rows, number, Fate::Predicted),
            });
        rows.push(marks);
    }
    rows
}
