//! Reading manifests: files, folders and standard input, YAML or JSON, several documents a file.

use crate::failure::{Failure, Outcome};
use kube::api::DynamicObject;
use std::io::Read;
use std::path::{Path, PathBuf};

/// One object of a manifest and where it came from.
#[derive(Debug, Clone)]
pub struct Document {
    /// The file, and which document in it: `orders.yaml#2`.
    pub origin: String,
    /// The object.
    pub object: DynamicObject,
}

/// Reads every document of `files`; a folder stands for its `.yaml`, `.yml` and `.json` files in order of name,
/// `-` for standard input. All are read before anything is applied.
///
/// # Errors
/// When one cannot be read or is no manifest: nothing has been changed then.
pub fn read(files: &[PathBuf]) -> Outcome<Vec<Document>> {
    let mut documents = Vec::new();
    for file in files {
        for (name, text) in texts(file)? {
            documents.extend(parse(&name, &text)?);
        }
    }
    if documents.is_empty() && !files.is_empty() {
        return Err(Failure::refused("nothing to apply", "the files hold no object", "name a manifest with -f"));
    }
    Ok(documents)
}

fn texts(file: &Path) -> Outcome<Vec<(String, String)>> {
    let unreadable = |path: &Path, error: std::io::Error| {
        Failure::refused(
            format!("cannot read {}", path.display()),
            error,
            "name a readable file, a folder or - with -f",
        )
    };
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(|error| unreadable(file, error))?;
        return Ok(vec![("standard input".into(), text)]);
    }
    let mut paths = vec![file.to_owned()];
    if file.is_dir() {
        let entries = std::fs::read_dir(file).map_err(|error| unreadable(file, error))?;
        paths =
            entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).filter(|path| is_manifest(path)).collect();
        paths.sort();
    }
    paths
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?;
            Ok((path.display().to_string(), text))
        })
        .collect()
}

fn is_manifest(path: &Path) -> bool {
    path.extension().and_then(|extension| extension.to_str()).is_some_and(|e| matches!(e, "yaml" | "yml" | "json"))
}

fn parse(name: &str, text: &str) -> Outcome<Vec<Document>> {
    let values: Vec<serde_json::Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        Failure::refused(format!("{name} is not YAML"), error.to_string(), "correct the file; nothing was applied")
    })?;
    let mut documents = Vec::new();
    for (index, value) in values.into_iter().filter(|value| !value.is_null()).enumerate() {
        let origin = if index == 0 { name.to_owned() } else { format!("{name}#{}", index + 1) };
        if value["kind"].as_str() == Some("List") {
            let items = value["items"].as_array().cloned().unwrap_or_default();
            for item in items {
                documents.push(object(&origin, item)?);
            }
        } else {
            documents.push(object(&origin, value)?);
        }
    }
    Ok(documents)
}

fn object(origin: &str, value: serde_json::Value) -> Outcome<Document> {
    let refuse = |why: &str| {
        Failure::refused(format!("{origin} is not a manifest"), why, "correct the file; nothing was applied")
    };
    for field in ["apiVersion", "kind"] {
        if value[field].as_str().unwrap_or_default().is_empty() {
            return Err(refuse(&format!("{field} is missing")));
        }
    }
    let object: DynamicObject = serde_json::from_value(value).map_err(|error| refuse(&error.to_string()))?;
    if object.metadata.name.as_deref().unwrap_or_default().is_empty() {
        return Err(refuse("metadata.name is missing"));
    }
    Ok(Document { origin: origin.to_owned(), object })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_is_read_and_empty_ones_are_passed_over() {
        let text = "---\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n\
                    apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Secret, metadata: {name: b}}]\n";
        let names: Vec<_> = parse("f", text).unwrap().into_iter().map(|d| d.object.metadata.name.unwrap()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn what_is_no_manifest_is_refused_with_the_field_that_is_missing() {
        for (text, why) in
            [("kind: Pod", "apiVersion is missing"), ("apiVersion: v1\nkind: Pod", "metadata.name is missing")]
        {
            assert_eq!(parse("f", text).unwrap_err().why, why);
        }
        assert!(parse("f", "a: [").is_err());
    }
}
