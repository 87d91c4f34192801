//! The write-ahead log read from its files: where it ends, on which timeline, where timelines fork.
//!
//! Layout: PostgreSQL's `access/xlog_internal.h` and `access/xlogrecord.h` (the same from version 9.5 to 17).

use super::records::{Last, Records};
use coregent_core::lsn::{Lsn, Timeline};
use coregent_core::position::{Position, Promotion};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub(super) const PAGE: u64 = 8192;
/// All that a history file holds which only stands for a number (see `dummies`): for PostgreSQL a comment.
pub(super) const DUMMY: &str = "# coregent: this timeline was attempted elsewhere\n";

/// The folder `pg_wal`.
#[derive(Debug)]
pub(super) struct Wal {
    folder: PathBuf,
    segment_size: u64,
    segments: BTreeMap<(Timeline, u64), PathBuf>,
    /// Parent and fork of each timeline that has a history file.
    forks: BTreeMap<Timeline, Vec<(Timeline, Lsn)>>,
    dummies: Vec<(Timeline, PathBuf)>,
}

impl Wal {
    /// Lists the folder.
    pub(super) fn open(pgdata: &Path) -> io::Result<Wal> {
        let folder = pgdata.join("pg_wal");
        let mut files = Vec::new();
        let mut forks = BTreeMap::new();
        let mut dummies = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            if let Some(timeline) = name.strip_suffix(".history").and_then(hex32) {
                let text = fs::read_to_string(entry.path())?;
                // One that a loss of power cut short is none of PostgreSQL's, which renames what it has written whole.
                if DUMMY.starts_with(text.trim_end_matches('\0')) {
                    dummies.push((Timeline(timeline), entry.path()));
                } else {
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
        Ok(Wal { folder, segment_size, segments, forks, dummies })
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

    /// Segments that hold nothing and hide those of an older timeline: a receiver made them and was killed before it wrote
    /// to them. A server that looks for a record there gives up («previous recovered WAL file came from timeline»).
    pub(super) fn shadows(&self) -> Vec<PathBuf> {
        let is_valid = |(timeline, number): &(Timeline, u64)| self.has_page(*timeline, number * self.segment_size);
        let hides = |(timeline, number): &(Timeline, u64)| {
            self.segments.keys().any(|other| other.1 == *number && other.0 < *timeline && is_valid(other))
        };
        self.segments.iter().filter(|(key, _)| !is_valid(key) && hides(key)).map(|(_, path)| path.clone()).collect()
    }

    /// The end of valid WAL: of every process that wrote it is gone, this is final (F10).
    ///
    /// A timeline counts only if its log goes beyond its fork; what a receiver has begun to fetch anew from the
    /// start of a segment does not hide what the parent holds.
    pub(super) fn end(&self) -> io::Result<Option<(Timeline, Lsn)>> {
        Ok(self.last_record()?.map(|(timeline, last)| (timeline, Lsn(last.end))))
    }

    /// Where the log ends if it does so within a record, whose beginning was received and whose rest never comes.
    pub(super) fn end_within_record(&self) -> io::Result<Option<(Timeline, Lsn)>> {
        Ok(self.last_record()?.filter(|(_, last)| last.cut).map(|(timeline, last)| (timeline, Lsn(last.end))))
    }

    /// Blanks what lies behind `end` on `timeline`: the beginning of a record that nobody was told of. Only when every
    /// process is gone.
    pub(super) fn blank_behind(&self, timeline: Timeline, end: Lsn) -> io::Result<()> {
        let (last, offset) = (end.0 / self.segment_size, end.0 % self.segment_size);
        for ((_, number), path) in self.segments.range((timeline, last)..=(timeline, u64::MAX)) {
            if *number == last && offset > 0 {
                let mut file = File::options().write(true).open(path)?;
                file.seek(SeekFrom::Start(offset))?;
                io::copy(&mut io::repeat(0).take(self.segment_size - offset), &mut file)?;
                file.sync_all()?;
            } else {
                fs::remove_file(path)?;
            }
        }
        File::open(&self.folder)?.sync_all()
    }

    fn last_record(&self) -> io::Result<Option<(Timeline, Last)>> {
        let mut timelines: Vec<Timeline> = self.segments.keys().map(|(timeline, _)| *timeline).collect();
        timelines.dedup();
        for timeline in timelines.into_iter().rev() {
            let Some(end) = self.end_on(timeline)? else { continue };
            match self.forks.get(&timeline).and_then(|lines| lines.last()) {
                Some((_, fork)) if end.end <= fork.0 => {}
                _ => return Ok(Some((timeline, end))),
            }
        }
        Ok(None)
    }

    /// The timeline that `lsn` lies on in this folder.
    pub(super) fn timeline_at(&self, lsn: Lsn) -> Timeline {
        for (timeline, lines) in self.forks.iter().rev() {
            let beyond = lines.last().is_some_and(|(_, fork)| lsn > *fork);
            if beyond && (self.has_page(*timeline, lsn.0.saturating_sub(1)) || self.is_switched(*timeline, lsn)) {
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

    /// The log of `timeline` goes on to `lsn` although no page is there: it was switched before, and the rest of the
    /// segment is empty.
    fn is_switched(&self, timeline: Timeline, lsn: Lsn) -> bool {
        let number = lsn.0.saturating_sub(1) / self.segment_size;
        self.has_page(timeline, number * self.segment_size)
            && self.end_in(timeline, number).is_ok_and(|end| end.is_some_and(|last| last.end >= lsn.0))
    }

    fn end_on(&self, timeline: Timeline) -> io::Result<Option<Last>> {
        let of_it = self.segments.keys().rev().filter(|(t, _)| *t == timeline).map(|(_, number)| *number);
        let newest = of_it.into_iter().find(|number| self.has_page(timeline, number * self.segment_size));
        newest.map_or(Ok(None), |newest| self.end_in(timeline, newest))
    }

    /// The end of valid log in the segment `newest` of `timeline`.
    fn end_in(&self, timeline: Timeline, newest: u64) -> io::Result<Option<Last>> {
        // Segments are synced one after the other, so only the newest can be incomplete; the one before is read for
        // a record that reaches into it.
        let valid = |number: &u64| self.has_page(timeline, number * self.segment_size);
        let before = newest.checked_sub(1).filter(valid);
        let numbers = [before, Some(newest)].into_iter().flatten();
        let paths = numbers.filter_map(|number| self.segments.get(&(timeline, number)));
        let files = paths.map(File::open).collect::<io::Result<Vec<File>>>()?;
        let start = before.unwrap_or(newest) * self.segment_size;
        Records::new(files, start, self.segment_size).end()
    }

    /// Timelines with a history here, the newest last.
    pub(super) fn histories(&self) -> impl DoubleEndedIterator<Item = Timeline> + '_ {
        self.forks.keys().copied()
    }

    /// History files that say nothing (F9).
    pub(super) fn dummies(&self) -> impl Iterator<Item = (Timeline, &Path)> {
        self.dummies.iter().map(|(timeline, path)| (*timeline, path.as_path()))
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

pub(super) struct PageHeader {
    pub(super) info: u16,
    pub(super) address: u64,
    /// Bytes of a record that goes on here.
    pub(super) rest: u32,
}

fn page_header(file: &File, offset: u64) -> Option<PageHeader> {
    let mut bytes = [0_u8; 24];
    file.read_exact_at(&mut bytes, offset).ok()?;
    parse_page_header(&bytes)
}

pub(super) fn parse_page_header(bytes: &[u8]) -> Option<PageHeader> {
    let magic = u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
    (magic != 0).then_some(())?;
    Some(PageHeader {
        info: u16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?),
        address: u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?),
        rest: u32::from_le_bytes(bytes.get(16..20)?.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::super::records::{LONG_HEADER, RECORD_HEADER, SWITCH};
    use super::*;
    use coregent_core::names::Epoch;
    use crc32c::{crc32c, crc32c_append};

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

    const SEGMENT: u64 = 1 << 20;

    /// A segment of a log under construction.
    struct Segment {
        bytes: Vec<u8>,
        start: u64,
        previous: u64,
    }

    impl Segment {
        fn new(number: u64, pages: u64) -> Segment {
            let start = number * SEGMENT;
            let mut segment =
                Segment { bytes: vec![0; usize::try_from(SEGMENT).unwrap_or(0)], start, previous: start - 64 };
            for page in 0..pages {
                segment.put(page * PAGE, &0xD110_u16.to_le_bytes());
                segment.put(page * PAGE + 8, &(start + page * PAGE).to_le_bytes());
            }
            segment
        }

        fn put(&mut self, offset: u64, bytes: &[u8]) {
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        }

        /// Writes a record of zeros at `offset`; of a length that it may not have.
        fn record(&mut self, offset: u64, kind: (u8, u8), length: u32) {
            let mut header = [0_u8; RECORD_HEADER];
            header[..4].copy_from_slice(&length.to_le_bytes());
            header[8..16].copy_from_slice(&self.previous.to_le_bytes());
            (header[17], header[16]) = kind;
            let body = vec![0; (length as usize).saturating_sub(RECORD_HEADER)];
            let sum = crc32c_append(crc32c(&body), &header[..20]);
            header[20..24].copy_from_slice(&sum.to_le_bytes());
            self.put(offset, &header);
            self.previous = self.start + offset;
        }
    }

    const NOOP: (u8, u8) = (0, 0x20);

    fn log(segments: &[(&str, &Segment)], histories: &[(&str, &str)]) -> io::Result<(tempfile::TempDir, Wal)> {
        let pgdata = tempfile::tempdir()?;
        let folder = pgdata.path().join("pg_wal");
        fs::create_dir(&folder)?;
        for (name, segment) in segments {
            fs::write(folder.join(name), &segment.bytes)?;
        }
        for (name, text) in histories {
            fs::write(folder.join(name), text)?;
        }
        let wal = Wal::open(pgdata.path())?;
        Ok((pgdata, wal))
    }

    #[test]
    fn the_log_ends_before_a_record_that_was_received_in_part() -> io::Result<()> {
        let mut segment = Segment::new(3, 2);
        segment.record(LONG_HEADER, NOOP, 24);
        // Begins on the first page and goes on for longer than what came.
        segment.record(PAGE - 24, NOOP, 100_000);
        let (_folder, wal) = log(&[("000000010000000000000003", &segment)], &[])?;
        let (timeline, lsn) = (Timeline(1), Lsn(3 * SEGMENT + LONG_HEADER + 24));
        let end = Some((timeline, lsn));
        assert_eq!((wal.end()?, wal.end_within_record()?), (end, None), "the second does not follow the first");

        let mut segment = Segment::new(3, 1);
        segment.record(LONG_HEADER, NOOP, 24);
        segment.record(LONG_HEADER + 24, NOOP, 100_000);
        let next = Segment::new(4, 1);
        let segments = [("000000010000000000000003", &segment), ("000000010000000000000004", &next)];
        let (folder, wal) = log(&segments, &[])?;
        assert_eq!((wal.end()?, wal.end_within_record()?), (end, end));
        wal.blank_behind(timeline, lsn)?;
        let wal = Wal::open(folder.path())?;
        assert_eq!((wal.end()?, wal.end_within_record()?), (end, None));
        assert_eq!(wal.segments.len(), 1, "the segment into which the record reached is gone");
        Ok(())
    }

    #[test]
    fn the_end_is_found_behind_a_whole_segment_of_records() -> io::Result<()> {
        let pages = SEGMENT / PAGE;
        let mut full = Segment::new(3, pages);
        let mut newest = Segment::new(4, pages);
        let whole_page = |segment: &mut Segment, page: u64| {
            let header = if page == 0 { LONG_HEADER } else { 24 };
            segment.record(page * PAGE + header, NOOP, u32::try_from(PAGE - header).unwrap_or(0));
        };
        (0..pages).for_each(|page| whole_page(&mut full, page));
        newest.previous = full.previous;
        (0..pages - 3).for_each(|page| whole_page(&mut newest, page));
        let segments = [("000000010000000000000003", &full), ("000000010000000000000004", &newest)];
        let (_folder, wal) = log(&segments, &[])?;
        assert_eq!(wal.end()?, Some((Timeline(1), Lsn(4 * SEGMENT + (pages - 3) * PAGE))));
        Ok(())
    }

    #[test]
    fn a_segment_that_was_switched_on_a_new_timeline_belongs_to_that_timeline_to_its_end() -> io::Result<()> {
        let parent = Segment::new(3, 4);
        let mut child = Segment::new(3, 1);
        child.record(LONG_HEADER, NOOP, 24);
        child.record(LONG_HEADER + 24, SWITCH, 24);
        let fork = format!("1\t0/{:X}\tx\n", 3 * SEGMENT + LONG_HEADER);
        let segments = [("000000010000000000000003", &parent), ("000000020000000000000003", &child)];
        let (_folder, wal) = log(&segments, &[("00000002.history", &fork)])?;
        let end = Lsn(4 * SEGMENT);
        assert_eq!(wal.end()?, Some((Timeline(2), end)));
        assert_eq!(wal.timeline_at(end), Timeline(2));
        assert_eq!(wal.timeline_at(Lsn(3 * SEGMENT + LONG_HEADER)), Timeline(1), "the fork itself");

        // A receiver that has begun to fetch the child's segment anew does not hide that the parent's log diverged.
        let begun = Segment::new(3, 1);
        let segments = [("000000010000000000000003", &parent), ("000000020000000000000003", &begun)];
        let (_folder, wal) = log(&segments, &[("00000002.history", &fork)])?;
        assert_eq!(wal.timeline_at(Lsn(3 * SEGMENT + 2 * PAGE)), Timeline(1));
        Ok(())
    }

    #[test]
    fn an_empty_segment_hides_one_of_an_older_timeline_only_where_there_is_one() -> io::Result<()> {
        let (written, empty) = (Segment::new(3, 1), Segment::new(3, 0));
        let next = Segment::new(4, 1);
        let segments = [
            ("000000010000000000000003", &written),
            ("000000020000000000000003", &empty),
            ("000000020000000000000004", &next),
            ("000000020000000000000005", &empty),
        ];
        let (_folder, wal) = log(&segments, &[])?;
        let names = |paths: Vec<PathBuf>| -> Vec<String> {
            paths.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect()
        };
        assert_eq!(names(wal.shadows()), ["000000020000000000000003"]);
        Ok(())
    }
}
