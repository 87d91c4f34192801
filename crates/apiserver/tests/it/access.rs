use coregent_apiserver::{ApiServer, Options, UserInfo};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::crud::{code, config_map};
use crate::memory;
use crate::served::serve;

fn of<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

async fn create<K>(client: &Client, object: Value)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + serde::Serialize
        + std::fmt::Debug,
{
    Api::<K>::default_namespaced(client.clone()).create(&PostParams::default(), &of(object)).await.unwrap();
}

fn account(name: &str) -> UserInfo {
    UserInfo::service_account("default", name, "uid")
}

#[tokio::test]
async fn an_account_may_do_what_its_role_says_and_no_more() {
    let server = memory().await;
    let admin = server.client();
    create::<ConfigMap>(&admin, json!({"metadata": {"name": "own"}})).await;
    create::<ConfigMap>(&admin, json!({"metadata": {"name": "other"}})).await;
    create::<Role>(
        &admin,
        json!({"metadata": {"name": "r"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["own"],
            "verbs": ["get", "list", "watch", "patch"]}]}),
    )
    .await;
    create::<RoleBinding>(
        &admin,
        json!({"metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "me", "namespace": "default"}]}),
    )
    .await;

    let client = Client::new(server.service_as(account("me")), "default");
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    api.get("own").await.unwrap();
    api.list(&ListParams::default().fields("metadata.name=own")).await.unwrap();
    api.watch(&WatchParams::default().fields("metadata.name=own"), "0").await.map(|_| ()).unwrap();
    api.patch("own", &PatchParams::default(), &Patch::Merge(json!({"data": {"a": "b"}}))).await.unwrap();
    assert_eq!(code(api.get("other").await), (403, "Forbidden".into()));
    assert_eq!(code(api.list(&ListParams::default()).await).0, 403);
    assert_eq!(code(api.delete("own", &DeleteParams::default()).await).0, 403);
    assert_eq!(code(api.create(&PostParams::default(), &config_map("new", "1")).await).0, 403);
    let elsewhere: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    assert_eq!(code(elsewhere.get("own").await).0, 403);
    let stranger = Client::new(server.service_as(account("you")), "default");
    assert_eq!(code(Api::<ConfigMap>::default_namespaced(stranger).get("own").await).0, 403);

    let ask = |verb: &str| {
        let review: SelfSubjectAccessReview = of(json!({"spec": {"resourceAttributes":
            {"namespace": "default", "verb": verb, "resource": "configmaps", "name": "own"}}}));
        let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        async move { reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed }
    };
    assert!(ask("get").await);
    assert!(!ask("delete").await);
}

#[tokio::test]
async fn an_apply_that_creates_needs_both_rights() {
    let server = memory().await;
    let admin = server.client();
    let role = json!({"metadata": {"name": "r"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]});
    Api::<ClusterRole>::all(admin.clone()).create(&PostParams::default(), &of(role)).await.unwrap();
    let binding = json!({"metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:serviceaccounts"}]});
    Api::<ClusterRoleBinding>::all(admin).create(&PostParams::default(), &of(binding)).await.unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(Client::new(server.service_as(account("me")), "default"));
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let result = api.patch("a", &PatchParams::apply("me"), &Patch::Apply(config)).await;
    assert_eq!(code(result), (403, "Forbidden".into()));
}

#[tokio::test]
async fn the_kubeconfig_opens_the_socket_and_nothing_else_does() {
    let server = memory().await;
    let served = serve(&server).await;
    let admin: Api<Namespace> = Api::all(served.client(None).await);
    assert!(admin.get("default").await.is_ok());
    for token in ["", "wrong", "a.b.c"] {
        let api: Api<Namespace> = Api::all(served.client(Some(token)).await);
        assert_eq!(code(api.get("default").await), (401, "Unauthorized".into()), "token {token:?}");
    }
    assert!(served.ca_pem.contains("CERTIFICATE"));
    let version = served.client(None).await.apiserver_version().await.unwrap();
    assert_eq!(version.major, "1");
    assert!(served.address.ip().is_loopback());
}

#[tokio::test]
async fn a_pods_token_lives_as_long_as_the_pod() {
    let server = memory().await;
    let admin = server.client();
    create::<ServiceAccount>(&admin, json!({"metadata": {"name": "me"}})).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "me",
        "containers": [{"name": "c", "image": "i"}]}});
    create::<Pod>(&admin, pod).await;
    let pods: Api<Pod> = Api::default_namespaced(admin.clone());
    let uid = pods.get("p").await.unwrap().metadata.uid.unwrap();
    let request = |uid: &str| -> TokenRequest {
        of(
            json!({"spec": {"audiences": [], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}}}),
        )
    };
    let accounts: Api<ServiceAccount> = Api::default_namespaced(admin);
    let refused = accounts.create_token_request("me", &PostParams::default(), &request("other")).await;
    assert_eq!(code(refused).0, 409);
    let made = accounts.create_token_request("me", &PostParams::default(), &request(&uid)).await.unwrap();
    let token = made.status.unwrap().token.unwrap();

    let served = serve(&server).await;
    let api: Api<Pod> = Api::default_namespaced(served.client(Some(&token)).await);
    assert_eq!(code(api.get("p").await), (403, "Forbidden".into()), "known, and allowed nothing");
    let forged = format!("{}x", token);
    let stranger: Api<Pod> = Api::default_namespaced(served.client(Some(&forged)).await);
    assert_eq!(code(stranger.get("p").await).0, 401);
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    assert_eq!(code(api.get("p").await), (401, "Unauthorized".into()));
}

#[tokio::test]
async fn services_get_addresses_of_their_range() {
    let range = Some(([127, 64, 0, 180].into(), [127, 64, 0, 181].into()));
    let server = ApiServer::open(Options { service_ips: range, ..Options::default() }).await.unwrap();
    let api: Api<k8s_openapi::api::core::v1::Service> = Api::default_namespaced(server.client());
    let service = |name: &str, ip: Value| {
        of(json!({"metadata": {"name": name}, "spec": {"clusterIP": ip, "ports": [{"port": 80}]}}))
    };
    let post = PostParams::default();
    let first = api.create(&post, &service("a", Value::Null)).await.unwrap();
    assert_eq!(first.spec.unwrap().cluster_ip.as_deref(), Some("127.64.0.180"));
    assert_eq!(code(api.create(&post, &service("b", json!("127.64.0.180"))).await).0, 422);
    assert_eq!(code(api.create(&post, &service("b", json!("127.0.0.1"))).await).0, 422);
    api.create(&post, &service("headless", json!("None"))).await.unwrap();
    api.create(&post, &service("c", Value::Null)).await.unwrap();
    assert_eq!(code(api.create(&post, &service("d", Value::Null)).await).0, 500, "the range is full");
    api.delete("a", &DeleteParams::default()).await.unwrap();
    api.create(&post, &service("d", Value::Null)).await.unwrap();
}
