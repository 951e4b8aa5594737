//! The checkout service as a process of its own. Configured by the environment (`chassis::config`).

fn main() -> std::process::ExitCode {
    checkout::main()
}
