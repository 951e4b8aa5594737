//! `sweep` as meant: one scenario for each value, all of them validated before anything starts.

use super::{
    CliError, Command, Step, Sweep,
    flags::{LoadFlags, SweepFlags},
    over::Over,
    resolve::{
        ATTACH, ENOUGH_DRAWS, Resolver, attempts, expectations, idle_mesh, load_overrides, max_calls, one_source,
        overrides, runnable,
    },
};
use crate::{
    sanitize::sanitize,
    scenario::{Overrides, Scenario, shell_quoted, suggest::did_you_mean},
};
use chassis::fault::{Fail, Kind, ServiceFault};

/// Values of which each key that can be beaten by a flag takes two: where one value is varied, another shows whether it is in
/// force.
const OTHERS: [&str; 9] = ["1", "2", "3", "0.5", "true", "false", "none", "fail", "10ms"];
/// Keys that are no path of a scenario file.
const KEYS: [&str; 6] = ["p", "attempts", "concurrency", "rate", "requests", "deadline"];
/// The only key of a scenario file that stands in no section and can be varied.
const TOP_LEVEL: &str = "transport_codes";
/// What a key may be.
const OVER_RIGHT: &str = "write p, attempts, concurrency, rate, requests, deadline or a key of a scenario file, such as \
                          retry.attempts";

impl Resolver<'_> {
    pub(super) fn sweep(&self, flags: &SweepFlags) -> Result<Command, CliError> {
        let source = one_source(&flags.scenario, "sweep")?;
        let [typed] = flags.over.as_slice() else {
            let what = if flags.over.is_empty() {
                "sweep wants what it varies"
            } else {
                "--over is given twice, and a sweep varies one thing"
            };
            return Err(CliError::refused(format_args!(
                "{what}: {} sweep --over p=0,0.1..1",
                self.program
            )));
        };
        let over = Over::read(typed)?;
        check_key(&over.key)?;
        let mut base = overrides(&flags.changes)?;
        check_said_once(&over.key, &base)?;
        let load = |base: &Overrides| Scenario::load(source, base).map_err(CliError::refused);
        let mut start = load(&base)?;
        let mut added = String::new();
        if over.key == "p" {
            base.requests_unless_said = Some(ENOUGH_DRAWS);
            let many = load(&base)?;
            if many.load.requests != start.load.requests {
                added = format!(" -n {ENOUGH_DRAWS}");
            }
            start = many;
        }
        let steps = over
            .values
            .iter()
            .map(|value| {
                let changed = with(&base, &start, &over.key, value)?;
                let scenario = runnable(source, &changed)?;
                Ok(Step {
                    value: value.clone(),
                    number: value.parse().ok().filter(|number: &f64| number.is_finite()),
                    expectations: expectations(&flags.measure, [&scenario])?,
                    scenario,
                })
            })
            .collect::<Result<Vec<_>, CliError>>()?;
        let is_beaten = match steps.as_slice() {
            [only] => {
                let other = |value: &str| Scenario::load(source, &with(&base, &start, &over.key, value).ok()?).ok();
                let mut others = OTHERS
                    .iter()
                    .filter(|value| **value != only.value)
                    .filter_map(|value| other(value));
                // A key that takes none of them is not known to be beaten.
                others.next().is_some_and(|one| one == only.scenario) && others.all(|one| one == only.scenario)
            }
            [first, others @ ..] => others.iter().all(|step| step.scenario == first.scenario),
            [] => false,
        };
        if is_beaten {
            return Err(CliError::refused(format_args!(
                "--over {}: {} changes nothing here: a flag or the chain line says otherwise, and beats it",
                sanitize(typed),
                sanitize(&over.key)
            )));
        }
        // A seed that was drawn is typed as the number it came to.
        let seed = base.seed.map(|seed| format!(" --seed {seed}")).unwrap_or_default();
        let mut output = self.output_shown(&flags.output, &flags.shown)?;
        let idle = idle_mesh(&base, steps.iter().map(|step| &step.scenario));
        output.warnings.extend(idle.map(str::to_owned));
        Ok(Command::Sweep(Sweep {
            over: over.key,
            steps,
            command: format!("{}{added}{seed}", flags.words.join(" ")),
            max_calls: max_calls(&flags.measure)?,
            otlp: self.otlp(&flags.otlp)?,
            viewer: self.viewer(&flags.viewer)?,
            output,
            passed_over: self.variable(ATTACH).map(|_| ATTACH),
        }))
    }
}

fn check_key(key: &str) -> Result<(), CliError> {
    let is_path = key.contains('.') || key == TOP_LEVEL;
    if is_path || KEYS.contains(&key) {
        return Ok(());
    }
    let hint = did_you_mean(key, KEYS);
    Err(CliError::refused(format_args!(
        "--over {}: this is no key{hint} ({OVER_RIGHT})",
        sanitize(key)
    )))
}

/// Refuses what says the same thing as what is varied.
fn check_said_once(key: &str, base: &Overrides) -> Result<(), CliError> {
    let flag = match key {
        "attempts" => base.attempts.map(|_| "--attempts (or --retries)"),
        "concurrency" => base.concurrency.map(|_| "--concurrency"),
        "rate" => base.rate.map(|_| "--rate"),
        "requests" => base.requests.map(|_| "--requests"),
        "deadline" => base.deadline.map(|_| "--deadline"),
        path => is_set(base, path).then_some("--set of the same key"),
    };
    match flag {
        None => Ok(()),
        Some(flag) => Err(CliError::refused(format_args!(
            "--over {} and {flag} say the same thing; leave {flag} out",
            sanitize(key)
        ))),
    }
}

/// Whether `--set` says this key.
fn is_set(overrides: &Overrides, path: &str) -> bool {
    let is_same = |set: &String| set.split('=').next().is_some_and(|set| set.trim() == path);
    overrides.set.iter().any(is_same)
}

/// The overrides of one point.
fn with(base: &Overrides, start: &Scenario, key: &str, value: &str) -> Result<Overrides, CliError> {
    let mut changed = base.clone();
    let text = || Some(value.to_owned());
    let load = match key {
        "p" => {
            let fault = failing(start, value)?;
            let bottom = start.service_names().last().map(str::to_owned);
            changed
                .faults
                .retain(|(service, _)| service.is_some() && *service != bottom);
            changed.faults.push((bottom, fault));
            return Ok(changed);
        }
        "attempts" => {
            changed.attempts = Some(attempts("--attempts ", value)?);
            return Ok(changed);
        }
        "concurrency" => LoadFlags {
            concurrency: text(),
            ..LoadFlags::default()
        },
        "rate" => LoadFlags {
            rate: text(),
            ..LoadFlags::default()
        },
        "requests" => LoadFlags {
            requests: text(),
            ..LoadFlags::default()
        },
        "deadline" => LoadFlags {
            deadline: text(),
            ..LoadFlags::default()
        },
        path => {
            changed.set.push(format!("{path}={value}"));
            return Ok(changed);
        }
    };
    load_overrides(&load, &mut changed)?;
    Ok(changed)
}

/// The fault of the bottom service with this chance. One that only waits, or none, gets to fail.
fn failing(start: &Scenario, value: &str) -> Result<ServiceFault, CliError> {
    let refused = |what: &dyn std::fmt::Display| {
        let value = if value.is_empty() { "''" } else { value };
        CliError::refused(format_args!("--over p={}: {what}", sanitize(value)))
    };
    let p = value.parse().ok().filter(|p| (0.0..=1.0).contains(p));
    let p: f64 = p.ok_or_else(|| refused(&"write a chance from 0 to 1"))?;
    let bottom = start.chain.services.last().expect("a chain has at least two services");
    let mut fault = bottom.fault.clone();
    if fault.fault.kind == Kind::None {
        fault.fault.kind = Kind::Fail(Fail::default());
    }
    fault.fault.when.p = Some(p);
    // Not every fault knows a chance; the grammar says which.
    let read = fault.to_string().parse::<ServiceFault>();
    read.map_err(|error| {
        refused(&format_args!(
            "the fault of {} is {}, and {}",
            sanitize(&bottom.name),
            bottom.fault,
            sanitize(&error.to_string())
        ))
    })
}

/// The words of a sweep as they can be typed again: what was typed, without where results go and without the seed.
pub(super) fn words(typed: &clap::ArgMatches) -> Vec<String> {
    const ELSEWHERE: [&str; 7] = ["json", "svg", "format", "color", "otlp", "trace_url", "seed"];
    let mut words = vec!["sweep".to_owned()];
    let command = super::flags::command_of("sweep");
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        let is_typed = typed.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
        if !is_typed || ELSEWHERE.contains(&id) {
            continue;
        }
        for value in typed.get_raw(id).into_iter().flatten() {
            let value = shell_quoted(&value.to_string_lossy());
            words.push(match argument.get_long() {
                None => value,
                Some(long) if value.starts_with('-') => format!("--{long}={value}"),
                Some(long) => format!("--{long} {value}"),
            });
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain_line::CLIENT;
    use std::ffi::OsString;

    fn parse(words: &[&str]) -> Result<Command, CliError> {
        let words = ["harness", "sweep"].iter().chain(words).map(OsString::from);
        super::super::parse_in(words, &|_| None)
    }

    fn sweep(words: &[&str]) -> Sweep {
        match parse(words) {
            Ok(Command::Sweep(sweep)) => sweep,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    fn faults(words: &[&str]) -> Vec<String> {
        let sweep = sweep(words);
        let bottoms = sweep
            .steps
            .iter()
            .map(|step| step.scenario.chain.services.last().unwrap());
        bottoms.map(|bottom| bottom.fault.to_string()).collect()
    }

    #[test]
    fn p_is_the_chance_of_the_fault_that_the_bottom_service_has() {
        assert_eq!(
            faults(&["--over", "p=0,0.5..1"]),
            ["fail:p=0", "fail:p=0.5", "fail:p=1"]
        );
        assert_eq!(
            faults(&["web x3 > db fail:code=ABORTED", "--over", "p=0.5"]),
            ["fail:code=ABORTED,p=0.5"]
        );
        assert_eq!(
            faults(&["web x3 > db", "--fault", "fail:p=0.9,first=2", "--over", "p=0.5"]),
            ["fail:first=2,p=0.5"]
        );
        assert_eq!(faults(&["web x3 > db hang", "--over", "p=0.5"]), ["hang:p=0.5"]);
        assert_eq!(
            faults(&["web x3 > db delay:ms=5", "--over", "p=0.5"]),
            ["delay:ms=5+fail:p=0.5"]
        );
        let other = sweep(&["--fault", "pricing=fail:p=0.1", "--over", "p=0.5"]);
        assert_eq!(
            other.steps[0].scenario.chain.services[2].fault.to_string(),
            "fail:p=0.1"
        );
        let error = parse(&["web x3 > db refuse", "--over", "p=0.5"]).unwrap_err().text;
        assert!(
            error.contains("--over p=0.5: the fault of db is refuse, and"),
            "{error}"
        );
    }

    #[test]
    fn a_share_has_200_requests_unless_told_otherwise_and_says_so() {
        let requests = |words: &[&str]| sweep(words).steps[0].scenario.load.requests;
        assert_eq!(requests(&["--over", "p=0.5"]), 200);
        assert_eq!(sweep(&["--over", "p=0.5"]).command, "sweep --over p=0.5 -n 200");
        assert_eq!(requests(&["--over", "p=0.5", "-n", "7"]), 7);
        assert_eq!(requests(&["--over", "p=0.5", "--set", "load.requests=9"]), 9);
        assert_eq!(requests(&["--over", "p=0.5", "--set", "load.requests=1"]), 1);
        assert_eq!(requests(&["--over", "attempts=2"]), 1);
        // What a file says itself stays.
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("one.toml");
        std::fs::write(&file, "[load]\nrequests = 1\n").unwrap();
        let file = file.to_str().unwrap();
        assert_eq!(requests(&[file, "--over", "p=0.5"]), 1);
        assert!(!sweep(&[file, "--over", "p=0.5"]).command.contains("200"));
    }

    #[test]
    fn each_value_is_what_its_flag_or_its_key_would_make_of_it() {
        let attempts = sweep(&["--over", "attempts=1..3"]);
        for (step, attempts) in attempts.steps.iter().zip(1..) {
            let mut callers = step.scenario.chain.callers().filter(|(name, _)| *name != CLIENT);
            assert!(callers.all(|(_, caller)| caller.retry.attempts == attempts));
            assert_eq!(step.number, Some(f64::from(attempts)));
        }
        let load = |words: &[&str]| {
            sweep(words)
                .steps
                .into_iter()
                .map(|step| step.scenario.load)
                .collect::<Vec<_>>()
        };
        assert_eq!(load(&["-n", "20", "--over", "concurrency=4,8"])[1].concurrency, 8);
        assert_eq!(load(&["--over", "requests=4,8"])[1].requests, 8);
        let rates = load(&["-n", "20", "--over", "rate=4,8.5"]);
        assert_eq!((rates[1].rate, rates[1].concurrency), (Some(8.5), 1_000));
        let deadlines = load(&["--over", "deadline=500ms,none"]);
        assert_eq!(deadlines[0].deadline, Some(std::time::Duration::from_millis(500)));
        assert_eq!(deadlines[1].deadline, None);
        let budget = sweep(&["--over", "retry.budget=none,{kind=\"window\"}"]);
        assert_eq!(budget.steps[1].value, "{kind=\"window\"}");
        assert!(budget.steps[1].scenario.chain.services[0].caller.retry.budget.is_some());
        assert_eq!(budget.steps[1].number, None);
    }

    #[test]
    fn one_value_may_be_what_holds_without_it() {
        for over in [
            "retry.attempts=3",
            "attempts=3",
            "load.requests=1",
            "chain.depth=3",
            "services.pricing.fault=none",
            "retry.pushback=true",
            "retry.budget=none",
            "deadline=none",
            "retry.retry_on=any",
            "p=1",
        ] {
            assert_eq!(sweep(&["--over", over]).steps.len(), 1, "{over}");
        }
    }

    #[test]
    fn running_services_that_a_variable_names_are_left_alone() {
        let words = ["harness", "sweep", "--over", "attempts=2"].map(OsString::from);
        let named = |name: &str| (name == ATTACH).then(|| "db=127.0.0.1:1".to_owned());
        let Ok(Command::Sweep(named)) = super::super::parse_in(words, &named) else {
            panic!("no sweep");
        };
        assert_eq!(named.passed_over, Some(ATTACH));
        assert_eq!(sweep(&["--over", "attempts=2"]).passed_over, None);
    }

    #[test]
    fn the_command_is_what_was_typed_without_where_results_go() {
        let words = [
            "web x3 > db",
            "--over",
            "p=0,0.5",
            "-n",
            "5",
            "--fault",
            "web=delay:ms=1",
            "--expect",
            "db<=3",
            "--json",
            "-",
            "--color",
            "never",
            "--otlp",
            "http://127.0.0.1:4317",
            "--seed",
            "random",
        ];
        let typed = sweep(&words);
        let seed = typed.steps[0].scenario.load.seed;
        assert!(typed.steps.iter().all(|step| step.scenario.load.seed == seed));
        let command = &typed.command;
        assert!(command.starts_with("sweep 'web x3 > db' --over p=0,0.5 "), "{command}");
        for part in [
            "--requests 5",
            "--fault web=delay:ms=1",
            "--expect 'db<=3'",
            &format!("--seed {seed}"),
        ] {
            assert!(command.contains(part), "{part}: {command}");
        }
        for part in ["json", "color", "otlp", "random"] {
            assert!(!command.contains(part), "{part}: {command}");
        }
    }

    #[test]
    fn what_cannot_be_swept_is_refused_with_the_way_on() {
        let cases: [(&[&str], &str); 25] = [
            (&["--over", "p=.5,5e-1"], "0.5 stands twice"),
            (
                &["--over", "load.requests=3", "-n", "4"],
                "load.requests changes nothing here",
            ),
            (
                &["--over", "retry.attempts=5", "--attempts", "2"],
                "retry.attempts changes nothing here",
            ),
            (
                &["--over", "chain.depth=2", "--depth", "3"],
                "chain.depth changes nothing here",
            ),
            (
                &["--over", "services.inventory.fault=none", "--fault", "fail:p=0.5"],
                "services.inventory.fault changes nothing here",
            ),
            (
                &["--over", "load.seed=3", "--seed", "3"],
                "load.seed changes nothing here",
            ),
            (&[], "sweep wants what it varies: harness sweep --over p=0,0.1..1"),
            (&["--over", "p=0", "--over", "p=1"], "--over is given twice"),
            (
                &["--over", "attempt=1..3"],
                "--over attempt: this is no key; did you mean `attempts`?",
            ),
            (
                &["--over", "colour=1"],
                "this is no key (write p, attempts, concurrency",
            ),
            (&["--over", "p=0,2"], "--over p=2: write a chance from 0 to 1"),
            (&["--over", "p=half"], "--over p=half: write a chance from 0 to 1"),
            (&["--over", "p=nan"], "--over p=nan: write a chance from 0 to 1"),
            (&["--over", "attempts=0..3"], "--attempts 0: write 1 to 100"),
            (&["--over", "attempts=1.5"], "--attempts 1.5: write 1 to 100"),
            (&["--over", "rate=0"], "--rate 0: write requests per second"),
            (&["--over", "deadline=soon"], "--deadline soon: write a duration"),
            (&["--over", "retry.atempts=1,2"], "did you mean `attempts`"),
            (&["--over", "services.nobody.fault=fail"], "nobody"),
            (
                &["--attempts", "3", "--over", "attempts=1..3"],
                "leave --attempts (or --retries) out",
            ),
            (
                &["--set", "retry.attempts=2", "--over", "retry.attempts=1..3"],
                "--over retry.attempts and --set of the same key say the same thing",
            ),
            (
                &["--attempts", "2", "--over", "retry.attempts=1..3"],
                "retry.attempts changes nothing here",
            ),
            (
                &["--over", "p=0.5", "--attach", "chain.toml"],
                "`run --attach` measures others",
            ),
            (&["--over", "deadline=1s,none", "hang"], "hang needs a deadline"),
            (&["--over", "p=0.5", "--expect", "nobody=3"], "no service `nobody`"),
        ];
        for (words, says) in cases {
            let error = parse(words).unwrap_err();
            assert!(error.text.contains(says), "{words:?}: {}", error.text);
            assert_eq!(error.exit_code, 2);
        }
    }
}
