//! Rows of figures: how often, minimum, median, maximum, and what was promised.

use std::time::Duration;

/// What was measured.
pub struct Table {
    machine: String,
    rows: Vec<String>,
}

impl Table {
    pub fn new(machine: String) -> Table {
        Table { machine, rows: Vec::new() }
    }

    /// Times of one kind.
    pub fn times(&mut self, what: &str, mut times: Vec<Duration>, promised: &str) {
        times.sort();
        let at = |index: usize| times.get(index).map_or(f64::NAN, Duration::as_secs_f64);
        let row = format!(
            "| {what} | {} | {:.3} s | {:.3} s | {:.3} s | {promised} |",
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
        let row = format!("| {what} | 1 | | {figure} | | {promised} |");
        println!("{row}");
        self.rows.push(row);
    }

    pub fn print(&self) {
        println!("\n{}\n\n| what | n | min | median | max | promised |\n|---|---|---|---|---|---|", self.machine);
        for row in &self.rows {
            println!("{row}");
        }
    }
}
