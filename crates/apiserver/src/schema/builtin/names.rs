//! The syntax of names, label keys and values, with the texts of `k8s.io/apimachinery/pkg/util/validation`.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// What is wrong with a text, nothing if it is right.
pub type Faults = Vec<String>;

fn at_most(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} characters"))
}

fn lower_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

/// A DNS subdomain: most names.
pub fn subdomain(text: &str) -> Faults {
    let shape = (!text.split('.').all(lower_label)).then(|| SUBDOMAIN.to_owned());
    at_most(text, 253).into_iter().chain(shape).collect()
}

/// A DNS label: namespaces, containers, volumes.
pub fn label(text: &str) -> Faults {
    let shape = (!lower_label(text)).then(|| LABEL.to_owned());
    at_most(text, 63).into_iter().chain(shape).collect()
}

/// A DNS label that starts with a letter: Services.
pub fn label_1035(text: &str) -> Faults {
    let right = lower_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase());
    let shape = (!right).then(|| LABEL_1035.to_owned());
    at_most(text, 63).into_iter().chain(shape).collect()
}

/// A name that only has to be one segment of a path: roles and their bindings.
pub fn path_segment(text: &str) -> Faults {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"].into_iter().filter(|part| text.contains(part)).map(|part| format!("may not contain '{part}'")).collect()
}

fn word(text: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || b"-_.".contains(byte))
}

/// `name` or `prefix/name`: label keys, annotation keys, finalizers.
pub fn qualified(text: &str) -> Faults {
    let mut faults = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults.extend(subdomain(prefix).into_iter().map(|fault| format!("prefix part {fault}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                QUALIFIED.trim_start_matches("name part ")
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push("name part must be no more than 63 characters".to_owned());
    }
    if !word(name) {
        faults.push(QUALIFIED.to_owned());
    }
    faults
}

/// The value of a label.
pub fn label_value(text: &str) -> Faults {
    let shape = (!text.is_empty() && !word(text)).then(|| LABEL_VALUE.to_owned());
    at_most(text, 63).into_iter().chain(shape).collect()
}

/// A key of a ConfigMap or Secret.
pub fn config_key(text: &str) -> Faults {
    let mut faults: Faults = at_most(text, 253).into_iter().collect();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
        faults.push(CONFIG_KEY.to_owned());
    }
    if text == "." || text.starts_with("..") {
        faults.push(format!(
            "must not {}",
            if text == "." || text == ".." { "be '.' or '..'" } else { "start with '..'" }
        ));
    }
    faults
}

/// The name of a port.
pub fn port_name(text: &str) -> Faults {
    let mut faults = Vec::new();
    if text.len() > 15 {
        faults.push("must be no more than 15 characters".to_owned());
    }
    if !text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') || text.is_empty() {
        faults.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        faults.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        faults.push("must not begin or end with a hyphen".to_owned());
    }
    faults
}

/// A port number.
pub fn port_number(port: i64) -> Faults {
    if (1..=65535).contains(&port) { Vec::new() } else { vec!["must be between 1 and 65535, inclusive".to_owned()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_of_names() {
        let long = "a".repeat(64);
        type Row<'a> = (fn(&str) -> Faults, &'a str, &'a str);
        let rows: &[Row<'_>] = &[
            (subdomain, "a.b-c.9", "A"),
            (subdomain, "a", "a..b"),
            (subdomain, "a", "-a"),
            (subdomain, "a", ""),
            (label, "9-a", "a.b"),
            (label, "a", &long),
            (label_1035, "a9", "9a"),
            (path_segment, "system:node", "a/b"),
            (qualified, "app", "a/b/c"),
            (qualified, "a.b/C_d.e", "/x"),
            (qualified, "a", "A.B/x"),
            (label_value, "", "-a"),
            (label_value, "A_b.c", "a b"),
            (config_key, "a.b_C", "a/b"),
            (config_key, "a", ".."),
            (port_name, "http", "80"),
            (port_name, "a-1", "a--b"),
        ];
        for (rule, good, bad) in rows {
            assert_eq!(rule(good), Faults::new(), "{good}");
            assert!(!rule(bad).is_empty(), "{bad}");
        }
    }
}
