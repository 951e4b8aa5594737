//! The screen of the arithmetic alone: the answer, the picture, what to change (`changes`), what a policy costs and buys
//! (`shares`), what comes every second (`capacity`), what the figures rest on. Start at [`prediction`].

pub(in crate::render) mod capacity;
pub(in crate::render) mod changes;
pub(in crate::render) mod shares;

use super::{
    Style, command, fan_out, number,
    picture::{self, Node},
    words::{self, Screen, WIDTH, sentence, shown},
};
use crate::{
    report::{BudgetCeiling, Count, Distribution, PredictedService, Prediction, PredictionKind, ServiceKind, Tries},
    scenario::{DEFAULT_MAX_CALLS, check_deadline},
};
use chassis::{
    code::{self, Code},
    fault::{At, Kind, ServiceFault},
};

/// Callers with a proxy that have a sentence for themselves, at most.
const SINGLE: usize = 3;

/// What will arrive, the chain with its factors, what to change, what the figures rest on.
pub fn prediction(prediction: &Prediction, program: &str, style: Style) -> String {
    let mut screen = Screen::default();
    let headline = headline(prediction);
    let formula = shown(&prediction.formula);
    let multiplied = formula.contains(" x ");
    if multiplied && headline.len() + 2 + formula.len() <= WIDTH {
        screen.line(style.bold(&format!("{headline}  {formula}")));
    } else {
        screen.headline(&headline, style);
        if multiplied {
            screen.lines(words::wrapped("  ", 2, &formula));
        }
    }
    screen.gap();
    screen.lines(chain(prediction));
    screen.lines(proxies(&prediction.tries_per_call, !is_exact(prediction)));
    screen.lines(chances(prediction));
    screen.gap();
    changes::blocks(&mut screen, prediction);
    screen.gap();
    shares::table(&mut screen, prediction);
    screen.gap();
    screen.lines(budget(prediction).iter().flat_map(|text| words::wrapped("", 0, text)));
    if let Some(text) = capacity::sentence(prediction) {
        screen.lines(words::wrapped("", 0, &text));
    }
    screen.gap();
    let notes: Vec<String> = prediction.notes.iter().map(|note| sentence(note)).collect();
    if !notes.is_empty() {
        screen.lines(words::wrapped("", 0, &notes.join(" ")));
    }
    screen.gap();
    if let Some(run) = runnable(prediction) {
        screen.lines(command::wrapped("run it    ", program, &run));
        if !prediction.changes.is_empty() {
            screen.lines(command::wrapped("prove it  ", program, &format!("{run} --prove")));
        }
    }
    screen.lines(command::wrapped("repeat    ", program, &prediction.command));
    screen.finish()
}

pub(in crate::render) fn requests(prediction: &Prediction) -> u64 {
    prediction
        .scenario
        .pointer("/load/requests")
        .and_then(serde_json::Value::as_u64)
        .unwrap_or(1)
}

/// The fault of the bottom service as it was typed; `None` when other services have faults too, and no short word would
/// be true.
fn fault(prediction: &Prediction) -> Option<&str> {
    let services = prediction
        .scenario
        .get("services")
        .and_then(serde_json::Value::as_object);
    let typed = |name: &str| {
        services?
            .get(name)?
            .get("fault")?
            .as_str()
            .filter(|fault| *fault != "none")
    };
    let above = prediction
        .services
        .iter()
        .filter(|row| row.service != prediction.bottom.service);
    if above.map(|row| typed(&row.service)).any(|fault| fault.is_some()) {
        return None;
    }
    Some(
        typed(&prediction.bottom.service)
            .or(picture::bottom_fault(&prediction.chain))
            .unwrap_or("none"),
    )
}

/// The answer in a sentence.
pub(in crate::render) fn headline(prediction: &Prediction) -> String {
    headline_when(prediction, None)
}

/// [`headline`] under a condition of the caller's own: `: nothing fails now`.
pub(super) fn headline_when(prediction: &Prediction, when: Option<&str>) -> String {
    let bottom = &prediction.bottom;
    let name = shown(&bottom.service);
    let total = prediction.services.last().map(|row| &row.predicted);
    let requests = requests(prediction);
    if let Some(text) = closed(prediction) {
        return text;
    }
    match (total.map(|total| total.kind), bottom.mean) {
        (Some(PredictionKind::Statistical), Some(mean)) => {
            let (mean, most) = (number::mean(mean), number::count(bottom.worst));
            let at_rate = capacity::at_rate(prediction);
            format!("{mean} calls on average will arrive at {name} for 1 request, {most} at most.{at_rate}")
        }
        (Some(PredictionKind::Exact), Some(mean)) if is_average(prediction) => {
            let (mean, most) = (number::mean(mean), number::count(bottom.worst));
            let all = total.map_or(Count::Beyond, |total| total.max);
            format!(
                "{mean} calls on average will arrive at {name} for 1 request, {most} at most. For {}: {}.{}",
                number::of(requests, "request"),
                number::count(all),
                capacity::at_rate(prediction)
            )
        }
        (Some(PredictionKind::Bounds | PredictionKind::Statistical), _) => {
            let requests = number::of(requests, "request");
            let (least, most) = total.map_or((Count::Of(0), Count::Beyond), |total| (total.min, total.max));
            format!(
                "{} to {} calls will arrive at {name} for {requests}.{}",
                number::count(least),
                number::count(most),
                capacity::at_rate(prediction)
            )
        }
        _ => {
            // For one request the total is the figure itself; the worst case may lie above it.
            let one = match total {
                Some(total) if requests == 1 => total.max,
                _ => bottom.worst,
            };
            let calls = capitalised(&number::counted(one, "call"));
            let condition = when.map_or_else(|| condition(prediction, one), str::to_owned);
            let all = match total {
                Some(total) if requests > 1 => {
                    format!(
                        " For {}: {}.",
                        number::of(requests, "request"),
                        number::count(total.max)
                    )
                }
                _ => String::new(),
            };
            format!(
                "{calls} will arrive at {name} for 1 request{condition}.{all}{}",
                capacity::at_rate(prediction)
            )
        }
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_ascii_uppercase())
        .into_iter()
        .chain(letters)
        .collect()
}

/// The headline of a closed port: what is sent there, since nothing arrives.
fn closed(prediction: &Prediction) -> Option<String> {
    let sent = &prediction
        .links
        .last()
        .filter(|link| link.to == prediction.bottom.service)?
        .sent;
    let none = prediction.services.last()?.predicted.max == Count::Of(0);
    if !none || sent.max == Count::Of(0) {
        return None;
    }
    let (calls, most) = match (sent.kind, sent.mean) {
        (PredictionKind::Statistical, Some(mean)) => (
            format!("{} calls on average", number::mean(mean)),
            format!(", {} at most", number::count(sent.max)),
        ),
        _ if sent.min == sent.max => (capitalised(&number::counted(sent.max, "call")), String::new()),
        _ => (
            format!("{} to {} calls", number::count(sent.min), number::count(sent.max)),
            String::new(),
        ),
    };
    let none = if sent.max == Count::Of(1) && most.is_empty() {
        "it will not arrive"
    } else {
        "none will arrive"
    };
    let side = fault(prediction).and_then(|text| text.parse::<ServiceFault>().ok()?.side);
    let why = match side {
        Some((caller, _)) => format!("{} fails them itself", shown(&caller)),
        None => "its port is closed".to_owned(),
    };
    Some(format!(
        "{calls} will be sent to {} for {}{most}, and {none}: {why}.",
        shown(&prediction.bottom.service),
        number::of(requests(prediction), "request")
    ))
}

/// Under which fault the figure holds.
fn condition(prediction: &Prediction, calls: Count) -> String {
    let Some(text) = fault(prediction) else {
        return " with the faults as set".to_owned();
    };
    let as_typed = || format!(" with the fault {}", shown(text));
    let Ok(ServiceFault { fault, side: None }) = text.parse() else {
        return as_typed();
    };
    if fault.delay.is_some() {
        return as_typed();
    }
    let after = matches!(fault.kind, Kind::Fail(fail) if fail.at == At::After);
    // The work comes before such a fault, and refuses an empty item itself.
    if (fault.is_none() || after) && is_invalid(prediction) {
        return invalid(prediction, calls);
    }
    let answered = prediction.bottom.still_fails == Some(0.0);
    match (fault.kind, fault.when.first) {
        (Kind::None, _) => " if nothing fails".to_owned(),
        (Kind::Refuse, _) => ", its port is closed".to_owned(),
        (Kind::Hang, None) if fault.when.p.is_none() => " if it never answers".to_owned(),
        (Kind::Fail(fail), _) if fail.at == At::Headers || fail.pushback_ms.is_some() => as_typed(),
        (Kind::Fail(_), Some(first)) if answered && calls == Count::Of(u128::from(first) + 1) => {
            let place = number::ordinal(first.saturating_add(1));
            format!(", and the {place} will be answered")
        }
        (Kind::Fail(_), Some(first)) => {
            let first = number::whole(first);
            if after {
                format!(" if it does the work and then fails the first {first}")
            } else {
                format!(" if it fails the first {first}")
            }
        }
        (Kind::Fail(fail), None) if fault.when.p.is_none() => match (after, fail.code) {
            (false, Code::Unavailable) => " if it stays down".to_owned(),
            (false, code) => format!(" if it answers {}", code::name(code)),
            (true, Code::Unavailable) => " if it does the work and then fails".to_owned(),
            (true, code) => format!(" if it does the work and then answers {}", code::name(code)),
        },
        _ => as_typed(),
    }
}

/// Whether what is asked for is empty, which nobody can answer.
fn is_invalid(prediction: &Prediction) -> bool {
    prediction
        .scenario
        .pointer("/load/item")
        .and_then(serde_json::Value::as_str)
        == Some("")
}

/// Why an invalid request arrives once, or more often.
fn invalid(prediction: &Prediction, calls: Count) -> String {
    let services = prediction
        .scenario
        .get("services")
        .and_then(serde_json::Value::as_object);
    let any = |service: &serde_json::Value| {
        service
            .pointer("/retry/retry_on")
            .is_none_or(|codes| codes.as_str() == Some("any"))
    };
    let every_code = services.is_some_and(|services| services.values().all(any));
    let what = match calls {
        Count::Of(0 | 1) => "nobody tries it again",
        _ if every_code => "every code is retried",
        _ => "it is tried again all the same",
    };
    format!(": it is invalid, and {what}")
}

/// The chain with its factors over what will arrive.
pub(super) fn chain(prediction: &Prediction) -> Vec<String> {
    let tries = |caller: &str| {
        prediction
            .tries_per_call
            .iter()
            .find(|tries| tries.caller == caller)
            .map_or(1, |tries| tries.tries)
    };
    let services: Vec<_> = services(prediction).collect();
    let client = prediction
        .chain
        .split('>')
        .next()
        .and_then(|first| first.split_whitespace().next())
        .unwrap_or("client");
    let client = if services.first().is_some_and(|row| row.service == client) {
        "client"
    } else {
        client
    };
    let mut nodes = vec![Node {
        name: client.to_owned(),
        under: String::new(),
    }];
    let mut arrows = vec![picture::arrow(tries(client))];
    for row in services {
        let under = match (row.predicted.kind, row.predicted.mean) {
            (PredictionKind::Statistical, Some(mean)) => number::mean(mean),
            _ if row.predicted.min == row.predicted.max => number::count(row.predicted.max),
            _ => format!(
                "{}-{}",
                number::count(row.predicted.min),
                number::count(row.predicted.max)
            ),
        };
        nodes.push(Node {
            name: row.service.clone(),
            under,
        });
        arrows.push(picture::arrow(tries(&row.service)));
    }
    let mut lines = picture::chain(&nodes, &arrows);
    for sentence in several_calls(prediction) {
        lines.extend(words::wrapped("", 0, &sentence));
    }
    if requests(prediction) > 1 {
        lines.push(format!(
            "The counts are those of {}.",
            number::of(requests(prediction), "request")
        ));
    }
    lines
}

fn services(prediction: &Prediction) -> impl Iterator<Item = &PredictedService> {
    prediction
        .services
        .iter()
        .filter(|row| row.kind == ServiceKind::Service)
}

/// What services do that call the next one several times, in sentences.
pub(in crate::render) fn several_calls(prediction: &Prediction) -> Vec<String> {
    let names = services(prediction).map(|row| row.service.as_str());
    fan_out::sentences(&prediction.scenario, names)
}

/// Whether requests differ, so that the figure of one of them is an average: who comes first meets faults and limits that the
/// others do not.
fn is_average(prediction: &Prediction) -> bool {
    let worst = prediction.bottom.worst.about();
    let is_below = |mean: f64| mean < worst * (1.0 - 1e-9);
    requests(prediction) > 1 && prediction.bottom.mean.is_some_and(is_below)
}

/// Whether the count at the bottom is one number.
fn is_exact(prediction: &Prediction) -> bool {
    let bottom = prediction.services.last();
    bottom.is_none_or(|row| row.predicted.kind == PredictionKind::Exact)
}

/// How a caller and its proxy multiply.
fn proxies(tries: &[Tries], may_stop: bool) -> Vec<String> {
    // Who is answered, or kept from it, tries less.
    let often = if may_stop { "up to " } else { "" };
    let through: Vec<&Tries> = tries.iter().filter(|tries| tries.proxy > 1).collect();
    let Some(first) = through.first() else {
        return Vec::new();
    };
    let alike = through
        .iter()
        .all(|tries| (tries.code, tries.proxy) == (first.code, first.proxy));
    let callers = tries.iter().filter(|tries| tries.tries > 1).count();
    if alike && callers == through.len() {
        let text = format!(
            "Each call is tried {often}{} times: {} in the code, each through {} in the proxy.",
            number::whole(first.tries),
            first.code,
            first.proxy
        );
        return words::wrapped("", 0, &text);
    }
    if through.len() > SINGLE {
        let each: Vec<String> = through
            .iter()
            .map(|tries| format!("{} {}*{}", shown(&tries.caller), tries.code, tries.proxy))
            .collect();
        let text = format!(
            "Attempts in the code, each through those of the proxy: {}.",
            each.join(", ")
        );
        return words::wrapped("", 0, &text);
    }
    let each = through.iter().map(|tries| {
        let text = format!(
            "A call of {} is tried {often}{} times: {} in the code, each through {} in the proxy.",
            shown(&tries.caller),
            number::whole(tries.tries),
            tries.code,
            tries.proxy
        );
        words::wrapped("", 0, &text)
    });
    each.flatten().collect()
}

/// What chance leaves: only where a count is an average.
pub(in crate::render) fn chances(prediction: &Prediction) -> Vec<String> {
    let statistical = prediction
        .services
        .last()
        .is_some_and(|row| row.predicted.kind == PredictionKind::Statistical);
    let bottom = &prediction.bottom;
    match (statistical, bottom.still_fails, bottom.sd) {
        (true, Some(chance), Some(sd)) => {
            // A fault that passes may leave none for sure.
            let passes = fault(prediction)
                .and_then(|text| text.parse::<ServiceFault>().ok())
                .is_some_and(|fault| fault.fault.when.first.is_some());
            let written = if passes { number::share } else { number::some_share };
            let text = format!(
                "Requests that still fail: {}. One request strays from the average by {} (one standard deviation).",
                written(chance),
                number::mean(sd)
            );
            let mut lines = words::wrapped("", 0, &text);
            lines.extend(spread(prediction));
            lines
        }
        _ => Vec::new(),
    }
}

/// How many calls most requests cause at the bottom, where that is known.
fn spread(prediction: &Prediction) -> Vec<String> {
    let Some(Distribution { p50, p90, p99, .. }) = prediction.services.last().and_then(|row| row.distribution.as_ref())
    else {
        return Vec::new();
    };
    let [half, most, nearly_all] = [p50, p90, p99].map(|calls| number::count(*calls));
    let text =
        format!("Half of the requests cause at most {half} there, 90 % at most {most}, 99 % at most {nearly_all}.");
    words::wrapped("", 0, &text)
}

/// The ceiling that was asked for, in a sentence.
pub(in crate::render) fn budget(prediction: &Prediction) -> Option<String> {
    let BudgetCeiling {
        percent,
        layers,
        bottom,
    } = prediction.budget?;
    if layers == 0 {
        return Some("Nobody retries here: a budget has nothing to limit.".to_owned());
    }
    let name = shown(&prediction.bottom.service);
    let at = if layers == 1 {
        "the layer that retries"
    } else {
        "each of them"
    };
    let layers = number::of(layers, "layer");
    let [percent, bottom] = [percent, bottom].map(number::ceiling);
    let calls = if bottom == "1" { "call" } else { "calls" };
    Some(format!(
        "{layers} can retry. With a budget of {percent} % at {at}: {bottom} {calls} at {name} for 1 request, at most."
    ))
}

/// The command that measures what was predicted, with the time that it takes; `None` where a run would refuse so many
/// arrivals.
fn runnable(prediction: &Prediction) -> Option<String> {
    let asked = command::without(&prediction.command, &["--budget", "--capacity"], "");
    let rest = asked.strip_prefix("predict")?;
    if planned(prediction) > DEFAULT_MAX_CALLS as f64 || rest.contains("--json") {
        return None;
    }
    let deadline = prediction
        .scenario
        .pointer("/load/deadline")
        .and_then(serde_json::Value::as_str);
    let deadline = deadline.and_then(|deadline| humantime::parse_duration(deadline).ok());
    let worst = prediction.services.iter().map(|row| match row.predicted.max {
        Count::Of(max) => max / u128::from(requests(prediction)).max(1),
        Count::Beyond => u128::MAX,
    });
    let worst = worst.fold(0_u128, u128::saturating_add);
    match (check_deadline(worst, deadline), rest.contains("--deadline")) {
        (Ok(()), _) => Some(format!("run{rest}")),
        (Err(_), false) => Some(format!("run{rest} --deadline none")),
        (Err(_), true) => None,
    }
}

/// Arrivals that a run plans: the mean under chance, otherwise the most.
fn planned(prediction: &Prediction) -> f64 {
    let rows = prediction.services.iter().map(|row| &row.predicted);
    rows.map(|predicted| match (predicted.kind, predicted.mean, predicted.max) {
        (PredictionKind::Statistical, Some(mean), _) => mean,
        (_, _, Count::Of(max)) => max as f64,
        (_, _, Count::Beyond) => f64::INFINITY,
    })
    .sum()
}
