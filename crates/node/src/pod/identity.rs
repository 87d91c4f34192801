//! Who a container runs as, and who may use its volumes. Pure.

use std::path::PathBuf;

use coregent_process::User;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::state::spec;
use crate::image_map::ImageUser;

/// The user of a container: its own `securityContext`, else the pod's, else the image's.
pub(crate) fn user(pod: &Pod, container: &Container, image: &ImageUser) -> User {
    let of_pod = spec(pod).security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let id = |value: Option<i64>| value.and_then(|v| u32::try_from(v).ok());
    let asked = id(own.run_as_user).or(id(of_pod.run_as_user));
    let uid = asked.unwrap_or(image.uid);
    // A uid that is not the image's brings no group along: Kubernetes then gives group 0.
    let gid = id(own.run_as_group).or(id(of_pod.run_as_group)).unwrap_or(if uid == image.uid { image.gid } else { 0 });
    let mut groups: Vec<u32> =
        of_pod.supplemental_groups.iter().flatten().filter_map(|g| u32::try_from(*g).ok()).collect();
    groups.extend(fs_group(pod));
    groups.sort_unstable();
    groups.dedup();
    let (name, home) = match uid {
        _ if uid == image.uid => (image.name.clone(), image.home.clone()),
        0 => ("root".to_owned(), PathBuf::from("/root")),
        _ => (format!("user{uid}"), PathBuf::from("/home").join(format!("user{uid}"))),
    };
    User { uid, gid, groups, name, home }
}

/// The group that owns the pod's volumes.
pub(crate) fn fs_group(pod: &Pod) -> Option<u32> {
    spec(pod).security_context.as_ref()?.fs_group.and_then(|g| u32::try_from(g).ok())
}

/// The uid that all containers of the pod share by the pod's word, if it says one.
pub(crate) fn pod_uid(pod: &Pod) -> Option<u32> {
    spec(pod).security_context.as_ref()?.run_as_user.and_then(|u| u32::try_from(u).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_container_goes_before_the_pod_and_the_pod_before_the_image() {
        let image = ImageUser { uid: 999, gid: 998, name: "postgres".into(), home: "/var/lib/postgresql".into() };
        for (pod, container, expected) in [
            (json!({}), json!({}), "999 998 [] postgres"),
            (json!({"runAsUser": 7, "fsGroup": 5}), json!({}), "7 0 [5] user7"),
            (json!({"runAsUser": 7}), json!({"runAsUser": 0, "runAsGroup": 3}), "0 3 [] root"),
            (
                json!({"runAsUser": 999, "runAsGroup": 999, "supplementalGroups": [9, 4, 9]}),
                json!({}),
                "999 999 [4, 9] postgres",
            ),
        ] {
            let pod = serde_json::from_value(json!({"spec": {"containers": [], "securityContext": pod}})).unwrap();
            let container = serde_json::from_value(json!({"name": "c", "securityContext": container})).unwrap();
            let user = user(&pod, &container, &image);
            assert_eq!(format!("{} {} {:?} {}", user.uid, user.gid, user.groups, user.name), expected);
        }
    }
}
