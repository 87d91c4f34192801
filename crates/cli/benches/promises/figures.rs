//! Rows of figures: how often, minimum, median, maximum, what was promised, and what peers need.

use std::time::Duration;

/// Where the column of peers comes from.
const PEERS: &str = "Peers: medians measured on another day on a machine of the same kind (2 virtual cores, PostgreSQL 15.18, \
    asynchronous replication save for pg_auto_failover) while it compiled: Patroni 4.1.5, repmgr 5.3.3, pg_auto_failover 2.0.";

/// What was measured.
pub struct Table {
    machine: String,
    rows: Vec<String>,
}

impl Table {
    pub fn new(machine: String) -> Table {
        Table { machine, rows: Vec::new() }
    }

    /// Times of one kind; `peers` are the medians of others in the same trouble.
    pub fn times(&mut self, what: &str, mut times: Vec<Duration>, promised: &str, peers: &str) {
        times.sort();
        let at = |index: usize| times.get(index).map_or(f64::NAN, Duration::as_secs_f64);
        let row = format!(
            "| {what} | {} | {:.3} s | {:.3} s | {:.3} s | {promised} | {peers} |",
            times.len(),
            at(0),
            at(times.len() / 2),
            at(times.len().saturating_sub(1)),
        );
        println!("{row}");
        self.rows.push(row);
    }

    /// One figure of another kind.
    pub fn figure(&mut self, what: &str, figure: &str, promised: &str) {
        let row = format!("| {what} | 1 | | {figure} | | {promised} | |");
        println!("{row}");
        self.rows.push(row);
    }

    pub fn print(&self) {
        println!(
            "\n{}\n\n| what | n | min | median | max | promised | peers |\n|---|---|---|---|---|---|---|",
            self.machine
        );
        for row in &self.rows {
            println!("{row}");
        }
        println!("\n{PEERS}");
    }
}
