//! Why a verdict is what it is: a word for programs and a sentence for people.

use super::disturbance::Disturbance;
use crate::count::Count;
use crate::prediction::Predicted;
use crate::topology::Code;
use std::fmt;

/// One reason for a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Somebody outside the chain called a service.
    Strangers {
        /// Which.
        service: String,
        /// How many arrivals.
        count: u64,
    },
    /// More was received than the sender sent.
    LinkSurplus {
        /// The caller.
        from: String,
        /// The service.
        to: String,
        /// Attempts by the caller's count.
        sent: u64,
        /// Arrivals by the service's count.
        received: u64,
    },
    /// Less was received than the sender sent, and nothing explains it.
    LinkDeficit {
        /// The caller.
        from: String,
        /// The service.
        to: String,
        /// Attempts by the caller's count.
        sent: u64,
        /// Arrivals by the service's count.
        received: u64,
    },
    /// None of the attempts at a closed port was refused.
    AnsweredFor {
        /// The caller.
        from: String,
        /// The service.
        to: String,
        /// Attempts by the caller's count.
        attempts: u64,
    },
    /// A caller sent more than predicted.
    SentSurplus {
        /// The caller.
        from: String,
        /// The service.
        to: String,
        /// Attempts sent.
        sent: u64,
        /// What was predicted.
        predicted: Expected,
    },
    /// A caller sent less than predicted.
    SentDeficit {
        /// The caller.
        from: String,
        /// The service.
        to: String,
        /// Attempts sent.
        sent: u64,
        /// What was predicted.
        predicted: Expected,
    },
    /// More arrived at a service than predicted.
    Surplus {
        /// Who calls it.
        from: String,
        /// The service.
        service: String,
        /// Arrivals.
        received: u64,
        /// What was predicted.
        predicted: Expected,
    },
    /// Less arrived at a service than predicted.
    Deficit {
        /// Who calls it.
        from: String,
        /// The service.
        service: String,
        /// Arrivals.
        received: u64,
        /// What was predicted.
        predicted: Expected,
    },
    /// Another number of requests ended with this code.
    Outcome {
        /// The code.
        code: Code,
        /// How many requests ended so.
        count: u64,
        /// What was predicted.
        predicted: Expected,
    },
    /// A predicted service or link has no row of evidence, or several.
    NotObserved {
        /// Which.
        what: String,
        /// How many rows it has.
        rows: usize,
    },
    /// There is evidence of a service or link that the prediction does not know.
    NotPredicted {
        /// Which.
        what: String,
    },
    /// A count could not be read.
    CountMissing {
        /// Of what service or link.
        what: String,
        /// Which count.
        figure: &'static str,
    },
    /// One arrival count, told twice, is not the same.
    CountsDisagree {
        /// The link.
        link: String,
        /// Arrivals by the link's row.
        received: u64,
        /// Arrivals by the service's row.
        service: u64,
    },
    /// The second witness saw another number of arrivals.
    Traced {
        /// Where.
        service: String,
        /// Arrivals by their spans.
        traced: u64,
        /// Arrivals by the service's count.
        received: u64,
    },
    /// Spans were lost or came from elsewhere.
    Spans {
        /// Whose.
        service: String,
        /// Spans the service made.
        made: u64,
        /// Spans the collector got.
        collected: u64,
    },
    /// Arrivals were not finished when the service was read.
    InFlight {
        /// Where.
        service: String,
        /// How many.
        count: u64,
    },
    /// Another number of requests was started than planned.
    RequestsSent {
        /// Started.
        sent: u64,
        /// Planned.
        planned: u64,
    },
    /// Another number of requests ended than were started.
    RequestsEnded {
        /// Ended.
        ended: u64,
        /// Started.
        sent: u64,
    },
    /// The outcomes do not add up to the requests that ended.
    OutcomesMissing {
        /// Ended.
        ended: u64,
        /// Ended OK.
        ok: u64,
        /// Ended with a failure.
        failed: u64,
    },
    /// Something went wrong that no fault asked for.
    Disturbed(Disturbance),
    /// A process was so late that counts which depend on time may differ for it.
    Late {
        /// Which process most.
        process: String,
        /// How late all of them were together, each at its worst, microseconds.
        late_us: u64,
        /// How late it may have been, microseconds.
        allowed_us: u64,
    },
}

/// The smallest and largest count that would have agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// The smallest.
    pub min: Count,
    /// The largest.
    pub max: Count,
}

impl Expected {
    pub(super) fn of(predicted: &Predicted) -> Self {
        Self {
            min: predicted.min,
            max: predicted.max,
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (min, max) if min != max => write!(f, "{min} to {max} were predicted"),
            (Count::ONE, _) => f.write_str("1 was predicted"),
            (Count::ZERO, _) => f.write_str("none was predicted"),
            (count, _) => write!(f, "{count} were predicted"),
        }
    }
}

impl Reason {
    /// A fixed word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Strangers { .. } => "strangers",
            Self::LinkSurplus { .. } => "link_surplus",
            Self::LinkDeficit { .. } => "link_deficit",
            Self::AnsweredFor { .. } => "answered_for",
            Self::SentSurplus { .. } => "sent_surplus",
            Self::SentDeficit { .. } => "sent_deficit",
            Self::Surplus { .. } => "surplus",
            Self::Deficit { .. } => "deficit",
            Self::Outcome { .. } => "outcome",
            Self::NotObserved { .. } => "not_observed",
            Self::NotPredicted { .. } => "not_predicted",
            Self::CountMissing { .. } => "count_missing",
            Self::CountsDisagree { .. } => "counts_disagree",
            Self::Traced { traced, received, .. } if traced < received => "missing_spans",
            Self::Spans { made, collected, .. } if collected < made => "missing_spans",
            Self::Traced { .. } | Self::Spans { .. } => "extra_spans",
            Self::InFlight { .. } => "in_flight",
            Self::RequestsSent { .. } => "requests_sent",
            Self::RequestsEnded { .. } => "requests_ended",
            Self::OutcomesMissing { .. } => "outcomes_missing",
            Self::Disturbed(disturbance) => disturbance.kind(),
            Self::Late { .. } => "late_clock",
        }
    }
}

impl fmt::Display for Reason {
    #[expect(clippy::too_many_lines, reason = "one arm for each reason")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkSurplus {
                from,
                to,
                sent,
                received,
            } => {
                write!(
                    f,
                    "On {from} > {to}, {} and {received} received",
                    attempts_were(*sent, "sent")
                )?;
                if *sent > 0 && received.is_multiple_of(*sent) {
                    let times = factor(*received, *sent);
                    write!(
                        f,
                        ", {times} times as many: a layer that no configuration names multiplies on this link."
                    )
                } else {
                    write!(f, ": {} more than anybody in the chain sent.", received - sent)
                }
            }
            Self::Strangers { service, count } => write!(
                f,
                "Arrivals at {service} that carried no attempt path of this run: {count}. Somebody else called it."
            ),
            Self::LinkDeficit {
                from,
                to,
                sent,
                received,
            } => {
                write!(
                    f,
                    "On {from} > {to}, {} and only {received} received.",
                    attempts_were(*sent, "sent")
                )
            }
            Self::AnsweredFor {
                from,
                to,
                attempts: sent,
            } => write!(
                f,
                "On {from} > {to}, {} to a closed port and {} refused: something in between answered {}.",
                attempts_were(*sent, "sent"),
                if *sent == 1 { "not" } else { "none was" },
                if *sent == 1 { "it" } else { "them" }
            ),
            Self::SentSurplus {
                from,
                to,
                sent,
                predicted,
            } => {
                write!(f, "On {from} > {to}, {}; {predicted}.", attempts_were(*sent, "sent"))
            }
            Self::SentDeficit {
                from,
                to,
                sent,
                predicted,
            } => {
                write!(
                    f,
                    "On {from} > {to}, only {}; {predicted}.",
                    attempts_were(*sent, "sent")
                )
            }
            Self::Surplus {
                from,
                service,
                received,
                predicted,
            } => {
                write!(
                    f,
                    "At {service}, called by {from}, {} arrived; {predicted}.",
                    attempts(*received)
                )
            }
            Self::Deficit {
                from,
                service,
                received,
                predicted,
            } => {
                write!(
                    f,
                    "At {service}, called by {from}, only {} arrived; {predicted}.",
                    attempts(*received)
                )
            }
            Self::Outcome { code, count, predicted } => {
                write!(f, "Requests that ended with {code}: {count}; {predicted}.")
            }
            Self::NotObserved { what, rows: 0 } => write!(f, "Nothing is known of {what}."),
            Self::NotObserved { what, rows } => write!(f, "The evidence speaks of {what} {rows} times."),
            Self::NotPredicted { what } => {
                write!(f, "The evidence speaks of {what}, which the prediction does not know.")
            }
            Self::CountMissing { what, figure } => write!(f, "One count of {what} could not be read: {figure}."),
            Self::CountsDisagree {
                link,
                received,
                service,
            } => {
                write!(
                    f,
                    "Two counts of what was received on {link} differ: {received} and {service}."
                )
            }
            Self::Traced {
                service,
                traced,
                received,
            } => {
                write!(
                    f,
                    "At {service}, {} received and {traced} traced.",
                    attempts_were(*received, "")
                )
            }
            Self::Spans {
                service,
                made,
                collected,
            } => {
                write!(
                    f,
                    "Spans of {service}: {made} were made and {collected} were collected."
                )
            }
            Self::InFlight { service, count } => {
                write!(
                    f,
                    "At {service}, {} not finished when counting stopped.",
                    attempts_were(*count, "")
                )
            }
            Self::RequestsSent { sent, planned } => write!(f, "Requests planned: {planned}; started: {sent}."),
            Self::RequestsEnded { ended, sent } => write!(f, "Requests started: {sent}; ended: {ended}."),
            Self::OutcomesMissing { ended, ok, failed } => {
                write!(
                    f,
                    "Requests ended: {ended}; ended OK: {ok}; failed: {failed}; these do not add up."
                )
            }
            Self::Disturbed(disturbance) => disturbance.fmt(f),
            Self::Late {
                process,
                late_us,
                allowed_us,
            } => write!(
                f,
                "The machine was busy: its processes were up to {} ms late together, {process} most, and the counts hold for \
                 {} ms.",
                late_us.div_ceil(1_000),
                allowed_us / 1_000
            ),
        }
    }
}

pub(super) fn attempts(count: u64) -> String {
    if count == 1 {
        "1 attempt".to_owned()
    } else {
        format!("{count} attempts")
    }
}

/// Such as `27 attempts were sent`.
pub(super) fn attempts_were(count: u64, done: &str) -> String {
    let verb = if count == 1 { "was" } else { "were" };
    format!("{} {verb} {done}", attempts(count)).trim_end().to_owned()
}

/// Two figures behind the point at most.
fn factor(received: u64, sent: u64) -> String {
    let factor = format!("{:.2}", received as f64 / sent as f64);
    factor.trim_end_matches('0').trim_end_matches('.').to_owned()
}
