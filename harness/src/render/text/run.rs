//! The screen of one run.

use super::{
    Style, command, evidence, fan_out, hidden, number,
    picture::{self, Node},
    proven, proxies, traces,
    words::{self, LABEL, Screen, sentence, shown},
};
use crate::report::{
    Count, Expected, Link, Operations, Predicted, PredictionKind, Report, Service, ServiceKind, Verdict,
};
use crate::sanitize::sanitize_message;
use chassis::fault::{ClientFault, ServiceFault};

/// Column of the exit code in the last line.
const EXIT: usize = 72;
/// Reasons that are said, at most.
const REASONS: usize = 8;
/// Links and services that have a line or a part of one for themselves, at most.
const SINGLE: usize = 4;

/// One run: the answer, the picture, the evidence, what became of the requests, how to repeat it.
pub fn run(report: &Report, program: &str, style: Style) -> String {
    let mut screen = Screen::default();
    counts(&mut screen, report, &headline(report), style);
    screen.lines(words::labelled("requests", &outcome(&report.operations)));
    details(&mut screen, report);
    reasons(&mut screen, report, program);
    for expected in &report.expected {
        screen.lines(expectation(expected, "", style));
    }
    proven::block(&mut screen, report, style);
    traces::of_requests(&mut screen, report);
    repeat(&mut screen, report, program);
    screen.finish()
}

/// The answer, the picture, the evidence.
pub(super) fn counts(screen: &mut Screen, report: &Report, headline: &str, style: Style) {
    screen.headline(headline, style);
    screen.gap();
    for link in broken(report) {
        screen.lines(words::wrapped("", 0, &hidden::what_it_does(report, link)));
    }
    screen.gap();
    match report.verdict {
        Verdict::NotAsPredicted => screen.lines(chain(report)),
        Verdict::AsPredicted => screen.lines(picture::lay_out(&picture::rows(report))),
        // No verdict must look like neither of the two: the figures alone.
        Verdict::Incomplete => {}
    }
    screen.gap();
    if evidence::links_matter(report) {
        evidence::links(screen, report, style);
        screen.gap();
    }
    evidence::table(screen, &[("", report)], style);
    screen.gap();
    screen.lines(proxies::block(report));
}

/// The links where prediction and count parted.
pub(super) fn broken(report: &Report) -> impl Iterator<Item = &Link> {
    report.links.iter().filter(|link| evidence::is_here(report, link))
}

/// Why there is no verdict, or how it is known that something is wrong, what to look for, and how to declare it.
pub(super) fn reasons(screen: &mut Screen, report: &Report, program: &str) {
    for (label, sentences) in why(report) {
        for (place, text) in sentences.iter().enumerate() {
            screen.lines(words::labelled(if place == 0 { label } else { "" }, text));
        }
    }
    screen.lines(hidden::declared(report, program));
}

/// The answer in a sentence.
pub(in crate::render) fn headline(report: &Report) -> String {
    let Some(bottom) = report.services.last() else {
        return "No verdict. No service was started.".to_owned();
    };
    match report.verdict {
        Verdict::AsPredicted => as_predicted(report, bottom),
        Verdict::NotAsPredicted => not_as_predicted(report, bottom),
        Verdict::Incomplete => no_verdict(report),
    }
}

fn as_predicted(report: &Report, bottom: &Service) -> String {
    let requests = number::of(report.operations.requested, "request");
    let name = shown(&bottom.service);
    let received = bottom.received.unwrap_or(0);
    match picture::sent_to(report, &bottom.service) {
        Some(sent) if received == 0 && sent > 0 => {
            let calls = number::of(sent, "call");
            let was = if sent == 1 { "was" } else { "were" };
            return format!("{calls} {was} sent to {name} for {requests}, and none arrived, as predicted.");
        }
        _ => {}
    }
    let answered = picture::marks(report, &bottom.service, bottom.received)
        .unwrap_or_default()
        .replace(' ', "");
    if received > 1 && answered.find('o').is_some_and(|at| at + 1 == answered.len()) {
        let place = number::ordinal(received);
        return format!(
            "{} arrived at {name} for {requests}, and the {place} was answered.",
            number::of(received, "call")
        );
    }
    let calls = number::of(received, "call");
    let (least, most) = (bottom.predicted.min, bottom.predicted.max);
    if least == most {
        format!("{calls} arrived at {name} for {requests}, as predicted.")
    } else {
        // A wide interval is no exact hit, and must not read like one.
        let (least, most) = (number::count(least), number::count(most));
        format!("{calls} arrived at {name} for {requests}, within the predicted {least} to {most}.")
    }
}

fn not_as_predicted(report: &Report, bottom: &Service) -> String {
    let differs = |row: &&Service| row.received.is_some_and(|received| !row.predicted.agrees(received));
    // The bottom service first: that is where a multiplication shows most. A proxy only where nothing else differs.
    let mut services: Vec<&Service> = report.services.iter().rev().collect();
    services.sort_by_key(|row| row.kind == ServiceKind::Sidecar);
    if let Some(row) = services.into_iter().find(differs) {
        let received = row.received.unwrap_or(0);
        let is_too_few = Count::Of(received.into()) < row.predicted.min;
        if let Some(link) = hidden::links(report).find(|link| link.to == row.service)
            && is_too_few
        {
            // The run is not whole, or its draws were others: what was multiplied is the news.
            let sent = number::whole(link.sent.unwrap_or(0));
            let calls = number::of(received, "call");
            let (from, to) = (shown(&link.from), shown(&row.service));
            return format!("{calls} arrived at {to}, and {from} sent only {sent}.");
        }
        return format!(
            "{} arrived at {}. {}",
            number::of(received, "call"),
            shown(&row.service),
            difference(received.into(), &row.predicted)
        );
    }
    if let Some(link) = hidden::answered_for(report) {
        let sent = link.sent.unwrap_or(0);
        let (was, them) = if sent == 1 { ("was", "it") } else { ("were", "them") };
        return format!(
            "{} {was} sent to {}, whose port is closed, and something else answered {them}.",
            number::of(sent, "call"),
            shown(&link.to)
        );
    }
    let hidden = hidden::links(report).find(|link| link.to == bottom.service);
    let but = hidden.map_or_else(
        || "not all else came out".to_owned(),
        |link| {
            let sent = number::whole(link.sent.unwrap_or(0));
            format!("{} sent only {sent}", shown(&link.from))
        },
    );
    format!(
        "{} arrived at {}, as predicted, but {but}.",
        number::of(bottom.received.unwrap_or(0), "call"),
        shown(&bottom.service)
    )
}

/// "27 were predicted. That is 4 times as many."
fn difference(received: u128, predicted: &Predicted) -> String {
    let (least, most) = (predicted.min, predicted.max);
    let expected = if least == most {
        let were = if most == Count::Of(1) { "was" } else { "were" };
        format!("{} {were} predicted.", number::count(most))
    } else {
        format!("{} to {} were predicted.", number::count(least), number::count(most))
    };
    let distance = match (least, most) {
        (_, Count::Of(most)) if received > most => {
            if least == Count::Of(most) && most > 0 && received.is_multiple_of(most) {
                let times = received / most;
                format!(
                    " That is {} as many.",
                    if times == 2 {
                        "twice".to_owned()
                    } else {
                        times_of(times)
                    }
                )
            } else {
                format!(" That is {} too many.", number::whole(received - most))
            }
        }
        (Count::Of(least), _) if received < least => format!(" That is {} too few.", number::whole(least - received)),
        _ => String::new(),
    };
    expected + &distance
}

fn times_of(times: u128) -> String {
    format!("{} times", number::whole(times))
}

fn no_verdict(report: &Report) -> String {
    if let Some(text) = missing_spans(report) {
        return format!("No verdict. {text}");
    }
    if is_mixed(report) {
        return match report.operations.requested {
            1 => "No verdict. Somebody switched the settings while the request was under way.".to_owned(),
            requests => format!(
                "No verdict. {} of {} met a switch of the settings.",
                number::whole(report.operations.mixed),
                number::of(requests, "request")
            ),
        };
    }
    let why = report.reasons.first().map_or_else(
        || "The evidence is not whole.".to_owned(),
        |why| number::in_sentence(&sentence(&why.text)),
    );
    format!("No verdict. {why}")
}

/// Whether a switch of the settings is the first reason for no verdict: what arrived is then not what was predicted, and
/// need not be.
fn is_mixed(report: &Report) -> bool {
    report.operations.mixed > 0 && report.reasons.first().is_some_and(|reason| reason.kind == "mixed")
}

/// The sentence for spans that never came, if that is the first reason.
fn missing_spans(report: &Report) -> Option<String> {
    if report.reasons.first()?.kind != "missing_spans" {
        return None;
    }
    report.services.iter().rev().find_map(|row| {
        let (received, traced) = (row.received?, row.traced?);
        let missing = received.checked_sub(traced).filter(|missing| *missing > 0)?;
        let name = shown(&row.service);
        Some(format!(
            "{} of {name}'s {} never came; the ledger counted {}.",
            number::whole(missing),
            number::of(received, "span"),
            number::of(received, "call")
        ))
    })
}

/// The chain with what is declared, what is hidden, and what arrived. A proxy stands in the arrow of its caller.
fn chain(report: &Report) -> Vec<String> {
    let declared = picture::declared(&report.chain);
    let attempts = |caller: &str| {
        let found = declared.iter().find(|(name, _)| name == caller);
        found.map_or(1, |(_, attempts)| *attempts)
    };
    let link_to = |service: &str| report.links.iter().find(|link| link.to == service);
    let mark = |link: Option<&Link>| link.and_then(|link| hidden::mark(report, link));
    let client = report.links.first().map_or("client", |link| link.from.as_str());
    let mut nodes = vec![Node {
        name: client.to_owned(),
        under: String::new(),
    }];
    let mut arrows = Vec::new();
    let mut caller = client;
    for row in picture::services(report) {
        let last = link_to(&row.service);
        arrows.push(match last.filter(|link| link.from != caller) {
            Some(last) => picture::layers(
                attempts(caller),
                mark(link_to(&last.from)),
                attempts(&last.from),
                mark(Some(last)),
            ),
            None => picture::layers(attempts(caller), None, 1, mark(last)),
        });
        nodes.push(Node {
            name: row.service.clone(),
            under: picture::under(row.received),
        });
        caller = &row.service;
    }
    picture::chain(&nodes, &arrows)
}

/// What the counts have to tell besides, each sentence with its label.
pub(in crate::render) fn told(report: &Report) -> Vec<(&str, String)> {
    let services = picture::services(report).map(|row| row.service.as_str());
    let calls = fan_out::sentences(&report.scenario, services);
    let counted = [
        ("work done", work_done(report)),
        ("in vain", in_vain(report)),
        ("drawn", drawn(report)),
    ];
    let notes = report.notes.iter();
    let notes = notes.map(|note| (note.kind.as_str(), sanitize_message(&note.text)));
    let mut told: Vec<(&str, String)> = calls.into_iter().map(|text| ("calls", text)).collect();
    told.extend(counted.into_iter().filter_map(|(label, text)| Some((label, text?))));
    told.extend(notes);
    told.extend(client_faults(report).map(|text| ("fault", text)));
    told
}

/// What else the counts have to tell.
pub(super) fn details(screen: &mut Screen, report: &Report) {
    for (label, text) in told(report) {
        screen.lines(words::labelled(label, &text));
    }
    refusals(screen, report);
    let arrivals = odd_arrivals(report);
    if !arrivals.is_empty() {
        screen.lines(words::labelled("arrivals", &arrivals));
    }
    if !report.receipts_sample.complete && report.receipts_sample.of > 0 {
        let Operations { requested, .. } = report.operations;
        let of = number::of(report.receipts_sample.of.max(requested), "request");
        let text = format!("a sample: {} of {of}", number::whole(report.receipts_sample.operations));
        screen.lines(words::labelled("receipts", &text));
    }
}

/// Reasons that end a call however many attempts it has.
const LEFT: [&str; 3] = ["deadline", "cancelled", "committed"];

/// The faults that sat in a caller's own way out.
fn client_faults(report: &Report) -> impl Iterator<Item = String> {
    let services = report.scenario.get("services").and_then(serde_json::Value::as_object);
    report.services.iter().filter_map(move |row| {
        let fault: ServiceFault = services?.get(&row.service)?.get("fault")?.as_str()?.parse().ok()?;
        let (caller, inside) = fault.side?;
        let client = ClientFault {
            fault: fault.fault,
            inside,
        };
        Some(words::client_fault(&caller, &client.to_string()))
    })
}

/// A count and its name.
type Counted<'a> = (&'a str, u64);

/// What links did not retry, and what failed on them that nothing asked for.
fn refusals(screen: &mut Screen, report: &Report) {
    let declared = picture::declared(&report.chain);
    let mut refused: Vec<(&Link, Vec<Counted<'_>>)> = Vec::new();
    for link in &report.links {
        // Who makes one attempt anyway retries nothing, whatever came first.
        let once = declared
            .iter()
            .any(|(name, attempts)| *name == link.from && *attempts <= 1);
        // An Envoy's refusals are told by its own statistics.
        let envoy = report
            .services
            .iter()
            .any(|row| row.service == link.from && row.envoy.is_some());
        let counts = link.not_retried.iter();
        let counts: Vec<Counted<'_>> = counts
            .map(|(reason, calls)| (reason.as_str(), *calls))
            .filter(|(reason, calls)| *calls > 0 && !envoy && (!once || LEFT.contains(reason)))
            .collect();
        // `limit` is every retry loop that ran to its end: no news by itself, and what completes the others.
        if counts.iter().any(|(reason, _)| *reason != "limit") {
            refused.push((link, counts));
        }
    }
    let reasons = |counts: &[Counted<'_>]| {
        let mut counts = counts.to_vec();
        counts.sort_by_key(|(reason, _)| *reason == "limit");
        let each = counts
            .iter()
            .map(|(reason, calls)| format!("{}, {}", number::whole(*calls), no_retry(reason)));
        each.collect::<Vec<_>>().join("; ")
    };
    for text in on_links(&refused, reasons) {
        screen.lines(words::labelled("not retried", &text));
    }
    let failed: Vec<(&Link, Vec<Counted<'_>>)> = report
        .links
        .iter()
        .filter_map(|link| Some((link, vec![("", link.transport_errors.filter(|errors| *errors > 0)?)])))
        .collect();
    let failures = |counts: &[Counted<'_>]| {
        let errors = counts.iter().map(|(_, errors)| errors).sum::<u64>();
        format!("{} that no fault asked for", number::of(errors, "failure"))
    };
    for text in on_links(&failed, failures) {
        screen.lines(words::labelled("transport", &text));
    }
}

/// A text for each link; one for all together where they would be many.
fn on_links(rows: &[(&Link, Vec<Counted<'_>>)], text: impl Fn(&[Counted<'_>]) -> String) -> Vec<String> {
    let name = |link: &Link| format!("{} > {}", shown(&link.from), shown(&link.to));
    match rows {
        [(first, _), .., (last, _)] if rows.len() > SINGLE => {
            let all = text(&together(rows.iter().flat_map(|(_, counts)| counts)));
            vec![format!(
                "{} links from {} down to {}: {all}",
                rows.len(),
                name(first),
                name(last)
            )]
        }
        rows => rows
            .iter()
            .map(|(link, counts)| format!("{}: {}", name(link), text(counts)))
            .collect(),
    }
}

/// Counts of the same name added up.
fn together<'a>(counts: impl Iterator<Item = &'a Counted<'a>>) -> Vec<Counted<'a>> {
    let mut all: Vec<Counted<'a>> = Vec::new();
    for (name, count) in counts {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum = sum.saturating_add(*count),
            None => all.push((name, *count)),
        }
    }
    all
}

/// What became of arrivals besides being answered: `inventory: 6 late, 1 ended by the deadline`.
fn odd_arrivals(report: &Report) -> String {
    let odd = |row: &Service| -> Vec<Counted<'_>> {
        let counts = [
            ("late", row.late),
            ("left by the caller", row.dropped),
            ("ended by the deadline", row.expired),
            ("never finished", row.in_flight),
        ];
        let counts = counts.into_iter();
        counts
            .filter_map(|(what, count)| Some((what, count.filter(|count| *count > 0)?)))
            .collect()
    };
    let rows = report.services.iter().map(|row| (row, odd(row)));
    let rows: Vec<(&Service, Vec<Counted<'_>>)> = rows.filter(|(_, counts)| !counts.is_empty()).collect();
    let text = |counts: &[Counted<'_>]| {
        let each = counts
            .iter()
            .map(|(what, count)| format!("{} {what}", number::whole(*count)));
        each.collect::<Vec<_>>().join(", ")
    };
    if rows.len() > SINGLE {
        let all = together(rows.iter().flat_map(|(_, counts)| counts));
        let proxies = rows.iter().any(|(row, _)| row.kind == ServiceKind::Sidecar);
        let what = if proxies { "services and proxies" } else { "services" };
        return format!("at {} {what}: {}", rows.len(), text(&all));
    }
    let each = rows
        .iter()
        .map(|(row, counts)| format!("{}: {}", shown(&row.service), text(counts)));
    each.collect::<Vec<_>>().join("; ")
}

/// Work that was done more often than requests were answered: what a retry repeats.
fn work_done(report: &Report) -> Option<String> {
    let bottom = report.services.last()?;
    let done = bottom.work_done.filter(|done| *done > report.operations.ok)?;
    Some(format!(
        "{} at {}, {} answered",
        number::of(done, "time"),
        shown(&bottom.service),
        number::of(report.operations.ok, "request")
    ))
}

/// What the answered requests did not need. Where none was answered, that is everything, and no news; of one request the
/// picture shows it.
fn in_vain(report: &Report) -> Option<String> {
    let work = report.work.filter(|work| work.in_vain > 0 && work.needed > 0)?;
    if report.operations.requested == 1 {
        return None;
    }
    let arrivals = number::of(work.arrivals, "arrival");
    Some(format!("{} of {arrivals} at the services", number::whole(work.in_vain)))
}

/// That the count is that of one seed: draws were replayed, and the average is another number.
pub(super) fn drawn(report: &Report) -> Option<String> {
    let predicted = &report.services.last()?.predicted;
    let (Count::Of(count), Some(mean)) = (predicted.max, predicted.mean) else {
        return None;
    };
    let replayed = predicted.kind == PredictionKind::Exact && predicted.min == predicted.max;
    (replayed && (mean - count as f64).abs() > 1e-6 * mean.abs()).then(|| {
        format!(
            "with seed {}; {} would arrive on average",
            report.seed,
            number::mean(mean)
        )
    })
}

/// Why a failed attempt was not followed by another.
fn no_retry(reason: &str) -> String {
    match reason {
        "limit" => "attempts used up",
        "code" => "the code is not retried",
        "committed" => "the answer had begun",
        "deadline" => "the deadline had passed",
        "cancelled" => "the caller had left",
        "throttle" => "the throttle was on",
        "budget" => "the budget was spent",
        "pushback" => "the server said not to",
        "not_first_try" => "the call was a retry itself",
        other => return shown(other),
    }
    .to_owned()
}

/// "2 OK, 1 failed: UNAVAILABLE".
pub(in crate::render) fn outcome(requests: &Operations) -> String {
    let mut parts = Vec::new();
    if requests.ok > 0 || requests.failed == 0 {
        parts.push(format!("{} OK", number::whole(requests.ok)));
    }
    if requests.failed > 0 {
        let one = requests.by_code.len() == 1;
        let codes: Vec<String> = requests
            .by_code
            .iter()
            .map(|(code, count)| {
                if one {
                    shown(code)
                } else {
                    format!("{} {}", number::whole(*count), shown(code))
                }
            })
            .collect();
        let codes = if codes.is_empty() {
            String::new()
        } else {
            format!(": {}", codes.join(", "))
        };
        parts.push(format!("{} failed{codes}", number::whole(requests.failed)));
    }
    for (count, what) in [
        (requests.unfinished, "without an end"),
        (requests.not_sent, "never sent"),
        (requests.mixed, "met a switch of the settings"),
    ] {
        if count > 0 {
            parts.push(format!("{} {what}", number::whole(count)));
        }
    }
    parts.join(", ")
}

/// Why there is no verdict, or how it is known that something is wrong, and the way on: sentences, with the label of the first.
/// What the headline says already is not said again.
pub(in crate::render) fn why(report: &Report) -> Vec<(&'static str, Vec<String>)> {
    let label = match report.verdict {
        Verdict::AsPredicted => return Vec::new(),
        Verdict::NotAsPredicted => "How we know",
        Verdict::Incomplete => "Why",
    };
    let has = |kind: &str| report.reasons.iter().any(|reason| reason.kind == kind);
    let known = hidden::how_we_know(report);
    let besides = if known.is_empty() { label } else { "Besides" };
    // A reason that is the headline already is not said twice, nor one that is another in other words.
    let said = usize::from(report.verdict == Verdict::Incomplete && missing_spans(report).is_none());
    let more = report.reasons.iter().skip(said);
    let more = more.filter(|reason| !(reason.kind == "requests_sent" && has("not_sent")));
    let more = more.filter(|reason| !hidden::tells(report, reason));
    let mut more: Vec<String> = more
        .map(|reason| number::in_sentence(&sentence(&reason.text)))
        .collect();
    let left = more.len().saturating_sub(REASONS);
    if left > 1 {
        more.truncate(REASONS);
        more.push(format!(
            "{} more are in the report (--json).",
            number::whole(left as u64)
        ));
    }
    let mut why = vec![(label, known), (besides, more)];
    let mut way_on = |text: &str| why.push(("Way on", vec![text.to_owned()]));
    if has("deadline_passed") || has("unanswered") {
        way_on("fewer requests at once (-c) or --deadline none.");
    }
    let by_the_clock = report.scenario.pointer("/load/rate").is_some();
    if by_the_clock && has("not_sent") && !has("interrupted") {
        way_on("a lower --rate, or more requests at once (-c): those in the way were never sent.");
    }
    // What was not sent cannot have arrived: the prediction is that of the whole plan.
    let whole = report.operations.not_sent == 0 && !has("interrupted") && !has("not_sent");
    if report.verdict == Verdict::Incomplete && has("mixed") {
        way_on("once more, while nobody switches.");
    } else if report.verdict == Verdict::Incomplete && whole {
        let (label, text) = what_holds(report);
        why.push((label, vec![text]));
    }
    why.extend(hidden::look_for(report).map(|text| ("Look for", vec![text])));
    why.retain(|(_, sentences)| !sentences.is_empty());
    why
}

fn what_holds(report: &Report) -> (&'static str, String) {
    let names = |wanted: &dyn Fn(&Service) -> bool| -> Vec<String> {
        let rows = report.services.iter().filter(|row| wanted(row));
        rows.map(|row| shown(&row.service)).collect()
    };
    let unread = names(&|row| row.received.is_none());
    let parted = names(&|row| row.received.is_some_and(|received| !row.predicted.agrees(received)));
    let (label, mut text) = match (parted.is_empty(), unread.is_empty()) {
        (true, true) => ("What holds", "received agrees with the prediction.".to_owned()),
        (true, false) => (
            "What holds",
            format!(
                "received agrees with the prediction, but is unknown at {}.",
                unread.join(", ")
            ),
        ),
        (false, _) => (
            "What differs",
            format!("received does not agree with the prediction at {}.", parted.join(", ")),
        ),
    };
    // A real Envoy makes no spans: it has nothing to confirm.
    let untraced = |row: &Service| row.kind == ServiceKind::Sidecar && row.traced.is_none();
    let mut traced = report.services.iter().filter(|row| !untraced(row));
    let confirmed = traced.all(|row| row.traced.is_some() && row.traced == row.received);
    text.push_str(if confirmed {
        " Traced says the same as received."
    } else {
        " Traced cannot confirm it."
    });
    (label, text)
}

/// What marks an expectation that was missed.
pub(in crate::render) const MISSED: &str = "NOT EXPECTED";

/// An expectation in its line; `of` says whose it is.
pub(super) fn expectation(expected: &Expected, of: &str, style: Style) -> Vec<String> {
    let text = if expected.text.trim().is_empty() {
        &expected.expression
    } else {
        &expected.text
    };
    if expected.met {
        // The label says "expected" already.
        let said = format!("You expected {}. ", expected.expression);
        let text = text.strip_prefix(&said).map_or_else(
            || sentence(text),
            |found| sentence(&format!("{}: {found}", expected.expression)),
        );
        return words::labelled("expected", &format!("{of}{text}"));
    }
    let mut lines = words::labelled(MISSED, &format!("{of}{}", sentence(text)));
    if let Some(first) = lines.first_mut() {
        *first = first.replacen(MISSED, &style.warning(MISSED), 1);
    }
    lines
}

fn repeat(screen: &mut Screen, report: &Report, program: &str) {
    let mut lines = command::wrapped(&format!("{:<LABEL$}", "repeat it"), program, &report.command);
    end_with_exit(&mut lines, report.exit_code());
    screen.lines(lines);
}

/// Puts the exit code behind the last line, or below it.
pub(super) fn end_with_exit(lines: &mut Vec<String>, code: u8) {
    let exit = format!("exit {code}");
    match lines.last_mut() {
        Some(last) if last.len() + 3 <= EXIT => *last = format!("{last:<EXIT$}{exit}"),
        _ => lines.push(format!("{:EXIT$}{exit}", "")),
    }
}
