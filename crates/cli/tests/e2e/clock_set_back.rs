//! Somebody sets the clock back two hours under a plane that runs. Only its own clock: libfaketime gives it one.

use crate::members::{at_rest, kill_postmaster, manifest, uri_of};
use crate::plane::{Plane, epoch, primary, text, until};
use crate::writer::{Writer, rows};
use std::path::PathBuf;
use std::process::Command;

/// Where Debian has the library, whatever the machine's architecture.
fn libfaketime() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").expect("the folder of libraries");
    let candidates = folders.map(|folder| folder.expect("its entries").path().join("faketime/libfaketimeMT.so.1"));
    let mut found = candidates.filter(|path| path.exists());
    found.next().expect("libfaketime is there: dev/setup test installs it")
}

struct Clock {
    file: PathBuf,
}

impl Clock {
    fn ahead_by_two_hours(plane: &Plane) -> Clock {
        Clock { file: plane.write("clock", "+2h") }
    }

    /// The command, by this clock.
    fn give<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .env("LD_PRELOAD", libfaketime())
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            // As when a person or NTP sets a clock: the monotonic ones go on.
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }

    fn set_back(&self) {
        std::fs::write(&self.file, "+0").expect("the file of the clock");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_two_hours_delays_no_failover_no_switchover_and_no_restart() {
    let plane = Plane::new();
    let clock = Clock::ahead_by_two_hours(&plane);
    let output = clock.give(&mut plane.command(["up", "--detach"])).output().expect("the coregent binary");
    assert!(output.status.success(), "{}", text(&output.stderr));
    plane.apply(&manifest("orders", 3, "Quorum"));
    let client = plane.client().await;
    let before = at_rest(&plane, &client, "orders").await;
    let uri = uri_of(&plane, "orders");
    let mut writer = Writer::start(&uri).await;
    writer.next_acknowledgement().await;

    clock.set_back();
    kill_postmaster(&plane, &primary(&before).expect("a primary"));
    until(&client, "orders", |cluster| epoch(cluster) > epoch(&before)).await;
    let failed_over = at_rest(&plane, &client, "orders").await;
    writer.next_acknowledgement().await;
    let old = primary(&failed_over);
    plane.must(["switchover", "orders"]);
    let switched = at_rest(&plane, &client, "orders").await;
    assert_ne!(primary(&switched), old);
    writer.next_acknowledgement().await;
    let acknowledged = writer.stop().await;

    // The next plane's clock is two hours behind all that this one wrote.
    plane.must(["down"]);
    plane.must(["up", "--detach"]);
    let resumed = at_rest(&plane, &plane.client().await, "orders").await;
    assert_eq!(primary(&resumed), primary(&switched));
    let missing: Vec<_> = acknowledged.difference(&rows(&uri).await).copied().collect();
    assert!(missing.is_empty(), "acknowledged and gone: {missing:?}");
}
