//! Quantities of resources: `100m`, `1.5Gi`, `2e3`.

/// What the API server says of a text that is not a quantity.
pub const FAULT: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// The value of a quantity, rounded to a float: good enough to compare two of them.
pub fn parse(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        exponent => 10f64.powi(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    Some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read() {
        let rows =
            [("1", 1.0), ("100m", 0.1), ("1.5Gi", 1.5 * 1024.0 * 1024.0 * 1024.0), ("2e3", 2000.0), ("-1k", -1000.0)];
        for (text, value) in rows {
            assert_eq!(parse(text), Some(value), "{text}");
        }
        for text in ["", "x", "1 Gi", "1Gib", "e3"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
