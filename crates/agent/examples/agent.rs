//! The agent as a program of its own, for the tests that start real servers.

use coregent_agent::Config;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    coregent_agent::postgresql::run(Config::from_env()?)?;
    Ok(())
}
