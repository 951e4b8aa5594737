//! Words become the command they say, or are refused by name.

use super::*;
use crate::scenario::{Overrides, strategies};
use proptest::prelude::*;

fn parse_words(words: &[&str]) -> Result<Command, CliError> {
    let arguments = std::iter::once("target/release/harness").chain(words.iter().copied());
    parse_in(arguments.map(OsString::from), &|_| None)
}

fn refused(words: &[&str]) -> String {
    let error = parse_words(words).unwrap_err();
    assert_eq!(error.exit_code, 2, "{words:?}: {}", error.text);
    assert!(
        error.text.starts_with("error: ") && !error.text.contains('\n'),
        "{words:?}: {}",
        error.text
    );
    error.text
}

fn run(words: &[&str]) -> Run {
    match parse_words(&[&["run"], words].concat()) {
        Ok(Command::Run(run)) => run,
        other => panic!("{words:?}: {other:?}"),
    }
}

/// The scenario of a run of its own.
fn scenario(words: &[&str]) -> Scenario {
    match run(words).subject {
        Subject::Own { scenario, .. } => *scenario,
        other @ Subject::Attached { .. } => panic!("{words:?}: {other:?}"),
    }
}

fn predict(words: &[&str]) -> Scenario {
    match parse_words(&[&["predict"], words].concat()) {
        Ok(Command::Predict(Predict {
            subject: Subject::Own { scenario, .. },
            ..
        })) => *scenario,
        other => panic!("{words:?}: {other:?}"),
    }
}

/// Splits as a POSIX shell does, with `$'…'` of octal escapes.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut rest = line.chars().peekable();
    let push = |word: &mut Option<Vec<u8>>, each: char| {
        let mut bytes = [0; 4];
        word.get_or_insert_default()
            .extend_from_slice(each.encode_utf8(&mut bytes).as_bytes());
    };
    while let Some(each) = rest.next() {
        match each {
            ' ' => words.extend(word.take().map(|bytes| String::from_utf8(bytes).unwrap())),
            '\'' => {
                word.get_or_insert_default();
                while let Some(each) = rest.next().filter(|each| *each != '\'') {
                    push(&mut word, each);
                }
            }
            '$' if rest.peek() == Some(&'\'') => {
                rest.next();
                word.get_or_insert_default();
                while let Some(each) = rest.next().filter(|each| *each != '\'') {
                    if each != '\\' {
                        push(&mut word, each);
                        continue;
                    }
                    match rest.next().unwrap() {
                        first @ '0'..='3' => {
                            let octal: String = [first, rest.next().unwrap(), rest.next().unwrap()].iter().collect();
                            word.get_or_insert_default()
                                .push(u8::from_str_radix(&octal, 8).unwrap());
                        }
                        plain => push(&mut word, plain),
                    }
                }
            }
            '\\' => push(&mut word, rest.next().unwrap()),
            _ => {
                assert!(
                    !"\"`$&|;<>()*?[]#~!{}\n\t".contains(each),
                    "{each} must be quoted: {line}"
                );
                push(&mut word, each);
            }
        }
    }
    words.extend(word.map(|bytes| String::from_utf8(bytes).unwrap()));
    words
}

proptest! {
    #[test]
    fn a_repeat_line_repeats_its_scenario(scenario in strategies::scenario(13, true)) {
        let line = scenario.repeat("predict");
        prop_assert!(!line.contains(crate::sanitize::is_control), "{}", line);
        let words = shell_words(&line);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let command = parse_words(&words);
        let Ok(Command::Predict(Predict {
            subject: Subject::Own { scenario: repeated, .. },
            ..
        })) = command else {
            return Err(TestCaseError::fail(format!("{line}\n{command:?}")));
        };
        prop_assert_eq!(*repeated, scenario, "{}", line);
    }

    #[test]
    fn no_words_make_the_parser_panic(words in prop::collection::vec("\\PC{0,12}|--[a-z-]{0,12}(=.{0,6})?", 0..5)) {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        if let Err(error) = parse_words(&words) {
            prop_assert!(error.exit_code == 0 || !error.text.contains(crate::sanitize::is_control), "{}", error.text);
        }
    }
}

#[test]
fn nothing_at_all_is_the_demo() {
    let Ok(Command::Demo(demo)) = parse_words(&[]) else {
        panic!("no demo")
    };
    assert_eq!(
        (demo.per_hop.name.as_str(), demo.single_owner.name.as_str()),
        ("per-hop", "single-owner")
    );
    assert_eq!(
        demo.output,
        Output {
            json: None,
            color: ColorChoice::Auto,
            program: "target/release/harness".to_owned()
        }
    );
    let Ok(Command::Demo(demo)) = parse_words(&["--json", "-", "--color", "never", "--otlp", "localhost:4317"]) else {
        panic!("no demo")
    };
    assert_eq!(
        (demo.output.json, demo.output.color),
        (Some(JsonTarget::Stdout), ColorChoice::Never)
    );
    assert_eq!(demo.otlp.as_deref(), Some("http://localhost:4317"));
    assert!(matches!(
        parse_words(&["demo", "--json", "out.json"]),
        Ok(Command::Demo(_))
    ));
}

#[test]
fn a_bare_run_is_per_hop() {
    let run = run(&[]);
    let scenario = Scenario::load(Some("per-hop"), &Overrides::default()).unwrap();
    let subject = Subject::Own {
        scenario: Box::new(scenario),
        expectations: vec![],
    };
    assert_eq!((run.subject, run.max_calls, run.otlp), (subject, 2_000_000, None));
}

#[test]
fn flags_say_what_the_contract_says() {
    let line = |words: &[&str]| scenario(words).chain_line();
    assert_eq!(
        line(&["--attempts", "2"]),
        "client > frontend x2 > checkout x2 > pricing x2 > inventory down"
    );
    assert_eq!(
        line(&["--retries", "3"]),
        "client > frontend x4 > checkout x4 > pricing x4 > inventory down"
    );
    assert_eq!(
        line(&["--retries-at", "client=2", "--fault", "none"]),
        "client x3 > frontend x3 > checkout x3 > pricing x3 > inventory"
    );
    assert_eq!(
        line(&["--owner", "client", "--attempts-at", "client=2", "--depth", "1"]),
        "client x2 > pricing > inventory down"
    );
    assert_eq!(
        line(&["--fault", "pricing=refuse"]),
        "client > frontend x3 > checkout x3 > pricing x3 > inventory down"
    );
    assert_eq!(
        line(&["--fault", "inventory=fail:code=ABORTED,first=2"])
            .split(' ')
            .next_back(),
        Some("fail:code=ABORTED,first=2")
    );
    let run = run(&[
        "-n",
        "1000",
        "-c",
        "50",
        "--item",
        "",
        "--deadline",
        "none",
        "--seed",
        "5",
        "--max-calls",
        "9",
    ]);
    let Subject::Own { scenario, .. } = run.subject else {
        panic!()
    };
    let load = scenario.load;
    assert_eq!(
        (
            load.requests,
            load.concurrency,
            load.item.as_str(),
            load.deadline,
            load.seed
        ),
        (1000, 50, "", None, 5)
    );
    assert_eq!(run.max_calls, 9);
}

#[test]
fn a_random_seed_is_the_same_for_both_sides() {
    let Ok(Command::Compare(compare)) = parse_words(&["compare", "per-hop", "flaky", "--seed", "random"]) else {
        panic!()
    };
    let seeds: Vec<_> = compare
        .sides
        .iter()
        .map(|side| {
            if let Side::Subject(Subject::Own { scenario, .. }) = side {
                scenario.load.seed
            } else {
                0
            }
        })
        .collect();
    assert_eq!(seeds[0], seeds[1]);
}

#[test]
fn predict_takes_long_chains_and_proxies_and_run_refuses_them_by_name() {
    assert_eq!(predict(&["x6 x3 > db down"]).chain.services[0].name, "x6");
    assert_eq!(predict(&["--depth", "12"]).chain.services.len(), 13);
    assert_eq!(
        predict(&["web x3*3 > db down"]).chain.services[0]
            .caller
            .proxy_attempts
            .0,
        3
    );
    assert_eq!(
        predict(&["web:3/orders:3*3/ledger:down"]).chain_line(),
        "client > web x3 > orders x3*3 > ledger down"
    );
    for (words, named) in [
        (
            &["run", "--depth", "4"][..],
            "--depth 4: a run of more than 3 links is not built yet",
        ),
        (&["run", "a > b > c > d > e"], "a chain of 5 services is not built yet"),
        (&["run", "web x3*3 > db"], "the proxy in `web x3*3` is not built yet"),
        (&["compare", "web x3*3 > db", "per-hop"], "is not built yet"),
        (&["run", "--depth", "13"], "--depth 13: write 1 to 12"),
        (&["predict", "--depth", "13"], "--depth 13: write 1 to 12"),
        (&["predict", "--depth", "0"], "--depth 0: write 1 to 12"),
    ] {
        let text = refused(words);
        assert!(text.contains(named), "{words:?}: {text}");
    }
}

#[test]
fn features_of_the_design_are_refused_by_name() {
    for flag in [
        "--rate",
        "--cancel-after",
        "--sidecar",
        "--sidecar-attempts",
        "--sidecar-retries",
        "--sidecar-attempts-at",
        "--undeclared",
        "--mesh",
        "--budget",
        "--prove",
        "--attach",
        "--trace-url",
        "--capacity",
        "--guess",
        "--svg",
        "--html",
        "--format",
    ] {
        for command in ["run", "predict", "compare", "demo"] {
            assert_eq!(
                refused(&[command, flag, "3"]),
                format!("error: `{flag}` is not built yet")
            );
        }
        assert_eq!(
            refused(&[&format!("{flag}=3")]),
            format!("error: `{flag}` is not built yet")
        );
    }
    for command in [
        "up",
        "call",
        "fail",
        "heal",
        "retry",
        "status",
        "sweep",
        "tour",
        "audit",
        "completions",
    ] {
        assert_eq!(refused(&[command]), format!("error: `{command}` is not built yet"));
        assert_eq!(
            refused(&[command, "--rate", "3", "--", "x"]),
            format!("error: `{command}` is not built yet")
        );
    }
    assert!(refused(&["run", "--fault", "delay:ms=50"]).contains("`delay` is not built yet"));
    assert!(refused(&["run", "--set", "load.rate=3"]).contains("`load.rate` is not built yet"));
    assert!(refused(&["service", "sidecar"]).contains("not built yet"));
}

#[test]
fn each_wrong_word_is_refused_with_what_would_be_right() {
    for (words, named) in [
        (&["run", "--attempts", "0"][..], "--attempts 0: write 1 to 100"),
        (&["run", "--attempts", "101"], "--attempts 101"),
        (&["run", "--attempts", "-1"], "--attempts -1: write 1 to 100"),
        (&["run", "--attempts", "+3"], "--attempts +3"),
        (&["run", "--attempts"], "--attempts wants a value"),
        (&["run", "--attempts", ""], "--attempts '': write 1 to 100"),
        (
            &["--json", "-", "run"],
            "the command comes first, its flags behind it: target/release/harness run ...",
        ),
        (&["health", "a", "b"], "`b` is one word too many"),
        (&["run", "--attempts", "2", "--retries", "1"], "say the same thing"),
        (&["run", "--retries", "100"], "--retries 100: write 0 to 99"),
        (
            &["run", "--owner", "client", "--owner", "pricing"],
            "`--owner` is given twice",
        ),
        (&["run", "--attempts-at", "checkuot=2"], "did you mean `checkout`?"),
        (&["run", "--attempts-at", "checkout"], "write CALLER=N"),
        (
            &["run", "--attempts-at", "checkout=0"],
            "--attempts-at checkout=0: write 1 to 100",
        ),
        (
            &["run", "--attempts-at", "client=2", "--retries-at", "client=2"],
            "already",
        ),
        (
            &["run", "--depth", "1", "--attempts-at", "frontend=2"],
            "no caller `frontend` is in this chain",
        ),
        (&["run", "--retry-on", "UNAVAILBLE"], "did you mean `UNAVAILABLE`?"),
        (&["run", "--retry-on", ""], "retry_on is empty"),
        (&["run", "--fault", "fail:p=1.5"], "1.5"),
        (&["run", "--fault", "explode"], "explode"),
        (&["run", "--fault", "web=fail"], "no service `web`"),
        (
            &["run", "--fault", "fail", "--fault", "inventory=refuse"],
            "two --fault flags",
        ),
        (&["run", "--set", "services.pricing.atempts=2"], "atempts"),
        (&["run", "no-such-scenario"], "no-such-scenario"),
        (&["run", "--deadline", "soon"], "--deadline soon: write a duration"),
        (&["run", "--deadline", "25h"], "at most 24h"),
        (
            &["run", "-n", "0"],
            "--requests 0: write a whole number from 1 to 10000000",
        ),
        (&["run", "-c", "5001"], "--concurrency 5001"),
        (&["run", "--seed", "-1"], "--seed -1"),
        (&["run", "--max-calls", "0"], "--max-calls 0"),
        (&["run", "client", "x3", "x3", "down"], "put the line in quotes"),
        (&["run", "client"], "put the line in quotes"),
        (&["run", "web", "x3", "down"], "your shell took > as a redirection"),
        (&["run", "client", "-", "web"], "put the line in quotes"),
        (&["compare", "web", "x3"], "put the line in quotes"),
        (&["run", "per-hop", "transient"], "several go side by side with compare"),
        (&["run", "refuse"], "did you mean `refused`?"),
        (&["run", "web > db", "--depth", "1"], "leave one of the two out"),
        (&["run", "--expect", "inventroy=27"], "did you mean `inventory`?"),
        (&["run", "--atempts", "3"], "did you mean `--attempts`?"),
        (&["run", "--color", "pink"], "write auto, always, never"),
        (&["run", "--json", "/"], "this is a folder"),
        (&["run", "--json", ""], "wants a file"),
        (&["run", "--otlp", "https://collector:4317"], "https is not built yet"),
        (&["run", "--otlp", "collector:4317"], "write http://host:port"),
        (&["run", "--otlp", "http://collector"], "write http://host:port"),
        (
            &["run", "--otlp", "http://collector:4317/v1/traces"],
            "write http://host:port",
        ),
        (
            &["predict", "--max-calls", "3"],
            "is no flag of `target/release/harness predict`",
        ),
        (&["--fault", "fail"], "it belongs to `target/release/harness run`"),
        (&["compare", "per-hop"], "two or more"),
        (&["compare", "per-hop", "missing.json"], "no report missing.json"),
        (&["service", "pricng"], "did you mean `pricing`?"),
        (&["health", ""], "host:port"),
        (&["per-hop"], "did you mean `target/release/harness run per-hop`?"),
        (&["web > db"], "run 'web > db'"),
        (&["pedict"], "did you mean `predict`?"),
        (&["frobnicate"], "`frobnicate` is no command"),
        (&["run", "a\u{1b}[2Jb"], r"a\u{1b}[2Jb"),
        (&["\u{1b}[2J"], r"\u{1b}[2J"),
        (&["run", "--\u{1b}[2J"], r"\u{1b}[2J"),
    ] {
        let text = refused(words);
        assert!(text.contains(named), "{words:?}: {text}");
        assert!(!text.contains(crate::sanitize::is_control), "{text}");
    }
}

#[test]
fn the_way_on_comes_before_the_list() {
    for (words, named) in [
        (
            &["predict", "per-hop", "transient"][..],
            "predict takes one scenario, and got `per-hop`, `transient`; several go side by side with compare",
        ),
        (&["run", "ledger", "p=0.1"], "fail:p=0.1"),
        (&["run", "web > ledger p=0.1"], "did you mean `ledger fail:p=0.1`?"),
        (
            &["run", "a.json"],
            "a.json is a saved report, which run does not read; compare does",
        ),
        (&["run", "-n", "1e6"], "write a whole number from 1 to 10000000"),
        (
            &["run", "per-hpo"],
            "there is no scenario `per-hpo`; did you mean `per-hop`? (`scenarios`",
        ),
        (
            &["run", "nosuch.toml"],
            "nosuch.toml cannot be read: there is no such file; give its path",
        ),
        (&["predict", "web"], "there is no scenario `web` (built in"),
        (&["predict", "client > web"], "error: the chain line has 1 name"),
        (&["run", "--expect", "inventory!=5"], "= <= >= < >"),
        (
            &["scenarios", "--json", "-"],
            "it belongs to `target/release/harness run`, `predict` and `compare`",
        ),
        (
            &["run", "--retry-on", "UNAVAILBLE"],
            "--retry-on UNAVAILBLE: `UNAVAILBLE` is not a status code; did you mean `UNAVAILABLE`?",
        ),
    ] {
        let text = refused(words);
        assert!(text.contains(named), "{words:?}: {text}");
    }
    let text = refused(&["predict", "per-hop", "transient"]);
    assert!(!text.contains("redirection"), "{text}");
}

#[test]
fn a_saved_report_is_a_side_and_takes_no_flags() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("monday.json");
    std::fs::write(&path, "{}").unwrap();
    let saved = path.to_str().unwrap();
    let Ok(Command::Compare(compare)) = parse_words(&["compare", saved, "per-hop", "--fault", "none"]) else {
        panic!()
    };
    assert_eq!(compare.sides[0], Side::Saved(path.clone()));
    assert!(refused(&["compare", saved, saved, "--attempts", "2"]).contains("saved report"));
    assert!(refused(&["compare", saved, saved, "--expect", "2"]).contains("saved report"));
}

#[test]
fn the_collector_of_opentelemetry_is_used_unless_switched_off() {
    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317/");
    let with = |pairs: &'static [(&str, &str)], words: &[&str]| {
        let arguments = [&["harness", "run"], words].concat();
        let get = move |name: &str| {
            pairs
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        };
        match parse_in(arguments.into_iter().map(OsString::from), &get) {
            Ok(Command::Run(run)) => Ok(run.otlp),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.text),
        }
    };
    assert_eq!(with(&[ENDPOINT], &[]), Ok(Some("http://collector:4317".to_owned())));
    assert_eq!(with(&[ENDPOINT, ("OTEL_SDK_DISABLED", "true")], &[]), Ok(None));
    assert_eq!(with(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")], &[]), Ok(None));
    assert_eq!(
        with(&[ENDPOINT], &["--otlp", "[::1]:4317"]),
        Ok(Some("http://[::1]:4317".to_owned()))
    );
    let error = with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector")], &[]).unwrap_err();
    assert!(
        error.contains("OTEL_EXPORTER_OTLP_ENDPOINT=https") && error.contains("not built yet"),
        "{error}"
    );
}

#[test]
fn help_and_version_are_no_refusals_and_name_the_program_as_started() {
    for words in [
        &["--help"][..],
        &["run", "--help"],
        &["predict", "-h"],
        &["compare", "--help"],
        &["help"],
    ] {
        let error = parse_words(words).unwrap_err();
        assert_eq!(error.exit_code, 0, "{words:?}: {}", error.text);
        assert!(
            error.text.contains("target/release/harness"),
            "{words:?}: {}",
            error.text
        );
        assert!(
            error.text.lines().all(|line| line.chars().count() <= 80),
            "{}",
            error.text
        );
    }
    let version = parse_words(&["--version"]).unwrap_err();
    assert_eq!(
        (version.exit_code, version.text.trim()),
        (0, concat!("harness ", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn plumbing_is_read() {
    let pricing = Command::Service {
        name: "pricing".to_owned(),
        until_stdin_closes: true,
    };
    assert_eq!(
        parse_words(&["service", "pricing", "--until-stdin-closes"]),
        Ok(pricing)
    );
    assert_eq!(
        parse_words(&["health", "[::1]:50051"]),
        Ok(Command::Health {
            address: "[::1]:50051".to_owned()
        })
    );
    assert_eq!(parse_words(&["scenarios"]), Ok(Command::Scenarios));
}

#[test]
fn a_program_with_a_blank_in_its_path_can_be_typed_again() {
    assert_eq!(
        program_name("target/release/harness".as_ref()),
        "target/release/harness"
    );
    assert_eq!(program_name("/my tools/harness".as_ref()), "'/my tools/harness'");
}
