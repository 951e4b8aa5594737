//! Words become the command they say, or are refused by name.

use super::*;
use crate::scenario::{Overrides, strategies};
use proptest::prelude::*;

fn parse_words(words: &[&str]) -> Result<Command, CliError> {
    parse_with(&[], words)
}

/// In an environment of these variables.
fn parse_with(variables: &[(&str, &str)], words: &[&str]) -> Result<Command, CliError> {
    let arguments = std::iter::once("target/release/harness").chain(words.iter().copied());
    parse_in(arguments.map(OsString::from), &|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    })
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
    fn a_repeat_line_repeats_its_scenario(scenario in strategies::scenario(13)) {
        let line = scenario.repeat("predict");
        prop_assert!(!line.contains(crate::sanitize::is_control), "{}", line);
        let words = shell_words(&line);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let command = parse_words(&words);
        if let Err(error) = scenario.check_envoys() {
            // What an Envoy cannot do is refused, by its name.
            prop_assert!(command.is_err() && error.to_string().contains("an Envoy knows no"), "{}", error);
            return Ok(());
        }
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
            svg: None,
            format: Format::Text,
            color: ColorChoice::Auto,
            program: "target/release/harness".to_owned(),
            warnings: Vec::new(),
        }
    );
    let Ok(Command::Demo(demo)) = parse_words(&["--json", "-", "--color", "never", "--otlp", "localhost:4317"]) else {
        panic!("no demo")
    };
    assert_eq!(
        (demo.output.json, demo.output.color),
        (Some(Destination::Stdout), ColorChoice::Never)
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
fn a_rate_and_a_time_to_leave_are_read_and_refused_by_name() {
    let load = |words: &[&str]| scenario(words).load;
    let open = load(&["-n", "40", "--rate", "20", "--cancel-after", "50ms"]);
    assert_eq!(
        (open.rate, open.cancel_after, open.concurrency),
        (Some(20.0), Some(std::time::Duration::from_millis(50)), 1_000)
    );
    assert_eq!(load(&["--rate", "0.5", "-c", "2"]).concurrency, 2);
    assert_eq!(predict(&["--rate=20"]).load.rate, Some(20.0));
    for (words, named) in [
        (
            &["--rate", "0"][..],
            "--rate 0: write requests per second, from 0.0001 to 1000000",
        ),
        (&["--rate", "-1"], "--rate -1: write requests per second"),
        (&["--rate", "1e3"], "--rate 1e3: write requests per second"),
        (&["--rate", "nan"], "--rate nan: write requests per second"),
        (&["--rate", ""], "--rate '': write requests per second"),
        (&["--rate", "1000001"], "--rate 1000001: write requests per second"),
        (
            &["--cancel-after", "0s"],
            "--cancel-after 0s: write a duration above 0 and at most 24h",
        ),
        (&["--cancel-after", "none"], "--cancel-after none: write a duration"),
        (&["--cancel-after", "soon"], "--cancel-after soon: write a duration"),
    ] {
        for command in ["run", "predict"] {
            let text = refused(&[&[command], words].concat());
            assert!(text.contains(named), "{words:?}: {text}");
        }
    }
    let compare = [
        "compare",
        "per-hop",
        "single-owner",
        "--rate",
        "5",
        "--cancel-after",
        "1s",
    ];
    assert!(matches!(parse_words(&compare), Ok(Command::Compare(_))));
}

#[test]
fn faults_of_every_kind_are_read_and_a_side_is_held_against_the_chain() {
    for fault in [
        "delay:ms=50,p=0.05",
        "delay:ms=20+fail:first=2",
        "hang:first=1",
        "reset",
        "reset:of=stream,code=REFUSED_STREAM",
        "goaway",
        "http:status=503",
        "overload:capacity=10",
        "fail:at=headers",
        "fail:pushback=-1",
        "fail:side=client@pricing,loop=outside",
        "checkout=delay:ms=20,side=client@frontend",
        "frontend=fail:side=client@client",
    ] {
        let line = scenario(&["--fault", fault]).repeat("run");
        assert!(
            line.contains(fault.rsplit_once("g=").map_or(fault, |(_, last)| last)),
            "{line}"
        );
    }
    for (words, named) in [
        (
            &["run", "--fault", "fail:side=client@checkout"][..],
            "--fault fail:side=client@checkout: `checkout` does not call inventory, pricing does: write side=client@pricing",
        ),
        (
            &["run", "--fault", "checkout=fail:side=client@checkout"],
            "--fault checkout=fail:side=client@checkout: `checkout` does not call checkout, frontend does",
        ),
        (
            &["run", "--fault", "hang", "--deadline", "none"],
            "hang needs a deadline or an attempt_timeout",
        ),
        (
            &["compare", "per-hop", "hang", "--deadline", "none"],
            "hang needs a deadline or an attempt_timeout",
        ),
    ] {
        let text = refused(words);
        assert!(text.contains(named), "{words:?}: {text}");
    }
    // Arithmetic waits for nobody.
    assert_eq!(predict(&["hang", "--deadline", "none"]).load.deadline, None);
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
fn long_chains_and_proxies_are_read_by_predict_and_run() {
    assert_eq!(predict(&["x6 x3 > db down"]).chain.services[0].name, "x6");
    for read in [predict, scenario] {
        assert_eq!(read(&["--depth", "12"]).chain.services.len(), 13);
        assert_eq!(read(&["web x3*3 > db down"]).chain.services[0].caller.proxy.attempts, 3);
        assert_eq!(
            read(&["web:3/orders:3*3/ledger:down"]).chain_line(),
            "client > web x3 > orders x3*3 > ledger down"
        );
    }
    for (words, named) in [
        (&["run", "--depth", "13"][..], "--depth 13: write 1 to 12"),
        (&["predict", "--depth", "13"], "--depth 13: write 1 to 12"),
        (&["predict", "--depth", "0"], "--depth 0: write 1 to 12"),
        (&["run", "a>b>c>d>e>f>g>h>i>j>k>l>m>n"], "the chain line has 14 names"),
    ] {
        let text = refused(words);
        assert!(text.contains(named), "{words:?}: {text}");
    }
}

#[test]
fn what_stands_on_the_links_is_said_by_flags() {
    let line = |words: &[&str]| scenario(words).chain_line();
    assert_eq!(
        line(&["--sidecar-attempts", "2"]),
        "client > frontend x3*2 > checkout x3*2 > pricing x3*2 > inventory down"
    );
    assert_eq!(
        line(&[
            "--sidecar-retries",
            "2",
            "--sidecar-attempts-at",
            "pricing=1",
            "--sidecar-retries-at",
            "client=1"
        ]),
        "client x1*2 > frontend x3*3 > checkout x3*3 > pricing x3 > inventory down"
    );
    let chain = scenario(&["web x3*3 > db", "--sidecar", "envoy", "--retry-on", "CANCELLED"]).chain;
    assert_eq!(chain.sidecar, crate::scenario::SidecarKind::Envoy);
    let caller = &chain.services[0].caller;
    assert_eq!(caller.proxy.retry_on, caller.retry.retry_on);
    let hidden = scenario(&["--undeclared", "pricing=4", "--undeclared", "client=100"]).chain;
    assert_eq!(
        (hidden.client.undeclared, hidden.services[2].caller.undeclared),
        (100, 4)
    );
    assert!(matches!(
        parse_words(&["compare", "per-hop", "single-owner", "--sidecar-attempts", "2"]),
        Ok(Command::Compare(_))
    ));
}

#[test]
fn each_wrong_flag_of_the_links_is_refused_with_what_would_be_right() {
    for (words, named) in [
        (
            &["--sidecar-attempts", "0"][..],
            "--sidecar-attempts 0: write 1 to 100, the first attempt included",
        ),
        (&["--sidecar-attempts", "-1"], "--sidecar-attempts -1: write 1 to 100"),
        (&["--sidecar-attempts", ""], "--sidecar-attempts '': write 1 to 100"),
        (
            &["--sidecar-retries", "100"],
            "--sidecar-retries 100: write 0 to 99; 2 retries are 3 attempts",
        ),
        (
            &["--sidecar-attempts", "2", "--sidecar-retries", "1"],
            "--sidecar-attempts and --sidecar-retries say the same thing",
        ),
        (
            &["--sidecar-attempts-at", "web"],
            "--sidecar-attempts-at web: write CALLER=N, as in",
        ),
        (
            &["--sidecar-attempts-at", "web=101"],
            "--sidecar-attempts-at web=101: write 1 to 100",
        ),
        (
            &["--sidecar-retries-at", "web=100"],
            "--sidecar-retries-at web=100: write 0 to 99",
        ),
        (
            &[
                "--sidecar-attempts-at",
                "pricing=2",
                "--sidecar-retries-at",
                "pricing=2",
            ],
            "`pricing` has its attempts from another flag already",
        ),
        (&["--sidecar-attempts-at", "pricng=2"], "did you mean `pricing`?"),
        (
            &["--sidecar", "istio"],
            "--sidecar istio: write builtin (our own) or envoy",
        ),
        (&["--sidecar", ""], "--sidecar '': write builtin"),
        (
            &["--sidecar", "envoy"],
            "--sidecar envoy: no link of this chain has a proxy",
        ),
        (
            &["--undeclared", "pricing=1"],
            "--undeclared pricing=1: write 2 to 100, what the layer makes of each attempt",
        ),
        (
            &["--undeclared", "pricing=101"],
            "--undeclared pricing=101: write 2 to 100",
        ),
        (
            &["--undeclared", "4"],
            "--undeclared 4: write CALLER=N, as in --undeclared checkout=3",
        ),
        (
            &["--undeclared", "inventory=4"],
            "inventory is the bottom service and calls nobody",
        ),
        (&["--undeclared", "pricing=4", "--undeclared", "pricing=4"], "already"),
        (&["--sidecar-attemts", "4"], "did you mean `--sidecar-attempts`?"),
    ] {
        for command in ["run", "predict"] {
            let text = refused(&[&[command], words].concat());
            assert!(text.contains(named), "{words:?}: {text}");
        }
    }
    for command in ["demo", "call", "fail", "heal", "retry", "status"] {
        let text = refused(&[command, "--sidecar-attempts", "2"]);
        assert!(
            text.contains("it belongs to `target/release/harness run`, `predict`, `compare` and `sweep`"),
            "{text}"
        );
    }
}

#[test]
fn features_of_the_design_are_refused_by_name() {
    for flag in ["--guess", "--html"] {
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
    for command in ["tour", "audit"] {
        assert_eq!(refused(&[command]), format!("error: `{command}` is not built yet"));
        assert_eq!(
            refused(&[command, "--over", "3", "--", "x"]),
            format!("error: `{command}` is not built yet")
        );
    }
}

#[test]
fn what_a_prediction_is_asked_besides_is_read_as_numbers() {
    let questions = |words: &[&str]| match parse_words(&[&["predict"], words].concat()) {
        Ok(Command::Predict(predict)) => predict.questions,
        other => panic!("{words:?}: {other:?}"),
    };
    assert_eq!(questions(&[]), Questions::default());
    let asked = questions(&["--rate", "40", "--budget", "12.5", "--capacity", "300"]);
    assert_eq!((asked.budget, asked.capacity), (Some(12.5), Some(300.0)));
    assert_eq!(
        questions(&["open-loop", "--capacity", "300"]).capacity,
        Some(300.0),
        "the file has a rate"
    );
    assert!(run(&["--prove"]).proves && !run(&[]).proves);
}

#[test]
fn a_proof_of_what_is_drawn_has_200_requests_unless_told_otherwise_and_says_so() {
    let requests = |words: &[&str]| {
        let run = run(words);
        let Subject::Own { scenario, .. } = run.subject else {
            panic!("{words:?}")
        };
        (scenario.load.requests, run.output.warnings.len())
    };
    let half = "web x3 > db fail:p=0.5";
    assert_eq!(requests(&[half, "--prove"]), (200, 1));
    assert_eq!(
        requests(&[half, "--prove", "--set", "services.web.fault=fail:p=1"]),
        (200, 1)
    );
    for (words, expected) in [
        (&[half][..], 1),
        (&[half, "--prove", "-n", "1"], 1),
        (&[half, "--prove", "-n", "7"], 7),
        (&[half, "--prove", "--set", "load.requests=1"], 1),
        // Two hundred of them would be refused.
        (&[half, "--prove", "--max-calls", "100"], 1),
        (&["web x3 > db fail:p=1", "--prove"], 1),
        (&["web x3 > db down", "--prove"], 1),
    ] {
        assert_eq!(requests(words), (expected, 0), "{words:?}");
    }
}

#[test]
fn a_mesh_that_fills_nothing_says_so() {
    let warned = |words: &[&str]| match parse_words(words) {
        Ok(
            Command::Run(Run { output, .. })
            | Command::Predict(Predict { output, .. })
            | Command::Compare(Compare { output, .. })
            | Command::Sweep(Sweep { output, .. }),
        ) => output.warnings,
        other => panic!("{words:?}: {other:?}"),
    };
    let http = ["--mesh", "istio-http"];
    for words in [
        &["run"][..],
        &["predict", "web x3 > db down"],
        &["compare", "per-hop", "flaky"],
        &["sweep", "--over", "attempts=1..2"],
        // The client's own link has no proxy of a mesh.
        &["run", "web x3 > db", "--fault", "web=refuse"],
    ] {
        let warnings = warned(&[words, &http].concat());
        assert!(
            matches!(warnings.as_slice(), [one] if one.starts_with("--mesh istio-http fills nothing here:")),
            "{words:?}: {warnings:?}"
        );
    }
    for words in [
        &["run", "--fault", "refuse"][..],
        &["compare", "per-hop", "web x3 > db refuse"],
    ] {
        assert_eq!(warned(&[words, &http].concat()), [""; 0], "{words:?}");
    }
    assert_eq!(warned(&["run", "--mesh", "istio"]), [""; 0]);
}

#[test]
fn each_wrong_question_mesh_and_proof_is_refused_with_what_would_be_right() {
    for (words, named) in [
        (
            &["predict", "--budget", "100.5"][..],
            "--budget 100.5: write 0 to 100, the retries",
        ),
        (&["predict", "--budget", "-1"], "--budget -1: write 0 to 100"),
        (&["predict", "--budget", "1e1"], "--budget 1e1: write 0 to 100"),
        (&["predict", "--budget", ""], "--budget '': write 0 to 100"),
        (
            &["predict", "--rate", "4", "--capacity", "0"],
            "--capacity 0: write a number above 0",
        ),
        (&["predict", "--rate", "4", "--capacity", "inf"], "--capacity inf"),
        (&["predict", "--capacity", "40"], "give it with --rate, as in --rate 40"),
        (
            &["run", "--budget", "20"],
            "it belongs to `target/release/harness predict`",
        ),
        (&["predict", "--prove"], "it belongs to `target/release/harness run`"),
        (
            &["run", "--mesh", "isto"],
            "--mesh isto: write one of istio, istio-http, linkerd, none; did you mean `istio`?",
        ),
        (&["compare", "a", "b", "--mesh", ""], "--mesh '': write one of istio"),
        (&["up", "--mesh", "istio"], "a chain that stays up has no proxies"),
        (
            &["run", "--prove", "--attach", "web=127.0.0.1:1,db=127.0.0.1:2"],
            "--prove: a change may take a proxy away, which a chain that already runs cannot do; leave --attach out",
        ),
    ] {
        let error = refused(words);
        assert!(error.contains(named), "{words:?}: {error}");
    }
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
            "it belongs to `target/release/harness run`, `predict`, `compare`, `sweep`, `call`, `fail`, `heal`, \
             `retry` and `status`",
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
fn every_help_fits_a_terminal_and_names_the_program_as_started() {
    let typed = <flags::Typed as clap::CommandFactory>::command();
    let commands: Vec<_> = typed
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect();
    assert!(commands.len() >= 15, "{commands:?}");
    let mut all = vec![vec!["--help"], vec!["-h"], vec!["help"]];
    for command in &commands {
        all.push(vec![command, "--help"]);
        all.push(vec![command, "-h"]);
    }
    for words in all {
        let error = parse_words(&words).unwrap_err();
        assert_eq!(error.exit_code, 0, "{words:?}: {}", error.text);
        assert!(
            error.text.contains("target/release/harness"),
            "{words:?}: {}",
            error.text
        );
        for line in error.text.lines() {
            assert!(line.len() <= 80 && line.is_ascii(), "{words:?}: {line}");
        }
    }
}

#[test]
fn every_example_of_the_help_can_be_typed() {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(file.path(), "web = \"127.0.0.1:50061\"\ndb = \"127.0.0.1:50064\"\n").unwrap();
    let report = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    let typed = <flags::Typed as clap::CommandFactory>::command();
    let mut tried = 0;
    for command in typed.get_subcommands() {
        let help = parse_words(&[command.get_name(), "--help"]).unwrap_err().text;
        for line in help
            .lines()
            .filter_map(|line| line.strip_prefix("      target/release/harness "))
        {
            // Where the output goes is the shell's.
            let line = line.split(" > ~").next().unwrap().split(" | ").next().unwrap();
            let line = line.replace("monday.json", report.path().to_str().unwrap());
            let line = line.replace("--attach chain.toml", &format!("--attach {}", file.path().display()));
            let words = shell_words(&line);
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            let command = parse_words(&words);
            assert!(command.is_ok(), "{line}: {command:?}");
            tried += 1;
        }
    }
    assert!(tried >= 30, "{tried}");
}

#[test]
fn the_list_of_commands_leaves_out_what_nobody_types() {
    let help = parse_words(&["--help"]).unwrap_err().text;
    for command in ["sweep", "up", "call", "fail", "heal", "retry", "status", "completions"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command}: {help}");
    }
    assert!(
        !help.contains("token") && !refused(&["frobnicate"]).contains("token"),
        "{help}"
    );
}

#[test]
fn the_version_is_no_refusal() {
    let version = parse_words(&["--version"]).unwrap_err();
    assert_eq!(
        (version.exit_code, version.text.trim()),
        (0, concat!("harness ", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn each_shell_completes_every_command_and_its_flags() {
    let typed = <flags::Typed as clap::CommandFactory>::command();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell", "PowerShell"] {
        let Ok(Command::Completions { script }) = parse_words(&["completions", shell]) else {
            panic!("{shell}")
        };
        for command in typed.get_subcommands() {
            assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
        }
        for flag in [
            "attach",
            "ready-file",
            "control-port",
            "trace-url",
            "sidecar-attempts-at",
            "undeclared",
        ] {
            assert!(script.contains(flag), "{shell}: {flag}");
        }
        assert!(!script.contains("target/release"), "{shell} completes the plain name");
    }
    for (words, named) in [
        (&["completions"][..], "bash, zsh, fish, elvish, powershell"),
        (&["completions", "bash", "zsh"], "takes one shell"),
        (&["completions", "bahs"], "did you mean `bash`? (shells: bash, zsh"),
        (
            &["completions", "tcsh"],
            "completions tcsh: there is no script for this shell (shells",
        ),
    ] {
        let text = refused(words);
        assert!(text.contains(named), "{words:?}: {text}");
    }
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
    assert_eq!(
        parse_words(&["token", "/run/lab/token"]),
        Ok(Command::Token {
            file: PathBuf::from("/run/lab/token")
        })
    );
    assert!(refused(&["token"]).contains("token FILE"));
    assert!(refused(&["token", ""]).contains("token FILE"));
}

#[test]
fn a_program_with_a_blank_in_its_path_can_be_typed_again() {
    assert_eq!(
        program_name("target/release/harness".as_ref()),
        "target/release/harness"
    );
    assert_eq!(program_name("/my tools/harness".as_ref()), "'/my tools/harness'");
}

const PAIRS: &str = "web=127.0.0.1:6061,db=127.0.0.1:6062";

fn up(words: &[&str]) -> Up {
    match parse_words(&[&["up"], words].concat()) {
        Ok(Command::Up(up)) => up,
        other => panic!("{words:?}: {other:?}"),
    }
}

fn ports(up: &Up) -> Vec<(u16, u16)> {
    up.ports.iter().map(|ports| (ports.service, ports.control)).collect()
}

fn switch(words: &[&str]) -> SwitchTo {
    match parse_words(words) {
        Ok(Command::Switch(Switch { to, link, .. })) => {
            let attach = Attach::Default;
            assert_eq!(
                link,
                Link {
                    attach,
                    is_flagged: false
                }
            );
            to
        }
        other => panic!("{words:?}: {other:?}"),
    }
}

fn retry(words: &[&str]) -> Overrides {
    match switch(&[&["retry"], words].concat()) {
        SwitchTo::Retry(overrides) => *overrides,
        other => panic!("{words:?}: {other:?}"),
    }
}

fn subject(variables: &[(&str, &str)], words: &[&str]) -> Subject {
    match parse_with(variables, words) {
        Ok(Command::Run(Run { subject, .. }) | Command::Predict(Predict { subject, .. })) => subject,
        other => panic!("{words:?}: {other:?}"),
    }
}

fn fault(text: &str) -> ServiceFault {
    text.parse().unwrap()
}

#[test]
fn a_bare_up_is_per_hop_with_inventory_working() {
    let bare = up(&[]);
    assert_eq!(
        bare.scenario.chain_line(),
        "client > frontend x3 > checkout x3 > pricing x3 > inventory"
    );
    assert_eq!(
        ports(&bare),
        [(50051, 50061), (50052, 50062), (50053, 50063), (50054, 50064)]
    );
    assert_eq!((bare.ready_file, bare.otlp, bare.output.json), (None, None, None));
    let line = |words: &[&str]| up(words).scenario.chain_line();
    assert_eq!(
        line(&["--fault", "fail", "--attempts", "2"]),
        "client > frontend x2 > checkout x2 > pricing x2 > inventory down"
    );
    assert_eq!(
        line(&["--set", "services.inventory.fault=refuse", "--depth", "1"]),
        "client > pricing x3 > inventory refuse"
    );
    assert_eq!(
        line(&["per-hop"]),
        "client > frontend x3 > checkout x3 > pricing x3 > inventory down"
    );
    assert_eq!(line(&["web x2 > db down"]), "client > web x2 > db down");
    assert_eq!(up(&["--seed", "5"]).scenario.load.seed, 5);
    assert_eq!(up(&["--set", "load.seed=6"]).scenario.load.seed, 6);
}

#[test]
fn a_chain_takes_the_ports_of_its_processes_unless_told_otherwise() {
    assert_eq!(ports(&up(&["web x2 > db"])), [(50053, 50063), (50054, 50064)]);
    assert_eq!(
        ports(&up(&["--depth", "2"])),
        [(50052, 50062), (50053, 50063), (50054, 50064)]
    );
    let words = [
        "web > db",
        "--port",
        "db=6001",
        "--control-port",
        "web=0",
        "--control-port",
        "db=0",
    ];
    assert_eq!(ports(&up(&words)), [(50053, 0), (6001, 0)]);
    // What one gives up, another can have.
    let swapped = up(&["web > db", "--port", "db=50053", "--port", "web=50054"]);
    assert_eq!(ports(&swapped), [(50054, 50063), (50053, 50064)]);
    let ready = up(&["--ready-file", "chain.toml"]).ready_file;
    assert_eq!(ready, Some(PathBuf::from("chain.toml")));
}

#[test]
fn up_refuses_what_it_cannot_keep_running() {
    for (words, named) in [
        (
            &["--depth", "4"][..],
            "a chain that stays up has 2 to 4 services, and this one has 5: run starts it for itself",
        ),
        (
            &["web x3*3 > db"],
            "has no proxies, and `web x3*3` has one: run starts it",
        ),
        (
            &["--sidecar-attempts", "3"],
            "has no proxies, and `frontend x3*3` has one",
        ),
        (
            &["--undeclared", "pricing=4"],
            "has no layers that nobody declared, and pricing has one of 4",
        ),
        (
            &["--sidecar", "envoy"],
            "error: a chain that stays up has no Envoys: run starts them for itself",
        ),
        (
            &["envoy-defaults"],
            "error: a chain that stays up has no Envoys: run starts them for itself",
        ),
        (&["web", "x3", "db"], "put the line in quotes"),
        (&["a.json"], "which up does not read"),
        (
            &["-n", "5"],
            "`-n` is no flag of `target/release/harness up`: up sends nothing; it belongs to `run`",
        ),
        (&["--concurrency", "5"], "up sends nothing"),
        (&["--item", "x"], "up sends nothing"),
        (&["--deadline", "1s"], "up sends nothing"),
        (
            &["--rate", "5"],
            "`--rate` is no flag of `target/release/harness up`: up sends nothing",
        ),
        (&["--cancel-after", "1s"], "up sends nothing"),
        (&["--set", "load.rate=5"], "--set load.rate=5: up sends nothing"),
        (&["--expect", "5"], "up sends nothing"),
        (&["--json", "-"], "`status --json`"),
        (&["--attach", "x"], "`status --attach`"),
        (&["--set", "load.requests=5"], "--set load.requests=5: up sends nothing"),
        (&["--set", "client.retry.attempts=5"], "up sends nothing"),
        (&["--attempts-at", "client=3"], "call --attempts-at client=3"),
        (&["--retries-at", "client=1"], "call --attempts-at client=2"),
        (
            &["--owner", "client"],
            "up --attempts 1, then target/release/harness call --attempts-at client=3",
        ),
        (
            &["--port", "pricing"],
            "--port pricing: write SERVICE=PORT, as in --port frontend=50051",
        ),
        (
            &["--port", "pricng=1"],
            "no service `pricng` is in this chain; did you mean `pricing`?",
        ),
        (&["web > db", "--control-port", "pricing=1"], "(its services: web, db)"),
        (
            &["--port", "pricing=65536"],
            "--port pricing=65536: write a port from 1 to 65535, or 0",
        ),
        (&["--port", "pricing="], "--port pricing='': write a port"),
        (&["--port", "pricing=-1"], "--port pricing=-1: write a port"),
        (
            &["--port", "pricing=1", "--port", "pricing=2"],
            "--port pricing=2: pricing has its port from another --port already",
        ),
        (
            &["--port", "pricing=7000", "--port", "inventory=7000"],
            "port 7000 would be pricing's for calls and inventory's for calls",
        ),
        (
            &["--port", "pricing=50064"],
            "port 50064 would be pricing's for calls and inventory's for control; give one of them another with --port \
             pricing=PORT or --control-port inventory=PORT",
        ),
        (&["--ready-file", ""], "--ready-file wants a file"),
        (&["--ready-file", "/"], "--ready-file /: this is a folder"),
        (&["--otlp", "nowhere"], "write http://host:port"),
    ] {
        let text = refused(&[&["up"], words].concat());
        assert!(text.contains(named), "{words:?}: {text}");
    }
    let help = parse_words(&["up", "--help"]).unwrap_err().text;
    assert!(!help.contains("--sidecar") && !help.contains("--undeclared"), "{help}");
}

#[test]
fn a_call_says_what_is_sent_and_nothing_about_services() {
    let Ok(Command::Call(call)) = parse_words(&[
        "call",
        "--item",
        "",
        "--deadline",
        "none",
        "--retries-at",
        "client=2",
        "--attach",
        PAIRS,
        "--json",
        "-",
    ]) else {
        panic!()
    };
    assert_eq!(
        call.link,
        Link {
            attach: Attach::read(PAIRS).unwrap(),
            is_flagged: true
        }
    );
    assert_eq!(
        call.change.overrides,
        Overrides {
            item: Some(String::new()),
            deadline: Some(crate::scenario::OrNone::None),
            attempts_at: vec![("client".to_owned(), 3)],
            ..Overrides::default()
        }
    );
    assert_eq!(
        (call.change.source, call.output.json),
        (None, Some(Destination::Stdout))
    );
    for (words, named) in [
        (
            &["--attempts-at", "pricing=2"][..],
            "for that: target/release/harness retry pricing=2",
        ),
        (&["--attempts-at", "client=0"], "--attempts-at client=0: write 1 to 100"),
        (
            &["--attempts-at", "client=2", "--retries-at", "client=2"],
            "takes one of them, once",
        ),
        (&["--attempts", "2"], "`retry` changes who retries"),
        (&["--fault", "fail"], "`fail` and `heal` break and repair services"),
        (&["-n", "2"], "a call is one request; `run --attach` sends many"),
        (&["--rate", "2"], "a call is one request; `run --attach` sends many"),
        (
            &["--cancel-after", "1s"],
            "it belongs to `target/release/harness run`, `predict`, `compare` and `sweep`",
        ),
        (&["--deadline", "soon"], "--deadline soon: write a duration"),
        (&["--item", "a\0b"], "no NUL"),
        (&["teapot"], "`teapot` is one word too many"),
    ] {
        let text = refused(&[&["call"], words].concat());
        assert!(text.contains(named), "{words:?}: {text}");
    }
}

#[test]
fn fail_reads_faults_and_services() {
    let plain = fault("fail");
    let failed = |words: &[&str]| match switch(&[&["fail"], words].concat()) {
        SwitchTo::Fail(faults) => faults,
        other => panic!("{words:?}: {other:?}"),
    };
    let web = || Some("web".to_owned());
    assert_eq!(failed(&[]), [(None, plain.clone())]);
    assert_eq!(failed(&["refuse"]), [(None, fault("refuse"))]);
    assert_eq!(failed(&["down"]), [(None, plain.clone())]);
    assert_eq!(
        failed(&["fail:first=2,code=ABORTED"]),
        [(None, fault("fail:first=2,code=ABORTED"))]
    );
    assert_eq!(failed(&["web"]), [(web(), plain.clone())]);
    assert_eq!(
        failed(&["web=fail:p=0.5", "refuse", "db"]),
        [
            (web(), fault("fail:p=0.5")),
            (None, fault("refuse")),
            (Some("db".to_owned()), plain),
        ]
    );
    for (words, named) in [
        (
            &["none"][..],
            "none is no failure; to make it work again: target/release/harness heal",
        ),
        (&["web=none"], "target/release/harness heal web"),
        (
            &["web", "web=refuse"],
            "fail web=refuse: web has a fault from another word already",
        ),
        (&["db", "refuse"], "to give db this fault write db=refuse"),
        (&["fail", "refuse"], "fail refuse: the bottom service has a fault"),
        (&["fail:p=2"], "fail fail:p=2: "),
        (&["web=explode"], "fail web=explode: `explode` is not a fault"),
        (&["web=delay"], "`delay` needs ms, as in delay:ms=50"),
        (&["=fail"], "what stands before = is no service's name"),
        (&["client"], "the client is no service"),
        (&["client=refuse"], "the client is no service"),
        (&["a\u{1b}b"], r"a\u{1b}b"),
        (&["--fault", "refuse"], "write the fault as it is"),
        (&["--attempts", "3"], "`retry` changes who retries"),
    ] {
        let text = refused(&[&["fail"], words].concat());
        assert!(text.contains(named), "{words:?}: {text}");
        assert!(!text.contains(crate::sanitize::is_control), "{text}");
    }
}

#[test]
fn heal_takes_services_or_nothing() {
    assert_eq!(switch(&["heal"]), SwitchTo::Heal(vec![]));
    let both = vec!["web".to_owned(), "db".to_owned()];
    assert_eq!(switch(&["heal", "web", "db"]), SwitchTo::Heal(both));
    for (words, named) in [
        (&["web=none"][..], "heal web=none: this is no service's name"),
        (&["client"], "the client is no service"),
        (&[""], "this is no service's name"),
    ] {
        let text = refused(&[&["heal"], words].concat());
        assert!(text.contains(named), "{words:?}: {text}");
    }
}

#[test]
fn retry_takes_numbers_or_flags() {
    assert_eq!(retry(&["2"]).attempts, Some(2));
    let one = retry(&["1", "web=3"]);
    assert_eq!((one.attempts, one.attempts_at), (Some(1), vec![("web".to_owned(), 3)]));
    assert_eq!(retry(&["--retries", "2"]).attempts, Some(3));
    assert_eq!(retry(&["--owner", "web"]).owner.as_deref(), Some("web"));
    assert_eq!(
        retry(&["--attempts-at", "web=2", "--retries-at", "api=2"]).attempts_at,
        [("web".to_owned(), 2), ("api".to_owned(), 3)]
    );
    assert!(retry(&["--retry-on", "any"]).retry_on.is_some());
    let assignment = "services.web.on_failure=INTERNAL";
    assert_eq!(retry(&["--set", assignment]).set, [assignment]);
    for (words, named) in [
        (&[][..], "target/release/harness retry 1 (nobody retries)"),
        (&["0"], "retry 0: write 1 to 100, the first attempt included"),
        (&["-1"], "retry -1: write 1 to 100"),
        (&["web=101"], "retry web=101: write 1 to 100"),
        (&["2", "3"], "is said twice"),
        (&["2", "--attempts", "3"], "is said twice"),
        (&["web=2", "web=3"], "how often web tries is said twice"),
        (
            &["web=2", "--attempts-at", "web=3"],
            "how often web tries is said twice",
        ),
        (
            &["web"],
            "retry web: write N for the attempts of every caller, or CALLER=N",
        ),
        (&["x3"], "retry x3: write N"),
        (&["=3"], "retry =3: write N"),
        (&["client=3"], "target/release/harness call --attempts-at client=3"),
        (
            &["--owner", "client"],
            "retry 1, then target/release/harness call --attempts-at client=3",
        ),
        (&["--set", "client.retry.attempts=3"], "it belongs to run and call"),
        (&["--set", "load.item=x"], "it belongs to run and call"),
        (&["--set", "chain.depth=2"], "has the services it has"),
        (&["--set", "undeclared.web=2"], "has what stands on its links"),
        (&["--fault", "fail"], "`fail` and `heal` break and repair services"),
        (&["--depth", "2"], "has the length it has"),
        (&["--item", "x"], "what is sent belongs to `call` and `run`"),
    ] {
        let text = refused(&[&["retry"], words].concat());
        assert!(text.contains(named), "{words:?}: {text}");
    }
}

#[test]
fn whoever_is_named_by_nobody_is_found_on_the_usual_ports() {
    let of = |variables: &[(&str, &str)], words: &[&str]| match parse_with(variables, words) {
        Ok(
            Command::Status(Status { link, .. })
            | Command::Switch(Switch { link, .. })
            | Command::Call(Call { link, .. }),
        ) => (link.attach.to_string(), link.is_flagged),
        other => panic!("{words:?}: {other:?}"),
    };
    for command in ["status", "fail", "heal", "call"] {
        assert_eq!(of(&[], &[command]), (String::new(), false));
        assert_eq!(of(&[("RETRYSCOPE_ATTACH", " ")], &[command]), (String::new(), false));
        assert_eq!(
            of(&[("RETRYSCOPE_ATTACH", PAIRS)], &[command]),
            (PAIRS.to_owned(), false)
        );
        let other = "a=h:1,b=h:2";
        assert_eq!(
            of(&[("RETRYSCOPE_ATTACH", PAIRS)], &[command, "--attach", other]),
            (other.to_owned(), true)
        );
        assert!(refused(&[command, "--attach", "web"]).contains("--attach: `web` is neither"));
        assert!(refused(&[command, "--attach", ""]).contains("--attach wants"));
        let error = parse_with(&[("RETRYSCOPE_ATTACH", "web=1")], &[command]).unwrap_err();
        assert!(error.text.contains("RETRYSCOPE_ATTACH: `web=1`"), "{}", error.text);
    }
}

#[test]
fn a_run_of_running_services_carries_what_is_put_to_them() {
    let link = Link {
        attach: Attach::read(PAIRS).unwrap(),
        is_flagged: true,
    };
    let as_it_stands = Subject::Attached {
        link: link.clone(),
        change: Box::default(),
        expect: vec![],
    };
    assert_eq!(subject(&[], &["run", "--attach", PAIRS]), as_it_stands);
    assert_eq!(subject(&[], &["predict", "--attach", PAIRS]), as_it_stands);
    let words = [
        "run",
        "web x2 > db",
        "--attach",
        PAIRS,
        "-n",
        "5",
        "--fault",
        "web=refuse",
        "--expect",
        "db=3",
    ];
    let Subject::Attached { change, expect, .. } = subject(&[], &words) else {
        panic!()
    };
    assert_eq!(
        (change.source.as_deref(), change.overrides.requests, expect),
        (Some("web x2 > db"), Some(5), vec!["db=3".to_owned()])
    );
    assert_eq!(change.overrides.faults, [(Some("web".to_owned()), fault("refuse"))]);
    let Subject::Attached { link, .. } = subject(&[("RETRYSCOPE_ATTACH", PAIRS)], &["run"]) else {
        panic!()
    };
    assert!(!link.is_flagged);
    assert!(matches!(
        subject(&[("RETRYSCOPE_ATTACH", "")], &["run"]),
        Subject::Own { .. }
    ));
    for (words, named) in [
        (
            &["--depth", "2"][..],
            "--depth 2: a chain that already runs has the length it has; leave it or --attach out",
        ),
        (&["per-hpo"], "did you mean `per-hop`?"),
        (&["web > "], "chain line"),
        (
            &["a > b > c > d > e"],
            "a chain that stays up has 2 to 4 services, and this one has 5",
        ),
        (&["web x3*3 > db"], "a chain that stays up has no proxies"),
        (
            &["--sidecar-attempts", "2"],
            "--sidecar-attempts: a chain that already runs has what stands on its links; leave it or --attach out",
        ),
        (
            &["--undeclared", "web=2"],
            "--undeclared: a chain that already runs has what stands on its links",
        ),
        (&["--set", "sidecars.kind=envoy"], "has what stands on its links"),
        (&["--attempts", "0"], "--attempts 0: write 1 to 100"),
        (&["web > db", "--fault", "wbe=fail"], "did you mean `web`?"),
        (&["web > db", "--expect", "pricing=2"], "no service `pricing`"),
        (&["--expect", "db!2"], "--expect db!2"),
        (&["--expect", "db=x"], "--expect db=x"),
        (&["--set", "chain.line='a > b'"], "has the services it has"),
    ] {
        let text = refused(&[&["run", "--attach", PAIRS], words].concat());
        assert!(text.contains(named), "{words:?}: {text}");
    }
    let error = parse_with(&[("RETRYSCOPE_ATTACH", PAIRS)], &["run", "--depth", "2"]).unwrap_err();
    assert!(error.text.contains("unset RETRYSCOPE_ATTACH"), "{}", error.text);
}

#[test]
fn the_arithmetic_of_a_chain_of_its_own_asks_no_services_that_only_the_environment_names() {
    let variables = [("RETRYSCOPE_ATTACH", PAIRS)];
    assert!(matches!(subject(&variables, &["predict"]), Subject::Attached { .. }));
    assert!(matches!(
        subject(&variables, &["predict", "a x3 > b x3 > c down"]),
        Subject::Own { .. }
    ));
    assert!(matches!(
        subject(&variables, &["predict", "--depth", "12"]),
        Subject::Own { .. }
    ));
    let flagged = ["predict", "web > db", "--attach", PAIRS];
    assert!(matches!(subject(&variables, &flagged), Subject::Attached { .. }));
}

#[test]
fn a_demo_and_a_comparison_use_running_services_too() {
    let Ok(Command::Demo(demo)) = parse_words(&["demo", "--attach", PAIRS, "--stay"]) else {
        panic!()
    };
    assert!(demo.stays && demo.link.is_some_and(|link| link.is_flagged));
    let Ok(Command::Demo(demo)) = parse_with(&[("RETRYSCOPE_ATTACH", PAIRS)], &["--stay"]) else {
        panic!()
    };
    assert!(demo.stays && demo.link.is_some_and(|link| !link.is_flagged));
    let saved = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    let saved = saved.path().to_str().unwrap();
    let words = [
        "compare",
        "per-hop",
        saved,
        "single-owner",
        "--attach",
        PAIRS,
        "--seed",
        "random",
        "--expect",
        "27",
    ];
    let Ok(Command::Compare(compare)) = parse_words(&words) else {
        panic!()
    };
    let [
        Side::Subject(Subject::Attached {
            change: one, expect, ..
        }),
        Side::Saved(_),
        Side::Subject(Subject::Attached { change: other, .. }),
    ] = compare.sides.as_slice()
    else {
        panic!("{compare:?}")
    };
    assert_eq!(
        (one.source.as_deref(), other.source.as_deref()),
        (Some("per-hop"), Some("single-owner"))
    );
    assert_eq!(
        (&one.overrides, expect.as_slice()),
        (&other.overrides, ["27".to_owned()].as_slice())
    );
    assert!(refused(&["compare", saved, saved, "--attach", PAIRS]).contains("leave --attach out"));
}

#[test]
fn the_address_of_a_trace_comes_from_the_flag_or_the_environment() {
    const TEMPLATE: &str = "http://127.0.0.1:16686/trace/{trace_id}";
    let viewer = |variables: &[(&str, &str)], words: &[&str]| match parse_with(variables, words) {
        Ok(
            Command::Run(Run { viewer, .. })
            | Command::Compare(Compare { viewer, .. })
            | Command::Call(Call { viewer, .. }),
        ) => Ok(viewer),
        Ok(Command::Demo(demo)) => Ok(demo.viewer),
        Ok(other) => panic!("{words:?}: {other:?}"),
        Err(error) => Err(error.text),
    };
    let expected = Ok(Some(Viewer::read(TEMPLATE).unwrap()));
    for words in [
        &["run"][..],
        &["compare", "per-hop", "flaky"],
        &["call"],
        &["demo"],
        &[],
    ] {
        assert_eq!(viewer(&[], words), Ok(None));
        assert_eq!(viewer(&[("RETRYSCOPE_TRACE_URL", "")], words), Ok(None));
        assert_eq!(viewer(&[("RETRYSCOPE_TRACE_URL", TEMPLATE)], words), expected);
        assert_eq!(viewer(&[], &[words, &["--trace-url", TEMPLATE]].concat()), expected);
        let error = viewer(&[], &[words, &["--trace-url", "http://x"]].concat()).unwrap_err();
        assert!(error.starts_with("error: --trace-url: `http://x`: write"), "{error}");
        let error = viewer(&[("RETRYSCOPE_TRACE_URL", "x")], words).unwrap_err();
        assert!(error.starts_with("error: RETRYSCOPE_TRACE_URL: `x`: write"), "{error}");
    }
    assert!(refused(&["predict", "--trace-url", TEMPLATE]).contains("it belongs to"));
}

#[test]
fn one_file_is_not_two_things() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("same.x").display().to_string();
    let other = folder.path().join(".").join("same.x").display().to_string();
    for svg in [&file, &other] {
        let error = refused(&["run", "--json", &file, "--svg", svg]);
        assert!(error.contains("one file cannot be both"), "{error}");
    }
    assert!(parse_words(&["run", "--json", &file, "--svg", &format!("{file}.svg")]).is_ok());
    let error = refused(&["run", "--json", "-", "--svg", "-"]);
    assert!(error.contains("only one of them can have stdout"), "{error}");
}
