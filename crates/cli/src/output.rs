//! How objects and rows are printed.

use serde_json::Value;

/// What `-o` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Rows, the columns that matter
    Table,
    /// Rows, every column
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// kind/name
    Name,
}

impl Format {
    /// It prints rows.
    pub fn is_table(self) -> bool {
        matches!(self, Format::Table | Format::Wide)
    }
}

/// Aligned columns, two blanks apart, no rules: what kubectl's users expect and `awk` can cut.
pub fn columns(header: &[String], rows: &[Vec<String>]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    if !header.is_empty() {
        table.set_header(header.iter().cloned());
    }
    table.add_rows(rows.iter().cloned());
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// Prints a meta.k8s.io Table; empty when it has no rows.
pub fn table(table: &Value, wide: bool, namespaces: bool, prefix: Option<&str>) -> String {
    let (header, rows) = cells(table, wide, namespaces, prefix);
    if rows.is_empty() { String::new() } else { columns(&header, &rows) }
}

/// The header and rows of a meta.k8s.io Table.
pub fn cells(table: &Value, wide: bool, namespaces: bool, prefix: Option<&str>) -> (Vec<String>, Vec<Vec<String>>) {
    let definitions = table["columnDefinitions"].as_array().cloned().unwrap_or_default();
    let shown: Vec<usize> = (0..definitions.len())
        .filter(|&index| wide || definitions[index]["priority"].as_i64().unwrap_or(0) == 0)
        .collect();
    let mut header: Vec<String> = if namespaces { vec!["NAMESPACE".into()] } else { Vec::new() };
    header.extend(shown.iter().map(|&index| definitions[index]["name"].as_str().unwrap_or_default().to_uppercase()));
    let rows = table["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows = rows.iter().map(|row| {
        let mut cells = Vec::new();
        if namespaces {
            cells.push(row["object"]["metadata"]["namespace"].as_str().unwrap_or_default().to_owned());
        }
        for (position, &index) in shown.iter().enumerate() {
            let cell = text(&row["cells"][index]);
            cells.push(match prefix {
                Some(prefix) if position == 0 => format!("{prefix}/{cell}"),
                _ => cell,
            });
        }
        cells
    });
    (header, rows.collect())
}

fn text(cell: &Value) -> String {
    match cell {
        Value::Null => "<none>".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Prints an object or a list as JSON, YAML or names.
pub fn objects(value: &Value, format: Format, kind: &str) -> String {
    match format {
        Format::Yaml => serde_saphyr::to_string(value).unwrap_or_default(),
        Format::Name => {
            let one = std::slice::from_ref(value);
            let items = value["items"].as_array().map_or(one, Vec::as_slice);
            items
                .iter()
                .map(|item| format!("{kind}/{}\n", item["metadata"]["name"].as_str().unwrap_or_default()))
                .collect()
        }
        _ => serde_json::to_string_pretty(value).map(|text| text + "\n").unwrap_or_default(),
    }
}

/// Percent-encodes a query value (RFC 3986, everything but unreserved characters).
pub fn percent_encode(value: &str) -> String {
    let mut encoded = String::new();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// How long ago, as kubectl prints it: the two largest units at most.
pub fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=599 if seconds % 60 != 0 => format!("{}m{}s", seconds / 60, seconds % 60),
        120..=10_799 => format!("{}m", seconds / 60),
        10_800..=28_799 if seconds / 60 % 60 != 0 => format!("{}h{}m", seconds / 3600, seconds / 60 % 60),
        10_800..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_prints_them() {
        let table = [
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (3600, "60m"),
            (10_800, "3h"),
            (11_400, "3h10m"),
            (172_800, "2d"),
            (-4, "0s"),
        ];
        for (seconds, expected) in table {
            assert_eq!(age(seconds), expected);
        }
    }

    #[test]
    fn rows_are_aligned_and_wide_columns_hidden_unless_asked_for() {
        let value = serde_json::json!({
            "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Node", "priority": 1}],
            "rows": [{"cells": ["orders-1-0", "n1"]}, {"cells": ["b", null]}],
        });
        assert_eq!(table(&value, false, false, None), "NAME\norders-1-0\nb\n");
        assert_eq!(
            table(&value, true, false, Some("pod")),
            "NAME            NODE\npod/orders-1-0  n1\npod/b           <none>\n"
        );
    }
}
