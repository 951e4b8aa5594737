//! Files, flags and chain lines become the scenario they say, or are refused by name.

use super::{strategies::scenario, *};
use crate::chain_line::MAX_SERVICES;
use chassis::{
    fault::{Fault, Kind},
    policy::{Budget, Commit, RetryOn, Throttle},
};
use proptest::prelude::*;

fn from(source: &str, change: impl FnOnce(&mut Overrides)) -> Result<Scenario, ScenarioError> {
    let mut overrides = Overrides::default();
    change(&mut overrides);
    Scenario::load(Some(source), &overrides)
}

fn attempts(scenario: &Scenario) -> Vec<u32> {
    let callers = scenario
        .chain
        .services
        .iter()
        .rev()
        .skip(1)
        .rev()
        .map(|service| &service.caller);
    std::iter::once(&scenario.chain.client)
        .chain(callers)
        .map(|caller| caller.retry.attempts)
        .collect()
}

proptest! {
    #[test]
    fn the_effective_scenario_is_read_back_as_the_same(scenario in scenario(MAX_SERVICES)) {
        let text = toml::to_string(&scenario.effective()).unwrap();
        prop_assert_eq!(Scenario::from_toml("effective.toml", &text), Ok(scenario), "{}", text);
    }

    #[test]
    fn no_file_makes_the_reader_panic(text in "\\PC{0,80}|[a-z0-9=.\"\\[\\]{}\n -]{0,80}") {
        let _ = Scenario::from_toml("case.toml", &text);
    }
}

/// What each built-in scenario brings to each service, worked out by hand: a failure that is retried multiplies by the attempts
/// above it; a final one, a success and an owner's neighbours do not. Empty where the count is drawn.
const BY_HAND: &[(&str, &[u32], &[u64])] = &[
    // Always down: 1, 3, 3 * 3, 3 * 3 * 3.
    ("per-hop", &[1, 3, 3, 3], &[1, 3, 9, 27]),
    ("single-owner", &[1, 3, 1, 1], &[1, 3, 3, 3]),
    ("single-owner-checkout", &[1, 1, 3, 1], &[1, 1, 3, 3]),
    ("single-owner-pricing", &[1, 1, 1, 3], &[1, 1, 1, 3]),
    ("single-owner-client", &[3, 1, 1, 1], &[3, 3, 3, 3]),
    ("client-too", &[3, 3, 3, 3], &[3, 9, 27, 81]),
    // Two failures and one success, all of them pricing's.
    ("transient", &[1, 3, 3, 3], &[1, 1, 1, 3]),
    ("flaky", &[1, 3, 3, 3], &[]),
    // 27 sent, and nobody there to receive them.
    ("refused", &[1, 3, 3, 3], &[1, 3, 9, 0]),
    ("after-work", &[1, 3, 3, 3], &[1, 3, 9, 27]),
    // INVALID_ARGUMENT is not in retry_on; it is when everything is.
    ("invalid", &[1, 3, 3, 3], &[1, 1, 1, 1]),
    ("retry-everything", &[1, 3, 3, 3], &[1, 3, 9, 27]),
    // Pricing repeats UNAVAILABLE three times and answers what nobody repeats.
    ("translated", &[1, 3, 3, 3], &[1, 1, 1, 3]),
    // Pricing never repeats FAILED_PRECONDITION; checkout and frontend repeat pricing's UNAVAILABLE: 3 * 3 * 1.
    ("re-translated", &[1, 3, 3, 3], &[1, 3, 9, 9]),
    // 3 sent, none received.
    ("translated-in-the-middle", &[1, 3, 3, 3], &[1, 1, 1, 0]),
    ("http-503-received", &[1, 3, 3, 3], &[1, 1, 1, 1]),
    // UNKNOWN is not in retry_on.
    ("raw-tonic-codes", &[1, 3, 3, 3], &[1, 1, 1, 1]),
    ("backoff", &[1, 3, 3, 3], &[1, 1, 1, 3]),
    // One that hangs, one that is answered.
    ("attempt-timeout", &[1, 1, 1, 3], &[1, 1, 1, 2]),
    // Pricing's attempts are committed one each; its own answer is a plain failure, which is repeated above.
    ("headers-first", &[1, 3, 3, 3], &[1, 3, 9, 9]),
    ("headers-first-message", &[1, 3, 3, 3], &[1, 3, 9, 27]),
    // The word of inventory ends at pricing.
    ("pushback", &[1, 3, 3, 3], &[1, 3, 9, 9]),
    // Each bucket lets its first call retry twice, its second once, and no other: 3 more at each hop.
    ("throttle", &[1, 3, 3, 3], &[100, 103, 106, 109]),
    // A fifth more at each hop, rounded down: 100 + 20, 120 + 24, 144 + 28.
    ("budget-window", &[1, 3, 3, 3], &[100, 120, 144, 172]),
    ("budget-in-flight", &[1, 3, 3, 3], &[1, 3, 9, 27]),
    // First tries are 1, 1, 3: each makes three calls, every other one.
    ("only-first-tries", &[1, 3, 3, 3], &[1, 3, 5, 11]),
    ("hedge-a-cheap-read", &[1, 2], &[]),
    ("slow", &[1, 3, 3, 3], &[1, 1, 1, 1]),
    // At 0, 200 and 400 of 500 ms.
    ("slow-with-deadline", &[1, 3, 3, 3], &[1, 1, 1, 3]),
    // Checkout knows no deadline and goes on to its own end: 3 * 3.
    ("deadline-dropped", &[1, 3, 3, 3], &[1, 1, 3, 9]),
    ("cancelled", &[1, 3, 3, 3], &[1, 1, 1, 3]),
    ("detached", &[1, 3, 3, 3], &[1, 1, 3, 9]),
    // The time of all of them ends at once.
    ("hang", &[1, 3, 3, 3], &[1, 1, 1, 1]),
    ("connection-reset", &[1, 3, 3, 3], &[1, 3, 9, 27]),
    ("stream-reset", &[1, 3, 3, 3], &[1, 3, 9, 27]),
    ("goaway", &[1, 3, 3, 3], &[1, 1, 1, 2]),
    // RESOURCE_EXHAUSTED is not in retry_on.
    ("overload", &[1, 3, 3, 3], &[20, 20, 20, 20]),
    // The attempt that failed was never sent.
    ("client-fault-inside", &[1, 3, 3, 3], &[1, 1, 1, 1]),
    ("client-fault-outside", &[1, 3, 3, 3], &[1, 1, 2, 1]),
    ("open-loop", &[1, 3, 3, 3], &[20, 60, 180, 540]),
    // 3 * 3 at each hop.
    ("sidecars", &[1, 3, 3, 3], &[1, 9, 81, 729]),
    // Twice as many with each link.
    (
        "long-chain",
        &[1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2],
        &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096],
    ),
    // What pricing sends 27 times arrives four times each.
    ("hidden-layer", &[1, 3, 3, 3], &[1, 3, 9, 108]),
    // Nothing goes on behind a first call that fails.
    ("fan-out", &[1, 3, 3, 3], &[1, 3, 9, 27]),
    // 3 arrivals make two calls each: 3 * 2 * 3.
    ("fan-out-parallel", &[1, 3, 3, 3], &[1, 3, 18, 54]),
    ("envoy-defaults", &[1, 1, 1, 1], &[]),
    ("nested-unavailable", &[3, 3], &[3, 9]),
    ("nested-invalid", &[3, 3], &[1, 1]),
    ("nested-transient", &[3, 3], &[1, 3]),
    ("single-owner-unavailable", &[3, 1], &[3, 3]),
    ("single-owner-invalid", &[3, 1], &[1, 1]),
    ("single-owner-transient", &[3, 1], &[3, 3]),
];

/// Those that only a clock can decide.
const BY_THE_CLOCK: [&str; 6] = [
    "attempt-timeout",
    "slow-with-deadline",
    "deadline-dropped",
    "cancelled",
    "detached",
    "hang",
];

#[test]
fn every_built_in_scenario_loads_and_its_counts_are_those_worked_out_by_hand() {
    let names = |of: &mut dyn Iterator<Item = &'static str>| of.collect::<Vec<_>>();
    assert_eq!(
        names(&mut BY_HAND.iter().map(|(name, ..)| *name)),
        names(&mut BUILT_IN.iter().map(|each| each.name))
    );
    for (name, expected_attempts, received) in BY_HAND {
        let scenario = from(name, |_| ()).unwrap();
        assert_eq!(scenario.name, *name);
        assert!(
            (1..=90).contains(&scenario.about.chars().count()) && scenario.about.is_ascii(),
            "{name}: {}",
            scenario.about
        );
        assert_eq!(attempts(&scenario), *expected_attempts, "{name}");
        if !received.is_empty() && !BY_THE_CLOCK.contains(name) {
            assert_eq!(Walk::of(&scenario), *received, "{name}");
        }
        assert_eq!(scenario.repeat("run"), format!("run {name}"));
        assert_eq!(scenario.check_runnable(), Ok(()), "{name}");
    }
}

#[test]
fn a_built_in_scenario_says_what_it_needs_and_how_it_ends() {
    let those = |is: fn(&BuiltIn) -> bool| {
        let names = BUILT_IN.iter().filter(|each| is(each)).map(|each| each.name);
        names.collect::<Vec<_>>()
    };
    assert_eq!(those(BuiltIn::needs_envoy), ["envoy-defaults"]);
    assert_eq!(those(|each| each.exit_code() == 1), ["hidden-layer"]);
}

#[test]
fn the_readme_lists_every_built_in_scenario_with_its_counts() {
    let readme = include_str!("../../../README.md");
    for (built_in, (name, _, received)) in BUILT_IN.iter().zip(BY_HAND) {
        let counts: Vec<_> = received.iter().map(u64::to_string).collect();
        let counts = match counts.as_slice() {
            // Only their order says which retries of many requests find room.
            [] if built_in.needs_envoy() => "varies".to_owned(),
            [] => "drawn".to_owned(),
            counts => counts.join(" "),
        };
        let row = format!("\n| `{name}` | {counts} | {} |\n", built_in.about());
        assert!(readme.contains(&row), "{row}");
    }
}

/// Walks the requests down the chain, one after another and call by call, without a clock; slow, simple, and no kin of the
/// model.
struct Walk<'a> {
    scenario: &'a Scenario,
    received: Vec<u64>,
    /// Arrivals of this request at each service, and what its caller's own fault has met there.
    of_request: Vec<(u64, u64)>,
    /// Tokens and balance of each caller, in thousandths.
    tokens: Vec<Option<u32>>,
    balance: Vec<u32>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Default)]
struct Ending {
    code: Option<code::Code>,
    committed: bool,
    forbidden: bool,
}

impl From<code::Code> for Ending {
    fn from(code: code::Code) -> Self {
        Self {
            code: Some(code),
            ..Self::default()
        }
    }
}

impl<'a> Walk<'a> {
    fn of(scenario: &'a Scenario) -> Vec<u64> {
        let services = scenario.chain.services.len();
        let throttles = scenario.chain.callers().map(|(_, caller)| caller.retry.throttle);
        let mut walk = Self {
            scenario,
            received: vec![0; services],
            of_request: Vec::new(),
            tokens: throttles
                .map(|throttle| throttle.map(|throttle| throttle.max_milli))
                .collect(),
            balance: vec![0; services],
        };
        for _ in 0..scenario.load.requests {
            walk.of_request = vec![(0, 0); services];
            walk.call(0, 1);
        }
        walk.received
    }

    /// The caller above service `to` calls it; `attempt` is the one it serves itself.
    fn call(&mut self, to: usize, attempt: u32) -> Ending {
        let scenario = self.scenario;
        let caller = scenario.chain.callers().nth(to).unwrap().1;
        let service = &scenario.chain.services[to];
        if let Some((_, false)) = service.fault.side
            && let Some(failed) = self.own_way_out(to)
        {
            return failed;
        }
        let policy = &caller.retry;
        let stacked = caller.proxy.attempts * caller.undeclared;
        if let Some(Budget::Window { ratio_milli, .. }) = policy.budget {
            self.balance[to] += ratio_milli;
        }
        let most = if policy.only_first_tries && attempt > 1 {
            1
        } else {
            policy.attempts
        };
        for number in 1.. {
            // Whatever stands on the link tries again what its caller does: of a failure all attempts are seen.
            let mut ending = self.attempt(to, number);
            for _ in 1..stacked {
                if ending.code.is_some_and(|code| policy.retry_on.contains(code)) {
                    ending = self.attempt(to, number);
                }
            }
            let fails = ending.code.is_some_and(|code| policy.retry_on.contains(code));
            if let (Some(throttle), Some(tokens)) = (policy.throttle, &mut self.tokens[to]) {
                *tokens = match ending.code {
                    Some(_) if fails => tokens.saturating_sub(1_000),
                    Some(_) => *tokens,
                    None => (*tokens + throttle.ratio_milli).min(throttle.max_milli),
                };
                if fails && *tokens * 2 <= throttle.max_milli {
                    return ending;
                }
            }
            let barred = ending.committed && policy.commit == Commit::Headers;
            if !fails || number == most || barred || (ending.forbidden && policy.pushback) {
                return ending;
            }
            if matches!(policy.budget, Some(Budget::Window { .. })) {
                let Some(left) = self.balance[to].checked_sub(1_000) else {
                    return ending;
                };
                self.balance[to] = left;
            }
        }
        unreachable!("attempts end")
    }

    /// The fault of the caller itself on its way to service `to`.
    fn own_way_out(&mut self, to: usize) -> Option<Ending> {
        let ServiceFault { fault, .. } = &self.scenario.chain.services[to].fault;
        let met = &mut self.of_request[to].1;
        *met += 1;
        match fault.kind {
            Kind::Fail(told) if fault.when.first.is_none_or(|first| *met <= first) => Some(told.code.into()),
            _ => None,
        }
    }

    fn attempt(&mut self, to: usize, number: u32) -> Ending {
        use chassis::fault::{At, Reset};
        let service = &self.scenario.chain.services[to];
        if let Some((_, true)) = service.fault.side
            && let Some(failed) = self.own_way_out(to)
        {
            return failed;
        }
        let fault = service.fault.own();
        if fault.refuses() {
            return code::Code::Unavailable.into();
        }
        self.received[to] += 1;
        self.of_request[to].0 += 1;
        let is_met = fault.when.first.is_none_or(|first| self.of_request[to].0 <= first);
        let kind = if is_met { fault.kind } else { Kind::None };
        let codes = self.scenario.chain.callers().nth(to).unwrap().1.transport_codes;
        match kind {
            Kind::Fail(told) if told.at != At::After => Ending {
                code: Some(told.code),
                committed: told.at == At::Headers,
                forbidden: told.pushback_ms.is_some_and(|ms| ms < 0),
            },
            Kind::Http { status: 503 } | Kind::Reset(Reset::Stream(_)) => code::Code::Unavailable.into(),
            Kind::Reset(Reset::Connection) | Kind::GoAway => match codes {
                TransportCodes::Raw => code::Code::Unknown.into(),
                TransportCodes::Normalized => code::Code::Unavailable.into(),
            },
            Kind::Overload { code, .. } => code.into(),
            Kind::None | Kind::Fail(_) => {
                let worked = if to + 1 < self.received.len() {
                    let mut below = self.call(to + 1, number).code;
                    for _ in 1..service.calls {
                        if service.fan_out == FanOut::Parallel || below.is_none() {
                            below = below.or(self.call(to + 1, number).code);
                        }
                    }
                    below.map(|below| match service.on_failure {
                        OnFailure::Pass => below,
                        OnFailure::Answer(own) => own,
                    })
                } else {
                    self.scenario
                        .load
                        .item
                        .is_empty()
                        .then_some(code::Code::InvalidArgument)
                };
                let told = match kind {
                    Kind::Fail(told) => Some(told.code),
                    _ => None,
                };
                Ending {
                    code: worked.or(told),
                    ..Ending::default()
                }
            }
            other => panic!("only a clock decides {other:?}"),
        }
    }
}

use chassis::code;

#[test]
fn nothing_at_all_is_per_hop_with_its_documented_load() {
    let scenario = Scenario::load(None, &Overrides::default()).unwrap();
    assert_eq!(
        scenario.chain_line(),
        "client > frontend x3 > checkout x3 > pricing x3 > inventory down"
    );
    let Load {
        requests,
        concurrency,
        rate,
        deadline,
        cancel_after,
        seed,
        item,
    } = scenario.load;
    assert_eq!(
        (requests, concurrency, deadline, seed),
        (1, 1, Some(Duration::from_secs(10)), 27)
    );
    assert_eq!((rate, cancel_after), (None, None));
    assert!(!item.is_empty());
}

#[test]
fn names_and_programs_follow_the_depth() {
    use Role::{Checkout, Frontend, Inventory, Pricing};
    let of = |source, depth| {
        let scenario = from(source, |flags| flags.depth = depth).unwrap();
        let programs: Vec<_> = scenario.programs().into_iter().map(Program::name).collect();
        let names = scenario.service_names().collect::<Vec<_>>().join(" ");
        (names, programs.join(" "), scenario.entry())
    };
    for (depth, names, programs, entry) in [
        (1, "pricing inventory", "pricing inventory", Pricing),
        (2, "checkout pricing inventory", "checkout pricing inventory", Checkout),
        (
            3,
            "frontend checkout pricing inventory",
            "frontend checkout pricing inventory",
            Frontend,
        ),
        (
            5,
            "frontend checkout pricing relay-1 relay-2 inventory",
            "frontend checkout pricing sidecar sidecar inventory",
            Frontend,
        ),
    ] {
        let got = of("per-hop", Some(depth));
        assert_eq!(got, (names.to_owned(), programs.to_owned(), entry));
    }
    assert_eq!(default_names(12).len(), MAX_SERVICES);
    let (_, programs, entry) = of("web x3 > orders x2 > ledger down", None);
    assert_eq!((programs.as_str(), entry), ("checkout pricing inventory", Checkout));
    assert_ne!(Inventory, entry);
}

#[test]
fn attempts_at_beats_owner_beats_attempts_beats_the_file() {
    let of = |change: fn(&mut Overrides)| attempts(&from("client-too", change).unwrap());
    assert_eq!(of(|_| ()), [3, 3, 3, 3]);
    assert_eq!(of(|flags| flags.attempts = Some(5)), [3, 5, 5, 5]);
    let owned = |flags: &mut Overrides| {
        flags.attempts = Some(5);
        flags.owner = Some("checkout".to_owned());
    };
    assert_eq!(of(owned), [1, 1, 5, 1]);
    assert_eq!(
        of(|flags| {
            flags.attempts = Some(5);
            flags.owner = Some("checkout".to_owned());
            flags.attempts_at = vec![("checkout".to_owned(), 2), ("client".to_owned(), 4)];
        }),
        [4, 1, 2, 1]
    );
}

#[test]
fn a_client_with_one_attempt_becomes_an_owner_by_attempts_or_three() {
    let of = |attempts_flag| {
        let scenario = from("per-hop", |flags| {
            flags.owner = Some("client".to_owned());
            flags.attempts = attempts_flag;
        });
        attempts(&scenario.unwrap())
    };
    assert_eq!(of(None), [3, 1, 1, 1]);
    assert_eq!(of(Some(2)), [2, 1, 1, 1]);
}

#[test]
fn an_owner_leaves_no_proxy() {
    let scenario = from("client x2*2 > web x3*3 > api x3 > db down", |flags| {
        flags.owner = Some("web".to_owned());
    })
    .unwrap();
    assert_eq!(scenario.chain_line(), "client > web x3 > api > db down");
}

#[test]
fn shared_keys_are_inherited_and_own_keys_override_them() {
    let text = "transport_codes = \"raw\"\n[retry]\nattempts = 4\nretry_on = [\"ABORTED\"]\nbackoff = { initial = \"5ms\" }\n\
                [client.retry]\nbackoff = \"none\"\n\
                [services.checkout]\ntransport_codes = \"normalized\"\nretry = { attempts = 2, retry_on = \"any\" }\n";
    let Chain { client, services, .. } = Scenario::from_toml("case.toml", text).unwrap().chain;
    let aborted = RetryOn::Codes(vec![code::Code::Aborted]);
    let backoff = services[0].caller.retry.backoff;
    assert_eq!(backoff.map(|backoff| backoff.initial), Some(Duration::from_millis(5)));
    assert_eq!(
        client.retry,
        Policy {
            attempts: 1,
            retry_on: aborted.clone(),
            ..Policy::default()
        }
    );
    assert_eq!(client.transport_codes, TransportCodes::Raw);
    assert_eq!(
        services[0].caller.retry,
        Policy {
            attempts: 4,
            retry_on: aborted,
            backoff,
            ..Policy::default()
        }
    );
    assert_eq!(
        services[1].caller.retry,
        Policy {
            attempts: 2,
            retry_on: RetryOn::Any,
            backoff,
            ..Policy::default()
        }
    );
    assert_eq!(services[1].caller.transport_codes, TransportCodes::Normalized);
    assert_eq!(services[3].caller, Caller::default());
}

#[test]
fn every_key_of_a_policy_is_inherited_and_none_switches_it_off() {
    let text = "[retry]\nattempt_timeout = \"250ms\"\ncommit = \"message\"\npushback = false\nonly_first_tries = true\n\
                throttle = { max_tokens = 10, token_ratio = 0.1 }\n\
                budget = { kind = \"window\", ratio = 0.5, min_per_second = 0 }\nhedge = { delay = \"50ms\" }\n\
                [client.retry]\nhedge = \"none\"\nbackoff = { initial = \"5ms\" }\n\
                [services.checkout.retry]\nattempt_timeout = \"none\"\nthrottle = \"none\"\nbudget = \"none\"\n\
                hedge = \"none\"\ncommit = \"headers\"\npushback = true\nonly_first_tries = false\n\
                [services.pricing.retry]\nbudget = { kind = \"in_flight\" }\nhedge = { delay = \"1s\" }\n";
    let Chain { client, services, .. } = Scenario::from_toml("case.toml", text).unwrap().chain;
    let shared = Policy {
        attempts: 3,
        attempt_timeout: Some(Duration::from_millis(250)),
        commit: Commit::Message,
        pushback: false,
        throttle: Some(Throttle {
            max_milli: 10_000,
            ratio_milli: 100,
        }),
        budget: Some(Budget::Window {
            ratio_milli: 500,
            min_per_second: 0,
            ttl: Duration::from_secs(10),
        }),
        hedge: Some(Duration::from_millis(50)),
        only_first_tries: true,
        ..Policy::default()
    };
    assert_eq!(services[0].caller.retry, shared);
    assert_eq!((client.retry.attempts, client.retry.hedge), (1, None));
    assert!(client.retry.backoff.is_some() && client.retry.budget == shared.budget);
    let plain = Policy {
        attempts: 3,
        ..Policy::default()
    };
    assert_eq!(services[1].caller.retry, plain);
    assert_eq!(services[2].caller.retry.budget, Some(Budget::IN_FLIGHT));
    assert_eq!(services[2].caller.retry.hedge, Some(Duration::from_secs(1)));
}

#[test]
fn what_every_caller_has_is_one_flag_and_what_one_has_is_its_own() {
    let repeat = |set: &[&str]| {
        from("web x3 > api x3 > db down", |flags| {
            flags.set = set.iter().map(|each| (*each).to_owned()).collect();
        })
        .unwrap()
        .repeat("run")
    };
    let line = "run 'web x3 > api x3 > db down'";
    for set in [
        "retry.hedge={ delay = \"50ms\" }",
        "retry.throttle={ max_tokens = 10, token_ratio = 0.1 }",
        "retry.budget={ kind = \"window\", ratio = 0.2, min_per_second = 0, ttl = \"10s\" }",
        "client.retry.budget={ kind = \"in_flight\", percent = 20, min_concurrency = 3 }",
    ] {
        assert_eq!(repeat(&[set]), format!("{line} --set '{set}'"));
    }
    for set in [
        "retry.attempt_timeout=250ms",
        "retry.commit=message",
        "retry.pushback=false",
        "services.api.retry.only_first_tries=true",
        "services.web.deadline=drop",
        "services.api.calls=3",
        "services.web.fan_out=parallel",
        "services.db.detached=true",
    ] {
        assert_eq!(repeat(&[set]), format!("{line} --set {set}"));
    }
    assert_eq!(
        repeat(&["load.rate=20", "load.cancel_after=50ms", "load.requests=9"]),
        format!("{line} -n 9 --rate 20 --cancel-after 50ms")
    );
    assert_eq!(
        repeat(&["load.rate=0.5", "load.concurrency=1"]),
        format!("{line} -c 1 --rate 0.5")
    );
}

#[test]
fn a_rate_lets_a_thousand_run_at_once_unless_told_otherwise() {
    let at_once = |change: fn(&mut Overrides)| from("per-hop", change).unwrap().load.concurrency;
    assert_eq!(at_once(|flags| flags.rate = Some(5.0)), 1_000);
    assert_eq!(at_once(|flags| flags.set = vec!["load.rate=5".to_owned()]), 1_000);
    assert_eq!(
        at_once(|flags| {
            flags.rate = Some(5.0);
            flags.concurrency = Some(3);
        }),
        3
    );
    // Also on top of a chain that runs, whose load is the default one.
    let standing = Scenario::standing(&from("per-hop", |_| ()).unwrap().configs()[1..]).unwrap();
    let change = Change {
        source: None,
        overrides: Overrides {
            rate: Some(5.0),
            ..Overrides::default()
        },
    };
    let load = change.of(&standing).unwrap().load;
    assert_eq!((load.rate, load.concurrency), (Some(5.0), 1_000));
}

#[test]
fn a_running_chain_is_the_scenario_that_its_services_were_told() {
    let set = [
        "retry.budget={ kind = \"window\" }",
        "services.pricing.retry.hedge={ delay = \"20ms\" }",
        "services.checkout.deadline=drop",
        "services.checkout.calls=3",
        "services.frontend.fan_out=parallel",
        "services.inventory.detached=true",
        "services.pricing.fault=fail:p=0.5,side=client@checkout,loop=outside",
        "services.inventory.fault=delay:ms=20,side=client@pricing",
        "client.retry.budget=none",
    ];
    let told = from("per-hop", |flags| flags.set = set.map(str::to_owned).to_vec()).unwrap();
    let mut configs = told.configs().split_off(1);
    let standing = Scenario::standing(&configs).unwrap();
    assert_eq!(standing.chain, told.chain);
    let unchanged = Change::default().of(&standing).unwrap();
    assert_eq!(unchanged.chain, told.chain);
    let healed = Change {
        source: None,
        overrides: Overrides {
            faults: vec![(Some("inventory".to_owned()), Fault::NONE.into())],
            ..Overrides::default()
        },
    };
    let healed = healed.of(&standing).unwrap().configs();
    assert_eq!(healed[3].client_fault, None);
    assert!(healed[2].client_fault.is_some());
    configs[3].fault = Fault::down();
    let error = Scenario::standing(&configs).unwrap_err().to_string();
    assert!(
        error.contains("inventory misbehaves (fail), and pricing too"),
        "{error}"
    );
}

#[test]
fn a_fault_flag_replaces_its_service_and_leaves_the_others() {
    let scenario = from("web x3 > api x2 > db down", |flags| {
        flags.set = vec!["services.web.fault=fail:first=1".to_owned()];
        flags.faults = vec![
            (None, Fault::NONE.into()),
            (Some("api".to_owned()), Fault::of(Kind::Refuse).into()),
        ];
    });
    let faults: Vec<_> = scenario
        .unwrap()
        .chain
        .services
        .iter()
        .map(|service| service.fault.to_string())
        .collect();
    assert_eq!(faults, ["fail:first=1", "refuse", "none"]);
}

#[test]
fn set_takes_toml_or_a_bare_word() {
    let scenario = from("per-hop", |flags| {
        flags.set = [
            "services.pricing.on_failure=FAILED_PRECONDITION",
            "load.deadline=500ms",
            "load.requests=5",
            "services.frontend.retry.retry_on=[\"ABORTED\", 'NOT_FOUND']",
            "services.checkout.retry={ attempts = 7 }",
            "services.\"checkout\".retry.attempts=8",
        ]
        .map(str::to_owned)
        .to_vec();
    });
    let scenario = scenario.unwrap();
    assert_eq!(
        scenario.chain.services[2].on_failure,
        OnFailure::Answer(code::Code::FailedPrecondition)
    );
    assert_eq!(
        (scenario.load.deadline, scenario.load.requests),
        (Some(Duration::from_millis(500)), 5)
    );
    assert_eq!(
        scenario.chain.services[0].caller.retry.retry_on.to_string(),
        "NOT_FOUND,ABORTED"
    );
    assert_eq!(attempts(&scenario), [1, 3, 8, 3]);
}

/// Each text is refused with the place and the words that are named.
fn refused_by_line(cases: &[(&str, &str)]) {
    for (text, named) in cases {
        let error = Scenario::from_toml("case.toml", text).unwrap_err().to_string();
        assert!(
            error.starts_with("case.toml, line ") && error.contains(named),
            "{text}\n{error}"
        );
        assert!(!error.contains(crate::sanitize::is_control), "{error}");
    }
}

#[test]
fn each_wrong_file_is_refused_with_its_line_and_what_would_be_right() {
    refused_by_line(&[
        (
            "[retry]\nattempts = 3\n\n[services.inventory]\nfault = \"fail\"\n[services.pricing.retry]\natempts = 2",
            "case.toml, line 7: `atempts` is no key of [services.pricing.retry]; did you mean `attempts`? \
             (keys: attempts, retry_on, connect_failure, backoff, attempt_timeout, commit, pushback, throttle, budget, \
             hedge, only_first_tries)",
        ),
        (
            "\n[retry]\nattempts = 0",
            "case.toml, line 3: attempts = 0: write 1 to 100, the first attempt included",
        ),
        ("[retry]\nattempts = 101", "attempts = 101: write 1 to 100"),
        ("[retry]\nattempts = 1.0", "attempts = 1.0: write 1 to 100"),
        ("[retry]\nattempts = \"3\"", "attempts = \"3\": write 1 to 100"),
        (
            "[retry]\nattempts = 99999999999999999999999999999999999999999999",
            "attempts = 9999",
        ),
        ("retry = 3", "line 1: retry = 3: write a table: [retry]"),
        ("[services]\nweb = 3", "line 2: web = 3: write a table: [services.web]"),
        ("[retry]\nretry_on = []", "line 2: retry_on = []: retry_on is empty"),
        ("[retry]\nretry_on = [\"UNAVAILBLE\"]", "did you mean `UNAVAILABLE`?"),
        ("[retry]\nretry_on = [1]", "write a list of status codes"),
        ("[retry]\nretry_on = [\"any\"]", "write a list of status codes"),
        (
            "[retry]\nbackoff = { initial = 5 }",
            "initial = 5: write a duration in quotes",
        ),
        (
            "[retry]\nbackoff = { inital = \"5ms\" }",
            "`inital` is no key of [retry.backoff]; did you mean `initial`?",
        ),
        ("[retry]\nbackoff = { multiplier = 0 }", "line 2: backoff: multiplier"),
        (
            "[retry]\nbackoff = { jitter = \"half\" }",
            "write none, plus_minus_20 or full",
        ),
        ("attempts = 3", "`attempts` is no key of a scenario"),
        ("requests = 3", "did you mean `load.requests`?"),
        ("[services.pricing]\natempts = 2", "did you mean `retry.attempts`?"),
        ("[load]\nrequests = 0", "requests = 0: write a whole number"),
        ("[load]\nconcurrency = 5001", "concurrency = 5001: write a whole"),
        ("[load]\ndeadline = 10", "deadline = 10: write a duration above 0"),
        ("[load]\ndeadline = \"0s\"", "deadline = \"0s\""),
        ("[load]\ndeadline = \"25h\"", "at most 24h"),
        ("[load]\nseed = -1", "seed = -1: write a whole number"),
        ("[load]\nitem = \"a\\u0000b\"", "no NUL"),
        ("[chain]\ndepth = 13", "depth = 13: write 1 to 12"),
        (
            "[chain]\ndepth = 1\nline = \"web > db\"",
            "line 2: [chain] takes a line or a depth",
        ),
        ("[chain]\nline = \"web x0 > db\"", "line 2: `x0` behind `web`"),
        (
            "[chain]\nline = \"web x2 > db\"\n[retry]\nattempts = 3",
            "line 4: [retry] attempts stands beside a chain line",
        ),
        (
            "[services.pricng]\nfault = \"fail\"",
            "line 1: no service `pricng` is in this chain; did you mean `pricing`?",
        ),
        ("[services.client]\nfault = \"fail\"", "[client.retry]"),
        (
            "[services.inventory.retry]\nattempts = 3",
            "inventory is the bottom service and calls nobody, so it has no retry",
        ),
        ("[services.inventory]\non_failure = \"pass\"", "so it has no on_failure"),
        (
            "[services.pricing]\nfault = \"explode\"",
            "line 2: fault = \"explode\": `explode` is not a fault",
        ),
        (
            "[services.pricing]\non_failure = \"UNAVAILBLE\"",
            "did you mean `UNAVAILABLE`?",
        ),
        ("transport_codes = \"cooked\"", "write normalized or raw"),
        ("name = \"\"", "write a name of 1 to 60 characters"),
        ("[retry]\nattempts = 3\nattempts = 4", "line 3: this is no TOML"),
        ("[retry\n", "line 1: this is no TOML"),
        ("\"\\u001b[2J\" = 1", r"`\u{1b}[2J` is no key"),
    ]);
}

#[test]
fn each_wrong_key_of_a_policy_is_refused_with_its_line_and_what_would_be_right() {
    refused_by_line(&[
        (
            "[retry]\nhedge = { delay = 5 }",
            "line 2: delay = 5: write a duration in quotes, such as \"250ms\", above 0 and at most 1h",
        ),
        ("[retry]\nhedge = \"5ms\"", "write { delay = \"50ms\" }, or \"none\""),
        ("[retry]\nhedge = {}", "hedge = a table: write { delay = \"50ms\" }"),
        ("[retry]\nhedge = { dealy = \"5ms\" }", "did you mean `delay`?"),
        (
            "[retry]\nattempt_timeout = \"0s\"",
            "attempt_timeout = \"0s\": write a duration",
        ),
        ("[retry]\nattempt_timeout = \"2h\"", "at most 1h"),
        (
            "[retry]\ncommit = \"trailers\"",
            "commit = \"trailers\": write headers or message",
        ),
        ("[retry]\npushback = \"yes\"", "pushback = \"yes\": write true or false"),
        (
            "[retry]\nonly_first_tries = 1",
            "only_first_tries = 1: write true or false",
        ),
        (
            "[retry]\nthrottle = 10",
            "throttle = 10: write { max_tokens = 10, token_ratio = 0.1 }, or \"none\"",
        ),
        (
            "[retry]\nthrottle = { max_tokens = 10 }",
            "line 2: throttle: max_tokens=10: write max_tokens and token_ratio",
        ),
        (
            "[retry]\nthrottle = { max_tokens = 1001, token_ratio = 0.1 }",
            "max_tokens lies above 0 and at most 1000",
        ),
        (
            "[retry]\nthrottle = { max_token = 10, token_ratio = 0.1 }",
            "`max_token` is no key of [retry.throttle]; did you mean `max_tokens`?",
        ),
        ("[retry]\nbudget = 20", "write { kind = \"in_flight\", percent = 20"),
        (
            "[retry]\nbudget = { percent = 20 }",
            "write kind=in_flight or kind=window",
        ),
        (
            "[retry]\nbudget = { kind = \"in_flight\", percent = 101 }",
            "percent lies from 0 to 100",
        ),
        (
            "[retry]\nbudget = { kind = \"in_flight\", ratio = 0.2 }",
            "the keys of in_flight are percent and min_concurrency",
        ),
        (
            "[retry]\nbudget = { kind = \"window\", ttl = \"0s\" }",
            "ttl lies above 0",
        ),
        (
            "[retry]\nbudget = { kind = [\"window\"] }",
            "kind = [\"window\"]: write { kind",
        ),
    ]);
}

#[test]
fn each_wrong_rate_deadline_side_and_pair_of_waits_is_refused_with_its_line() {
    refused_by_line(&[
        (
            "[load]\nrate = 0",
            "rate = 0: write requests per second, from 0.0001 to 1000000",
        ),
        ("[load]\nrate = -1.5", "rate = -1.5: write requests per second"),
        ("[load]\nrate = nan", "rate = nan: write requests per second"),
        ("[load]\nrate = 1000001", "rate = 1000001: write requests per second"),
        ("[load]\nrate = \"5\"", "rate = \"5\": write requests per second"),
        (
            "[load]\ncancel_after = \"0s\"",
            "cancel_after = \"0s\": write a duration above 0",
        ),
        (
            "[load]\ncancel_after = \"none\"",
            "cancel_after = \"none\": write a duration above 0",
        ),
        (
            "[services.pricing]\ndeadline = \"keep\"",
            "deadline = \"keep\": write pass, drop or a duration such as 250ms, above 0 and at most 1h",
        ),
        (
            "[services.pricing]\ndeadline = \"0s\"",
            "deadline = \"0s\": write pass, drop",
        ),
        ("[services.pricing]\ndeadline = 5", "deadline = 5: write pass, drop"),
        ("[services.inventory]\ndeadline = \"drop\"", "so it has no deadline"),
        ("[services.inventory]\ncalls = 2", "so it has no calls"),
        ("[services.inventory]\nfan_out = \"parallel\"", "so it has no fan_out"),
        (
            "[services.client]\ncalls = 2",
            "the client is no service; its retries stand in [client.retry]",
        ),
        (
            "[services.pricing]\ncalls = 0",
            "calls = 0: write how often it calls the next service for each call it gets, 1 to 100",
        ),
        ("[services.pricing]\ncalls = 101", "calls = 101: write how often"),
        ("[services.pricing]\ncalls = \"2\"", "calls = \"2\": write how often"),
        (
            "[services.pricing]\nfan_out = \"paralel\"",
            "fan_out = \"paralel\": write sequence or parallel; did you mean `parallel`?",
        ),
        (
            "[services.pricing]\ndetached = \"true\"",
            "detached = \"true\": write true or false",
        ),
        (
            "[services.pricing]\nfault = \"fail:side=client@frontend\"",
            "line 2: `frontend` does not call pricing, checkout does: write side=client@checkout",
        ),
        (
            "[services.frontend]\nfault = \"fail:side=client@frontend\"",
            "`frontend` does not call frontend, client does: write side=client@client",
        ),
        (
            "[services.pricing]\nfault = \"hang:side=client@checkout\"",
            "`side` is not a key of the fault `hang`",
        ),
        (
            "[chain]\nline = \"web x3 > db fail:side=client@web\"",
            "the fault of `db`",
        ),
        (
            "[retry]\nhedge = { delay = \"5ms\" }\nbackoff = {}",
            "line 2: client would have a hedge, from [retry], and a backoff, from [retry]",
        ),
        (
            "[retry]\nhedge = { delay = \"5ms\" }\n[client.retry]\nhedge = \"none\"\n[services.pricing.retry]\nbackoff = {}",
            "line 6: pricing would have a hedge, from [retry], and a backoff, from [services.pricing.retry], and they \
             exclude each other: a hedge does not wait for a failure; take one out, or set it to \"none\" in \
             [services.pricing.retry]",
        ),
        (
            "[retry]\nbackoff = {}\n[client.retry]\nhedge = { delay = \"5ms\" }",
            "line 4: client would have a hedge, from [client.retry], and a backoff, from [retry]",
        ),
    ]);
}

#[test]
fn each_wrong_flag_is_refused_by_name() {
    type Change = fn(&mut Overrides);
    let cases: [(&str, Change, &str); 16] = [
        (
            "per-hop",
            |flags| flags.faults = vec![(None, "fail:side=client@checkout".parse().unwrap())],
            "--fault fail:side=client@checkout: `checkout` does not call inventory, pricing does",
        ),
        (
            "per-hop",
            |flags| {
                flags.set = vec![
                    "retry.hedge.delay=5ms".to_owned(),
                    "services.pricing.retry.backoff.initial=5ms".to_owned(),
                ];
            },
            "--set services.pricing.retry.backoff.initial=5ms: pricing would have a hedge, from [retry]",
        ),
        (
            "per-hop",
            |flags| flags.owner = Some("checkuot".to_owned()),
            "did you mean `checkout`?",
        ),
        (
            "per-hop",
            |flags| flags.owner = Some("inventory".to_owned()),
            "calls nobody",
        ),
        (
            "per-hop",
            |flags| flags.attempts_at = vec![("inventory".to_owned(), 2)],
            "calls nobody",
        ),
        (
            "per-hop",
            |flags| flags.attempts_at = vec![("client".to_owned(), 2); 2],
            "already",
        ),
        (
            "per-hop",
            |flags| flags.faults = vec![(Some("web".to_owned()), Fault::NONE.into())],
            "no service `web`",
        ),
        (
            "per-hop",
            |flags| {
                flags.faults = vec![
                    (None, Fault::NONE.into()),
                    (Some("inventory".to_owned()), Fault::NONE.into()),
                ];
            },
            "two --fault",
        ),
        ("web > db", |flags| flags.depth = Some(1), "--depth 1: the chain line"),
        ("single-owner", |flags| flags.depth = Some(1), "no service `frontend`"),
        (
            "per-hop",
            |flags| flags.set = vec!["services.pricing.atempts=2".to_owned()],
            "--set services.pricing.atempts=2: `atempts`",
        ),
        (
            "per-hop",
            |flags| flags.set = vec!["load".to_owned()],
            "write PATH=VALUE",
        ),
        ("per-hop", |flags| flags.set = vec!["=3".to_owned()], "keys with dots"),
        (
            "per-hop",
            |flags| flags.set = vec!["name.first=3".to_owned()],
            "leads through a value",
        ),
        (
            "per-hop",
            |flags| flags.set = vec!["a\nb=3".to_owned()],
            "keys with dots",
        ),
        (
            "web x2 > db",
            |flags| flags.set = vec!["retry.attempts=3".to_owned()],
            "beside a chain line",
        ),
    ];
    for (source, change, named) in cases {
        let error = from(source, change).unwrap_err().to_string();
        assert!(error.contains(named), "{named}: {error}");
    }
}

#[test]
fn each_wrong_source_is_refused_by_name() {
    for (source, named) in [
        (
            "no-such-scenario",
            "there is no scenario `no-such-scenario` (built in: per-hop",
        ),
        ("perhop", "did you mean `per-hop`?"),
        ("missing.toml", "missing.toml cannot be read"),
        ("./missing", "./missing cannot be read"),
        ("/", "it is a folder"),
        ("web x3 db down", "has no > between"),
        ("web x0 > db", "the chain line: `x0`"),
        ("web:0/db:down", "the chain line: `0`"),
    ] {
        let error = from(source, |_| ()).unwrap_err().to_string();
        assert!(error.contains(named), "{source}: {error}");
    }
}

#[test]
fn a_file_is_found_by_its_path_and_named_by_its_stem() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, "[retry]\nattempts = 2\n").unwrap();
    let scenario = from(path.to_str().unwrap(), |_| ()).unwrap();
    assert_eq!(
        (scenario.name.as_str(), attempts(&scenario)),
        ("mine", vec![1, 2, 2, 2])
    );
    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(
        from(path.to_str().unwrap(), |_| ())
            .unwrap_err()
            .to_string()
            .contains("larger than 1 MiB")
    );
    std::fs::write(&path, b"name = 'a'\nabout = '\xff'").unwrap();
    assert!(
        from(path.to_str().unwrap(), |_| ())
            .unwrap_err()
            .to_string()
            .contains("line 2 is not UTF-8")
    );
}

#[test]
fn deep_and_wide_files_are_refused_in_no_time() {
    let deep = format!("a = {}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(Scenario::from_toml("deep.toml", &deep).is_err());
    let dotted = format!("{}a = 1", "a.".repeat(50_000));
    assert!(Scenario::from_toml("dotted.toml", &dotted).is_err());
    let wide: Vec<_> = (0..50_000).map(|number| format!("[services.s{number}]\n")).collect();
    let wide = wide.concat();
    assert!(
        Scenario::from_toml("wide.toml", &wide)
            .unwrap_err()
            .to_string()
            .contains("wide.toml, line 1")
    );
}

#[test]
fn configs_hold_each_layer_and_proxies_stand_behind_their_caller() {
    let scenario = from("client x2 > web x3*4 > db down", |flags| {
        flags.seed = Some(5);
        flags.retry_on = Some(RetryOn::Any);
        flags.set = vec!["services.web.on_failure=ABORTED".to_owned()];
    });
    let configs = scenario.unwrap().configs();
    let seen: Vec<_> = configs
        .iter()
        .map(|config| (config.service.as_str(), config.retry.attempts))
        .collect();
    assert_eq!(seen, [("client", 2), ("web", 3), ("web-proxy", 4), ("db", 1)]);
    assert!(configs.iter().all(|config| config.seed == 5));
    assert!(configs[..3].iter().all(|config| config.retry.retry_on == RetryOn::Any));
    assert_eq!(configs[1].on_failure, OnFailure::Answer(code::Code::Aborted));
    assert_eq!(
        (configs[2].on_failure, configs[2].fault),
        (OnFailure::Pass, Fault::NONE)
    );
    assert_eq!(
        (configs[3].retry.clone(), configs[3].fault.to_string()),
        (Policy::default(), "fail".to_owned())
    );
}

#[test]
fn a_proxy_inherits_what_all_have_and_nothing_of_its_caller_alone() {
    let text = "[retry]\nattempts = 4\nretry_on = [\"ABORTED\"]\nattempt_timeout = \"50ms\"\npushback = false\n\
                [client.retry]\nattempts = 2\nretry_on = \"any\"\n\
                [services.checkout.retry]\ncommit = \"message\"\nattempt_timeout = \"none\"\n\
                [sidecars]\nattempts = 3\nmax_retries = 7\n\
                [sidecars.retry]\nconnect_failure = false\nattempt_timeout = \"10ms\"\n\
                [sidecars.pricing.retry]\nattempts = 5\nattempt_timeout = \"none\"\nbudget = \"none\"\nconnect_failure = true\n";
    let scenario = Scenario::from_toml("case.toml", text).unwrap();
    let Chain { client, services, .. } = &scenario.chain;
    assert_eq!(
        scenario.chain_line(),
        "client x2 > frontend x4*3 > checkout x4*3 > pricing x4*5 > inventory"
    );
    assert_eq!(client.proxy, Policy::default());
    let shared = Policy {
        attempts: 3,
        retry_on: RetryOn::Codes(vec![code::Code::Aborted]),
        connect_failure: false,
        attempt_timeout: Some(Duration::from_millis(10)),
        pushback: false,
        budget: Some(Budget::InFlight {
            percent_milli: 0,
            min_concurrency: 7,
        }),
        ..Policy::default()
    };
    assert_eq!(services[0].caller.proxy, shared);
    assert_eq!(services[1].caller.proxy, shared);
    assert_eq!(
        services[2].caller.proxy,
        Policy {
            attempts: 5,
            connect_failure: true,
            attempt_timeout: None,
            budget: None,
            ..shared
        }
    );
    // No caller has what was said of proxies alone.
    assert!(services[..3].iter().all(|service| service.caller.retry.connect_failure));
    assert!(
        services[..3]
            .iter()
            .all(|service| service.caller.retry.budget.is_none())
    );
}

#[test]
fn attempts_of_proxies_are_those_at_one_link_over_owner_over_all_over_the_file() {
    let line = |change: fn(&mut Overrides)| from("sidecars", change).unwrap().chain_line();
    assert_eq!(
        line(|_| ()),
        "client > frontend x3*3 > checkout x3*3 > pricing x3*3 > inventory down"
    );
    // On every link between two services: the client's is none.
    let all = |flags: &mut Overrides| flags.sidecar_attempts = Some(2);
    assert_eq!(
        line(all),
        "client > frontend x3*2 > checkout x3*2 > pricing x3*2 > inventory down"
    );
    assert_eq!(
        line(|flags| flags.sidecar_attempts = Some(1)),
        "client > frontend x3 > checkout x3 > pricing x3 > inventory down"
    );
    assert_eq!(
        line(|flags| {
            flags.sidecar_attempts = Some(2);
            flags.owner = Some("checkout".to_owned());
        }),
        "client > frontend > checkout x3 > pricing > inventory down"
    );
    assert_eq!(
        line(|flags| {
            flags.sidecar_attempts = Some(2);
            flags.owner = Some("checkout".to_owned());
            flags.sidecar_attempts_at = vec![("client".to_owned(), 4), ("pricing".to_owned(), 5)];
        }),
        "client x1*4 > frontend > checkout x3 > pricing x1*5 > inventory down"
    );
    // Also over a line, and over the table of one proxy.
    let over = |flags: &mut Overrides| {
        flags.sidecar_attempts = Some(2);
        flags.set = vec!["sidecars.api.retry.attempts=7".to_owned()];
    };
    assert_eq!(
        from("client x1*3 > web x3*3 > api > db", over).unwrap().chain_line(),
        "client x1*3 > web x3*2 > api x1*2 > db"
    );
}

#[test]
fn proxies_and_what_nobody_declared_become_processes_between_two_services() {
    use chassis::config::Layer::{Proxy, Service, Undeclared};
    let scenario = from("client x1*2 > web x3*3 > api x3 > db down", |flags| {
        flags.undeclared = vec![("web".to_owned(), 4), ("api".to_owned(), 5), ("client".to_owned(), 6)];
        flags.set = vec![
            "sidecars.retry.retry_on=[\"INTERNAL\"]".to_owned(),
            "retry.retry_on=[\"ABORTED\"]".to_owned(),
        ];
    })
    .unwrap();
    let configs = scenario.configs().split_off(1);
    let names: Vec<_> = configs.iter().map(|config| config.service.as_str()).collect();
    assert_eq!(names, ["client-proxy", "web", "web-proxy", "api", "db"]);
    let starts = scenario.starts(configs);
    let seen: Vec<_> = starts
        .iter()
        .map(|start| {
            let Policy { attempts, retry_on, .. } = &start.config.retry;
            (
                start.config.service.as_str(),
                start.program.name(),
                start.config.layer,
                *attempts,
                retry_on.to_string(),
            )
        })
        .collect();
    let layer = |name, program, layer, attempts, codes: &str| (name, program, layer, attempts, codes.to_owned());
    assert_eq!(
        seen,
        [
            layer("client-proxy", "sidecar", Proxy, 2, "INTERNAL"),
            // It tries again what the layer above it does.
            layer("behind-client", "sidecar", Undeclared, 6, "INTERNAL"),
            layer("web", "checkout", Service, 3, "ABORTED"),
            layer("web-proxy", "sidecar", Proxy, 3, "INTERNAL"),
            layer("behind-web", "sidecar", Undeclared, 4, "INTERNAL"),
            layer("api", "pricing", Service, 3, "ABORTED"),
            layer("behind-api", "sidecar", Undeclared, 5, "ABORTED"),
            layer("db", "inventory", Service, 1, "UNAVAILABLE"),
        ]
    );
}

#[test]
fn a_kind_is_that_of_the_proxies_there_are() {
    let kind = |source: &str, change: fn(&mut Overrides)| from(source, change).unwrap().chain.sidecar;
    assert_eq!(kind("envoy-defaults", |_| ()), SidecarKind::Envoy);
    let builtin = |flags: &mut Overrides| flags.sidecar = Some(SidecarKind::Builtin);
    assert_eq!(kind("envoy-defaults", builtin), SidecarKind::Builtin);
    let set = |flags: &mut Overrides| flags.set = vec!["sidecars.kind=envoy".to_owned()];
    assert_eq!(kind("sidecars", set), SidecarKind::Envoy);
    // Without proxies there is nothing for it to be.
    assert_eq!(kind("per-hop", set), SidecarKind::Builtin);
    let alone = |flags: &mut Overrides| {
        flags.sidecar = Some(SidecarKind::Envoy);
        flags.owner = Some("frontend".to_owned());
    };
    assert_eq!(kind("sidecars", alone), SidecarKind::Builtin);
}

#[test]
fn what_stands_on_the_links_is_repeated_by_the_line_and_flags_behind_it() {
    let repeat = |source: &str, change: fn(&mut Overrides)| from(source, change).unwrap().repeat("run");
    let whole = |flags: &mut Overrides| {
        flags.sidecar = Some(SidecarKind::Envoy);
        flags.undeclared = vec![("client".to_owned(), 2), ("api".to_owned(), 4)];
        flags.set = vec!["sidecars.max_retries=3".to_owned()];
    };
    assert_eq!(
        repeat("web x3*3 > api x2*3 > db down", whole),
        "run 'web x3*3 > api x2*3 > db down' --set 'sidecars.retry.budget={ kind = \"in_flight\", percent = 0, \
         min_concurrency = 3 }' --sidecar envoy --undeclared client=2 --undeclared api=4"
    );
    // What proxies do not have of all others' is taken back.
    let apart = |flags: &mut Overrides| {
        flags.set = [
            "retry.connect_failure=false",
            "retry.hedge={ delay = \"5ms\" }",
            "sidecars.retry.hedge=none",
        ]
        .map(str::to_owned)
        .to_vec();
    };
    assert_eq!(
        repeat("web x3*3 > api x2 > db down", apart),
        "run 'web x3*3 > api x2 > db down' --set retry.connect_failure=false --set 'retry.hedge={ delay = \"5ms\" }' --set \
         sidecars.retry.hedge=none"
    );
    let codes = |flags: &mut Overrides| flags.set = vec!["sidecars.api.retry.retry_on=any".to_owned()];
    assert_eq!(
        repeat("web x3*3 > api x2*2 > db down", codes),
        "run 'web x3*3 > api x2*2 > db down' --set sidecars.api.retry.retry_on=any"
    );
    assert_eq!(
        repeat("web x3*3 > api x2*2 > db down", |flags| flags.retry_on =
            Some(RetryOn::Any)),
        "run 'web x3*3 > api x2*2 > db down' --retry-on any"
    );
}

#[test]
fn each_wrong_key_of_the_links_is_refused_with_its_line_and_what_would_be_right() {
    refused_by_line(&[
        ("sidecars = 3", "line 1: sidecars = 3: write a table: [sidecars]"),
        (
            "[sidecars]\nkind = \"linkerd\"",
            "line 2: kind = \"linkerd\": write builtin (our own) or envoy",
        ),
        ("[sidecars]\nattempts = 101", "line 2: attempts = 101: write 1 to 100"),
        (
            "[sidecars]\natempts = 3",
            "line 2: `atempts` is no key of [sidecars]; did you mean `attempts`? (keys: kind, attempts, max_retries, retry; \
             and [sidecars.CALLER.retry])",
        ),
        (
            "[sidecars]\nmax_retries = -1",
            "max_retries = -1: write 0 to 4294967295",
        ),
        (
            "[sidecars]\nmax_retries = 3\n[sidecars.retry]\nbudget = \"none\"",
            "line 2: [sidecars] max_retries and the budget of [sidecars.retry] limit the same retries",
        ),
        (
            "[sidecars]\nattempts = 3\n[sidecars.retry]\nattempts = 3",
            "line 4: [sidecars.retry] attempts and [sidecars] attempts say the same; leave one of the two out",
        ),
        (
            "[chain]\nline = \"web x3*3 > db\"\n[sidecars]\nattempts = 3",
            "line 4: [sidecars] attempts stands beside a chain line, which gives every proxy its own (web x3*3); leave",
        ),
        (
            "[chain]\nline = \"web x3*3 > db\"\n[sidecars.retry]\nattempts = 3",
            "line 4: [sidecars] attempts stands beside a chain line",
        ),
        (
            "[sidecars.pricng.retry]\nattempts = 3",
            "line 1: no caller `pricng` is in this chain; did you mean `pricing`? (its callers: client, frontend",
        ),
        (
            "[sidecars.inventory.retry]\nattempts = 3",
            "line 1: inventory is the bottom service and calls nobody",
        ),
        (
            "[sidecars.pricing]\nattempts = 3",
            "line 2: `attempts` is no key of [sidecars.pricing]; did you mean `retry.attempts`?",
        ),
        (
            "[sidecars.pricing.retry]\npushback = false",
            "line 1: pricing has no proxy that these keys could be of; give it attempts, as in --sidecar-attempts-at pricing=3",
        ),
        (
            "[retry]\nbackoff = {}\n[sidecars]\nattempts = 2\n[sidecars.pricing.retry]\nhedge = { delay = \"5ms\" }",
            "line 6: pricing-proxy would have a hedge, from [sidecars.pricing.retry], and a backoff, from [retry]",
        ),
        (
            "[sidecars.retry]\nattempts = 2\nbackoff = {}\nhedge = { delay = \"5ms\" }",
            "line 4: frontend-proxy would have a hedge, from [sidecars.retry], and a backoff, from [sidecars.retry]",
        ),
        (
            "[retry]\nconnect_failure = \"no\"",
            "connect_failure = \"no\": write true or false",
        ),
        (
            "undeclared = 4",
            "line 1: undeclared = 4: write { CALLER = N }, as in { pricing = 4 }",
        ),
        (
            "undeclared = { pricing = 1 }",
            "pricing = 1: write 2 to 100, what the layer behind this caller makes of each attempt",
        ),
        ("undeclared = { pricing = 101 }", "pricing = 101: write 2 to 100"),
        (
            "undeclared = { pricng = 4 }",
            "no caller `pricng` is in this chain; did you mean `pricing`?",
        ),
        (
            "undeclared = { inventory = 4 }",
            "inventory is the bottom service and calls nobody",
        ),
        (
            "[chain]\nline = \"web > kind x3 > db\"\n[sidecars.kind.retry]\nattempts = 3",
            "line 3: kind = a table: write builtin",
        ),
    ]);
}

#[test]
fn each_wrong_flag_of_the_links_is_refused_by_name() {
    type Change = fn(&mut Overrides);
    let cases: [(&str, Change, &str); 9] = [
        (
            "per-hop",
            |flags| flags.sidecar_attempts_at = vec![("checkuot".to_owned(), 2)],
            "--sidecar-attempts-at checkuot=2: no caller `checkuot` is in this chain; did you mean `checkout`?",
        ),
        (
            "per-hop",
            |flags| flags.sidecar_attempts_at = vec![("inventory".to_owned(), 2)],
            "inventory is the bottom service and calls nobody",
        ),
        (
            "per-hop",
            |flags| flags.sidecar_attempts_at = vec![("client".to_owned(), 2), ("client".to_owned(), 3)],
            "--sidecar-attempts-at client=3: `client` has its attempts from another flag already",
        ),
        (
            "per-hop",
            |flags| flags.undeclared = vec![("inventory".to_owned(), 2)],
            "--undeclared inventory=2: inventory is the bottom service",
        ),
        (
            "per-hop",
            |flags| flags.undeclared = vec![("pricing".to_owned(), 2), ("pricing".to_owned(), 2)],
            "--undeclared pricing=2: `pricing` has its attempts from another flag already",
        ),
        (
            "per-hop",
            |flags| flags.sidecar = Some(SidecarKind::Envoy),
            "--sidecar envoy: no link of this chain has a proxy; give them one: --sidecar-attempts 3",
        ),
        (
            "web > web-proxy > db",
            |flags| flags.sidecar_attempts = Some(2),
            "`web-proxy` is the name of the proxy under its caller",
        ),
        (
            "web > retry > db",
            |flags| flags.sidecar_attempts = Some(2),
            "the proxy under `retry` could not be told from [sidecars] retry, a key of its own",
        ),
        (
            "web x3*3 > db",
            |flags| flags.set = vec!["sidecars.attempts=2".to_owned()],
            "--set sidecars.attempts=2: [sidecars] attempts stands beside a chain line",
        ),
    ];
    for (source, change, named) in cases {
        let error = from(source, change).unwrap_err().to_string();
        assert!(error.contains(named), "{named}: {error}");
    }
    // A caller of that name without a proxy is nobody's trouble.
    assert!(from("web x2*2 > retry > db", |_| ()).is_ok());
}

#[test]
fn long_chains_and_proxies_are_run_and_not_kept_up() {
    for (line, kept) in [
        (
            "a > b > c > d > e",
            "has 2 to 4 services, and this one has 5: run starts it",
        ),
        ("web x3*2 > db", "has no proxies, and `web x3*2` has one: run starts it"),
    ] {
        let scenario = from(line, |_| ()).unwrap();
        assert_eq!(scenario.check_runnable(), Ok(()), "{line}");
        let error = scenario.check_stays_up().unwrap_err().to_string();
        assert!(error.contains(kept), "{error}");
    }
    let stays_up = |source| {
        from(source, |_| ())
            .unwrap()
            .check_stays_up()
            .map_err(|error| error.to_string())
    };
    assert!(stays_up("hidden-layer").unwrap_err().contains("pricing has one of 4"));
    assert!(
        stays_up("envoy-defaults")
            .unwrap_err()
            .contains("has no Envoys: run starts them")
    );
    assert_eq!(stays_up("per-hop"), Ok(()));
}

#[test]
fn who_only_forwards_calls_several_times_in_a_prediction_alone() {
    let with_calls = |line: &str, name: &str| {
        let set = vec![format!("services.{name}.calls=2")];
        from(line, |flags| flags.set = set).unwrap().check_runnable()
    };
    for name in ["a", "b", "c"] {
        assert_eq!(with_calls("a > b > c > d > e", name), Ok(()));
    }
    assert_eq!(with_calls("a > b", "a"), Ok(()));
    assert_eq!(
        with_calls("a > b > c > d > e", "d").unwrap_err().to_string(),
        "d has calls = 2, and in a chain of this length it only forwards what arrives, once: in a run a, b, c can call \
         several times (predict counts it everywhere)"
    );
}

#[test]
fn nothing_is_put_on_the_links_of_a_chain_that_runs() {
    let standing = Scenario::standing(&from("per-hop", |_| ()).unwrap().configs()[1..]).unwrap();
    let error = |source: Option<&str>, change: fn(&mut Overrides)| {
        let mut overrides = Overrides::default();
        change(&mut overrides);
        let source = source.map(str::to_owned);
        Change { source, overrides }.of(&standing).unwrap_err().to_string()
    };
    for (source, change, named) in [
        (
            None,
            (|flags| flags.sidecar_attempts_at = vec![("pricing".to_owned(), 2)]) as fn(&mut Overrides),
            "has no proxies, and `pricing x3*2` has one",
        ),
        (
            None,
            |flags| flags.undeclared = vec![("pricing".to_owned(), 4)],
            "pricing has one of 4",
        ),
        (Some("sidecars"), |_| (), "`frontend x3*3` has one"),
    ] {
        let error = error(source, change);
        assert!(error.contains(named), "{error}");
    }
    let proxies = from("sidecars", |_| ()).unwrap().configs();
    let error = Scenario::standing(&proxies[1..]).unwrap_err().to_string();
    assert!(error.contains("`frontend-proxy` is no service (proxy)"), "{error}");
}

#[test]
fn an_answer_needs_an_arrival_for_each_call_on_its_way() {
    let needs = |set: &[&str]| {
        let overrides = Overrides {
            set: set.iter().map(|&set| set.to_owned()).collect(),
            ..Overrides::default()
        };
        Scenario::load(Some("per-hop"), &overrides)
            .unwrap()
            .chain
            .arrivals_of_an_answer()
    };
    assert_eq!(needs(&[]), 4);
    // One at frontend and at checkout, two at pricing, six at inventory.
    assert_eq!(needs(&["services.checkout.calls=2", "services.pricing.calls=3"]), 10);
}
