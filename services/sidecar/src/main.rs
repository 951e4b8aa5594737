//! The sidecar as a process of its own. Configured by the environment (`chassis::config`).

fn main() -> std::process::ExitCode {
    sidecar::main()
}
