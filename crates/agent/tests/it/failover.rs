//! The life of a cluster.

use crate::cluster::{Cluster, Result, freeze, programs, signal};
use coregent_core::fence::Proof;
use coregent_core::names::Epoch;
use coregent_core::report::{MemberReport, MemberState};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Three members, each streaming or primary, the set of the epoch complete.
async fn bootstrapped(mode: &'static str) -> Result<Option<Cluster>> {
    let Some(bin_dir) = programs() else { return Ok(None) };
    let begun = Instant::now();
    let mut cluster = Cluster::new(3, mode, bin_dir).await?;
    for index in 1..=3 {
        cluster.start(index)?;
    }
    cluster.await_report(1, "the first primary", |report| report.state == MemberState::Primary && report.ready).await?;
    eprintln!("primary after {:?}", begun.elapsed());
    settled(&cluster, 1, &[2, 3], Epoch(1), mode).await?;
    eprintln!("three members after {:?}", begun.elapsed());
    Ok(Some(cluster))
}

async fn settled(cluster: &Cluster, primary: usize, standbys: &[usize], epoch: Epoch, mode: &str) -> Result<()> {
    for index in standbys {
        cluster
            .await_report(*index, "a streaming standby", |report| {
                report.state == MemberState::Streaming && report.ready && report.epoch == epoch
            })
            .await?;
    }
    cluster.await_report(primary, "the primary", |report| report.state == MemberState::Primary).await?;
    if mode == "Quorum" {
        cluster
            .await_lease("a complete set", |_, _, fence| {
                fence
                    .sync_sets
                    .iter()
                    .any(|set| set.epoch == epoch && set.complete && set.members.len() == standbys.len())
            })
            .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_bootstraps_fails_over_and_takes_the_old_primary_back() -> Result<()> {
    let Some(cluster) = bootstrapped("Quorum").await? else { return Ok(()) };
    cluster.text(1, "create table t (i int primary key)").await?;
    cluster.text(1, "insert into t select generate_series(1, 1000)").await?;

    let begun = Instant::now();
    cluster.kill_postmaster(1)?;
    let fence =
        cluster.await_lease("the release", |_, holder, fence| holder.is_none() && fence.release.is_some()).await?;
    eprintln!("killed -> released {:?}", begun.elapsed());
    assert!(cluster.engine_pids(1)?.is_empty(), "released while a process of the engine lived");
    let release = fence.release.ok_or("no release")?;

    let epoch = cluster.raise(None).await?;
    let mut positions = Vec::new();
    for index in [2, 3] {
        let report = cluster.await_report(index, "left", |report| report.left == Some(epoch)).await?;
        positions.push((report.position.ok_or("no position")?, index));
    }
    eprintln!("killed -> left {:?}", begun.elapsed());
    let old = cluster.await_report(1, "the old primary's end", |report| report.left == Some(epoch)).await?;
    assert_eq!(old.position.map(|position| position.lsn), Some(release.end_lsn));
    positions.sort_by_key(|(position, _)| position.lsn);
    let (newest, winner) = positions.pop().ok_or("no candidate")?;
    let loser = if winner == 2 { 3 } else { 2 };
    assert!(newest.lsn <= release.end_lsn);

    let named = Instant::now();
    cluster.name(winner, Proof::QuorumFence, &[loser]).await?;
    cluster
        .await_report(winner, "the new primary", |report| report.state == MemberState::Primary && report.ready)
        .await?;
    eprintln!("named -> open {:?}", named.elapsed());
    cluster.text(winner, "insert into t values (1001)").await?;
    eprintln!("killed -> first write {:?}", begun.elapsed());
    settled(&cluster, winner, &[1, loser], epoch, "Quorum").await?;
    eprintln!("killed -> three members again {:?}", begun.elapsed());
    for index in 1..=3 {
        cluster.await_text(index, "select count(*) from t where i <= 1000", "1000").await?;
    }
    let fence = cluster.lease().await?.3;
    assert_eq!(fence.last_win().map(|win| win.epoch), Some(epoch));
    assert!(fence.release.is_none());
    for index in 1..=3 {
        assert!(!cluster.log(index).contains("se'cr"), "a password is in the log");
    }
    warns_of_what_a_person_did(&cluster, winner, loser).await?;
    settled(&cluster, winner, &[1, loser], epoch, "Quorum").await
}

/// A person weakens commits, and promotes a standby past its agent.
async fn warns_of_what_a_person_did(cluster: &Cluster, primary: usize, standby: usize) -> Result<()> {
    assert!(cluster.report(primary).await.is_some_and(|report| report.warnings.is_empty()));
    cluster.text(primary, "alter role postgres in database postgres set synchronous_commit = local").await?;
    cluster.text(primary, "alter system set synchronous_commit = off").await?;
    let warned = |report: &MemberReport| {
        let has = |part: &str| report.warnings.iter().any(|line| line.contains(part));
        has("local for role postgres in database postgres") && has("off for the whole server")
    };
    cluster.await_report(primary, "both warnings", warned).await?;
    cluster.text(primary, "alter role postgres in database postgres reset synchronous_commit").await?;
    cluster.text(primary, "alter system reset synchronous_commit").await?;
    cluster.await_report(primary, "no warning", |report| report.warnings.is_empty()).await?;

    let names = "show synchronous_standby_names";
    let in_force = cluster.text(primary, names).await?;
    cluster.text(primary, "alter system set synchronous_standby_names = ''").await?;
    cluster.text(primary, "select pg_reload_conf()").await?;
    let taken_back =
        |report: &MemberReport| report.warnings.iter().any(|line| line.contains("had set synchronous_standby_names"));
    cluster.await_report(primary, "the setting was taken back", taken_back).await?;
    cluster.await_text(primary, names, &in_force).await?;

    cluster.text(standby, "select pg_promote(false)").await?;
    let unexpected = |report: &MemberReport| report.warnings.iter().any(|line| line.starts_with("UnexpectedPrimary: "));
    cluster.await_report(standby, "the warning", unexpected).await?;
    let follows = |report: &MemberReport| report.state == MemberState::Streaming && report.warnings.is_empty();
    cluster.await_report(standby, "it follows again", follows).await?;
    Ok(())
}

/// Raises, waits until `candidates` have left, and names the newest of them. Returns the epoch, winner and losers.
async fn round(cluster: &Cluster, candidates: &[usize], proof: Proof) -> Result<(Epoch, usize, Vec<usize>)> {
    let epoch = cluster.raise(None).await?;
    let mut positions = Vec::new();
    for index in candidates {
        let report = cluster.await_report(*index, "left", |report| report.left == Some(epoch)).await?;
        positions.push((report.position.map(|position| position.lsn).unwrap_or_default(), *index));
    }
    positions.sort_unstable();
    let (_, winner) = positions.pop().ok_or("no candidate")?;
    let losers: Vec<usize> = positions.into_iter().map(|(_, index)| index).collect();
    cluster.name(winner, proof, &losers).await?;
    cluster
        .await_report(winner, "the new primary", |report| {
            report.state == MemberState::Primary && report.ready && report.epoch == epoch
        })
        .await?;
    Ok((epoch, winner, losers))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switchover_loses_no_acknowledged_row_and_needs_no_rewind_and_everything_survives_a_restart() -> Result<()> {
    let Some(mut cluster) = bootstrapped("Quorum").await? else { return Ok(()) };
    cluster.text(1, "create table t (i int primary key)").await?;
    let client = cluster.connect(1).await?;
    let writer = tokio::spawn(async move {
        let mut acknowledged = 0;
        while client.execute(&format!("insert into t values ({})", acknowledged + 1), &[]).await.is_ok() {
            acknowledged += 1;
        }
        acknowledged
    });
    tokio::time::sleep(Duration::from_millis(300)).await; // some load
    let begun = Instant::now();
    let epoch = cluster.raise(Some((1, 2))).await?;
    cluster.await_lease("the release", |_, holder, fence| holder.is_none() && fence.release.is_some()).await?;
    eprintln!("raised -> released {:?}", begun.elapsed());
    for index in [2, 3] {
        cluster.await_report(index, "left", |report| report.left == Some(epoch)).await?;
    }
    eprintln!("raised -> left {:?}", begun.elapsed());
    cluster.name(2, Proof::Released, &[3]).await?;
    cluster.await_report(2, "the new primary", |report| report.state == MemberState::Primary && report.ready).await?;
    eprintln!("raised -> open {:?}", begun.elapsed());
    let acknowledged: i32 = writer.await?;
    assert!(acknowledged > 0);
    let kept: i32 = cluster.text(2, "select count(*) from t").await?.parse()?;
    assert!(kept >= acknowledged, "{acknowledged} acknowledged, {kept} kept");
    settled(&cluster, 2, &[1, 3], epoch, "Quorum").await?;
    eprintln!("raised -> three members {:?}", begun.elapsed());
    assert!(!cluster.log(1).contains("begins kind=Rewind"));

    // The rest of a segment is empty behind a switch: no page there says on which timeline the log goes on.
    cluster.text(2, "select pg_switch_wal()").await?;
    let switched: String = cluster.text(2, "select pg_current_wal_flush_lsn()").await?;
    for index in [1, 3] {
        let replayed = format!("select pg_last_wal_replay_lsn() >= '{switched}'::pg_lsn");
        cluster.await_text(index, &replayed, "t").await?;
        let newest = |report: &MemberReport| {
            report.position.as_ref().is_some_and(|position| position.timeline.0 == 2 && position.chain.len() == 1)
        };
        cluster.await_report(index, "the timeline of the primary", newest).await?;
        assert!(!cluster.log(index).contains("beyond the fork"), "member {index} took its log for the old timeline's");
    }

    // Everything is stopped, the primary last, and started again.
    for index in [1, 3, 2] {
        assert!(cluster.stop(index).await?, "a clean leave ends with 0");
        assert!(cluster.engine_pids(index)?.is_empty());
    }
    let fence = cluster.lease().await?.3;
    assert_eq!(fence.release.map(|release| release.epoch), Some(epoch));
    for index in 1..=3 {
        cluster.start(index)?;
    }
    cluster.await_report(2, "the primary again", |report| report.state == MemberState::Primary && report.ready).await?;
    settled(&cluster, 2, &[1, 3], epoch, "Quorum").await?;
    cluster.await_text(3, "select count(*) from t", &kept.to_string()).await?;
    for index in 1..=3 {
        let log = cluster.log(index);
        assert_eq!(log.matches("begins kind=InitDb").count(), usize::from(index == 1));
        assert_eq!(log.matches("begins kind=Clone").count() > 0, index != 1);
    }
    assert!(cluster.lease().await?.3.release.is_none(), "an old release must not call a later loss lossless");

    // A whole member is killed and comes back in the same epoch: it retakes what its predecessor held.
    cluster.kill_member(2)?;
    cluster.start(2)?;
    cluster
        .await_report(2, "the primary after its restart", |report| {
            report.state == MemberState::Primary && report.ready && report.pod_uid.ends_with("-3")
        })
        .await?;
    cluster.text(2, "insert into t values (-1)").await?;

    // A whole member is killed and the epoch moves on before its successor starts.
    cluster.kill_member(2)?;
    let (epoch, winner, losers) = round(&cluster, &[1, 3], Proof::QuorumFence).await?;
    cluster.text(winner, "insert into t values (-2)").await?;
    cluster.start(2)?;
    settled(&cluster, winner, &[2, losers[0]], epoch, "Quorum").await?;
    cluster.await_text(2, "select count(*) from t where i < 0", "2").await?;
    Ok(())
}

/// Under load the receivers are stopped in the middle of a record, whose rest never comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_whose_log_ends_within_a_record_leave_and_one_of_them_takes_over() -> Result<()> {
    let Some(cluster) = bootstrapped("Quorum").await? else { return Ok(()) };
    cluster.text(1, "create table big (g int, t text)").await?;
    let mut primary = 1;
    for _ in 0..3 {
        let before = cluster.text(primary, "select pg_current_wal_flush_lsn()").await?;
        let client = cluster.connect(primary).await?;
        let load = "insert into big select g, repeat(md5(g::text), 60) from generate_series(1, 400000) g";
        let writer = tokio::spawn(async move { client.batch_execute(load).await });
        let written = format!("select pg_current_wal_flush_lsn() - '{before}'::pg_lsn > 20000000");
        cluster.await_text(primary, &written, "t").await?;
        cluster.kill_postmaster(primary)?;
        assert!(writer.await?.is_err(), "the server died in the middle");
        cluster.await_lease("the release", |_, holder, _| holder.is_none()).await?;
        let others: Vec<usize> = (1..=3).filter(|index| *index != primary).collect();
        let rewinds = |index: usize| cluster.log(index).matches("begins kind=Rewind").count();
        let before: Vec<usize> = (0..=3).map(|index| if index == 0 { 0 } else { rewinds(index) }).collect();
        let (epoch, winner, losers) = round(&cluster, &others, Proof::QuorumFence).await?;
        if let Err(error) = settled(&cluster, winner, &[primary, losers[0]], epoch, "Quorum").await {
            let logs = (1..=3).map(|index| format!("\norders-{index}:\n{}", cluster.last_words(index, 40)));
            return Err(format!("{error}{}", logs.collect::<String>()).into());
        }
        assert_eq!(rewinds(losers[0]), before[losers[0]], "half a record is nothing to rewind");
        primary = winner;
    }
    Ok(())
}

/// PostgreSQL looks for newer timelines one number after the other, from that of its last checkpoint on, and stops where a
/// history file is missing (`findNewestTimeLine` of its `timeline.c`).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_starts_again_reads_its_log_across_a_timeline_that_was_attempted_and_never_came_to_be()
-> Result<()> {
    let Some(mut cluster) = bootstrapped("Quorum").await? else { return Ok(()) };
    cluster.text(1, "create table t (i int primary key)").await?;
    cluster.kill_member(1)?;
    cluster.raise(None).await?;
    cluster.attempt_in_vain(3, 2).await?;
    let (epoch, winner, losers) = round(&cluster, &[2, 3], Proof::QuorumFence).await?;
    cluster.text(winner, "insert into t values (1)").await?;
    let written: String = cluster.text(winner, "select pg_current_wal_flush_lsn()").await?;
    // Only the loser can have acknowledged it. Nobody is there to send it again what its files hold.
    cluster.kill_member(losers[0])?;
    cluster.kill_member(winner)?;
    cluster.start(losers[0])?;
    cluster
        .await_report(losers[0], "its start", |report| report.epoch == epoch && report.state == MemberState::Standby)
        .await?;
    let epoch = cluster.raise(None).await?;
    let left = cluster.await_report(losers[0], "left", |report| report.left == Some(epoch)).await?;
    let position = left.position.ok_or("no position")?;
    assert_eq!(position.timeline.0, 3);
    assert!(position.lsn >= written.parse()?, "{position:?} is before {written}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_agent_is_killed_by_its_deadline_and_its_divergent_rows_are_rewound() -> Result<()> {
    let Some(cluster) = bootstrapped("Async").await? else { return Ok(()) };
    cluster.text(1, "create table t (i int primary key)").await?;
    cluster.text(1, "insert into t select generate_series(1, 100)").await?;
    let client = cluster.connect(1).await?;
    let agent = cluster.agent_pid(1).ok_or("no agent")?;
    // The server goes on without its agent: what it acknowledges after the others have left is lost in async mode.
    freeze(agent).await?;
    let epoch = cluster.raise(None).await?;
    for index in [2, 3] {
        cluster.await_report(index, "left", |report| report.left == Some(epoch)).await?;
    }
    client.batch_execute("insert into t select generate_series(1001, 1200)").await?;
    let begun = Instant::now();
    cluster.name(2, Proof::Expired, &[3]).await?;
    cluster.await_report(2, "the new primary", |report| report.state == MemberState::Primary && report.ready).await?;
    assert!(begun.elapsed() > Duration::from_secs(3), "the Lease was taken before it had run out");
    cluster.text(2, "insert into t values (101)").await?;
    signal(agent, Signal::CONT);
    settled(&cluster, 2, &[1, 3], epoch, "Async").await?;
    assert!(client.simple_query("select 1").await.is_err(), "the old server lives");
    cluster.await_text(1, "select count(*) from t", "101").await?;
    let log = cluster.log(1);
    assert!(log.contains("begins kind=Rewind") && !log.contains("begins kind=Clone"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrupt_data_folder_is_copied_anew_from_the_primary_and_left_alone_while_there_is_none() -> Result<()> {
    let Some(mut cluster) = bootstrapped("Quorum").await? else { return Ok(()) };
    assert!(cluster.stop(3).await?);
    let volume = cluster.member(3).folder.join("volume");
    std::fs::write(volume.join("pgdata/global/pg_control"), [0x5a; 8192])?;
    cluster.start(3)?;
    settled(&cluster, 1, &[2, 3], Epoch(1), "Quorum").await?;
    let aside = volume.join("pgdata.diverged-1/global/pg_control");
    assert_eq!(std::fs::read(aside)?, [0x5a; 8192], "what was there is set aside as it was");

    // Now the primary's, and nobody else runs.
    for member in [3, 2, 1] {
        assert!(cluster.stop(member).await?);
    }
    let control = cluster.member(1).folder.join("volume/pgdata/global/pg_control");
    let good = control.with_extension("aside");
    std::fs::rename(&control, &good)?;
    cluster.start(1)?;
    let report = cluster.await_report(1, "the failure", |report| report.state == MemberState::Failed).await?;
    let said = report.last_error.unwrap_or_default();
    assert!(said.contains("global/pg_control is damaged") && !said.contains('\n'), "{said}");
    assert_eq!(report.left, None);
    // Put right by hand, it goes on without a restart of anything.
    std::fs::rename(&good, &control)?;
    cluster.start(2)?;
    cluster.start(3)?;
    settled(&cluster, 1, &[2, 3], Epoch(1), "Quorum").await?;
    Ok(())
}
