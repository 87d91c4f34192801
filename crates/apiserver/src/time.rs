//! Timestamps as the API writes them, and ages as `kubectl get` shows them.

use jiff::Timestamp;

/// Now, in whole seconds: the form of `metadata.creationTimestamp`.
pub(crate) fn now() -> String {
    format(Timestamp::now())
}

/// A timestamp in whole seconds.
pub(crate) fn format(stamp: Timestamp) -> String {
    stamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The time since `stamp`, in the words of `kubectl get`.
pub(crate) fn age(stamp: &str) -> String {
    match stamp.parse::<Timestamp>() {
        Ok(stamp) => human(Timestamp::now().as_second() - stamp.as_second()),
        Err(_) => "<unknown>".into(),
    }
}

/// The time from one timestamp to another, or to now while the other is missing.
pub(crate) fn between(start: &str, end: &str) -> String {
    let Ok(start) = start.parse::<Timestamp>() else { return String::new() };
    let end = end.parse().unwrap_or_else(|_| Timestamp::now());
    human(end.as_second() - start.as_second())
}

/// Two significant units at most, as Kubernetes' `HumanDuration`.
fn human(seconds: i64) -> String {
    let with = |big: i64, unit: &str, rest: i64, small: &str| match rest {
        0 => format!("{big}{unit}"),
        rest => format!("{big}{unit}{rest}{small}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        i64::MIN..0 => "0s".into(),
        0..120 => format!("{seconds}s"),
        120..600 => with(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => with(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => with(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => with(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        for (seconds, expected) in
            [(-5, "0s"), (7, "7s"), (119, "119s"), (130, "2m10s"), (660, "11m"), (11_000, "3h3m"), (90_000, "25h")]
        {
            assert_eq!(human(seconds), expected);
        }
        assert_eq!(human(3 * 86_400), "3d");
    }
}
