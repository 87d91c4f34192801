//! The string formats that the API server of Kubernetes checks (`k8s.io/kube-openapi/pkg/validation/strfmt`). A format
//! that is not among them is not checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine as _;

/// Whether `text` has the format. Unknown formats hold for everything.
pub fn holds(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok() && text.contains(['T', 't']),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => is_duration(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => is_uuid(text),
        "hostname" => is_hostname(text),
        "email" => text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && is_hostname(host)),
        "uri" => text.split_once(':').is_some_and(|(scheme, rest)| is_scheme(scheme) && !rest.contains(' ')),
        _ => true,
    }
}

/// The bounds of an integer format.
pub fn integer_bounds(format: &str) -> Option<(f64, f64)> {
    match format {
        "int32" => Some((f64::from(i32::MIN), f64::from(i32::MAX))),
        "uint32" => Some((0.0, f64::from(u32::MAX))),
        _ => None,
    }
}

/// Go's durations: `1h30m`, `-2.5s`, `0`; and a plain number of nanoseconds is not one.
pub fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        if rest[..number].parse::<f64>().is_err() {
            return false;
        }
        rest = &rest[number..];
        let units = ["ns", "us", "µs", "ms", "h", "m", "s"];
        let Some(after) = units.iter().find_map(|unit| rest.strip_prefix(unit)) else { return false };
        rest = after;
    }
    true
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let longest = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length <= longest)
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    matches!(parts.len(), 6 | 8) && parts.iter().all(|part| part.len() == 2 && u8::from_str_radix(part, 16).is_ok())
}

fn is_uuid(text: &str) -> bool {
    let hex: String = text.split('-').collect();
    hex.len() == 32 && hex.chars().all(|c| c.is_ascii_hexdigit())
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_hold_for_good_values_only() {
        let rows = [
            ("date-time", "2026-01-02T03:04:05Z", "2026-01-02"),
            ("date-time", "2026-01-02T03:04:05.123456+02:00", "yesterday"),
            ("date", "2026-01-02", "2026-13-02"),
            ("duration", "1h30m", "1 hour"),
            ("duration", "-2.5s", "5"),
            ("byte", "aGVsbG8=", "hello!"),
            ("ipv4", "127.0.0.1", "127.0.0.256"),
            ("ipv6", "::1", "127.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "01:23:45:67:89:ab", "01:23:45"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
            ("hostname", "a.b-c", "-a"),
            ("uri", "http://x/y", "x"),
        ];
        for (format, good, bad) in rows {
            assert!(holds(format, good), "{format}: {good}");
            assert!(!holds(format, bad), "{format}: {bad}");
        }
        assert!(holds("something-else", "anything"));
    }
}
