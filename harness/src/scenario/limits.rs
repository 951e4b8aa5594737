//! Plans that are refused before anything starts, with the way on. Pure; whoever has the model's figures calls them.

use super::{Caller, Program, Scenario, ScenarioError};
use crate::{chain_line::proxy_name, envoy};
use chassis::config::PassedOn;
use std::time::Duration;

/// Arrivals that one request may cause for each second of its deadline.
pub const ARRIVALS_PER_SECOND: u128 = 1_000;
/// Arrivals at all services together that a run may plan unless told otherwise.
pub const DEFAULT_MAX_CALLS: u64 = 2_000_000;
/// Most services of a chain that stays up: each has its own process and its own ports, and nothing stands between them.
pub const MAX_STANDING: usize = 4;

impl Scenario {
    /// Refuses what can be predicted and not be run: requests that never end, and what no prediction is about either.
    pub fn check_runnable(&self) -> Result<(), ScenarioError> {
        self.check_envoys()?;
        self.check_forwarders()?;
        self.check_ends()
    }

    /// Refuses several calls of a service that has no process of its own making: what lies between the first three and the
    /// bottom forwards what arrives, once.
    fn check_forwarders(&self) -> Result<(), ScenarioError> {
        let services = self.chain.services.iter().zip(self.programs());
        let mut forwarders = services.filter(|(_, program)| *program == Program::Sidecar);
        let Some((service, _)) = forwarders.find(|(service, _)| service.calls > 1) else {
            return Ok(());
        };
        let first: Vec<_> = self.service_names().take(3).map(crate::sanitize::sanitize).collect();
        Err(ScenarioError::NotRunnable(format!(
            "{} has calls = {}, and in a chain of this length it only forwards what arrives, once: in a run {} can call \
             several times (predict counts it everywhere)",
            crate::sanitize::sanitize(&service.name),
            service.calls,
            first.join(", ")
        )))
    }

    /// Refuses policies that an Envoy does not know.
    pub fn check_envoys(&self) -> Result<(), ScenarioError> {
        if self.chain.has_envoys() {
            for (name, caller) in self.chain.callers().filter(|(_, caller)| caller.has_proxy()) {
                envoy::check(&caller.proxy).map_err(|cannot| {
                    ScenarioError::NotRunnable(format!(
                        "{} is an Envoy, and an Envoy knows no {cannot}; or let our own proxy do it: --sidecar builtin",
                        proxy_name(name)
                    ))
                })?;
            }
        }
        Ok(())
    }

    /// Refuses what can be run and not be kept up, to be attached to: more than [`MAX_STANDING`] services, and whatever stands
    /// between two of them.
    pub fn check_stays_up(&self) -> Result<(), ScenarioError> {
        let refused = |message| Err(ScenarioError::NotRunnable(message));
        let services = self.chain.services.len();
        if services > MAX_STANDING {
            return refused(format!(
                "a chain that stays up has 2 to {MAX_STANDING} services, and this one has {services}: run starts it for \
                 itself"
            ));
        }
        if self.chain.has_envoys() {
            return refused("a chain that stays up has no Envoys: run starts them for itself".to_owned());
        }
        for (name, caller) in self.chain.callers() {
            let (attempts, proxy) = (caller.retry.attempts, caller.proxy.attempts);
            if caller.has_proxy() {
                return refused(format!(
                    "a chain that stays up has no proxies, and `{name} x{attempts}*{proxy}` has one: run starts it for itself"
                ));
            }
            if caller.undeclared > 1 {
                return refused(format!(
                    "a chain that stays up has no layers that nobody declared, and {name} has one of {}: run starts it for \
                     itself",
                    caller.undeclared
                ));
            }
        }
        Ok(())
    }

    /// Refuses a plan in which an arrival can hang and nobody ever ends the wait.
    fn check_ends(&self) -> Result<(), ScenarioError> {
        let client = &self.chain.client;
        // An attempt that its caller ends, or the proxy under it.
        let gives_up = |caller: &Caller| {
            let proxy = caller.has_proxy().then_some(&caller.proxy);
            std::iter::once(&caller.retry)
                .chain(proxy)
                .any(|policy| policy.attempt_timeout.is_some())
        };
        // Whether an arrival knows a deadline of its own, and whether its caller leaves some time.
        let mut knows = self.load.deadline.is_some();
        let mut leaves = knows || self.load.cancel_after.is_some() || gives_up(client);
        let mut caller = crate::chain_line::CLIENT.to_owned();
        for service in &self.chain.services {
            if service.fault.side.is_some() && service.fault.fault.bars_work() {
                break;
            }
            let own = service.fault.own();
            if own.may_hang() && !knows && !leaves {
                let name = &service.name;
                let path = if caller == crate::chain_line::CLIENT {
                    caller
                } else {
                    format!("services.{}", super::repeat::key(&caller))
                };
                return Err(ScenarioError::NotRunnable(format!(
                    "{name} hangs, and nothing would end the wait: hang needs a deadline or an attempt_timeout (--deadline \
                     10s, or --set {path}.retry.attempt_timeout=250ms)"
                )));
            }
            if own.bars_work() {
                break;
            }
            let limited = matches!(service.deadline, PassedOn::AtMost(_));
            let passed = limited || (knows && service.deadline == PassedOn::Pass);
            leaves = passed || gives_up(&service.caller) || (!service.detached && (knows || leaves));
            knows = passed;
            caller.clone_from(&service.name);
        }
        Ok(())
    }
}

/// Refuses a request whose plan has more arrivals than its deadline leaves time for. `arrivals_worst` is what one request causes at
/// all services together at worst (`u128::MAX` for more than that); not for predictions.
pub fn check_deadline(arrivals_worst: u128, deadline: Option<Duration>) -> Result<(), String> {
    let Some(deadline) = deadline else { return Ok(()) };
    // Whole milliseconds, so that 500 ms leave time for 500.
    let room = deadline.as_millis() * ARRIVALS_PER_SECOND / 1_000;
    if arrivals_worst <= room {
        return Ok(());
    }
    let arrivals = display(arrivals_worst);
    let deadline = humantime::format_duration(deadline);
    Err(format!(
        "one request of this plan may cause {arrivals} arrivals, and its deadline of {deadline} leaves time for {} (1,000 per \
         second); give it all the time it takes with --deadline none",
        grouped(room)
    ))
}

/// Refuses a plan of more arrivals than `--max-calls`. `total` is how the plan's total reads, `exceeds` whether it is above.
pub fn check_max_calls(total: &str, exceeds: bool, max_calls: u64) -> Result<(), String> {
    if !exceeds {
        return Ok(());
    }
    let digits: String = total.chars().filter(char::is_ascii_digit).collect();
    let way_on = match digits.parse::<u64>() {
        // A mean such as `1,234.5` has digits behind its point; rounding up is for whoever types it.
        Ok(needed) if !total.contains(['.', 'e']) => format!("allow it with --max-calls {needed}"),
        _ => "allow it with a higher --max-calls".to_owned(),
    };
    Err(format!(
        "this plan has {total} arrivals at all services together, more than the {} of --max-calls; {way_on}, or send fewer \
         requests (-n), or count without sending: predict",
        grouped(max_calls.into())
    ))
}

fn display(count: u128) -> String {
    if count == u128::MAX {
        "more than 3.4e38".to_owned()
    } else {
        grouped(count)
    }
}

/// A number as text shows it: groups of three.
pub(crate) fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() * 4 / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_arrivals_a_second_are_the_limit() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(check_deadline(1_000, second), Ok(()));
        let error = check_deadline(1_001, second).unwrap_err();
        assert!(
            error.contains("1,001 arrivals") && error.contains("--deadline none"),
            "{error}"
        );
        assert_eq!(check_deadline(u128::MAX, None), Ok(()));
        assert!(
            check_deadline(u128::MAX, Some(Duration::from_secs(86_400)))
                .unwrap_err()
                .contains("more than 3.4e38")
        );
        assert_eq!(check_deadline(500, Some(Duration::from_millis(500))), Ok(()));
        assert!(check_deadline(501, Some(Duration::from_millis(500))).is_err());
    }

    #[test]
    fn a_hang_that_nobody_ends_is_refused_and_told_what_would_end_it() {
        const NONE: &str = "load.deadline=none";
        let check = |line: &str, set: &[&str]| {
            let overrides = super::super::Overrides {
                set: set.iter().map(|each| (*each).to_owned()).collect(),
                ..super::super::Overrides::default()
            };
            let scenario = Scenario::load(Some(line), &overrides).unwrap();
            scenario.check_runnable().map_err(|error| error.to_string())
        };
        for hang in ["hang", "hang:first=1", "hang:p=0.5", "hang:first=1,scope=process"] {
            let line = format!("web x3 > api > db {hang}");
            assert_eq!(check(&line, &[]), Ok(()));
            let error = check(&line, &[NONE]).unwrap_err();
            assert!(
                error.contains("db hangs")
                    && error.contains("hang needs a deadline or an attempt_timeout")
                    && error.contains("services.api.retry.attempt_timeout"),
                "{error}"
            );
        }
        let line = "web x3 > api > db hang";
        for ended in [
            "load.cancel_after=1s",
            "services.api.retry.attempt_timeout=50ms",
            "services.web.retry.attempt_timeout=50ms",
            "client.retry.attempt_timeout=50ms",
            "services.api.deadline=50ms",
            "services.web.deadline=50ms",
            "services.api.fault=fail",
            "services.web.fault=refuse",
            "services.db.fault=hang:first=0",
            "services.db.fault=fail:side=client@api",
        ] {
            assert_eq!(check(line, &[NONE, ended]), Ok(()), "{ended}");
        }
        // The proxy on any link above gives up too, where there is one.
        let limit = "sidecars.retry.attempt_timeout=50ms";
        assert!(check(line, &[NONE, limit]).is_err());
        for proxied in [
            "web x3 > api x1*2 > db hang",
            "web x3*2 > api > db hang",
            "client x1*2 > web x3 > api > db hang",
        ] {
            assert!(check(proxied, &[NONE]).is_err());
            assert_eq!(check(proxied, &[NONE, limit]), Ok(()), "{proxied}");
        }
        for not_ended in [
            "services.api.deadline=drop",
            "services.api.fault=fail:p=0.5",
            "services.api.fault=fail:at=after",
        ] {
            assert!(check(line, &[NONE, not_ended]).is_err(), "{not_ended}");
        }
        // A caller that leaves ends nothing where the work goes on without it.
        let gone = ["services.web.deadline=drop", "services.web.detached=true"];
        assert!(check(line, &gone).is_err());
        assert_eq!(check(line, &gone[..1]), Ok(()));
        assert_eq!(check(line, &gone[1..]), Ok(()));
        let left = [NONE, "load.cancel_after=1s", "services.db.detached=true"];
        assert_eq!(check(line, &left), Ok(()), "a hang has no work that could go on");
    }

    #[test]
    fn an_envoy_is_asked_for_what_envoys_know_and_its_words_are_passed_on() {
        for set in [
            "retry_on=[\"UNAVAILABLE\"]",
            "retry_on=any",
            "hedge.delay=5ms",
            "commit=message",
        ] {
            for at in ["sidecars.retry", "sidecars.web.retry"] {
                let overrides = super::super::Overrides {
                    set: vec!["sidecars.kind=envoy".to_owned(), format!("{at}.{set}")],
                    ..super::super::Overrides::default()
                };
                let scenario = Scenario::load(Some("web x3*2 > db down"), &overrides).unwrap();
                let due = envoy::check(&scenario.chain.services[0].caller.proxy).map_err(|cannot| {
                    format!(
                        "web-proxy is an Envoy, and an Envoy knows no {cannot}; or let our own proxy do it: --sidecar builtin"
                    )
                });
                let checked = scenario.check_runnable().map_err(|error| error.to_string());
                assert_eq!(checked, due, "{set}");
            }
        }
    }

    #[test]
    fn a_plan_above_max_calls_is_told_the_flag_that_allows_it() {
        assert_eq!(check_max_calls("40", false, 40), Ok(()));
        let error = check_max_calls("40", true, 20).unwrap_err();
        assert!(
            error.contains("40 arrivals") && error.contains("the 20 of") && error.contains("--max-calls 40"),
            "{error}"
        );
        let error = check_max_calls("3,000,000", true, DEFAULT_MAX_CALLS).unwrap_err();
        assert!(
            error.contains("2,000,000") && error.contains("--max-calls 3000000"),
            "{error}"
        );
        assert!(
            check_max_calls("more than 3.4e38", true, 1)
                .unwrap_err()
                .contains("a higher --max-calls")
        );
    }

    #[test]
    fn numbers_get_commas() {
        let shown: Vec<_> = [0, 9_999, 10_000, 1_234_567].map(grouped).to_vec();
        assert_eq!(shown, ["0", "9,999", "10,000", "1,234,567"]);
    }
}
