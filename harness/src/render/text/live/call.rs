//! The screen of one request to a chain that is up.

use super::{
    super::{
        Style, picture, run, traces,
        words::{self, Screen},
    },
    offers,
};
use crate::report::{Operations, Report};

/// One request to a chain that is up. `said` is what a failure said, in its own words.
pub fn call(report: &Report, said: Option<&str>, program: &str, style: Style) -> String {
    let mut screen = Screen::default();
    run::counts(&mut screen, report, &run::headline(report), style);
    screen.lines(words::labelled("answer", &answer(&report.operations, said)));
    run::details(&mut screen, report);
    run::reasons(&mut screen, report, program);
    for expected in &report.expected {
        screen.lines(run::expectation(expected, "", style));
    }
    traces::of_requests(&mut screen, report);
    screen.gap();
    offer(&mut screen, report, program);
    screen.finish()
}

/// What the caller was told.
fn answer(requests: &Operations, said: Option<&str>) -> String {
    let said = said.map(str::trim).filter(|said| !said.is_empty());
    match (requests.by_code.keys().next(), said) {
        (Some(code), Some(said)) => words::message(&format!("{code}: {said}")),
        (Some(code), None) => words::message(code),
        (None, _) if requests.ok > 0 => "OK".to_owned(),
        (None, _) => "none".to_owned(),
    }
}

/// Repairs what is broken, breaks what works.
fn offer(screen: &mut Screen, report: &Report, program: &str) {
    let broken = is_broken(report);
    let (switch, caption) = if broken {
        ("heal", "repair it")
    } else {
        ("fail", "break it")
    };
    let captions: [&[&str]; 2] = [
        &[caption, "once more", "what has arrived so far"],
        &[caption, "again", "all of it"],
    ];
    offers(screen, program, &report.command, &[switch, "call", "status"], &captions);
}

fn is_broken(report: &Report) -> bool {
    let services = report.scenario.get("services").and_then(serde_json::Value::as_object);
    services.map_or_else(
        || picture::bottom_fault(&report.chain).is_some(),
        |services| {
            let mut faults = services.values().filter_map(|service| service.get("fault")?.as_str());
            faults.any(|fault| fault != "none")
        },
    )
}
