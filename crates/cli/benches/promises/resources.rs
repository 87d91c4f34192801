//! What ten idle clusters of three cost.

use crate::figures::Table;
use crate::plane::Plane;
use std::time::Duration;

/// Processor time of the plane over half a minute of idleness, memory of the plane and of each agent.
pub fn ten_clusters(table: &mut Table) {
    let plane = Plane::up();
    for number in 1..=10 {
        plane.apply(&format!(
            "apiVersion: coregent.io/v1alpha1\nkind: DatabaseCluster\nmetadata: {{name: c{number}}}\nspec: {{replicas: 3, \
             engine: {{postgresql: {{version: \"15\"}}}}, storage: {{size: 1Gi}}}}\n"
        ));
    }
    for number in 1..=10 {
        plane.wait(&format!("dbc/c{number}"), "Ready");
    }
    let pid = plane.pid();
    let window = Duration::from_secs(30);
    let before = processor_time(pid);
    std::thread::sleep(window);
    let used = processor_time(pid) - before;
    table.figure(
        "ten idle clusters of three: `up`, share of one core",
        &format!("{:.1} %", used / window.as_secs_f64() * 100.0),
        "5 %",
    );
    table.figure(
        "ten idle clusters of three: `up`, resident memory",
        &format!("{} MB", resident(pid) / 1024),
        "100 MB",
    );
    let mut agents: Vec<u64> = (1..=10)
        .flat_map(|cluster| (1..=3).map(move |member| format!("c{cluster}-{member}-0")))
        .filter_map(|pod| plane.container_pid(&pod))
        .map(resident)
        .collect();
    agents.sort_unstable();
    table.figure(
        "each agent, resident memory, largest of 30",
        &format!("{:.1} MB", agents.last().copied().unwrap_or(0) as f64 / 1024.0),
        "10 MB",
    );
}

/// Seconds of user and system time.
fn processor_time(pid: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().filter_map(|&index| fields.get(index)?.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

/// KiB.
fn resident(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}
