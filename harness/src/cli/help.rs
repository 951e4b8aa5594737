//! What stands under each help text: examples that can be typed as they stand.

use clap::Command;

/// The command with its program's name and its examples.
pub(super) fn with_examples(command: Command, program: &str) -> Command {
    let mut command = command.bin_name(program).after_help(examples(ALL, program));
    for (name, text) in EXAMPLES {
        command = command.mut_subcommand(name, |sub| sub.after_help(examples(text, program)));
    }
    // Several words are accepted so that a chain line without its quotes gets a better answer than clap's.
    for (name, takes) in [
        ("run", "[SCENARIO or 'CHAIN']"),
        ("predict", "[SCENARIO or 'CHAIN']"),
        ("sweep", "[SCENARIO] --over KEY=VALUES"),
        ("up", "[SCENARIO or 'CHAIN']"),
        ("fail", "[[SERVICE=]FAULT or SERVICE ...]"),
        ("retry", "[N or CALLER=N ...]"),
        ("token", "FILE"),
        ("completions", "SHELL"),
    ] {
        let usage = format!("{program} {name} [OPTIONS] {takes}");
        command = command.mut_subcommand(name, |sub| sub.override_usage(usage));
    }
    command
}

fn examples(text: &str, program: &str) -> String {
    text.replace("{program}", program)
}

/// The commands that have some.
const EXAMPLES: [(&str, &str); 11] = [
    ("run", RUN),
    ("predict", PREDICT),
    ("compare", COMPARE),
    ("sweep", SWEEP),
    ("up", UP),
    ("call", CALL),
    ("fail", FAIL),
    ("heal", HEAL),
    ("retry", RETRY),
    ("status", STATUS),
    ("completions", COMPLETIONS),
];

const ALL: &str = "\
Start here:
  27 calls against 3, the headline
      {program}
  A failure that goes away by itself
      {program} run transient
  Your own chain, by arithmetic alone
      {program} predict 'web x3 > api x3 > db down'
  Load and failures as more and more calls fail
      {program} sweep --over p=0,0.1..1
  A chain that stays up, to break and repair from another terminal
      {program} up
  Everything that can be changed
      {program} run --help

Ends with 0: as predicted. 1: not, or an expectation missed. 2: wrong usage.
3: nothing could be measured, or the evidence is incomplete.";

const RUN: &str = "\
Examples:
  Every hop retries, inventory is down
      {program} run
  The same with one owner of the retries
      {program} run --owner frontend
  Two failures, then inventory works again
      {program} run --fault fail:first=2
  One answer in ten fails, 1,000 requests, 16 at once
      {program} run --fault fail:p=0.1 -n 1000 -c 16
  Late by 200 ms, and half a second for all of it
      {program} run --fault delay:ms=200+fail --deadline 500ms
  20 requests a second, whatever became of those before
      {program} run -n 100 --rate 20
  A retry budget at every hop
      {program} run -n 100 --set 'retry.budget={ kind = \"window\" }'
  Names of your own
      {program} run 'web x3 > orders x2 > ledger down'
  3 attempts in the code, each through a proxy that makes 3
      {program} run 'web x3*3 > orders x3*3 > ledger down'
  Real Envoys on every link between two services, each makes two
      {program} run --sidecar-attempts 2 --sidecar envoy
  A layer that nobody declared, and the link it is found on
      {program} run --undeclared pricing=4
  12 links, each caller makes two attempts
      {program} run --depth 12 --attempts 2
  Say what you expect, and see
      {program} run --expect 12
  Each change that predict suggests, applied and run
      {program} run --prove
  Services that `up` started, as they stand
      {program} up --ready-file chain.toml
      {program} run --attach chain.toml -n 100";

const PREDICT: &str = "\
Examples:
  27, and where it comes from
      {program} predict
  Five attempts at every hop
      {program} predict --attempts 5
  3 attempts in the code, each through a proxy that makes 3
      {program} predict 'web x3*3 > api x3*3 > db down'
  The same code under Istio's defaults
      {program} predict --mesh istio
  40 requests a second: does it recover by itself
      {program} predict --rate 40 --capacity 500
  Half of the calls fail, and what a budget of 10 % would leave
      {program} predict --fault fail:p=0.5 --budget 10";

const COMPARE: &str = "\
Examples:
  Who should own the retries
      {program} compare per-hop single-owner
  The same when half of the answers fail
      {program} compare per-hop single-owner --fault fail:p=0.5
  Chain lines
      {program} compare 'web x3 > db down' 'web > db down'
  A report saved with --json beside a run
      {program} compare monday.json per-hop";

const SWEEP: &str = "\
Examples:
  Load and failures as more and more calls fail
      {program} sweep --over p=0,0.1..1
  The same curve as a figure
      {program} sweep --over p=0,0.1..1 --svg curve.svg
  What one attempt more costs
      {program} sweep --over attempts=1..4
  How many requests at once
      {program} sweep -n 200 --over concurrency=1,2,4,8,16
  Any key of a scenario file: numbers, words, whole tables
      {program} sweep --over services.pricing.retry.attempts=1..3
      {program} sweep --over 'retry.budget=none,{kind=\"window\"}'

VALUES is a list with commas. A..B counts by 1; A,B..C goes on in steps of B-A.
Each value is a run with services of its own, 1,000 values at most. With p and
without -n each run has 200 requests. Ends as the worst of the runs does.";

const UP: &str = "\
Examples:
  Four services that all work, on ports 50051 to 50054
      {program} up
  From another terminal: one request, a failure, another request
      {program} call
      {program} fail
      {program} call
  One owner of the retries
      {program} up single-owner
  Names of your own
      {program} up 'web x3 > orders x2 > ledger'
  Another port for one of them
      {program} up --port inventory=6001 --control-port inventory=0";

const CALL: &str = "\
Examples:
  One request, and all that it causes
      {program} call
  An invalid one
      {program} call --item ''
  The client too makes three attempts
      {program} call --attempts-at client=3
  Half a second for all of it
      {program} call --deadline 500ms

Ends with 0, or with 64 and the gRPC status code of the failure added to it:
78 for UNAVAILABLE.";

const FAIL: &str = "\
Examples:
  The bottom service answers UNAVAILABLE
      {program} fail
  The first two arrivals of each request fail
      {program} fail fail:first=2
  A service in the middle fails
      {program} fail pricing
  Its port is closed
      {program} fail pricing=refuse
  All work again
      {program} heal";

const HEAL: &str = "\
Examples:
  All services work again
      {program} heal
  One of them does
      {program} heal pricing";

const RETRY: &str = "\
Examples:
  Nobody retries
      {program} retry 1
  Every caller makes two attempts
      {program} retry 2
  Only frontend retries, and makes three
      {program} retry 1 frontend=3
  Only frontend keeps the attempts it has
      {program} retry --owner frontend
  Other failures are retried
      {program} retry --retry-on UNAVAILABLE,ABORTED";

const STATUS: &str = "\
Examples:
  What is running, how it is set, what has arrived
      {program} status
  The same for programs
      {program} status --json -
  Services on other ports, which `up --ready-file chain.toml` started
      {program} status --attach chain.toml";

const COMPLETIONS: &str = "\
Examples:
  bash, for this session
      source <({program} completions bash)
  zsh, into a folder of your fpath
      {program} completions zsh > ~/.zfunc/_harness
  fish, for this session
      {program} completions fish | source";
