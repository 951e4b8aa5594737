//! What is said of a chain that stays up: its state, and what a switch changed.

use super::Prediction;
use serde::{Deserialize, Serialize};

/// The name of the format of [`Status`].
pub const STATUS_SCHEMA: &str = "retryscope/status/v1";
/// The name of the format of [`Switched`].
pub const SWITCH_SCHEMA: &str = "retryscope/switch/v1";

/// The state of a running chain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`STATUS_SCHEMA`].
    pub schema: String,
    /// The command line that asks again.
    pub command: String,
    /// The chain line of the settings in force, without quotes.
    pub chain: String,
    /// The number of the settings in force; the newest, where the services differ.
    pub generation: u64,
    /// The services, the top one first.
    pub services: Vec<LiveService>,
    /// The links between services, from the top. Counts since the processes started, of all settings.
    pub links: Vec<LiveLink>,
    /// What arrived, by the settings in force, the oldest first: requests that met one generation alone. With `mixed` they sum
    /// up to `received` of each service.
    pub generations: Vec<LiveGeneration>,
    /// Requests that met several generations: counted apart, judged by nobody.
    pub mixed: Mixed,
}

/// One running service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveService {
    /// Its name in the chain line.
    pub service: String,
    /// Its service port.
    pub address: String,
    /// Its control port.
    pub control: String,
    /// Its process number.
    pub pid: u32,
    /// The number of its settings.
    pub generation: u64,
    /// Most attempts of a call; null at the bottom.
    pub attempts: Option<u32>,
    /// Which failures it tries again, as `--retry-on` takes them; null at the bottom.
    pub retry_on: Option<String>,
    /// Its back-off; null where it tries again at once.
    pub backoff: Option<String>,
    /// The limit of one attempt; null where there is none.
    pub attempt_timeout: Option<String>,
    /// From where on an answer cannot be tried again: `headers` or `message`; null at the bottom.
    pub commit: Option<String>,
    /// Whether it obeys a callee that asks for no retry, or for a later one; null at the bottom.
    pub pushback: Option<bool>,
    /// Its retry tokens; null where there are none.
    pub throttle: Option<String>,
    /// Its retry budget; null where there is none.
    pub budget: Option<String>,
    /// The wait before its next attempt goes out without a failure; null where none does.
    pub hedge: Option<String>,
    /// Whether it tries calls only once that arrived as a retry; null at the bottom.
    pub only_first_tries: Option<bool>,
    /// What it answers when its own call failed: `pass` or a code; null at the bottom.
    pub on_failure: Option<String>,
    /// What it passes on of its time: `pass`, `drop` or a limit; null at the bottom.
    pub deadline: Option<String>,
    /// Whether its work goes on when its caller has left.
    pub detached: bool,
    /// How often it calls the next service for each call that arrives; null at the bottom.
    pub calls: Option<u32>,
    /// How it makes several calls: `sequence` or `parallel`; null at the bottom.
    pub fan_out: Option<String>,
    /// Whether tonic's codes are `normalized` or `raw`.
    pub transport_codes: String,
    /// How it misbehaves.
    pub fault: String,
    /// How its own way out misbehaves, `inside:` or `outside:` of its retry loop; null where it does not.
    pub client_fault: Option<String>,
    /// Whether it sends its spans to a collector by itself.
    pub exports: bool,
    /// Arrivals since its process started.
    pub received: u64,
    /// Arrivals not finished.
    pub in_flight: u64,
    /// Arrivals whose own work was finished.
    pub work_done: u64,
    /// Arrivals after their request's deadline.
    pub late: u64,
    /// Arrivals of requests that came without a path of ours, from grpcurl or any other client.
    pub foreign: u64,
}

/// One link between two services.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveLink {
    /// The caller.
    pub from: String,
    /// The callee.
    pub to: String,
    /// Calls the caller made.
    pub calls: u64,
    /// Attempts the caller put on the link.
    pub sent: u64,
    /// Arrivals at the callee.
    pub received: u64,
}

/// What arrived under one generation of settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveGeneration {
    /// Its number; 0 for all that are too long ago to be told apart.
    pub generation: u64,
    /// The services, the top one first.
    pub services: Vec<LiveCount>,
}

/// A count of one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveCount {
    /// Which.
    pub service: String,
    /// Arrivals.
    pub received: u64,
    /// Those of them that are not finished.
    pub in_flight: u64,
}

/// Requests that met several generations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mixed {
    /// How many.
    pub operations: u64,
    /// False where single arrivals have been given up, so that there may be more.
    pub complete: bool,
    /// What they left at each service.
    pub services: Vec<LiveCount>,
}

/// What a switch changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Switched {
    /// [`SWITCH_SCHEMA`].
    pub schema: String,
    /// The command line that says the same again.
    pub command: String,
    /// The number of the settings now in force.
    pub generation: u64,
    /// What is different now; empty when everything was that way before.
    pub changes: Vec<Changed>,
    /// What the next request will cause.
    pub prediction: Prediction,
}

/// One setting of one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Which service.
    pub service: String,
    /// Which setting: `fault`, `client_fault`, `on_failure`, `deadline`, `detached`, `calls`, `fan_out`, `transport_codes`, `seed`, or a key of a
    /// retry table.
    pub setting: String,
    /// Its value before, as a scenario file writes it.
    pub from: String,
    /// Its value now.
    pub to: String,
}
