//! The little of libtest that these tests need: filters, `--exact`, `--list`, four at a time, panics are failures.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A test's name and body.
pub type Test = (&'static str, fn() -> Outcome);

/// How a test went, if it did not panic.
pub enum Outcome {
    Passed,
    /// It cannot run here, for this reason.
    Skipped(&'static str),
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Outcome::Passed
    }
}

/// Lists test functions that return `()` or [`Outcome`].
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub const TESTS: &[$crate::harness::Test] = &[$((stringify!($name), || $name().into())),*];
    };
}

const PARALLEL: usize = 4;

pub fn run(modules: &[(&str, &[Test])]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let exact = has("--exact");
    let wanted = |name: &str| {
        filters.is_empty() || filters.iter().any(|filter| if exact { name == *filter } else { name.contains(*filter) })
    };
    let all = modules
        .iter()
        .flat_map(|(module, tests)| tests.iter().map(move |test| (format!("{module}::{}", test.0), test.1)));
    let selected: Vec<_> = all.filter(|(name, _)| wanted(name)).collect();
    if has("--list") {
        selected.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                while let Some((name, body)) = selected.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match std::panic::catch_unwind(body) {
                        Ok(Outcome::Passed) => println!("test {name} ... ok"),
                        Ok(Outcome::Skipped(reason)) => println!("test {name} ... skipped: {reason}"),
                        Err(_) => {
                            println!("test {name} ... FAILED");
                            failed.lock().unwrap().push(name.clone());
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    println!("\ntest result: {} run, {} failed {failed:?}", selected.len(), failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
