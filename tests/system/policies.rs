//! Every policy and every fault as processes: the facts of the field come out on the chain, and random combinations of all of
//! them come out as predicted.

use crate::support::{check, run, test};
use harness::scenario::BUILT_IN;
use libtest_mimic::{Failed, Trial};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

pub fn tests() -> Vec<Trial> {
    let mut tests = facts();
    tests.push(test("policies::every_built_in_scenario", built_in));
    tests.push(test("policies::arrivals_after_everybody_left_are_late", late));
    tests.push(test(
        "policies::real_proxies_and_a_budget_of_what_is_in_flight",
        the_budget_of_real_proxies,
    ));
    tests.push(test("policies::a_thousand_random_combinations", combinations));
    tests
}

/// Arguments of a run and what arrives at each service.
const FACTS: [(&str, &[&str], &[u64]); 34] = [
    (
        "a_throttle_of_ten_tokens_lets_three_retries_through",
        &["a > b x3 > c down", "-n", "10", "--set", TEN],
        &[10, 10, 13],
    ),
    (
        "three_throttles_and_one_request",
        &["-n", "1", "--set", TEN],
        &[1, 3, 6, 9],
    ),
    (
        "three_throttles_and_two_requests",
        &["-n", "2", "--set", TEN],
        &[2, 5, 8, 11],
    ),
    (
        "three_throttles_and_ten_requests",
        &["-n", "10", "--set", TEN],
        &[10, 13, 16, 19],
    ),
    (
        "a_window_of_a_fifth",
        &[
            "a x3 > b down",
            "-n",
            "100",
            "--set",
            "retry.budget={kind=\"window\",ratio=0.2,min_per_second=0}",
        ],
        &[100, 120],
    ),
    (
        "a_window_of_three_fifths",
        &[
            "a x3 > b down",
            "-n",
            "100",
            "--set",
            "retry.budget={kind=\"window\",ratio=0.6,min_per_second=0}",
        ],
        &[100, 160],
    ),
    (
        "a_window_of_three_tenths",
        &[
            "a x3 > b down",
            "-n",
            "100",
            "--set",
            "retry.budget={kind=\"window\",ratio=0.3,min_per_second=0}",
        ],
        &[100, 130],
    ),
    (
        "a_window_and_requests_at_once",
        &[
            "a x3 > b down",
            "-n",
            "100",
            "-c",
            "20",
            "--set",
            "retry.budget={kind=\"window\",ratio=0.3,min_per_second=0}",
        ],
        &[100, 130],
    ),
    (
        "a_share_of_what_is_in_flight_and_one_request_at_a_time",
        &[
            "-n",
            "20",
            "--set",
            "retry.budget={kind=\"in_flight\",percent=20,min_concurrency=0}",
        ],
        &[20, 20, 20, 20],
    ),
    (
        "a_floor_of_three_and_one_request_at_a_time",
        &[
            "-n",
            "20",
            "--set",
            "retry.budget={kind=\"in_flight\",percent=20,min_concurrency=3}",
        ],
        &[20, 60, 180, 540],
    ),
    (
        "only_first_tries",
        &["--set", "retry.only_first_tries=true"],
        &[1, 3, 5, 11],
    ),
    (
        "an_answer_that_has_begun_and_a_caller_that_waits_for_headers",
        &["--fault", "fail:at=headers"],
        &[1, 3, 9, 9],
    ),
    (
        "an_answer_that_has_begun_and_callers_that_hold_a_message_back",
        &["--fault", "fail:at=headers", "--set", "retry.commit=message"],
        &[1, 3, 9, 27],
    ),
    (
        "a_callee_that_asks_for_no_retry",
        &["--fault", "fail:pushback=-1"],
        &[1, 3, 9, 9],
    ),
    (
        "a_callee_that_is_not_listened_to",
        &["--fault", "fail:pushback=-1", "--set", "retry.pushback=false"],
        &[1, 3, 9, 27],
    ),
    ("a_bare_503", &["--fault", "http:status=503"], &[1, 3, 9, 27]),
    ("a_bare_500", &["--fault", "http:status=500"], &[1, 1, 1, 1]),
    ("a_connection_that_is_reset", &["--fault", "reset"], &[1, 3, 9, 27]),
    ("a_connection_that_goes_away", &["--fault", "goaway"], &[1, 3, 9, 27]),
    (
        "a_stream_that_is_refused",
        &["--fault", "reset:of=stream"],
        &[1, 3, 9, 27],
    ),
    (
        "a_stream_that_is_cancelled",
        &["--fault", "reset:of=stream,code=CANCEL"],
        &[1, 1, 1, 1],
    ),
    (
        "a_service_of_100_ms_until_the_deadline",
        &["a x10 > b", "--fault", "delay:ms=100+fail", "--deadline", "350ms"],
        &[1, 4],
    ),
    (
        "a_service_that_hangs_and_attempts_with_a_limit",
        &[
            "a x3 > b",
            "--fault",
            "hang",
            "--retry-on",
            "DEADLINE_EXCEEDED",
            "--set",
            "services.a.retry.attempt_timeout=80ms",
            "--deadline",
            "5s",
        ],
        &[1, 3],
    ),
    ("a_port_that_is_closed", &["--fault", "refuse"], &[1, 3, 9, 0]),
    (
        "an_overload_that_one_request_at_a_time_cannot_cause",
        &["-n", "5", "--fault", "overload:capacity=1"],
        &[5, 5, 5, 5],
    ),
    (
        "an_overload_that_turns_everybody_away",
        &["--fault", "overload:capacity=0,code=UNAVAILABLE"],
        &[1, 3, 9, 27],
    ),
    (
        "a_fault_of_the_caller_inside_its_loop",
        &["--fault", "fail:side=client@pricing"],
        &[1, 3, 9, 0],
    ),
    (
        "a_fault_of_the_caller_outside_its_loop",
        &["--fault", "fail:first=1,side=client@pricing,loop=outside"],
        &[1, 1, 2, 1],
    ),
    (
        "a_service_that_passes_on_a_shorter_time_is_asked_again",
        &[
            "a x3 > b > c",
            "--fault",
            "delay:ms=400",
            "--retry-on",
            "DEADLINE_EXCEEDED",
            "--set",
            "services.b.deadline=100ms",
        ],
        &[1, 3, 3],
    ),
    (
        "a_chain_falls_with_its_caller_though_no_deadline_was_passed_on",
        &[
            "a > b x4 > c",
            "--fault",
            "delay:ms=100+fail",
            "--deadline",
            "150ms",
            "--set",
            "services.b.deadline=drop",
        ],
        &[1, 1, 2],
    ),
    (
        "detached_work_without_a_deadline_goes_on_to_its_end",
        &[
            "a > b x4 > c",
            "--fault",
            "delay:ms=100+fail",
            "--deadline",
            "150ms",
            "--set",
            "services.b.deadline=drop",
            "--set",
            "services.b.detached=true",
        ],
        &[1, 1, 4],
    ),
    (
        "a_client_that_leaves_cancels_what_it_started",
        &["a x3 > b", "--fault", "delay:ms=100+fail", "--cancel-after", "150ms"],
        &[1, 2],
    ),
    (
        "an_open_loop_sends_what_its_pace_says",
        &["a x3 > b down", "-n", "10", "--rate", "50"],
        &[10, 30],
    ),
    (
        "a_hedge_and_a_first_attempt_that_is_slow",
        &[
            "a x3 > b",
            "--fault",
            "delay:ms=400,first=1",
            "--set",
            "retry.hedge={delay=\"80ms\"}",
        ],
        &[1, 2],
    ),
];

const TEN: &str = "retry.throttle={max_tokens=10,token_ratio=0.1}";

fn facts() -> Vec<Trial> {
    let fact = |(name, arguments, received): (&str, &'static [&'static str], &'static [u64])| {
        test(&format!("policies::{name}"), move || {
            let ran = run(&[&["run"][..], arguments].concat());
            check(ran.exit == 0 && ran.received() == received, || {
                format!("{received:?} expected, exit {}: {}{}", ran.exit, ran.stdout, ran.stderr)
            })
        })
    };
    FACTS.into_iter().map(fact).collect()
}

/// Every built-in scenario comes out as it is predicted.
fn built_in() -> Result<(), Failed> {
    let listed = crate::support::run_plain(&["scenarios"]);
    // The first line counts them, and a line that goes on begins with blanks.
    let rows = listed.stdout.lines().skip(2).take_while(|line| !line.is_empty());
    let rows = rows.filter(|line| !line.starts_with(' '));
    let names: Vec<_> = rows.filter_map(|line| line.split_whitespace().next()).collect();
    check(names.len() >= 40, || {
        format!("only {} scenarios are listed", names.len())
    })?;
    for name in names {
        let built_in = BUILT_IN.iter().find(|each| each.name == name);
        let built_in = built_in.ok_or_else(|| format!("{name} is listed and not built in"))?;
        if built_in.needs_envoy() {
            continue;
        }
        let ran = run(&["run", name]);
        check(ran.exit == i32::from(built_in.exit_code()), || {
            format!("{name}: exit {}: {}{}", ran.exit, ran.stdout, ran.stderr)
        })?;
    }
    Ok(())
}

/// Two attempts begin after the request's deadline, and the service that made them was told of none.
fn late() -> Result<(), Failed> {
    let arguments = [
        "run",
        "a > b x4 > c",
        "--fault",
        "delay:ms=100+fail",
        "--deadline",
        "150ms",
        "--set",
        "services.b.deadline=drop",
        "--set",
        "services.b.detached=true",
    ];
    let ran = run(&arguments);
    for (service, figure, wanted) in [("c", "received", 4), ("c", "late", 2), ("c", "in_flight", 0)] {
        let found = ran.service(service, figure);
        check(ran.exit == 0 && found == wanted, || {
            format!("{service} {figure}: {found}, exit {}: {}", ran.exit, ran.stdout)
        })?;
    }
    let failed = ran.report()?["operations"]["by_code"]["DEADLINE_EXCEEDED"].clone();
    check(failed == 1, || format!("the request ended otherwise: {}", ran.stdout))
}

/// 400 requests, 40 at once, 20 ms at the bottom, back-off 25 ms doubling to 250 ms with full jitter, 20 % in flight. How much
/// that budget lets through depends on how long an attempt takes beside the back-off, and so on the machine: three Envoys (1.40)
/// before the same bottom and a light driver sent the lower figures, Envoys between slow services on a busy machine the upper
/// ones. The median of five runs lies between them, give or take 10 %.
fn the_budget_of_real_proxies() -> Result<(), Failed> {
    const RUNS: usize = 5;
    for (min_concurrency, light, slow) in [
        (3, [1.0, 1.106, 1.258, 1.489], [1.0, 1.21, 1.44, 1.77]),
        (0, [1.0, 1.094, 1.206, 1.355], [1.0, 1.19, 1.40, 1.59]),
    ] {
        let budget = format!("retry.budget={{kind=\"in_flight\",percent=20,min_concurrency={min_concurrency}}}");
        let backoff = "retry.backoff={initial=\"25ms\",multiplier=2,max=\"250ms\",jitter=\"full\"}";
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            let ran = run(&[
                "run",
                "--fault",
                "delay:ms=20+fail",
                "-n",
                "400",
                "-c",
                "40",
                "--set",
                &budget,
                "--set",
                backoff,
            ]);
            check(ran.exit == 0, || {
                format!("exit {}: {}{}", ran.exit, ran.stdout, ran.stderr)
            })?;
            runs.push(ran.received());
        }
        for (service, (light, slow)) in light.into_iter().zip(slow).enumerate() {
            let mut counts: Vec<_> = runs.iter().map(|received| received[service]).collect();
            counts.sort_unstable();
            let median = counts[RUNS / 2] as f64 / 400.0;
            check((light * 0.9..=slow * 1.1).contains(&median), || {
                format!(
                    "floor {min_concurrency}, service {service}: {median} a request, real proxies {light} to {slow}: {runs:?}"
                )
            })?;
        }
    }
    Ok(())
}

/// Combinations that are run.
const COMBINATIONS: u64 = 1_000;
/// Runs at once: most of them wait most of the time.
const AT_ONCE: usize = 3;
/// Most runs without a verdict because the machine was busy, per thousand. Each must say so itself.
const MOST_LATE: usize = 20;

/// What a caller does, beside its attempts. Times lie 40 ms and more apart from those of [`FAULTS`] and of each other.
const POLICIES: [&[&str]; 14] = [
    &[],
    &["retry.backoff={initial=\"40ms\",multiplier=1,max=\"40ms\",jitter=\"none\"}"],
    &["retry.backoff={initial=\"10ms\",multiplier=2,max=\"20ms\",jitter=\"full\"}"],
    &["retry.attempt_timeout=160ms"],
    &[
        "retry.attempt_timeout=160ms",
        "retry.retry_on=[\"UNAVAILABLE\",\"DEADLINE_EXCEEDED\"]",
    ],
    &["retry.commit=message"],
    &["retry.pushback=false"],
    &[TEN],
    &["retry.throttle={max_tokens=4,token_ratio=1}"],
    &["retry.budget={kind=\"in_flight\",percent=20,min_concurrency=0}"],
    &["retry.budget={kind=\"window\",ratio=0.6,min_per_second=0}"],
    &["retry.hedge={delay=\"160ms\"}"],
    &["retry.only_first_tries=true"],
    &["retry.retry_on=any"],
];

/// How the bottom fails.
const FAULTS: [&str; 28] = [
    "none",
    "fail",
    "fail:first=2",
    "fail:p=0.5",
    "fail:code=NOT_FOUND",
    "fail:at=after,first=1",
    "fail:at=headers,first=2",
    "fail:pushback=-1",
    "fail:pushback=50,first=1",
    "fail:pushback=250,first=1",
    "fail:first=3,scope=process",
    "refuse",
    "hang:first=1",
    "hang",
    "delay:ms=90,first=1",
    "delay:ms=90+fail:first=1",
    "delay:ms=300,first=1",
    "reset",
    "reset:of=stream,first=2",
    "goaway:first=2",
    "http:status=503",
    "http:status=200,first=1",
    "http:status=429,first=1",
    "overload:capacity=1",
    "fail:first=1,side=client@pricing",
    "fail:p=0.5,side=client@pricing",
    "delay:ms=90,first=1,side=client@pricing",
    "delay:ms=90,first=1,side=client@pricing,loop=outside",
];

/// What the services do with time.
const TIMES: [&[&str]; 8] = [
    &[],
    &[],
    &["services.checkout.deadline=drop"],
    &["services.pricing.deadline=250ms"],
    &["services.pricing.detached=true"],
    &["services.checkout.on_failure=UNAVAILABLE"],
    &["services.frontend.fault=\"delay:ms=40,first=1\""],
    &[
        "services.pricing.fault=\"delay:ms=40,first=1\"",
        "services.pricing.deadline=250ms",
    ],
];

/// The arguments of combination `number`.
pub fn combination(number: u64) -> Vec<String> {
    let mut random = StdRng::seed_from_u64(number);
    let mut arguments = vec!["run".to_owned()];
    let mut flag = |name: &str, value: &str| arguments.extend([name.to_owned(), value.to_owned()]);
    let fault = *FAULTS.choose(&mut random).expect("there are faults");
    let policy = *POLICIES.choose(&mut random).expect("there are policies");
    let owner = *["none", "client", "frontend", "checkout", "pricing"]
        .choose(&mut random)
        .expect("there are owners");
    flag("--attempts", &random.random_range(2..=3).to_string());
    if owner != "none" {
        flag("--owner", owner);
    }
    flag("--fault", fault);
    for set in policy
        .iter()
        .chain(*TIMES.choose(&mut random).expect("there are times"))
    {
        flag("--set", set);
    }
    // Whatever hangs ends with the request.
    let deadline = *["730ms", "1230ms"].choose(&mut random).expect("there are deadlines");
    flag("--deadline", deadline);
    if random.random_bool(0.1) {
        flag("--cancel-after", "430ms");
    }
    let requests = random.random_range(1..=3_u32);
    flag("-n", &requests.to_string());
    if random.random_bool(0.3) {
        flag("-c", "2");
    } else if random.random_bool(0.1) {
        flag("--rate", "4");
    }
    flag("--seed", &number.to_string());
    arguments
}

fn combinations() -> Result<(), Failed> {
    all_as_predicted(COMBINATIONS, combination)
}

/// Runs so many, and fails where one of them does not come out as predicted on a machine that was in time.
pub fn all_as_predicted(runs: u64, arguments: impl Fn(u64) -> Vec<String> + Sync) -> Result<(), Failed> {
    let next = AtomicUsize::new(0);
    let (wrong, late) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed) as u64;
                    if number >= runs {
                        return;
                    }
                    let arguments = arguments(number);
                    let ran = run(&arguments);
                    let reasons = ran
                        .json
                        .as_ref()
                        .map(|report| report["reasons"].clone())
                        .unwrap_or_default();
                    let was_late = reasons
                        .as_array()
                        .is_some_and(|reasons| reasons.iter().any(|reason| reason["kind"] == "late_clock"));
                    if ran.exit == 3 && was_late {
                        late.fetch_add(1, Ordering::Relaxed);
                    } else if ran.exit != 0 {
                        let shown = arguments
                            .iter()
                            .map(|argument| format!("'{argument}'"))
                            .collect::<Vec<_>>()
                            .join(" ");
                        let text = format!("exit {}: {} {reasons}\nharness {shown}", ran.exit, ran.stderr);
                        wrong.lock().expect("no run fails while it holds this").push(text);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("nobody holds it any more");
    check(wrong.is_empty(), || {
        format!("{} wrong:\n{}", wrong.len(), wrong.join("\n"))
    })?;
    let late = late.into_inner();
    check(late <= MOST_LATE, || {
        format!("{late} of {runs} runs found the machine too busy")
    })
}
