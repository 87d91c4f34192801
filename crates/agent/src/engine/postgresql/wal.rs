//! The write-ahead log read from its files: where it ends, on which timeline, where timelines fork.
//!
//! Layout: PostgreSQL's `access/xlog_internal.h` and `access/xlogrecord.h` (the same from version 9.5 to 17).

use coregent_core::lsn::{Lsn, Timeline};
use coregent_core::position::{Position, Promotion};
use crc32c::{crc32c, crc32c_append};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PAGE: u64 = 8192;
const SHORT_HEADER: u64 = 24;
const LONG_HEADER: u64 = 40;
const RECORD_HEADER: usize = 24;
/// Page flag: the page begins with the rest of a record.
const CONTINUES: u16 = 1;
/// Page flag: what the page before began was given up; a new record begins here.
const OVERWRITES: u16 = 8;
/// `XLOG_SWITCH` of the resource manager 0: the rest of the segment is empty.
const SWITCH: (u8, u8) = (0, 0x40);
/// First line of a history file that only keeps PostgreSQL from choosing its number (F9).
pub(super) const DUMMY: &str = "# coregent: this timeline was attempted elsewhere\n";

/// The folder `pg_wal`.
#[derive(Debug)]
pub(super) struct Wal {
    folder: PathBuf,
    segment_size: u64,
    segments: BTreeMap<(Timeline, u64), PathBuf>,
    /// Parent and fork of each timeline that has a history file.
    forks: BTreeMap<Timeline, Vec<(Timeline, Lsn)>>,
}

impl Wal {
    /// Lists the folder.
    pub(super) fn open(pgdata: &Path) -> io::Result<Wal> {
        let folder = pgdata.join("pg_wal");
        let mut files = Vec::new();
        let mut forks = BTreeMap::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            if let Some(timeline) = name.strip_suffix(".history").and_then(hex32) {
                let text = fs::read_to_string(entry.path())?;
                if text != DUMMY {
                    forks.insert(Timeline(timeline), parse_history(&text, Timeline(timeline)));
                }
            } else if name.len() == 24
                && let (Some(timeline), Some(high), Some(low)) =
                    (hex32(&name[..8]), hex32(&name[8..16]), hex32(&name[16..]))
            {
                files.push((Timeline(timeline), high, low, entry.path(), entry.metadata()?.len()));
            }
        }
        let segment_size = files.iter().map(|file| file.4).max().unwrap_or(PAGE).max(PAGE);
        let per_high = 0x1_0000_0000 / segment_size;
        let segments = files
            .into_iter()
            .map(|(timeline, high, low, path, _)| ((timeline, u64::from(high) * per_high + u64::from(low)), path))
            .collect();
        Ok(Wal { folder, segment_size, segments, forks })
    }

    /// Names of the segments of `timeline` that hold what lies between two positions.
    pub(super) fn segments_between(&self, timeline: Timeline, from: Lsn, to: Lsn) -> Vec<String> {
        let per_high = 0x1_0000_0000 / self.segment_size;
        let last = to.0.saturating_sub(1) / self.segment_size;
        let name = |number: u64| format!("{:08X}{:08X}{:08X}", timeline.0, number / per_high, number % per_high);
        (from.0 / self.segment_size..=last).map(name).collect()
    }

    /// Where the segment of that name lies in this folder.
    pub(super) fn segment_path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The end of valid WAL: of every process that wrote it is gone, this is final (F10).
    ///
    /// A timeline counts only if its log goes beyond its fork; what a receiver has begun to fetch anew from the
    /// start of a segment does not hide what the parent holds.
    pub(super) fn end(&self) -> io::Result<Option<(Timeline, Lsn)>> {
        let mut timelines: Vec<Timeline> = self.segments.keys().map(|(timeline, _)| *timeline).collect();
        timelines.dedup();
        for timeline in timelines.into_iter().rev() {
            let Some(end) = self.end_on(timeline)? else { continue };
            match self.forks.get(&timeline).and_then(|lines| lines.last()) {
                Some((_, fork)) if end <= *fork => {}
                _ => return Ok(Some((timeline, end))),
            }
        }
        Ok(None)
    }

    /// The timeline that `lsn` lies on in this folder.
    pub(super) fn timeline_at(&self, lsn: Lsn) -> Timeline {
        for (timeline, lines) in self.forks.iter().rev() {
            let beyond = lines.last().is_some_and(|(_, fork)| lsn > *fork);
            if beyond && self.has_page(*timeline, lsn.0.saturating_sub(1)) {
                return *timeline;
            }
        }
        match self.forks.values().next_back() {
            // On the way to the newest timeline, or diverged from it behind the last fork.
            Some(lines) => {
                lines.iter().find(|(_, fork)| lsn <= *fork).or(lines.last()).map_or(Timeline(1), |(parent, _)| *parent)
            }
            None => self.segments.keys().map(|(timeline, _)| *timeline).min().unwrap_or(Timeline(1)),
        }
    }

    /// A position with the promotions beneath it: of `chain`, those that the data has passed.
    pub(super) fn position(&self, timeline: Timeline, lsn: Lsn, chain: &[Promotion]) -> Position {
        let passed = self.passed(timeline);
        let chain = chain
            .iter()
            .filter_map(|promotion| {
                let fork = passed.get(&promotion.timeline)?;
                Some(Promotion { fork_lsn: Some(*fork), ..promotion.clone() })
            })
            .collect();
        Position { timeline, lsn, chain }
    }

    /// Each timeline on the way to `timeline`, itself included, with its fork. A member that was copied later has only
    /// the newest history file, which names all ancestors.
    fn passed(&self, timeline: Timeline) -> BTreeMap<Timeline, Lsn> {
        let own = self.forks.get(&timeline).map(Vec::as_slice);
        let descendant = || {
            self.forks.values().find_map(|lines| {
                let at = lines.iter().position(|(parent, _)| *parent == timeline)?;
                lines.get(..at)
            })
        };
        let lines = own.or_else(descendant).unwrap_or_default();
        let children = lines.iter().skip(1).map(|(parent, _)| *parent).chain([timeline]);
        children.zip(lines).map(|(child, (_, fork))| (child, *fork)).collect()
    }

    fn has_page(&self, timeline: Timeline, at: u64) -> bool {
        let page = at - at % PAGE;
        self.segments
            .get(&(timeline, at / self.segment_size))
            .and_then(|path| File::open(path).ok())
            .and_then(|file| page_header(&file, page % self.segment_size))
            .is_some_and(|header| header.address == page)
    }

    fn end_on(&self, timeline: Timeline) -> io::Result<Option<Lsn>> {
        let valid = |number: &u64| self.has_page(timeline, number * self.segment_size);
        let numbers: Vec<u64> = self.segments.keys().filter(|(t, _)| *t == timeline).map(|(_, n)| *n).collect();
        let Some(newest) = numbers.iter().rev().find(|number| valid(number)).copied() else { return Ok(None) };
        // Segments are synced one after the other, so only the newest can be incomplete; the one before is read for
        // a record that reaches into it.
        let before = newest.checked_sub(1).filter(|before| numbers.contains(before) && valid(before));
        let mut log = Vec::new();
        let first = before.unwrap_or(newest);
        for number in [before, Some(newest)].into_iter().flatten() {
            if let Some(path) = self.segments.get(&(timeline, number)) {
                log.extend_from_slice(&fs::read(path)?);
            }
        }
        let start = first * self.segment_size;
        Ok(Reader { log: &log, start, segment_size: self.segment_size }.end().map(Lsn))
    }

    /// Path of a history file.
    pub(super) fn history_path(&self, timeline: Timeline) -> PathBuf {
        self.folder.join(format!("{:08X}.history", timeline.0))
    }
}

fn hex32(text: &str) -> Option<u32> {
    (text.len() == 8).then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

/// Lines `<parent> <lsn> <reason>`, oldest first (PostgreSQL's `timeline.c`).
fn parse_history(text: &str, timeline: Timeline) -> Vec<(Timeline, Lsn)> {
    let line = |line: &str| {
        let mut fields = line.split_whitespace();
        let parent = Timeline(fields.next()?.parse().ok()?);
        (parent < timeline).then_some((parent, fields.next()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

struct PageHeader {
    info: u16,
    address: u64,
    rest: u32,
}

fn page_header(file: &File, offset: u64) -> Option<PageHeader> {
    let mut bytes = [0_u8; 24];
    file.read_exact_at(&mut bytes, offset).ok()?;
    parse_page_header(&bytes)
}

fn parse_page_header(bytes: &[u8]) -> Option<PageHeader> {
    let magic = u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
    (magic != 0).then_some(())?;
    Some(PageHeader {
        info: u16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?),
        address: u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?),
        rest: u32::from_le_bytes(bytes.get(16..20)?.try_into().ok()?),
    })
}

fn align(value: u64) -> u64 {
    value.div_ceil(8) * 8
}

/// Walks records through consecutive segments in memory.
struct Reader<'a> {
    log: &'a [u8],
    start: u64,
    segment_size: u64,
}

enum Step {
    /// A valid record that ends here.
    Record {
        end: u64,
    },
    /// The record was given up by a later server: goes on at this page.
    Overwritten {
        page: u64,
    },
    Invalid,
}

impl Reader<'_> {
    /// The end of the last valid record; `None` when not even one begins here.
    fn end(&self) -> Option<u64> {
        let mut at = self.first_record()?;
        let mut end = None;
        let mut previous = None;
        loop {
            match self.record(at, previous) {
                Step::Record { end: next } => {
                    previous = Some(at);
                    end = Some(next);
                    at = self.skip_header(next);
                }
                Step::Overwritten { page } => {
                    previous = None;
                    at = self.skip_header(page);
                }
                Step::Invalid => return end,
            }
        }
    }

    fn page(&self, address: u64) -> Option<PageHeader> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        parse_page_header(self.log.get(offset..offset + 24)?).filter(|header| header.address == address)
    }

    fn header_size(&self, page: u64) -> u64 {
        if page.is_multiple_of(self.segment_size) { LONG_HEADER } else { SHORT_HEADER }
    }

    fn skip_header(&self, at: u64) -> u64 {
        if at.is_multiple_of(PAGE) { at + self.header_size(at) } else { at }
    }

    /// Where the first record begins that does not begin before.
    fn first_record(&self) -> Option<u64> {
        let mut page = self.start;
        loop {
            let header = self.page(page)?;
            let body = page + self.header_size(page);
            if header.info & CONTINUES == 0 {
                return Some(body);
            }
            let end = body + align(u64::from(header.rest));
            if end < page + PAGE {
                return Some(end);
            }
            page += PAGE;
        }
    }

    fn record(&self, at: u64, previous: Option<u64>) -> Step {
        let mut page = at - at % PAGE;
        if self.page(page).is_none() {
            return Step::Invalid;
        }
        let Some(length) = self.bytes(at, 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes) else {
            return Step::Invalid;
        };
        let length = length as usize;
        if !(RECORD_HEADER..1 << 30).contains(&length) {
            return Step::Invalid;
        }
        let mut record = Vec::with_capacity(length.min(self.log.len()));
        let mut from = at;
        loop {
            let room = usize::try_from(page + PAGE - from).unwrap_or(0);
            let take = room.min(length - record.len());
            let Some(bytes) = self.bytes(from, take) else { return Step::Invalid };
            record.extend_from_slice(bytes);
            if record.len() == length {
                let end = align(from + take as u64);
                return self.checked(&record, at, previous, end);
            }
            page += PAGE;
            let Some(header) = self.page(page) else { return Step::Invalid };
            if header.info & OVERWRITES != 0 {
                return Step::Overwritten { page };
            }
            if header.info & CONTINUES == 0 || header.rest as usize != length - record.len() {
                return Step::Invalid;
            }
            from = page + self.header_size(page);
        }
    }

    fn checked(&self, record: &[u8], at: u64, previous: Option<u64>, end: u64) -> Step {
        let Some((header, body)) = record.split_at_checked(RECORD_HEADER) else { return Step::Invalid };
        let link = header.get(8..16).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        let stored = header.get(20..24).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        let linked = link.is_some_and(|link| previous.map_or(link < at, |previous| link == previous));
        let sum = crc32c_append(crc32c(body), header.get(..20).unwrap_or_default());
        if !linked || stored != Some(sum) {
            return Step::Invalid;
        }
        let kind = (header.get(17).copied().unwrap_or(0), header.get(16).copied().unwrap_or(0) & 0xF0);
        if kind == SWITCH {
            return Step::Record { end: end.next_multiple_of(self.segment_size) };
        }
        Step::Record { end }
    }

    fn bytes(&self, at: u64, count: usize) -> Option<&[u8]> {
        let offset = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.log.get(offset..offset.checked_add(count)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coregent_core::names::Epoch;

    #[test]
    fn a_chain_is_cut_to_what_the_data_has_passed() -> io::Result<()> {
        let pgdata = tempfile::tempdir()?;
        let folder = pgdata.path().join("pg_wal");
        fs::create_dir(&folder)?;
        fs::write(folder.join("00000002.history"), "1\t0/3000000\tno recovery target specified\n")?;
        fs::write(folder.join("00000003.history"), "1\t0/3000000\tx\n2\t0/5000000\tx\n")?;
        fs::write(folder.join("00000004.history"), DUMMY)?;
        let wal = Wal::open(pgdata.path())?;
        let promotion = |epoch: u64, timeline: u32| Promotion {
            epoch: Epoch(epoch),
            member: "orders-2".into(),
            timeline: Timeline(timeline),
            fork_lsn: None,
        };
        let chain = [promotion(2, 2), promotion(3, 3), promotion(4, 5)];
        let forks = |timeline: u32| -> Vec<Option<Lsn>> {
            wal.position(Timeline(timeline), Lsn(1), &chain).chain.iter().map(|p| p.fork_lsn).collect()
        };
        assert_eq!(forks(1), []);
        assert_eq!(forks(2), [Some(Lsn(0x300_0000))]);
        assert_eq!(forks(3), [Some(Lsn(0x300_0000)), Some(Lsn(0x500_0000))]);
        // No page of a newer timeline is here: the forks on the way to the newest tell, and beyond the last of them
        // the data has diverged on the parent.
        for (lsn, timeline) in [(0x200_0000, 1), (0x400_0000, 2), (0x600_0000, 2)] {
            assert_eq!(wal.timeline_at(Lsn(lsn)), Timeline(timeline), "{lsn:X}");
        }
        Ok(())
    }
}
