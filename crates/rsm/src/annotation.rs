//! Annotation scopes: an annotation on the RSM whose key ends in a scope belongs to what the RSM generates, without that
//! ending (rsm.md 3.4).

use std::collections::BTreeMap;

/// Endings of this form are scopes, known or not.
const SCOPE_SUFFIX: &str = ".rsm";

/// Which object an annotation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationScope {
    /// The RSM itself and its StatefulSets: every key without a scope.
    Root,
    /// The headless Service.
    HeadlessService,
    /// The Service to the leader.
    Service,
    /// Every alternative Service.
    AlternativeService,
    /// The ConfigMap with the environment.
    ConfigMap,
}

impl AnnotationScope {
    /// Ending of a key that belongs to this scope.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            AnnotationScope::Root => "",
            AnnotationScope::HeadlessService => ".headless.rsm",
            AnnotationScope::Service => ".svc.rsm",
            AnnotationScope::AlternativeService => ".alternative.rsm",
            AnnotationScope::ConfigMap => ".cm.rsm",
        }
    }
}

/// Puts every annotation into a scope.
#[must_use]
pub fn add_annotation_scope(
    scope: AnnotationScope,
    annotations: Option<&BTreeMap<String, String>>,
) -> Option<BTreeMap<String, String>> {
    let scoped = |(key, value): (&String, &String)| (format!("{key}{}", scope.suffix()), value.clone());
    annotations.map(|annotations| annotations.iter().map(scoped).collect())
}

/// The annotations of a scope, their keys without its ending. A key with the ending of a scope that is not known belongs
/// to none.
#[must_use]
pub fn parse_annotations_of_scope(
    scope: AnnotationScope,
    annotations: Option<&BTreeMap<String, String>>,
) -> Option<BTreeMap<String, String>> {
    let of_scope = |(key, value): (&String, &String)| {
        let key = match scope {
            AnnotationScope::Root => (!key.ends_with(SCOPE_SUFFIX)).then_some(key.as_str()),
            scope => key.strip_suffix(scope.suffix()),
        };
        key.map(|key| (key.to_owned(), value.clone()))
    };
    annotations.map(|annotations| annotations.iter().filter_map(of_scope).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn scopes_are_added_to_every_key() {
        let scope = AnnotationScope::HeadlessService;
        assert_eq!(add_annotation_scope(scope, None), None);
        assert_eq!(add_annotation_scope(scope, Some(&map(&[]))), Some(map(&[])));
        assert_eq!(
            add_annotation_scope(scope, Some(&map(&[("a", "1"), ("b", "2"), ("c", "3")]))),
            Some(map(&[("a.headless.rsm", "1"), ("b.headless.rsm", "2"), ("c.headless.rsm", "3")]))
        );
    }

    #[test]
    fn a_scope_gets_its_own_keys_only() {
        let all = map(&[("foo", "1"), ("bar", "2"), ("foo.headless.rsm", "3"), ("x.unknown.rsm", "4")]);
        let of = |scope| parse_annotations_of_scope(scope, Some(&all));
        assert_eq!(parse_annotations_of_scope(AnnotationScope::Root, None), None);
        assert_eq!(parse_annotations_of_scope(AnnotationScope::Root, Some(&map(&[]))), Some(map(&[])));
        assert_eq!(of(AnnotationScope::Root), Some(map(&[("foo", "1"), ("bar", "2")])));
        assert_eq!(of(AnnotationScope::HeadlessService), Some(map(&[("foo", "3")])));
        assert_eq!(of(AnnotationScope::ConfigMap), Some(map(&[])));
    }
}
