//! The control file, read without knowing its version (PostgreSQL's `catalog/pg_control.h`).

use crc32c::crc32c;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Longest that the file has ever been and ever may be (`PG_CONTROL_MAX_SAFE_SIZE`): one sector.
const LONGEST: usize = 512;

/// PostgreSQL's system identifier: the first eight bytes.
///
/// # Errors
/// When the file cannot be read, or is none: its last field is the checksum of all before it, and where that lies
/// differs between versions, so that any place where it fits is taken.
pub(super) fn system_id(pgdata: &Path) -> io::Result<u64> {
    let mut bytes = Vec::new();
    File::open(pgdata.join("global/pg_control"))?.take(LONGEST as u64).read_to_end(&mut bytes)?;
    let id = bytes.first_chunk().map(|id| u64::from_le_bytes(*id));
    let fits = (8..bytes.len().saturating_sub(3)).step_by(4).any(|at| {
        let (body, rest) = bytes.split_at(at);
        rest.first_chunk().is_some_and(|sum| u32::from_le_bytes(*sum) == crc32c(body))
    });
    id.filter(|_| fits).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its checksum does not fit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_file_is_known_by_its_checksum_whatever_its_version() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("global"))?;
        let path = folder.path().join("global/pg_control");
        assert!(system_id(folder.path()).is_err());
        let mut bytes = 7_480_000_000_000_000_123_u64.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[3; 280]);
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes.resize(8192, 0);
        std::fs::write(&path, &bytes)?;
        assert_eq!(system_id(folder.path())?, 7_480_000_000_000_000_123);
        for damage in [0, 100, 290] {
            let mut damaged = bytes.clone();
            damaged[damage] ^= 1;
            std::fs::write(&path, &damaged)?;
            assert!(system_id(folder.path()).is_err(), "byte {damage}");
        }
        std::fs::write(&path, &bytes[..100])?;
        assert!(system_id(folder.path()).is_err(), "truncated");
        Ok(())
    }
}
