//! Refusals of words that clap does not know: what is not built is named, what is misspelt gets a suggestion.

use super::{CliError, flags::Typed};
use crate::{
    chain_line,
    sanitize::{sanitize, sanitize_message},
    scenario::{BUILT_IN, shell_quoted, suggest::did_you_mean, suggest::nearest},
};
use clap::{
    CommandFactory,
    error::{ContextKind, ContextValue, ErrorKind},
};
use std::ffi::OsString;

/// Commands that the design names and nobody obeys.
const PLANNED_COMMANDS: [&str; 2] = ["tour", "audit"];
/// Flags that the design names and nobody obeys.
const PLANNED_FLAGS: [&str; 9] = [
    "--mesh",
    "--budget",
    "--prove",
    "--capacity",
    "--guess",
    "--html",
    "--emit",
    "--expect-attempts",
    "--upstream",
];

/// A refusal of a feature that is named and not there.
pub(super) fn not_built(name: &str) -> CliError {
    CliError::refused(format_args!("`{name}` is not built yet"))
}

/// Clap's error in the house's own words.
pub(super) fn from_clap(error: &clap::Error, arguments: &[OsString], program: &str) -> CliError {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        return CliError {
            text: error.render().to_string(),
            exit_code: 0,
        };
    }
    let command = typed_command(arguments);
    let called = command.map_or_else(|| program.to_owned(), |command| format!("{program} {command}"));
    let argument = context(error, ContextKind::InvalidArg).unwrap_or_default();
    let flag = argument.split([' ', '=']).next().unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument if PLANNED_FLAGS.contains(&flag) => not_built(flag),
        ErrorKind::UnknownArgument if !flag.starts_with('-') => {
            let word = sanitize(&argument);
            CliError::refused(format_args!("`{word}` is one word too many (see {called} --help)"))
        }
        ErrorKind::UnknownArgument => unknown_flag(flag, command, &called, program),
        ErrorKind::ArgumentConflict => conflict(error, flag, &called),
        ErrorKind::InvalidSubcommand => match context(error, ContextKind::InvalidSubcommand) {
            Some(name) => unknown_command(&[OsString::from(name)], program),
            None => from_text(error, &called),
        },
        ErrorKind::InvalidValue => match context(error, ContextKind::InvalidValue) {
            Some(value) if !value.is_empty() => {
                let valid = context(error, ContextKind::ValidValue).unwrap_or_default();
                CliError::refused(format_args!("{flag} {}: write {valid}", sanitize(&value)))
            }
            _ => CliError::refused(format_args!("{} wants a value (see {called} --help)", sanitize(flag))),
        },
        ErrorKind::InvalidUtf8 => CliError::refused("an argument is not UTF-8 text"),
        _ => from_text(error, &called),
    }
}

/// A first word that is no command.
pub(super) fn unknown_command(words: &[OsString], program: &str) -> CliError {
    let word = words
        .first()
        .map(|word| word.to_string_lossy().into_owned())
        .unwrap_or_default();
    if PLANNED_COMMANDS.contains(&word.as_str()) {
        return not_built(&word);
    }
    let shown = sanitize(&word);
    let is_scenario = BUILT_IN.iter().any(|built_in| built_in.name == word)
        || word.contains(['>', '→'])
        || word.to_ascii_lowercase().ends_with(".toml")
        || chain_line::is_address(&word);
    if is_scenario {
        return CliError::refused(format_args!(
            "`{shown}` is no command; did you mean `{program} run {}`?",
            shell_quoted(&shown)
        ));
    }
    let typed = Typed::command();
    let commands = typed.get_subcommands().filter(|command| !command.is_hide_set());
    let commands: Vec<_> = commands.map(clap::Command::get_name).collect();
    if commands.contains(&word.as_str()) {
        let first = "the command comes first, its flags behind it";
        return CliError::refused(format_args!("{first}: {program} {word} ..."));
    }
    let hint = match nearest(&word, BUILT_IN.iter().map(|built_in| built_in.name)) {
        Some(scenario) if nearest(&word, commands.iter().copied()).is_none() => {
            format!("; did you mean `{program} run {scenario}`?")
        }
        _ => did_you_mean(&word, commands.iter().copied()),
    };
    CliError::refused(format_args!(
        "`{shown}` is no command{hint} (commands: {})",
        commands.join(", ")
    ))
}

fn unknown_flag(flag: &str, command: Option<&'static str>, called: &str, program: &str) -> CliError {
    let typed = Typed::command();
    let own = command.and_then(|name| typed.find_subcommand(name)).unwrap_or(&typed);
    let flags = |command: &clap::Command| {
        command
            .get_arguments()
            .filter(|argument| !argument.is_hide_set())
            .filter_map(|argument| argument.get_long().map(|long| format!("--{long}")))
            .collect::<Vec<_>>()
    };
    let shown = sanitize(flag);
    if let Some(way_on) = command.and_then(|command| way_on(command, flag)) {
        return CliError::refused(format_args!("`{shown}` is no flag of `{called}`: {way_on}"));
    }
    let elsewhere: Vec<_> = typed
        .get_subcommands()
        .filter(|command| flags(command).iter().any(|known| known == flag))
        .collect();
    // `demo` is what runs without a command: who looks for a home of a flag means another one.
    let names = elsewhere.iter().map(|command| command.get_name());
    let homes: Vec<_> = names.filter(|name| *name != "demo" || elsewhere.len() == 1).collect();
    if let [first, others @ ..] = homes.as_slice() {
        let mut text = format!("`{program} {first}`");
        for (place, other) in (1..).zip(others) {
            text.push_str(if place == others.len() { " and " } else { ", " });
            text.push('`');
            text.push_str(other);
            text.push('`');
        }
        return CliError::refused(format_args!("`{shown}` is no flag of `{called}`; it belongs to {text}"));
    }
    let known = flags(own);
    let candidates = known.iter().map(String::as_str).chain(PLANNED_FLAGS);
    let hint = did_you_mean(flag, candidates);
    CliError::refused(format_args!(
        "`{shown}` is no flag of `{called}`{hint} (see {called} --help)"
    ))
}

/// What to type for a flag that has good reasons to be missing.
fn way_on(command: &str, flag: &str) -> Option<&'static str> {
    const SENT: [&str; 10] = [
        "-n",
        "--requests",
        "-c",
        "--concurrency",
        "--item",
        "--rate",
        "--deadline",
        "--cancel-after",
        "--expect",
        "--max-calls",
    ];
    let is_load = SENT.contains(&flag);
    match (command, flag) {
        ("up", _) if is_load => {
            Some("up sends nothing; it belongs to `run`, and a chain that is up gets requests from `call`")
        }
        ("up", "--json") => Some("up counts nothing; `status --json` shows what the services have counted"),
        ("up", "--attach") => Some("up starts services of its own; `status --attach` looks at others"),
        ("sweep", "--attach") => {
            Some("a sweep starts services of its own for each value; `run --attach` measures others")
        }
        ("call", "-n" | "--requests" | "-c" | "--concurrency" | "--rate" | "--expect" | "--max-calls") => {
            Some("a call is one request; `run --attach` sends many, and judges them")
        }
        ("call" | "retry", "--fault") => Some("`fail` and `heal` break and repair services"),
        ("fail" | "heal", "--fault") => Some("write the fault as it is: `fail refuse`, `fail pricing=refuse`"),
        ("call" | "fail" | "heal", "--attempts" | "--retries" | "--owner" | "--retry-on" | "--set") => {
            Some("`retry` changes who retries")
        }
        ("retry", _) if is_load => Some("what is sent belongs to `call` and `run`"),
        ("call" | "fail" | "heal" | "retry" | "status", "--depth") => {
            Some("a chain that already runs has the length it has; `up` starts another")
        }
        _ => None,
    }
}

fn conflict(error: &clap::Error, flag: &str, called: &str) -> CliError {
    match context(error, ContextKind::PriorArg) {
        Some(prior) if prior.split([' ', '=']).next() == Some(flag) => {
            CliError::refused(format_args!("`{flag}` is given twice, and takes one value"))
        }
        _ => from_text(error, called),
    }
}

/// What clap says, on one line.
fn from_text(error: &clap::Error, called: &str) -> CliError {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<_> = first.trim_start_matches("error:").split_whitespace().collect();
    CliError::refused(format_args!(
        "{} (see {called} --help)",
        sanitize_message(&words.join(" "))
    ))
}

/// The command that was typed, for messages.
fn typed_command(arguments: &[OsString]) -> Option<&'static str> {
    const COMMANDS: [&str; 16] = [
        "demo",
        "run",
        "predict",
        "compare",
        "sweep",
        "up",
        "call",
        "fail",
        "heal",
        "retry",
        "status",
        "scenarios",
        "service",
        "health",
        "token",
        "completions",
    ];
    // A command comes first: what stands further back may be a flag's value.
    let first = arguments.get(1)?;
    COMMANDS.into_iter().find(|command| *command == first)
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        _ => None,
    }
}
