//! From what a person types (`pods`, `po`, `dbc/orders`) to a kind that the API server serves.

use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
use kube::api::{Api, ApiResource, DynamicObject, TypeMeta};
use kube::core::discovery::v2::{APIGroupDiscoveryList, APIResourceDiscovery};

/// One kind that is served.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// It lives in namespaces.
    pub namespaced: bool,
    names: Vec<String>,
    categories: Vec<String>,
}

impl Served {
    /// An API handle in the namespace asked for, or for the cluster.
    pub fn api(&self, connection: &Connection, namespace: &str) -> Api<DynamicObject> {
        if self.namespaced {
            Api::namespaced_with(connection.client.clone(), namespace, &self.resource)
        } else {
            Api::all_with(connection.client.clone(), &self.resource)
        }
    }

    /// Path of the collection, for requests that `Api` has no verb for.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.resource.group.is_empty() {
            format!("/api/{}", self.resource.version)
        } else {
            format!("/apis/{}/{}", self.resource.group, self.resource.version)
        };
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.resource.plural),
            None => format!("{root}/{}", self.resource.plural),
        }
    }

    /// What kubectl prints before the name: `pod`, `databasecluster.coregent.io`.
    pub fn display(&self) -> String {
        let kind = self.resource.kind.to_lowercase();
        if self.resource.group.is_empty() { kind } else { format!("{kind}.{}", self.resource.group) }
    }
}

/// Everything that the API server serves.
pub struct Kinds(Vec<Served>);

impl Kinds {
    /// Asks the API server.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn discover(connection: &Connection) -> Outcome<Kinds> {
        let ask = |error| Failure::from_api("cannot ask the API server which kinds it serves", error);
        let core = connection.client.list_core_api_versions_aggregated().await.map_err(ask)?;
        let groups = connection.client.list_api_groups_aggregated().await.map_err(ask)?;
        Ok(Kinds(read(&core).chain(read(&groups)).collect()))
    }

    /// The kind called `name`: plural, singular, kind or short name, with or without `.group`; core kinds first.
    ///
    /// # Errors
    /// When no such kind is served.
    pub fn find(&self, name: &str) -> Outcome<&Served> {
        let wanted = name.to_lowercase();
        self.0.iter().find(|served| served.names.contains(&wanted)).ok_or_else(|| {
            Failure::refused(
                format!("no kind is called {name:?}"),
                "this API server does not serve it",
                "`coregent get` takes a plural, singular or short name, such as pods, po or dbc",
            )
        })
    }

    /// Every kind in a category (`coregent get coregent`), or the one kind of that name.
    ///
    /// # Errors
    /// When neither a kind nor a category has that name.
    pub fn find_all(&self, name: &str) -> Outcome<Vec<&Served>> {
        let category: Vec<_> = self.0.iter().filter(|served| served.categories.iter().any(|c| c == name)).collect();
        match self.find(name) {
            Ok(served) => Ok(vec![served]),
            Err(_) if !category.is_empty() => Ok(category),
            Err(unknown) => Err(unknown),
        }
    }

    /// The kind of an object in a manifest.
    pub fn of(&self, types: &TypeMeta) -> Option<&Served> {
        self.0
            .iter()
            .find(|served| served.resource.api_version == types.api_version && served.resource.kind == types.kind)
    }
}

fn read(list: &APIGroupDiscoveryList) -> impl Iterator<Item = Served> {
    list.items.iter().flat_map(|group| {
        let name = group.metadata.as_ref().and_then(|metadata| metadata.name.clone()).unwrap_or_default();
        group.versions.iter().flat_map(move |version| {
            let name = name.clone();
            let version_name = version.version.clone().unwrap_or_default();
            version.resources.iter().filter_map(move |resource| served(&name, &version_name, resource))
        })
    })
}

fn served(group: &str, version: &str, discovered: &APIResourceDiscovery) -> Option<Served> {
    let plural = discovered.resource.clone()?;
    let kind = discovered.response_kind.as_ref()?.kind.clone()?;
    let singular = discovered.singular_resource.clone().unwrap_or_else(|| kind.to_lowercase());
    let mut names = vec![plural.clone(), singular, kind.to_lowercase()];
    names.extend(discovered.short_names.iter().cloned());
    if !group.is_empty() {
        names.extend(names.clone().into_iter().map(|name| format!("{name}.{group}")));
    }
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(Served {
        resource: ApiResource { group: group.into(), version: version.into(), api_version, kind, plural },
        namespaced: discovered.scope.as_deref() == Some("Namespaced"),
        names,
        categories: discovered.categories.clone(),
    })
}

/// Splits `kind/name` arguments: `pod/x`, or `pod x`.
///
/// # Errors
/// When no name is there.
pub fn kind_and_name(words: &[String]) -> Outcome<(String, Option<String>)> {
    match words {
        [one] => Ok(match one.split_once('/') {
            Some((kind, name)) => (kind.to_owned(), Some(name.to_owned())),
            None => (one.clone(), None),
        }),
        [kind, name] => Ok((kind.clone(), Some(name.clone()))),
        _ => Err(Failure::refused("which object?", "a kind and a name are needed", "type KIND NAME or KIND/NAME")),
    }
}

/// The objects of `pod x y`, or of `pod/x job/y`: kind and name of each, a kind alone without one.
///
/// # Errors
/// When nothing is named, or both forms are mixed.
pub fn kinds_and_names(words: &[String]) -> Outcome<Vec<(String, Option<String>)>> {
    let refused = |why: &str| Err(Failure::refused("which object?", why, "type KIND NAME…, or KIND/NAME…"));
    match words {
        [] => refused("a kind and a name are needed"),
        [kind, names @ ..] if !kind.contains('/') && !names.is_empty() => {
            if names.iter().any(|name| name.contains('/')) {
                return refused("KIND NAME and KIND/NAME are mixed");
            }
            Ok(names.iter().map(|name| (kind.clone(), Some(name.clone()))).collect())
        }
        [_] => Ok(vec![kind_and_name(words)?]),
        _ if words.iter().all(|word| word.contains('/')) => {
            words.iter().map(|word| kind_and_name(std::slice::from_ref(word))).collect()
        }
        _ => refused("KIND NAME and KIND/NAME are mixed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_objects_are_named_by_one_kind_or_each_with_its_own() {
        let named = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let named = kinds_and_names(&words).ok()?;
            Some(
                named
                    .iter()
                    .map(|(kind, name)| format!("{kind} {}", name.as_deref().unwrap_or("-")))
                    .collect::<Vec<_>>(),
            )
        };
        let table: [(&[&str], Option<&[&str]>); 8] = [
            (&[], None),
            (&["pod"], Some(&["pod -"])),
            (&["pod/a"], Some(&["pod a"])),
            (&["pod", "a"], Some(&["pod a"])),
            (&["pod", "a", "b"], Some(&["pod a", "pod b"])),
            (&["pod/a", "job/b"], Some(&["pod a", "job b"])),
            (&["pod", "job/b"], None),
            (&["pod/a", "b"], None),
        ];
        for (words, expected) in table {
            let expected = expected.map(|all| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
            assert_eq!(named(words), expected, "{words:?}");
        }
    }

    #[test]
    fn a_kind_is_found_by_plural_singular_kind_short_name_and_group() {
        let list: APIGroupDiscoveryList = serde_json::from_value(serde_json::json!({
            "items": [{"metadata": {"name": "coregent.io"}, "versions": [{"version": "v1alpha1", "resources": [{
                "resource": "databaseclusters", "responseKind": {"kind": "DatabaseCluster"}, "scope": "Namespaced",
                "singularResource": "databasecluster", "verbs": ["get"], "shortNames": ["dbc"], "categories": ["coregent"],
            }]}]}]
        }))
        .unwrap();
        let kinds = Kinds(read(&list).collect());
        for name in ["dbc", "databasecluster", "DatabaseCluster", "databaseclusters", "dbc.coregent.io"] {
            assert_eq!(kinds.find(name).map(|served| served.resource.kind.as_str()), Ok("DatabaseCluster"), "{name}");
        }
        assert_eq!(kinds.find_all("coregent").map(|all| all.len()), Ok(1));
        assert!(kinds.find("pods").is_err());
    }
}
