//! PostgreSQL's log sequence numbers and timelines.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A position in the write-ahead log: bytes since the beginning of the cluster, printed as PostgreSQL prints it
/// (`16/B374D848`; manual, section 8.20 `pg_lsn`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

/// A timeline of PostgreSQL (manual, section 26.3.5). A number alone never proves a common history (failover.md F9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timeline(pub u32);

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

/// A text that is not an LSN.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a log sequence number such as 16/B374D848")]
pub struct InvalidLsn(pub String);

impl FromStr for Lsn {
    type Err = InvalidLsn;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let half = |part: &str| {
            let digits = part.len() <= 8 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            digits.then(|| u32::from_str_radix(part, 16).ok()).flatten().map(u64::from)
        };
        text.split_once('/')
            .and_then(|(high, low)| Some(Lsn(half(high)? << 32 | half(low)?)))
            .ok_or_else(|| InvalidLsn(text.to_owned()))
    }
}

impl Serialize for Lsn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lsn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lsn_reads_back_what_it_prints(value: u64) {
            prop_assert_eq!(Lsn(value).to_string().parse(), Ok(Lsn(value)));
        }
    }

    #[test]
    fn lsn_refuses_what_postgresql_refuses() {
        for wrong in ["", "/", "0", "0/", "/0", "G/0", "123456789/0", "0/0/0", "+1/0", "0/+1"] {
            assert!(wrong.parse::<Lsn>().is_err(), "{wrong:?}");
        }
    }
}
