//! The life of a cluster.

use crate::cluster::{Cluster, Result, programs};
use coregent_core::fence::Proof;
use coregent_core::names::Epoch;
use coregent_core::report::MemberState;
use std::time::Instant;

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
        assert_eq!(cluster.text(index, "select count(*) from t where i <= 1000").await?, "1000");
    }
    let fence = cluster.lease().await?.3;
    assert_eq!(fence.last_win().map(|win| win.epoch), Some(epoch));
    assert!(fence.release.is_none());
    for index in 1..=3 {
        assert!(!cluster.log(index).contains("se'cr"), "a password is in the log");
    }
    Ok(())
}
