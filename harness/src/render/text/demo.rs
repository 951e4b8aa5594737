//! The headline comparison: every hop retries, and one owner retries.

use super::{
    Style, evidence, next, number,
    picture::{self, GROUPED},
    run, traces,
    words::{self, Screen, WIDTH, sentence, shown},
};
use crate::report::{Comparison, Report, Verdict};
use std::fmt::Write as _;

/// The headline comparison. The first run is the one in which every hop retries, the second the one with an owner.
pub fn demo(comparison: &Comparison, program: &str, style: Style) -> String {
    let [every, one, ..] = comparison.runs.as_slice() else {
        return super::comparison(comparison, program, style);
    };
    let owner = shown(&owner(one));
    let mut screen = Screen::default();
    screen.headline(&headline(every, one, &owner), style);
    screen.gap();
    screen.lines(words::wrapped("", 0, &explanation(every, one)));
    screen.gap();
    screen.lines(sides(every, one, &owner));
    screen.gap();
    evidence::table(&mut screen, &[("every hop", every), ("one owner", one)], style);
    screen.gap();
    for (label, report) in [("every hop", every), ("one owner", one)] {
        if report.verdict == Verdict::AsPredicted {
            continue;
        }
        // The first line is that of the worse run; what it rests on stands here.
        screen.lines(words::labelled(label, &run::headline(report)));
        for reason in &report.reasons {
            screen.lines(words::labelled("", &number::in_sentence(&sentence(&reason.text))));
        }
    }
    screen.gap();
    if comparison
        .runs
        .iter()
        .all(|report| report.operations.ok == 0 && report.verdict == Verdict::AsPredicted)
    {
        let bottom = every
            .services
            .last()
            .map_or_else(String::new, |row| shown(&row.service));
        let requests = if every.operations.requested == 1 {
            "this request"
        } else {
            "these requests"
        };
        let text = format!("Neither saves {requests}, {bottom} stays down. They differ in the load.");
        screen.lines(words::wrapped("", 0, &text));
        screen.gap();
    }
    traces::of_runs(&mut screen, comparison, &["every hop", "one owner"]);
    screen.gap();
    offer(&mut screen, program);
    screen.finish()
}

fn owner(report: &Report) -> String {
    let named = report
        .receipts
        .first()
        .map(|receipt| receipt.owner.as_str())
        .filter(|owner| *owner != "none");
    named
        .or(report.services.first().map(|row| row.service.as_str()))
        .unwrap_or("one caller")
        .to_owned()
}

fn headline(every: &Report, one: &Report, owner: &str) -> String {
    let worse = if one.exit_code() > every.exit_code() {
        one
    } else {
        every
    };
    if worse.verdict != Verdict::AsPredicted {
        return run::headline(worse);
    }
    let received = |report: &Report| report.services.last().and_then(|row| row.received);
    match (every.services.last(), received(every), received(one)) {
        (Some(bottom), Some(many), Some(few)) => format!(
            "{} arrived at {} for {}. If only {owner} retries: {}.",
            number::of(many, "call"),
            shown(&bottom.service),
            number::of(every.operations.requested, "request"),
            number::whole(few)
        ),
        _ => run::headline(every),
    }
}

fn explanation(every: &Report, one: &Report) -> String {
    let mut text = String::new();
    let bottom = every.services.last();
    let codes = |report: &Report, service: &str| -> Vec<String> {
        let arrivals = report.receipts.iter().flat_map(|receipt| &receipt.attempts);
        let mut codes: Vec<String> = arrivals
            .filter(|arrival| arrival.service == service)
            .map(|arrival| arrival.code.clone())
            .collect();
        codes.dedup();
        codes
    };
    if let Some(bottom) = bottom
        && let [code] = codes(every, &bottom.service).as_slice()
    {
        text = format!("{} answers {}. ", shown(&bottom.service), shown(code));
    }
    let attempts = picture::declared(&every.chain)
        .iter()
        .map(|(_, attempts)| *attempts)
        .max()
        .unwrap_or(1);
    if attempts > 1 {
        let _ = write!(
            text,
            "A caller that retries makes {attempts} attempts, the first try and {}. ",
            if attempts == 2 {
                "1 retry".to_owned()
            } else {
                format!("{} retries", attempts - 1)
            }
        );
    }
    let all_failed = [every, one].iter().all(|report| {
        !report.receipts.is_empty()
            && report
                .receipts
                .iter()
                .all(|receipt| receipt.attempts.iter().all(|arrival| arrival.code != "OK"))
    });
    text.push_str(if all_failed {
        "Every x below is a call that arrived, and failed."
    } else {
        "Below, x is a call that arrived and failed, o one that was answered."
    });
    text
}

/// Both pictures beside each other.
fn sides(every: &Report, one: &Report, owner: &str) -> Vec<String> {
    let (left, right) = (picture::rows(every), picture::rows(one));
    let names = picture::name_columns(left.iter().map(|row| row.service.as_str()), 13);
    let counts = left.iter().map(|row| row.count.len()).max().unwrap_or(0).max(2);
    let second = names + GROUPED + 3 + counts + 3;
    let room = WIDTH - 1 - second;
    let fitting = |content: &str, width: usize| {
        if content.len() <= width {
            content.to_owned()
        } else if content.starts_with('#') {
            "#".repeat(width)
        } else {
            String::new()
        }
    };
    let title = format!("only {owner} retries");
    let title = if title.len() <= WIDTH - second {
        title
    } else {
        "one owner retries".to_owned()
    };
    let mut lines = vec![format!(
        "{:names$}{:<width$}{title}",
        "",
        "every hop retries",
        width = second - names
    )];
    for (place, row) in left.iter().enumerate() {
        let name = words::name(&row.service, names - 1);
        let mut line = format!(
            "{name:<names$}{:<GROUPED$}   {:>counts$}",
            fitting(&row.content, GROUPED),
            row.count
        );
        if let Some(row) = right.get(place) {
            let content = room.saturating_sub(row.count.len() + 1);
            let _ = write!(line, "   {:<content$} {}", fitting(&row.content, content), row.count);
        }
        lines.push(line);
    }
    lines
}

/// What to type next.
fn offer(screen: &mut Screen, program: &str) {
    const COMMANDS: [&str; 3] = ["up", "predict 'web x3 > api x3 > db down'", "run --fault fail:first=2"];
    const CAPTIONS: [&[&str]; 3] = [
        &["break it, repair it", "your chain", "it recovers on the third try"],
        &["break it, repair it", "your chain", "it recovers on try 3"],
        &["break it", "your chain", "it recovers"],
    ];
    next::offers(screen, program, &COMMANDS, &CAPTIONS);
}
