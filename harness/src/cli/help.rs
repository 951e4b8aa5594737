//! What stands under each help text: examples that can be typed as they stand.

use clap::Command;

/// The command with its program's name and its examples.
pub(super) fn with_examples(command: Command, program: &str) -> Command {
    let mut command = command.bin_name(program).after_help(examples(ALL, program));
    for (name, text) in [("run", RUN), ("predict", PREDICT), ("compare", COMPARE)] {
        command = command.mut_subcommand(name, |sub| sub.after_help(examples(text, program)));
    }
    command
}

fn examples(text: &str, program: &str) -> String {
    text.replace("{program}", program)
}

const ALL: &str = "\
Start here:
  {program}                    27 calls against 3: the headline
  {program} run transient      a failure that goes away
  {program} predict 'web x3 > api x3 > db down'
  {program} run --help         everything that can be changed

Ends with 0: as predicted. 1: not, or an expectation missed. 2: wrong usage.
3: nothing could be measured, or the evidence is incomplete.";

const RUN: &str = "\
Examples:
  {program} run                          every hop retries, inventory is down
  {program} run --owner frontend         the same with one owner of the retries
  {program} run --fault fail:first=2     two failures, then it works again
  {program} run --fault fail:p=0.1 -n 1000 -c 16
  {program} run 'web x3 > orders x2 > ledger down'
  {program} run --expect 12              say what you expect, and see";

const PREDICT: &str = "\
Examples:
  {program} predict                      27, and where it comes from
  {program} predict --attempts 5
  {program} predict 'web x3*3 > orders x3*3 > ledger down'
                                         x3*3: 3 in the code, each through a
                                         proxy that makes 3";

const COMPARE: &str = "\
Examples:
  {program} compare per-hop single-owner
  {program} compare per-hop single-owner --fault fail:p=0.5 -n 1000
  {program} compare 'web x3 > api x3 > db down' 'web x3 > api > db down'
  {program} compare monday.json per-hop  a saved report beside a run";
