//! Who is asked what passed: a service on its control port, an Envoy on its admin port. Both answer in the ledger's words.

use crate::{
    envoy::{Envoy, EnvoyError, Statistics},
    lab::{Described, Lab, LabError},
};
use proto::lab::v1 as lab;
use thiserror::Error;

/// One who knows what passed.
#[derive(Debug, Clone)]
pub enum Witness {
    /// A service or sidecar of ours.
    Lab(Box<Lab>),
    /// A real Envoy.
    Envoy(Box<Envoy>),
}

/// Why one could not be asked.
#[derive(Debug, Error)]
pub enum WitnessError {
    /// A service.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// An Envoy.
    #[error(transparent)]
    Envoy(#[from] EnvoyError),
}

impl WitnessError {
    /// Whether it answers and does not know what was asked for: it was started anew.
    pub fn is_forgotten(&self) -> bool {
        matches!(self, Self::Lab(error) if error.is_forgotten())
    }
}

impl From<Lab> for Witness {
    fn from(lab: Lab) -> Self {
        Self::Lab(Box::new(lab))
    }
}

impl Witness {
    /// Its name in reports.
    pub fn name(&self) -> &str {
        match self {
            Self::Lab(lab) => lab.service(),
            Self::Envoy(envoy) => &envoy.config.service,
        }
    }

    /// What it says of itself; an Envoy, what it was told.
    pub async fn describe(&self) -> Result<Described, WitnessError> {
        match self {
            Self::Lab(lab) => Ok(lab.describe().await?),
            Self::Envoy(envoy) => Ok(Described {
                config: envoy.config.clone(),
                generation: 1,
                pid: 0,
                exports_to: String::new(),
                highest_request: 0,
                seen: 0,
            }),
        }
    }

    /// Exact totals; of an Envoy also its own counts that they were made from.
    pub async fn totals(&self) -> Result<(lab::Totals, Option<Statistics>), WitnessError> {
        match self {
            Self::Lab(lab) => Ok((lab.totals().await?, None)),
            Self::Envoy(envoy) => {
                let callee = envoy.config.callee.as_ref().map_or("", |callee| callee.name.as_str());
                let statistics = envoy.statistics().await?;
                Ok((statistics.totals(&envoy.config.service, callee), Some(statistics)))
            }
        }
    }

    /// Exports every span that has ended; the error is the service's own words. An Envoy makes none.
    pub async fn flush(&self) -> Result<Result<(), String>, WitnessError> {
        match self {
            Self::Lab(lab) => Ok(lab.flush().await?),
            Self::Envoy(_) => Ok(Ok(())),
        }
    }

    /// The single arrivals still kept; an Envoy keeps none.
    pub async fn records(&self) -> Result<Vec<lab::Record>, WitnessError> {
        match self {
            Self::Lab(lab) => Ok(lab.records().await?),
            Self::Envoy(_) => Ok(Vec::new()),
        }
    }
}
