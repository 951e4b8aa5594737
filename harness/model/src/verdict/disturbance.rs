//! What can go wrong in a run without a fault asking for it, and what that does to a count.

use super::reason::attempts_were;
use std::fmt;

/// Something that leaves the evidence less than whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disturbance {
    /// A process ended before it was told to.
    ProcessDied {
        /// Which.
        service: String,
        /// Such as `signal 9` or `exit code 101`.
        how: String,
    },
    /// A process was stopped and not ended.
    ProcessStopped {
        /// Which.
        service: String,
        /// Its process id.
        pid: u32,
    },
    /// A process could not be asked.
    Unreachable {
        /// Which.
        service: String,
        /// What was asked for, such as `its counts`.
        what: String,
    },
    /// A total was lower than before: the process is another one, or was reset.
    TotalsWentBack {
        /// Which.
        service: String,
        /// The total before.
        from: u64,
        /// The total after.
        to: u64,
    },
    /// Attempts ended by a transport failure that no fault asked for.
    TransportErrors {
        /// The caller.
        from: String,
        /// The service.
        to: String,
        /// How many.
        count: u64,
    },
    /// Spans came more than once.
    DuplicateSpans {
        /// Whose.
        service: String,
        /// How many too many.
        count: u64,
    },
    /// Spans with the same identity and other content.
    ConflictingSpans {
        /// Whose.
        service: String,
        /// How many.
        count: u64,
    },
    /// Spans whose parent never came.
    OrphanSpans {
        /// Whose.
        service: String,
        /// How many.
        count: u64,
    },
    /// Requests that were planned and not started.
    NotSent {
        /// How many.
        count: u64,
    },
    /// Requests that had no end when counting stopped.
    Unfinished {
        /// How many.
        count: u64,
    },
    /// The run was stopped from outside.
    Interrupted,
    /// Requests that met other settings than the predicted ones.
    Mixed {
        /// How many.
        count: u64,
    },
    /// A fault that counts the arrivals of the whole process counted others besides those of the run.
    SharedFault {
        /// Where.
        service: String,
        /// How many others.
        count: u64,
    },
    /// The HTTP/2 library ended connections, and turned away what was on them before it could be counted.
    RejectedByTransport {
        /// Where.
        service: String,
        /// How many connections.
        count: u64,
    },
    /// A service still worked when waiting for it ended.
    NotSettled {
        /// Which.
        service: String,
        /// Arrivals it had not finished.
        in_flight: u64,
    },
    /// More calls ran out of time than were predicted to.
    DeadlinePassed {
        /// How many.
        count: u64,
        /// On which link.
        place: String,
    },
    /// More arrivals ended without an answer than were predicted to: their time was over, or their caller had left.
    Unanswered {
        /// Where.
        service: String,
        /// How many.
        count: u64,
    },
    /// A service could not hand over its last spans.
    FlushFailed {
        /// Which.
        service: String,
        /// What it said.
        error: String,
    },
}

impl Disturbance {
    /// Whether this may have made someone retry, or reset a count, so that a count above its maximum proves nothing.
    /// What only loses evidence may not.
    pub(super) fn may_cause_retries(&self) -> bool {
        match self {
            Self::ProcessDied { .. }
            | Self::ProcessStopped { .. }
            | Self::Unreachable { .. }
            | Self::TotalsWentBack { .. }
            | Self::TransportErrors { .. }
            | Self::NotSent { .. }
            | Self::Unfinished { .. }
            | Self::Interrupted
            | Self::Mixed { .. }
            | Self::SharedFault { .. }
            | Self::RejectedByTransport { .. }
            | Self::DeadlinePassed { .. }
            | Self::Unanswered { .. } => true,
            Self::DuplicateSpans { .. }
            | Self::ConflictingSpans { .. }
            | Self::OrphanSpans { .. }
            | Self::NotSettled { .. }
            | Self::FlushFailed { .. } => false,
        }
    }

    /// Whether a process that was late is what may have led to this.
    pub(super) fn may_come_of_lateness(&self) -> bool {
        matches!(self, Self::DeadlinePassed { .. } | Self::Unanswered { .. })
    }

    /// Whether what this process counted itself is no longer sound.
    pub(super) fn unsettles_count_of(&self, caller: &str) -> bool {
        match self {
            Self::ProcessDied { service, .. }
            | Self::ProcessStopped { service, .. }
            | Self::Unreachable { service, .. }
            | Self::TotalsWentBack { service, .. } => service == caller,
            _ => false,
        }
    }

    /// A fixed word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ProcessDied { .. } => "process_died",
            Self::ProcessStopped { .. } => "process_stopped",
            Self::Unreachable { .. } => "unreachable",
            Self::TotalsWentBack { .. } => "totals_went_back",
            Self::TransportErrors { .. } => "transport_errors",
            Self::DuplicateSpans { .. } => "duplicate_spans",
            Self::ConflictingSpans { .. } => "conflicting_spans",
            Self::OrphanSpans { .. } => "orphan_spans",
            Self::NotSent { .. } => "not_sent",
            Self::Unfinished { .. } => "unfinished",
            Self::Interrupted => "interrupted",
            Self::Mixed { .. } => "mixed",
            Self::SharedFault { .. } => "shared_fault",
            Self::RejectedByTransport { .. } => "rejected_by_transport",
            Self::NotSettled { .. } => "not_settled",
            Self::DeadlinePassed { .. } => "deadline_passed",
            Self::Unanswered { .. } => "unanswered",
            Self::FlushFailed { .. } => "flush_failed",
        }
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ProcessDied { service, how } => write!(f, "The process of {service} died during the run ({how})."),
            Self::ProcessStopped { service, pid } => {
                write!(
                    f,
                    "The process of {service} (pid {pid}) is stopped; `kill -CONT {pid}` lets it go on."
                )
            }
            Self::Unreachable { service, what } => write!(f, "The process of {service} could not be asked for {what}."),
            Self::TotalsWentBack { service, from, to } => {
                write!(
                    f,
                    "The count of {service} went back from {from} to {to}; it was restarted or reset."
                )
            }
            Self::TransportErrors { from, to, count } => {
                write!(
                    f,
                    "On {from} > {to}, {} by a transport failure that no fault asked for.",
                    attempts_were(*count, "ended")
                )
            }
            Self::DuplicateSpans { service, count } => write!(f, "Spans of {service} that came again: {count}."),
            Self::ConflictingSpans { service, count } => {
                write!(f, "Spans of {service} that came again with other content: {count}.")
            }
            Self::OrphanSpans { service, count } => write!(f, "Spans of {service} whose parent never came: {count}."),
            Self::NotSent { count } => write!(f, "Requests that were planned and never started: {count}."),
            Self::Unfinished { count } => write!(f, "Requests that had no end when counting stopped: {count}."),
            Self::Interrupted => f.write_str("The run was interrupted."),
            Self::Mixed { count } => write!(f, "Requests that met other settings than those predicted for: {count}."),
            Self::SharedFault { service, count } => write!(
                f,
                "The fault of {service} counts the arrivals of the whole process, and others came besides ours: {count}."
            ),
            Self::RejectedByTransport { service, count } => {
                write!(
                    f,
                    "Connections to {service} that the HTTP/2 library ended, with calls that nobody counted: {count}."
                )
            }
            Self::NotSettled { service, in_flight } => {
                write!(
                    f,
                    "At {service}, {} still being worked on when waiting ended.",
                    attempts_were(*in_flight, "")
                )
            }
            Self::DeadlinePassed { count, place } => {
                write!(
                    f,
                    "Calls that ran out of time on {place}, more than were predicted to: {count}."
                )
            }
            Self::Unanswered { service, count } => {
                write!(
                    f,
                    "Arrivals at {service} that ended without an answer, more than were predicted to: {count}."
                )
            }
            Self::FlushFailed { service, error } => {
                write!(f, "The last spans of {service} were not handed over: {error}.")
            }
        }
    }
}
