//! The screen of a switch.

use super::{
    super::{
        Style, command, number, picture, prediction,
        words::{self, Screen, WIDTH},
    },
    offers, settings, spaced,
};
use crate::report::{Changed, Prediction, Switched};

/// What a switch changed, and what the next request will cause.
pub fn switched(switched: &Switched, program: &str, style: Style) -> String {
    let mut screen = Screen::default();
    let prediction = &switched.prediction;
    let nothing = switched.changes.is_empty();
    let headline = if nothing {
        format!("Nothing changed: {}", prediction::headline(prediction))
    } else if switched.changes.iter().any(is_fault) {
        prediction::headline_when(prediction, now(prediction).as_deref())
    } else {
        prediction::headline(prediction)
    };
    screen.headline(&headline, style);
    screen.gap();
    screen.lines(prediction::chain(prediction));
    screen.lines(prediction::chances(prediction));
    screen.gap();
    let everywhere = number::of(prediction.services.len() as u64, "service");
    let settings = settings(switched.generation);
    let text = if nothing {
        format!("Still in force at all {everywhere}: {settings}.")
    } else {
        format!("In force at all {everywhere} now: {settings}. What is different:")
    };
    screen.lines(words::wrapped("", 0, &text));
    screen.lines(changes(&switched.changes));
    screen.gap();
    offer(&mut screen, switched, program);
    screen.finish()
}

/// Whether a service misbehaves otherwise now, by itself or in its caller.
fn is_fault(change: &Changed) -> bool {
    change.setting == "fault" || change.setting == "client_fault"
}

/// What is true now, where a fault was switched; `None` where the usual condition says it better.
fn now(prediction: &Prediction) -> Option<String> {
    let faults = faults(prediction);
    let bottom = &prediction.bottom.service;
    match faults.as_slice() {
        [] => Some(": nothing fails now".to_owned()),
        [(service, fault)] => {
            let code = match fault.strip_prefix("fail:code=") {
                Some(code) if !code.contains(',') => code,
                None if *fault == "fail" => "UNAVAILABLE",
                _ => return None,
            };
            let who = if service == bottom {
                "it".to_owned()
            } else {
                words::shown(service)
            };
            Some(format!(": {who} answers {} now", words::shown(code)))
        }
        _ => None,
    }
}

/// The services that misbehave, and how, from the top.
fn faults(prediction: &Prediction) -> Vec<(&str, &str)> {
    let services = prediction.services.iter().filter_map(|row| {
        let fault = prediction
            .scenario
            .get("services")?
            .get(&row.service)?
            .get("fault")?
            .as_str()?;
        (fault != "none").then_some((row.service.as_str(), fault))
    });
    services.collect()
}

/// One row a change: where, what, from what to what.
fn changes(changes: &[Changed]) -> Vec<String> {
    let setting = |change: &Changed| words::shown(&change.setting).replace('_', " ");
    let settings = changes.iter().map(|change| setting(change).len() + 3).max();
    let settings = settings.unwrap_or(0).min(30);
    let names = picture::name_columns(
        changes.iter().map(|change| change.service.as_str()),
        WIDTH - settings - 20,
    );
    let rows = changes.iter().flat_map(|change| {
        let first = format!(
            "  {:<names$}{:<settings$}",
            words::name(&change.service, names - 1),
            words::name(&setting(change), settings - 1)
        );
        let values = format!("{} -> {}", spaced(&change.from), spaced(&change.to));
        words::wrapped(&first, first.len(), &values)
    });
    rows.collect()
}

/// See it, and the way back.
fn offer(screen: &mut Screen, switched: &Switched, program: &str) {
    let mut commands = vec!["call".to_owned()];
    let mut captions = vec!["see what arrives"];
    if let Some((command, caption)) = back(switched) {
        commands.push(command);
        captions.push(caption);
    }
    commands.push("status".to_owned());
    captions.push("what has arrived so far");
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    offers(screen, program, &switched.command, &commands, &[&captions]);
}

/// The command that undoes a switch, where one does; where nothing changed, the one that changes something.
fn back(switched: &Switched) -> Option<(String, &'static str)> {
    let changes = &switched.changes;
    let in_force = faults(&switched.prediction);
    let of = |setting: &str| {
        changes
            .iter()
            .filter(|change| change.setting == setting)
            .collect::<Vec<_>>()
    };
    let faults = of("fault");
    let broke = |change: &Changed| is_fault(change) && change.from == "none";
    if changes.is_empty() || changes.iter().all(broke) {
        if in_force.is_empty() {
            return Some(("fail".to_owned(), "break it"));
        }
        // What was broken before stays so on the way back.
        let is_ours = |(service, fault): &(&str, &str)| {
            let in_caller = |change: &Changed| {
                let side = format!("side=client@{}", change.service);
                fault.split([':', ',', '+']).any(|key| key == side)
            };
            let of_itself = |change: &Changed| change.setting == "fault" && change.service == *service;
            changes
                .iter()
                .any(|change| of_itself(change) || (change.setting == "client_fault" && in_caller(change)))
        };
        let is_all = changes.is_empty() || in_force.iter().all(is_ours);
        let ours = in_force.iter().filter(|fault| is_ours(fault));
        let names = ours.map(|(service, _)| format!(" {}", command::word(service)));
        let names = if is_all { String::new() } else { names.collect() };
        return Some((format!("heal{names}"), "repair it"));
    }
    if faults.len() == changes.len() && in_force.is_empty() {
        let broken: Vec<String> = faults
            .iter()
            .map(|change| command::word(&format!("{}={}", change.service, change.from)))
            .collect();
        return Some((format!("fail {}", broken.join(" ")), "break it again"));
    }
    let attempts = of("attempts");
    let callers = switched.prediction.services.len().saturating_sub(1);
    let from = &attempts.first()?.from;
    // Who was not changed had the new number before.
    let all = attempts.len() == changes.len() && attempts.len() == callers;
    (all && attempts.iter().all(|change| change.from == *from))
        .then(|| (format!("retry {}", command::word(from)), "as it was"))
}
