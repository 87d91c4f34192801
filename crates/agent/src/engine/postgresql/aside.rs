//! Data folders that were set aside: `<pgdata>.diverged-<epoch>.<number>`, in the order in which they were (F12).

use coregent_core::names::Epoch;
use std::io;
use std::path::{Path, PathBuf};

/// Every folder that was set aside beside `pgdata`, oldest first. The order is in the names: a clock may be set back.
pub(super) fn all(pgdata: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(parent), Some(name)) = (pgdata.parent(), pgdata.file_name().and_then(|name| name.to_str())) else {
        return Ok(Vec::new());
    };
    let prefix = format!("{name}.diverged-");
    let mut found: Vec<((u64, u64), PathBuf)> = std::fs::read_dir(parent)?
        .flatten()
        .filter_map(|entry| Some((order(entry.file_name().to_str()?.strip_prefix(&prefix)?)?, entry.path())))
        .collect();
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// `<epoch>` or `<epoch>.<number>`.
fn order(suffix: &str) -> Option<(u64, u64)> {
    let (epoch, number) = suffix.split_once('.').unwrap_or((suffix, "1"));
    Some((epoch.parse().ok()?, number.parse().ok()?))
}

/// Where `pgdata` goes when it is set aside in `epoch`: behind everything that was before, whatever of that is left.
pub(super) fn next(pgdata: &Path, epoch: Epoch) -> io::Result<PathBuf> {
    let all = all(pgdata)?;
    let newest = all.last().and_then(|path| order(path.to_str()?.rsplit_once(".diverged-")?.1));
    let number = match newest {
        Some((last, number)) if last >= epoch.0 => (last, number + 1),
        _ => (epoch.0, 1),
    };
    Ok(pgdata.with_extension(match number {
        (epoch, 1) => format!("diverged-{epoch}"),
        (epoch, number) => format!("diverged-{epoch}.{number}"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_known_by_its_name_when_older_ones_are_gone() -> io::Result<()> {
        let volume = tempfile::tempdir()?;
        let pgdata = volume.path().join("pgdata");
        let name = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let set_aside = |epoch| -> io::Result<String> {
            let path = next(&pgdata, Epoch(epoch))?;
            std::fs::create_dir(&path)?;
            Ok(name(path))
        };
        assert_eq!(set_aside(9)?, "pgdata.diverged-9");
        assert_eq!(set_aside(9)?, "pgdata.diverged-9.2");
        std::fs::remove_dir(volume.path().join("pgdata.diverged-9"))?;
        assert_eq!(set_aside(9)?, "pgdata.diverged-9.3");
        assert_eq!(set_aside(10)?, "pgdata.diverged-10");
        let all: Vec<String> = all(&pgdata)?.into_iter().map(name).collect();
        assert_eq!(all, ["pgdata.diverged-9.2", "pgdata.diverged-9.3", "pgdata.diverged-10"]);
        Ok(())
    }
}
