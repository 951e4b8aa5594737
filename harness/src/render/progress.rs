//! A progress bar for long runs: on a terminal only, on stderr, and only once a run turns out to be long.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{io::IsTerminal as _, time::Duration};
use tokio::{sync::watch, time::sleep};

/// How long a run may take before a bar appears.
const PATIENCE: Duration = Duration::from_millis(700);
/// How often it moves.
const STEP: Duration = Duration::from_millis(100);

/// How far a run has come, or several.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    number: u64,
    noun: &'static str,
    is_shown: bool,
}

impl Progress {
    /// For so many requests of a run, or runs of a sweep. Continuous integration gets none, even where it pretends to be a terminal.
    pub fn new(number: u64, noun: &'static str) -> Self {
        let is_shown = std::io::stderr().is_terminal() && std::env::var_os("CI").is_none();
        Self { number, noun, is_shown }
    }

    /// Follows a count of those that have ended, until nobody counts any more; then wipes itself out.
    pub async fn follow(self, mut ended: watch::Receiver<u64>) {
        if !self.is_shown {
            return;
        }
        let early = async { while ended.changed().await.is_ok() {} };
        if tokio::time::timeout(PATIENCE, early).await.is_ok() {
            return;
        }
        let bar = ProgressBar::with_draw_target(Some(self.number), ProgressDrawTarget::stderr());
        let template = format!("{{bar:40}} {{human_pos}} of {{human_len}} {}, {{eta}} left", self.noun);
        let style = ProgressStyle::with_template(&template);
        bar.set_style(style.expect("the template is fixed").progress_chars("## "));
        while ended.changed().await.is_ok() {
            bar.set_position(*ended.borrow_and_update());
            sleep(STEP).await;
        }
        bar.finish_and_clear();
    }
}
