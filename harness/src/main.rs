//! The program: flags to a command, the command to an exit code.

use harness::{cli, commands, envoy, render};
use std::process::ExitCode;

/// Every request passes through many small pieces of memory; this one takes a fifth off what a service costs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        let text = format!(
            "error: this is a defect of retryscope {}, please report it: {panic}\n",
            env!("CARGO_PKG_VERSION")
        );
        let _ = render::print_error(&text, anstream::ColorChoice::Auto);
    }));
    // A defect is never taken for a measurement: it ends with the code of "could not measure".
    std::panic::catch_unwind(run).unwrap_or(ExitCode::from(3))
}

fn run() -> ExitCode {
    if let Some(ended) = envoy::run_tied(std::env::args_os()) {
        return ended;
    }
    match cli::parse(std::env::args_os()) {
        Ok(command) => commands::obey(command),
        Err(said) => {
            let text = said.text.trim_end();
            let _ = if said.exit_code == 0 {
                render::print(&format!("{text}\n"), anstream::ColorChoice::Auto)
            } else {
                let message = text.strip_prefix("error: ").unwrap_or(text);
                let text = render::text::error(message, render::text::Style::Plain);
                render::print_error(&text, anstream::ColorChoice::Auto)
            };
            ExitCode::from(said.exit_code)
        }
    }
}
