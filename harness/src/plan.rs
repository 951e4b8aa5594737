//! From what the services say of themselves to what the model understands: the only bridge between the two vocabularies.

use crate::scenario::Load;
use chassis::{
    config::{Config, OnFailure},
    fault::{At, Fault, Scope},
    policy::RetryOn,
};

/// The topology of a chain: the client's configuration, then those of the services from the top to the bottom.
pub fn topology(client: &Config, services: &[Config], load: &Load) -> model::Topology {
    let above = std::iter::once(client).chain(services);
    model::Topology {
        callers: above.zip(services).map(|(caller, _)| self::caller(caller)).collect(),
        services: services.iter().map(service).collect(),
        load: model::Load {
            requests: load.requests,
            concurrency: load.concurrency.into(),
            seed: load.seed,
            invalid_item: load.item.is_empty(),
        },
    }
}

fn caller(config: &Config) -> model::Caller {
    model::Caller {
        name: config.service.clone(),
        attempts: config.retry.attempts,
        retry_on: match &config.retry.retry_on {
            RetryOn::Any => model::RetryOn::Any,
            RetryOn::Codes(codes) => model::RetryOn::Codes(codes.iter().map(|code| self::code(*code)).collect()),
        },
    }
}

fn service(config: &Config) -> model::Service {
    model::Service {
        name: config.service.clone(),
        fault: match config.fault {
            Fault::None => model::Fault::None,
            Fault::Refuse => model::Fault::Refuse,
            Fault::Fail(fail) => model::Fault::Fail(model::Fail {
                code: code(fail.code),
                first: fail.first,
                p: fail.p,
                per_process: fail.scope == Scope::Process,
                after: fail.at == At::After,
            }),
        },
        on_failure: match config.on_failure {
            OnFailure::Pass => None,
            OnFailure::Answer(answer) => Some(code(answer)),
        },
    }
}

/// A status code by its number.
pub fn code(code: chassis::code::Code) -> model::Code {
    model::Code(code as i32)
}
