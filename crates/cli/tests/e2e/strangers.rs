//! Requests of those who may not make them: answered with a `Status` and without effect.

use crate::members::{manifest, uri_of};
use crate::plane::{Plane, refusal, settled, until};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DeleteParams, PostParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt};

/// A client with another token than the administrator's, or with none.
async fn client(plane: &Plane, token: Option<&str>) -> Client {
    let mut kubeconfig = Kubeconfig::read_from(plane.data_dir().join("kubeconfig")).expect("the kubeconfig");
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|user| user.auth_info.as_mut()) {
        user.token = token.map(|token| token.to_owned().into());
    }
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a configuration");
    Client::try_from(config).expect("a client")
}

/// Code and reason of a refusal.
fn refused<T>(answer: Result<T, kube::Error>) -> (u16, String) {
    let error = answer.map(|_| ()).expect_err("a refusal");
    let kube::Error::Api(status) = error else { unreachable!("no Status: {error}") };
    (status.code, status.reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_another_clusters_token_and_the_token_of_a_pod_that_is_gone_are_refused() {
    let plane = Plane::up();
    plane.apply(&format!("{}---\n{}", manifest("orders", 1, "Async"), manifest("other", 1, "Async")));
    let admin = plane.client().await;
    until(&admin, "orders", settled).await;
    until(&admin, "other", settled).await;

    let nobody = client(&plane, None).await;
    let unauthorized = (401, "Unauthorized".to_owned());
    assert_eq!(refused(Api::<Pod>::default_namespaced(nobody.clone()).list(&Default::default()).await), unauthorized);
    let guessed = client(&plane, Some("guessed")).await;
    assert_eq!(refused(Api::<Secret>::default_namespaced(guessed).get("orders-superuser").await), unauthorized);
    assert_eq!(refused(nobody.apiserver_version().await), unauthorized, "not even what it is");

    // The token that a member of `orders` has: it may what a member must, and nothing of another cluster's.
    let token = "cat /var/run/secrets/kubernetes.io/serviceaccount/token";
    let token = plane.must(["exec", "orders-1-0", "--", "sh", "-c", token]);
    let member = client(&plane, Some(token.trim())).await;
    let leases: Api<Lease> = Api::default_namespaced(member.clone());
    let own = leases.get("orders-primary").await.expect("its own cluster's Lease");
    let forbidden = (403, "Forbidden".to_owned());
    assert_eq!(refused(leases.get("other-primary").await), forbidden);
    let as_admin: Api<Lease> = Api::default_namespaced(admin.clone());
    let mut others = as_admin.get("other-primary").await.expect("the other cluster's Lease");
    let holder = others.spec.get_or_insert_default().holder_identity.replace("orders-1/u/n".to_owned());
    assert_eq!(refused(leases.replace("other-primary", &PostParams::default(), &others).await), forbidden);
    let secrets: Api<Secret> = Api::default_namespaced(member.clone());
    for secret in ["other-superuser", "orders-superuser"] {
        assert_eq!(refused(secrets.get(secret).await), forbidden, "{secret}");
    }
    assert_eq!(refused(secrets.list(&Default::default()).await), forbidden);
    let pods: Api<Pod> = Api::default_namespaced(member.clone());
    assert_eq!(refused(pods.delete("other-1-0", &DeleteParams::default()).await), forbidden);
    let now = as_admin.get("other-primary").await.expect("the other cluster's Lease");
    assert_eq!(now.spec.and_then(|spec| spec.holder_identity), holder, "nothing of it had an effect");
    assert!(crate::writer::connect(&uri_of(&plane, "other")).await.is_ok());

    // The same from the command line: three lines.
    let kubeconfig = std::fs::read_to_string(plane.data_dir().join("kubeconfig")).expect("the kubeconfig");
    let admin_token = std::fs::read_to_string(plane.data_dir().join("admin.token")).expect("the token");
    for (token, says) in [("guessed", "token"), (token.trim(), "forbidden")] {
        let file = plane.write("other.kubeconfig", &kubeconfig.replace(admin_token.trim(), token));
        let said = refusal(&plane.run(["--kubeconfig", &file.display().to_string(), "get", "secrets"]), 2);
        assert!(said.contains(says), "{said}");
    }

    // Once the pod is gone its token means nobody, whatever has come in its place.
    let uid = Api::<Pod>::default_namespaced(admin.clone()).get("orders-1-0").await.expect("the pod").uid();
    plane.must(["delete", "pod", "orders-1-0"]);
    let pods: Api<Pod> = Api::default_namespaced(admin.clone());
    let anew = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.uid() != uid);
    let waited = kube::runtime::wait::await_condition(pods, "orders-1-0", anew);
    tokio::time::timeout(crate::plane::PATIENCE, waited).await.expect("a pod anew").expect("the watch");
    assert_eq!(refused(leases.get("orders-primary").await), unauthorized);
    let mut raised = own;
    raised.spec.get_or_insert_default().lease_transitions = Some(99);
    assert_eq!(refused(leases.replace("orders-primary", &PostParams::default(), &raised).await), unauthorized);
    until(&admin, "orders", settled).await;
}
