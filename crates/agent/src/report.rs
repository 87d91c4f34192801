//! Publishes the member's report in its own Lease (failover.md F6): at once on a change of state, the bare position at
//! most every 10 s.

use coregent_api::labels;
use coregent_core::report::{ANNOTATION, MemberReport};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::PostParams;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// A position that changes alone is published this often.
const POSITION_PERIOD: Duration = Duration::from_secs(10);

/// What is to be published.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) report: Option<MemberReport>,
    /// The primary Lease's owners: the report is removed with the cluster.
    pub(crate) owners: Vec<OwnerReference>,
    /// Interruptions of the watch so far. In one an older copy of the API's store may have been put back, without what was
    /// published since (F14).
    pub(crate) gaps: u64,
}

/// Where it is published.
pub(crate) struct Publisher {
    pub(crate) api: Api<Lease>,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) request: Duration,
}

impl Publisher {
    /// Labels of a member's Lease.
    pub(crate) fn labels(cluster: &str, member: &str) -> BTreeMap<String, String> {
        BTreeMap::from([
            (labels::CLUSTER.to_owned(), cluster.to_owned()),
            (labels::INSTANCE.to_owned(), member.to_owned()),
        ])
    }

    /// Publishes what is wanted until the sender is gone; tells each published report through `done`.
    pub(crate) async fn run(self, mut wanted: watch::Receiver<Wanted>, done: watch::Sender<Option<MemberReport>>) {
        let mut current: Option<Lease> = None;
        let mut published: Option<Wanted> = None;
        let mut at = Instant::now();
        let mut gaps = 0;
        loop {
            let next = wanted.borrow_and_update().clone();
            if next.gaps != gaps && published.is_some() {
                match tokio::time::timeout(self.request, self.api.get_opt(&self.name)).await {
                    Ok(Ok(found)) => {
                        gaps = next.gaps;
                        if !says(found.as_ref(), published.as_ref()) {
                            published = None;
                        }
                        current = found;
                    }
                    _ => tokio::time::sleep(Duration::from_millis(200)).await,
                }
                continue;
            }
            let urgent = published.as_ref().is_none_or(|published| differs(published, &next));
            let changed = published.as_ref() != Some(&next);
            if next.report.is_some() && (urgent || (changed && at.elapsed() >= POSITION_PERIOD)) {
                match tokio::time::timeout(self.request, self.put(&mut current, &next)).await {
                    Ok(Ok(())) => {
                        at = Instant::now();
                        done.send_replace(next.report.clone());
                        published = Some(next);
                    }
                    failed => {
                        if let Ok(Err(error)) = failed {
                            tracing::debug!(%error, "the report is not published yet");
                        }
                        current = None;
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                }
                continue;
            }
            let later = if changed { POSITION_PERIOD.saturating_sub(at.elapsed()) } else { Duration::MAX };
            tokio::select! {
                changed = wanted.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(later.min(Duration::from_secs(3600))) => {}
            }
        }
    }

    async fn put(&self, current: &mut Option<Lease>, wanted: &Wanted) -> Result<(), kube::Error> {
        let Some(report) = &wanted.report else { return Ok(()) };
        if current.is_none() {
            *current = self.api.get_opt(&self.name).await?;
        }
        let parameters = PostParams::default();
        let lease = match current.take() {
            Some(mut lease) => {
                self.fill(&mut lease, wanted, report);
                self.api.replace(&self.name, &parameters, &lease).await?
            }
            None => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                let mut lease = Lease { metadata, ..Lease::default() };
                self.fill(&mut lease, wanted, report);
                self.api.create(&parameters, &lease).await?
            }
        };
        *current = Some(lease);
        Ok(())
    }

    fn fill(&self, lease: &mut Lease, wanted: &Wanted, report: &MemberReport) {
        lease.metadata.labels.get_or_insert_default().extend(self.labels.clone());
        lease.metadata.annotations.get_or_insert_default().insert(ANNOTATION.to_owned(), report.to_annotation());
        if !wanted.owners.is_empty() {
            lease.metadata.owner_references = Some(wanted.owners.clone());
        }
        lease.spec.get_or_insert_with(LeaseSpec::default).renew_time = Some(MicroTime(jiff::Timestamp::now()));
    }
}

/// The Lease holds what was published.
fn says(found: Option<&Lease>, published: Option<&Wanted>) -> bool {
    let text = found.and_then(|lease| lease.metadata.annotations.as_ref()?.get(ANNOTATION));
    let published = published.and_then(|published| published.report.as_ref());
    text.map(String::as_str) == published.map(MemberReport::to_annotation).as_deref()
}

/// Differs in more than a position that moves while nothing else happens.
fn differs(published: &Wanted, next: &Wanted) -> bool {
    stripped(published) != stripped(next)
}

fn stripped(wanted: &Wanted) -> Wanted {
    let mut wanted = Wanted { gaps: 0, ..wanted.clone() };
    if let Some(report) = &mut wanted.report {
        report.flushed_lsn = None;
        for standby in &mut report.standbys {
            standby.lag_bytes = None;
        }
        // A final position is what a round waits for; so is a new timeline.
        if report.left.is_none()
            && let Some(position) = &mut report.position
        {
            position.lsn = coregent_core::lsn::Lsn(0);
        }
    }
    wanted
}
