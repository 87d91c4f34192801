//! Measures what the README promises, on this machine, with the release build: `make bench`.
//!
//! A benchmark: it prints what it saw and fails only when something does not work at all.

#[path = "../../tests/e2e/apart.rs"]
mod apart;
#[path = "../../tests/e2e/cluster.rs"]
mod cluster;
#[path = "../../tests/e2e/plane.rs"]
#[expect(dead_code, reason = "shared with the end to end tests, which use all of it")]
mod plane;
#[path = "../../tests/e2e/small_disk.rs"]
#[expect(dead_code, reason = "shared with the end to end tests, which use all of it")]
mod small_disk;

mod figures;
mod machine;
mod pauses;
mod resources;

use figures::Table;

fn main() {
    // `cargo test --benches` asks a benchmark to do nothing.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let rounds = std::env::var("COREGENT_BENCH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut table = Table::new(machine::describe());
    runtime.block_on(async {
        pauses::to_ready(&mut table).await;
        pauses::postmaster_killed(&mut table, "Quorum", rounds).await;
        pauses::postmaster_killed(&mut table, "Async", rounds).await;
        pauses::member_killed(&mut table, rounds).await;
        pauses::member_frozen(&mut table, rounds.div_ceil(4)).await;
        pauses::switched_over(&mut table, rounds).await;
    });
    resources::ten_clusters(&mut table);
    table.print();
}
