//! Scripts that complete commands and flags in a shell.

use super::{CliError, NAME, flags::Typed};
use crate::{sanitize::sanitize, scenario::suggest::did_you_mean};
use clap::CommandFactory as _;
use clap_complete::{Shell, generate};

/// The shells there are scripts for.
const SHELLS: [(&str, Shell); 5] = [
    ("bash", Shell::Bash),
    ("zsh", Shell::Zsh),
    ("fish", Shell::Fish),
    ("elvish", Shell::Elvish),
    ("powershell", Shell::PowerShell),
];

/// The script for a shell.
pub(super) fn script(words: &[String]) -> Result<String, CliError> {
    let names = SHELLS.map(|(name, _)| name);
    let list = names.join(", ");
    let [word] = words else {
        return Err(CliError::refused(format_args!(
            "completions takes one shell: {list}, as in completions bash"
        )));
    };
    let Some((_, shell)) = SHELLS.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name)) else {
        let hint = did_you_mean(word, names);
        return Err(CliError::refused(format_args!(
            "completions {}: there is no script for this shell{hint} (shells: {list})",
            sanitize(word)
        )));
    };
    let mut script = Vec::new();
    // Completed is the plain name on the PATH, however this one was started.
    generate(shell, &mut Typed::command(), NAME, &mut script);
    Ok(String::from_utf8_lossy(&script).into_owned())
}
