//! The verdict: a prediction against what was observed.
//!
//! Here: [`judge`], pure, and the five rules behind it. What is observed is in `observation`, what can go wrong in
//! `disturbance`, how a reason reads is in `reason`. Not here: gathering evidence, and any tolerance of its own: a prediction carries its minimum and maximum.
//!
//! Loss can only lower a count, so the rules look for proof of too much first, then for holes, and only then compare:
//!
//! 1. A link on which more was received than its sender sent, by the sender's own sound count, is proof.
//! 2. A count above its maximum is proof too, unless something in the environment may have caused retries.
//! 3. So are attempts at a closed port of which none failed in the transport, unless something may have ended them before.
//! 4. Otherwise any hole in the evidence leaves no verdict.
//! 5. With whole evidence every count has to lie within its prediction.
//!
//! Where counts depend on time, a count outside its prediction proves nothing when a process was late by more than the
//! prediction allows: the machine was not the one that was predicted for.

mod disturbance;
mod observation;
mod reason;

pub use disturbance::Disturbance;
pub use observation::{Late, Observation, Observed, ObservedLink};
pub use reason::{Expected, Reason};

use crate::count::Count;
use crate::prediction::{LinkPrediction, Predicted, Prediction, ServicePrediction};
use crate::topology::Code;

/// What the comparison comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Every count is within its prediction, and the evidence is whole.
    AsPredicted,
    /// A count is not what was predicted, and that is certain.
    NotAsPredicted,
    /// The evidence is not whole, so nothing is certain.
    Incomplete,
}

/// A verdict and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// What led to it: contradictions first, from the top of the chain down, then holes in the evidence. Empty exactly
    /// when everything is as predicted.
    pub reasons: Vec<Reason>,
}

/// Holds an observation against a prediction.
///
/// The counts of a link must have been read at the receiver first and at the sender afterwards, or both at rest:
/// otherwise attempts sent in between would look like attempts that nobody sent.
pub fn judge(prediction: &Prediction, observation: &Observation) -> Judgement {
    let disturbances = disturbances(prediction, observation);
    // More requests than planned explain more arrivals than predicted.
    let undisturbed =
        observation.requests_sent <= prediction.requests && !disturbances.iter().any(Disturbance::may_cause_retries);
    let untimely = disturbances.iter().any(Disturbance::may_come_of_lateness);
    let mut holes = holes(prediction, observation, disturbances);
    let mut contradictions = multiplied_links(observation);
    if undisturbed {
        contradictions.extend(answered_for(prediction, observation));
    }
    let mut off = Vec::new();
    if undisturbed {
        off.extend(surpluses(prediction, observation));
    }
    if holes.is_empty() {
        off.extend(differences(prediction, observation));
    }
    match late(prediction, observation) {
        Some(late) if untimely || !off.is_empty() => {
            holes.insert(0, late);
            holes.extend(off);
        }
        _ => contradictions.extend(off),
    }
    let verdict = match (contradictions.is_empty(), holes.is_empty()) {
        (false, _) => Verdict::NotAsPredicted,
        (true, false) => Verdict::Incomplete,
        (true, true) => Verdict::AsPredicted,
    };
    contradictions.extend(holes);
    Judgement {
        verdict,
        reasons: contradictions,
    }
}

/// A process that was later than the counts allow.
fn late(prediction: &Prediction, observation: &Observation) -> Option<Reason> {
    let (allowed_us, late) = (prediction.margin_us?, observation.latest.as_ref()?);
    (late.us > allowed_us.max(NEVER_LATE_US)).then(|| Reason::Late {
        process: late.process.clone(),
        late_us: late.us,
        allowed_us,
    })
}

/// Lateness that every prediction allows, microseconds.
const NEVER_LATE_US: u64 = crate::acting::APART_US;

/// What was observed to go wrong, and what went wrong more often than the prediction says.
fn disturbances(prediction: &Prediction, observation: &Observation) -> Vec<Disturbance> {
    let mut found = observation.disturbances.clone();
    for (link, service) in prediction.links.iter().zip(&prediction.services) {
        if let Some(observed) = observed_link(observation, link) {
            let (from, to) = (link.from.clone(), link.to.clone());
            if Count::from(observed.transport_failures) > link.cut.max + link.lost.max {
                let count = observed.transport_failures;
                found.push(Disturbance::TransportErrors { from, to, count });
            }
            if Count::from(observed.out_of_time) > link.out_of_time.max {
                found.push(Disturbance::DeadlinePassed {
                    count: observed.out_of_time,
                    place: format!("{} > {}", link.from, link.to),
                });
            }
        }
        if let Some(observed) = observed(observation, service)
            && Count::from(observed.unanswered) > service.unanswered.max
        {
            found.push(Disturbance::Unanswered {
                service: service.name.clone(),
                count: observed.unanswered,
            });
        }
    }
    found
}

/// Rule 1. Arrivals of strangers are told apart: each is proof by itself, also where it fills the place of one that was lost.
fn multiplied_links(observation: &Observation) -> Vec<Reason> {
    let foreign = |name: &str| {
        let rows = observation.services.iter().filter(|observed| observed.name == name);
        rows.map(|observed| observed.foreign).sum::<u64>()
    };
    let mut reasons = Vec::new();
    for service in observation.services.iter().filter(|observed| observed.foreign > 0) {
        let (service, count) = (service.name.clone(), service.foreign);
        reasons.push(Reason::Strangers { service, count });
    }
    for link in &observation.links {
        let sound = !observation
            .disturbances
            .iter()
            .any(|disturbance| disturbance.unsettles_count_of(&link.from));
        if let (Some(sent), Some(received)) = (link.sent, link.received)
            && received > sent.saturating_add(foreign(&link.to))
            && sound
        {
            let (from, to) = (link.from.clone(), link.to.clone());
            reasons.push(Reason::LinkSurplus {
                from,
                to,
                sent,
                received,
            });
        }
    }
    reasons
}

/// Rule 2.
fn surpluses(prediction: &Prediction, observation: &Observation) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for (link, service) in prediction.links.iter().zip(&prediction.services) {
        if let Some(sent) = observed_link(observation, link).and_then(|observed| observed.sent)
            && Count::from(sent) > link.sent.max
        {
            reasons.push(sent_reason(link, sent, true));
        }
        if let Some(received) = observed(observation, service).and_then(|observed| observed.received)
            && Count::from(received) > service.received.max
        {
            reasons.push(received_reason(link, service, received, true));
        }
    }
    reasons
}

/// Rule 3. An attempt that is still under way has not been refused yet.
fn answered_for(prediction: &Prediction, observation: &Observation) -> Vec<Reason> {
    let is_over = observation.requests_ended == observation.requests_sent
        && (observation.services.iter()).all(|service| service.in_flight == 0)
        && !(observation.disturbances.iter()).any(|found| matches!(found, Disturbance::NotSettled { .. }));
    let closed = prediction.links.iter().filter(|link| is_over && link.refuses_all);
    let answered = closed.filter_map(|link| {
        let observed = observed_link(observation, link)?;
        let attempts = observed
            .sent
            .filter(|sent| *sent > 0 && observed.transport_failures == 0)?;
        let (from, to) = (link.from.clone(), link.to.clone());
        Some(Reason::AnsweredFor { from, to, attempts })
    });
    answered.collect()
}

/// Rule 5, without what rule 2 found.
fn differences(prediction: &Prediction, observation: &Observation) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for (link, service) in prediction.links.iter().zip(&prediction.services) {
        if let Some(ObservedLink {
            sent: Some(sent),
            received: Some(received),
            ..
        }) = observed_link(observation, link)
        {
            if Count::from(*sent) < link.sent.min {
                reasons.push(sent_reason(link, *sent, false));
            }
            if Count::from(sent.saturating_sub(*received)) > link.lost.max {
                let (from, to) = (link.from.clone(), link.to.clone());
                reasons.push(Reason::LinkDeficit {
                    from,
                    to,
                    sent: *sent,
                    received: *received,
                });
            }
        }
        if let Some(received) = observed(observation, service).and_then(|observed| observed.received)
            && Count::from(received) < service.received.min
        {
            reasons.push(received_reason(link, service, received, false));
        }
    }
    let mut ended = |code: Code, count: u64, predicted: Option<&Predicted>| {
        let (min, max) = predicted.map_or((Count::ZERO, Count::ZERO), |predicted| (predicted.min, predicted.max));
        if Count::from(count) < min || Count::from(count) > max {
            reasons.push(Reason::Outcome {
                code,
                count,
                predicted: Expected { min, max },
            });
        }
    };
    ended(Code::OK, observation.ok, Some(&prediction.ok));
    for (code, count) in &observation.failed_by_code {
        ended(*code, *count, prediction.failed_by_code.get(code));
    }
    for (code, predicted) in &prediction.failed_by_code {
        if !observation.failed_by_code.contains_key(code) {
            ended(*code, 0, Some(predicted));
        }
    }
    reasons
}

/// Rule 4: everything that keeps the evidence from being whole.
fn holes(prediction: &Prediction, observation: &Observation, disturbances: Vec<Disturbance>) -> Vec<Reason> {
    let mut holes: Vec<Reason> = disturbances.into_iter().map(Reason::Disturbed).collect();
    for service in &prediction.services {
        let rows = observation
            .services
            .iter()
            .filter(|observed| observed.name == service.name)
            .count();
        if rows != 1 {
            holes.push(Reason::NotObserved {
                what: service.name.clone(),
                rows,
            });
        }
    }
    for link in &prediction.links {
        let same = |observed: &&ObservedLink| observed.from == link.from && observed.to == link.to;
        let rows = observation.links.iter().filter(same).count();
        if rows != 1 {
            holes.push(Reason::NotObserved {
                what: format!("{} > {}", link.from, link.to),
                rows,
            });
        }
    }
    for service in &observation.services {
        if !prediction
            .services
            .iter()
            .any(|predicted| predicted.name == service.name)
        {
            holes.push(Reason::NotPredicted {
                what: service.name.clone(),
            });
        }
        holes.extend(holes_of_service(service));
    }
    for link in &observation.links {
        let name = || format!("{} > {}", link.from, link.to);
        if !prediction
            .links
            .iter()
            .any(|predicted| predicted.from == link.from && predicted.to == link.to)
        {
            holes.push(Reason::NotPredicted { what: name() });
        }
        for (count, figure) in [(link.sent, "sent"), (link.received, "received")] {
            if count.is_none() {
                holes.push(Reason::CountMissing { what: name(), figure });
            }
        }
        let callee = observation.services.iter().find(|service| service.name == link.to);
        if let Some(Observed {
            received: Some(service),
            ..
        }) = callee
            && let Some(received) = link.received
            && received != *service
        {
            holes.push(Reason::CountsDisagree {
                link: name(),
                received,
                service: *service,
            });
        }
    }
    holes.extend(holes_of_requests(prediction, observation));
    holes
}

fn holes_of_service(service: &Observed) -> Vec<Reason> {
    let name = || service.name.clone();
    let mut holes = Vec::new();
    let mut missing = |figure| holes.push(Reason::CountMissing { what: name(), figure });
    if service.received.is_none() {
        missing("received");
    }
    if service.is_traced {
        for (count, figure) in [
            (service.traced, "traced"),
            (service.spans_made, "the spans it made"),
            (service.spans_collected, "the spans collected"),
        ] {
            if count.is_none() {
                missing(figure);
            }
        }
        if let (Some(traced), Some(received)) = (service.traced, service.received)
            && traced != received
        {
            holes.push(Reason::Traced {
                service: name(),
                traced,
                received,
            });
        }
        if let (Some(made), Some(collected)) = (service.spans_made, service.spans_collected)
            && made != collected
        {
            holes.push(Reason::Spans {
                service: name(),
                made,
                collected,
            });
        }
    }
    if service.in_flight > 0 {
        holes.push(Reason::InFlight {
            service: name(),
            count: service.in_flight,
        });
    }
    holes
}

fn holes_of_requests(prediction: &Prediction, observation: &Observation) -> Vec<Reason> {
    let mut holes = Vec::new();
    let (sent, ended) = (observation.requests_sent, observation.requests_ended);
    if sent != prediction.requests {
        holes.push(Reason::RequestsSent {
            sent,
            planned: prediction.requests,
        });
    }
    if ended != sent {
        holes.push(Reason::RequestsEnded { ended, sent });
    }
    let failed = observation
        .failed_by_code
        .values()
        .fold(0_u64, |sum, count| sum.saturating_add(*count));
    if observation.ok.checked_add(failed) != Some(ended) {
        holes.push(Reason::OutcomesMissing {
            ended,
            ok: observation.ok,
            failed,
        });
    }
    holes
}

fn observed<'a>(observation: &'a Observation, service: &ServicePrediction) -> Option<&'a Observed> {
    observation
        .services
        .iter()
        .find(|observed| observed.name == service.name)
}

fn observed_link<'a>(observation: &'a Observation, link: &LinkPrediction) -> Option<&'a ObservedLink> {
    observation
        .links
        .iter()
        .find(|observed| observed.from == link.from && observed.to == link.to)
}

fn sent_reason(link: &LinkPrediction, sent: u64, more: bool) -> Reason {
    let (from, to, predicted) = (link.from.clone(), link.to.clone(), Expected::of(&link.sent));
    if more {
        Reason::SentSurplus {
            from,
            to,
            sent,
            predicted,
        }
    } else {
        Reason::SentDeficit {
            from,
            to,
            sent,
            predicted,
        }
    }
}

fn received_reason(link: &LinkPrediction, service: &ServicePrediction, received: u64, more: bool) -> Reason {
    let (service, predicted) = (service.name.clone(), Expected::of(&service.received));
    let from = link.from.clone();
    if more {
        Reason::Surplus {
            from,
            service,
            received,
            predicted,
        }
    } else {
        Reason::Deficit {
            from,
            service,
            received,
            predicted,
        }
    }
}
