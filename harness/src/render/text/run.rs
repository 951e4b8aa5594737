//! The screen of one run.

use super::{
    Style, command, evidence, number,
    picture::{self, Node},
    traces,
    words::{self, LABEL, Screen, sentence, shown},
};
use crate::report::{Count, Expected, Link, Operations, Predicted, PredictionKind, Report, Service, Verdict};
use crate::sanitize::sanitize_message;
use chassis::fault::{ClientFault, ServiceFault};

/// Column of the exit code in the last line.
const EXIT: usize = 72;

/// One run: the answer, the picture, the evidence, what became of the requests, how to repeat it.
pub fn run(report: &Report, program: &str, style: Style) -> String {
    let mut screen = Screen::default();
    counts(&mut screen, report, &headline(report), style);
    screen.lines(words::labelled("requests", &outcome(&report.operations)));
    details(&mut screen, report);
    reasons(&mut screen, report);
    for expected in &report.expected {
        screen.lines(expectation(expected, "", style));
    }
    traces::of_requests(&mut screen, report);
    repeat(&mut screen, report, program);
    screen.finish()
}

/// The answer, the picture, the evidence.
pub(super) fn counts(screen: &mut Screen, report: &Report, headline: &str, style: Style) {
    screen.headline(headline, style);
    screen.gap();
    for link in broken(report) {
        screen.lines(words::wrapped("", 0, &layer(report, link)));
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
}

/// The links where prediction and count parted.
fn broken(report: &Report) -> impl Iterator<Item = &Link> {
    report.links.iter().filter(|link| evidence::is_here(report, link))
}

/// Why there is no verdict, or how it is known that something is wrong, and what to look for.
pub(super) fn reasons(screen: &mut Screen, report: &Report) {
    why(screen, report);
    if broken(report).any(|link| link.factor.is_some_and(multiplies))
        && let Some(first) = broken(report).next()
    {
        look_for(screen, first);
    }
}

/// The answer in a sentence.
pub(super) fn headline(report: &Report) -> String {
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
    format!(
        "{} arrived at {name} for {requests}, as predicted.",
        number::of(received, "call")
    )
}

fn not_as_predicted(report: &Report, bottom: &Service) -> String {
    let differs = |row: &&Service| row.received.is_some_and(|received| !agrees(&row.predicted, received));
    // The bottom service first: that is where a multiplication shows most.
    match report.services.iter().rev().find(differs) {
        Some(row) => {
            let received = row.received.unwrap_or(0);
            format!(
                "{} arrived at {}. {}",
                number::of(received, "call"),
                shown(&row.service),
                difference(received.into(), &row.predicted)
            )
        }
        None => format!(
            "{} arrived at {}, as predicted, but not all else came out.",
            number::of(bottom.received.unwrap_or(0), "call"),
            shown(&bottom.service)
        ),
    }
}

fn agrees(predicted: &Predicted, received: u64) -> bool {
    let received = Count::Of(received.into());
    predicted.min <= received && received <= predicted.max
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

/// What a link that parts prediction and count does, in a sentence.
fn layer(report: &Report, link: &Link) -> String {
    let (from, to) = (shown(&link.from), shown(&link.to));
    let more = link
        .received
        .zip(link.sent)
        .map_or(0, |(received, sent)| received.saturating_sub(sent));
    match link.factor {
        Some(factor) if multiplies(factor) => format!(
            "Something between {from} and {to} makes {} calls out of 1, and no configuration declares it.",
            number::factor(factor)
        ),
        _ if more > 0 && report.reasons.iter().any(|reason| reason.kind == "strangers") => {
            let carried = if more == 1 { "carries" } else { "carry" };
            format!(
                "{} at {to} {carried} no attempt path of this run: somebody else called it.",
                number::of(more, "call")
            )
        }
        _ if more > 0 => {
            format!(
                "{} more arrived at {to} than {from} sent, and nothing in the configuration sends that.",
                number::of(more, "call")
            )
        }
        _ => format!("Calls that {from} sent never arrived at {to}, and no fault asks for that."),
    }
}

/// Whether a factor is what a layer that nobody declared makes: every call several times.
fn multiplies(factor: f64) -> bool {
    factor > 1.0 && factor.fract() == 0.0
}

/// The chain with what is declared, what is hidden, and what arrived.
fn chain(report: &Report) -> Vec<String> {
    let declared = picture::declared(&report.chain);
    let attempts = |caller: &str| {
        declared
            .iter()
            .find(|(name, _)| name == caller)
            .map_or(1, |(_, attempts)| *attempts)
    };
    let arrows: Vec<String> = report
        .links
        .iter()
        .map(|link| {
            let hidden = link
                .factor
                .filter(|factor| multiplies(*factor) && evidence::is_here(report, link));
            picture::arrow(attempts(&link.from), hidden.map(number::factor).as_deref())
        })
        .collect();
    let client = report.links.first().map_or("client", |link| link.from.as_str());
    let mut nodes = vec![Node {
        name: client.to_owned(),
        under: String::new(),
    }];
    nodes.extend(report.services.iter().map(|row| Node {
        name: row.service.clone(),
        under: picture::under(row.received),
    }));
    picture::chain(&nodes, &arrows)
}

/// What else the counts have to tell.
pub(super) fn details(screen: &mut Screen, report: &Report) {
    for (label, text) in [("work done", work_done(report)), ("drawn", drawn(report))] {
        if let Some(text) = text {
            screen.lines(words::labelled(label, &text));
        }
    }
    for note in &report.notes {
        screen.lines(words::labelled(&note.kind, &sanitize_message(&note.text)));
    }
    for text in client_faults(report) {
        screen.lines(words::labelled("fault", &text));
    }
    let declared = picture::declared(&report.chain);
    for link in &report.links {
        // Who makes one attempt anyway retries nothing, whatever came first.
        let once = declared
            .iter()
            .any(|(name, attempts)| *name == link.from && *attempts <= 1);
        // `limit` is every retry loop that ran to its end: no news by itself, and what completes the others.
        let mut refused: Vec<(&String, &u64)> = link
            .not_retried
            .iter()
            .filter(|(reason, calls)| **calls > 0 && (!once || LEFT.contains(&reason.as_str())))
            .collect();
        refused.sort_by_key(|(reason, _)| *reason == "limit");
        if refused.iter().any(|(reason, _)| *reason != "limit") {
            let refused: Vec<String> = refused
                .iter()
                .map(|(reason, calls)| format!("{}, {}", number::whole(**calls), no_retry(reason)))
                .collect();
            let text = format!("{} > {}: {}", shown(&link.from), shown(&link.to), refused.join("; "));
            screen.lines(words::labelled("not retried", &text));
        }
        if let Some(errors) = link.transport_errors.filter(|errors| *errors > 0) {
            let text = format!(
                "{} > {}: {}",
                shown(&link.from),
                shown(&link.to),
                number::of(errors, "failure")
            );
            screen.lines(words::labelled("transport", &format!("{text} that no fault asked for")));
        }
    }
    let odd: Vec<String> = report.services.iter().filter_map(odd_arrivals).collect();
    if !odd.is_empty() {
        screen.lines(words::labelled("arrivals", &odd.join("; ")));
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

/// What became of a service's arrivals besides being answered: `inventory: 6 late, 1 ended by the deadline`.
fn odd_arrivals(row: &Service) -> Option<String> {
    let counts = [
        (row.late, "late"),
        (row.dropped, "left by the caller"),
        (row.expired, "ended by the deadline"),
        (row.in_flight, "never finished"),
    ];
    let counted = counts.into_iter().filter_map(|(count, what)| {
        let count = count.filter(|count| *count > 0)?;
        Some(format!("{} {what}", number::whole(count)))
    });
    let counted: Vec<String> = counted.collect();
    (!counted.is_empty()).then(|| format!("{}: {}", shown(&row.service), counted.join(", ")))
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

/// That the count is that of one seed: draws were replayed, and the average is another number.
fn drawn(report: &Report) -> Option<String> {
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
pub(super) fn outcome(requests: &Operations) -> String {
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

/// Why there is no verdict, or how it is known that something is wrong.
fn why(screen: &mut Screen, report: &Report) {
    let label = match report.verdict {
        Verdict::AsPredicted => return,
        Verdict::NotAsPredicted => "How we know",
        Verdict::Incomplete => "Why",
    };
    let has = |kind: &str| report.reasons.iter().any(|reason| reason.kind == kind);
    // A reason that is the headline already is not said twice, nor one that is another in other words.
    let said = usize::from(report.verdict == Verdict::Incomplete && missing_spans(report).is_none());
    let more = report.reasons.iter().skip(said);
    let more = more.filter(|reason| !(reason.kind == "requests_sent" && has("not_sent")));
    for (place, reason) in more.enumerate() {
        screen.lines(words::labelled(
            if place == 0 { label } else { "" },
            &number::in_sentence(&sentence(&reason.text)),
        ));
    }
    if has("deadline_passed") {
        screen.lines(words::labelled(
            "Way on",
            "fewer requests at once (-c) or --deadline none.",
        ));
    }
    let by_the_clock = report.scenario.pointer("/load/rate").is_some();
    if by_the_clock && has("not_sent") && !has("interrupted") {
        let text = "a lower --rate, or more requests at once (-c): those in the way were never sent.";
        screen.lines(words::labelled("Way on", text));
    }
    // What was not sent cannot have arrived: the prediction is that of the whole plan.
    let whole = report.operations.not_sent == 0 && !has("interrupted") && !has("not_sent");
    if report.verdict == Verdict::Incomplete && has("mixed") {
        screen.lines(words::labelled("Way on", "once more, while nobody switches."));
        return;
    }
    if report.verdict == Verdict::Incomplete && whole {
        let (label, text) = what_holds(report);
        screen.lines(words::labelled(label, &text));
    }
}

fn what_holds(report: &Report) -> (&'static str, String) {
    let names = |wanted: &dyn Fn(&Service) -> bool| -> Vec<String> {
        let rows = report.services.iter().filter(|row| wanted(row));
        rows.map(|row| shown(&row.service)).collect()
    };
    let unread = names(&|row| row.received.is_none());
    let parted = names(&|row| row.received.is_some_and(|received| !agrees(&row.predicted, received)));
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
    let confirmed = report
        .services
        .iter()
        .all(|row| row.traced.is_some() && row.traced == row.received);
    text.push_str(if confirmed {
        " Traced says the same as received."
    } else {
        " Traced cannot confirm it."
    });
    (label, text)
}

fn look_for(screen: &mut Screen, link: &Link) {
    let text = format!(
        "a sidecar or gateway on that link, an SDK with retries of its own under {}'s loop, a load balancer that \
         replays.",
        shown(&link.from)
    );
    screen.lines(words::labelled("Look for", &text));
}

/// An expectation in its line; `of` says whose it is.
pub(super) fn expectation(expected: &Expected, of: &str, style: Style) -> Vec<String> {
    const MISSED: &str = "NOT EXPECTED";
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
