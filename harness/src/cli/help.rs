//! What stands under each help text: examples that can be typed as they stand.

use clap::Command;

/// The command with its program's name and its examples.
pub(super) fn with_examples(command: Command, program: &str) -> Command {
    let mut command = command.bin_name(program).after_help(examples(ALL, program));
    for (name, text) in [("run", RUN), ("predict", PREDICT), ("compare", COMPARE)] {
        command = command.mut_subcommand(name, |sub| sub.after_help(examples(text, program)));
    }
    // Several words are accepted so that a chain line without its quotes gets a better answer than clap's.
    for name in ["run", "predict"] {
        let usage = format!("{program} {name} [OPTIONS] [SCENARIO or 'CHAIN']");
        command = command.mut_subcommand(name, |sub| sub.override_usage(usage));
    }
    command
}

fn examples(text: &str, program: &str) -> String {
    text.replace("{program}", program)
}

const ALL: &str = "\
Start here:
  27 calls against 3, the headline
      {program}
  A failure that goes away by itself
      {program} run transient
  Your own chain, by arithmetic alone
      {program} predict 'web x3 > api x3 > db down'
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
  Names of your own
      {program} run 'web x3 > orders x2 > ledger down'
  Say what you expect, and see
      {program} run --expect 12";

const PREDICT: &str = "\
Examples:
  27, and where it comes from
      {program} predict
  Five attempts at every hop
      {program} predict --attempts 5
  3 attempts in the code, each through a proxy that makes 3
      {program} predict 'web x3*3 > api x3*3 > db down'";

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
