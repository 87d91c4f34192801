//! Walks the records of the write-ahead log through consecutive segment files.
//!
//! The files are read in pieces: an agent that holds whole segments in memory, even once, is several times its size from
//! then on, since the allocator keeps what it once got.

use super::wal::{PAGE, PageHeader, parse_page_header};
use crc32c::{crc32c, crc32c_append};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const SHORT_HEADER: u64 = 24;
pub(super) const LONG_HEADER: u64 = 40;
pub(super) const RECORD_HEADER: usize = 24;
/// Page flag: the page begins with the rest of a record.
const CONTINUES: u16 = 1;
/// Page flag: what the page before began was given up; a new record begins here.
const OVERWRITES: u16 = 8;
/// `XLOG_SWITCH` of the resource manager 0: the rest of the segment is empty.
pub(super) const SWITCH: (u8, u8) = (0, 0x40);
/// How much of a segment is in memory, in bytes: whole pages.
const PIECE: u64 = 16 * PAGE;

/// Reads records one after the other.
pub(super) struct Records {
    files: Vec<File>,
    /// Address of the first byte of the first file.
    start: u64,
    segment_size: u64,
    piece: Vec<u8>,
    /// Address of the piece in memory.
    piece_start: u64,
    /// The record that is being read.
    record: Vec<u8>,
}

/// The last valid record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Last {
    /// Where it ends.
    pub(super) end: u64,
    /// The beginning of another one follows.
    pub(super) cut: bool,
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
    /// The record begins here, and the page on which it goes on is not there.
    Cut,
    Invalid,
}

impl Records {
    /// Over consecutive segments, the first of which begins at `start`.
    pub(super) fn new(files: Vec<File>, start: u64, segment_size: u64) -> Records {
        Records { files, start, segment_size, piece: Vec::new(), piece_start: start, record: Vec::new() }
    }

    /// The end of the last valid record; `None` when not even one begins here.
    pub(super) fn end(&mut self) -> io::Result<Option<Last>> {
        let Some(mut at) = self.first_record()? else { return Ok(None) };
        let mut end = None;
        let mut previous = None;
        loop {
            match self.record(at, previous)? {
                Step::Record { end: next } => {
                    previous = Some(at);
                    end = Some(next);
                    at = self.skip_header(next);
                }
                Step::Overwritten { page } => {
                    previous = None;
                    at = self.skip_header(page);
                }
                Step::Cut => return Ok(end.map(|end| Last { end, cut: true })),
                Step::Invalid => return Ok(end.map(|end| Last { end, cut: false })),
            }
        }
    }

    fn page(&mut self, address: u64) -> io::Result<Option<PageHeader>> {
        let header = self.bytes(address, 24)?.and_then(parse_page_header);
        Ok(header.filter(|header| header.address == address))
    }

    fn header_size(&self, page: u64) -> u64 {
        if page.is_multiple_of(self.segment_size) { LONG_HEADER } else { SHORT_HEADER }
    }

    fn skip_header(&self, at: u64) -> u64 {
        if at.is_multiple_of(PAGE) { at + self.header_size(at) } else { at }
    }

    /// Where the first record begins that does not begin before.
    fn first_record(&mut self) -> io::Result<Option<u64>> {
        let mut page = self.start;
        while let Some(header) = self.page(page)? {
            let body = page + self.header_size(page);
            if header.info & CONTINUES == 0 {
                return Ok(Some(body));
            }
            let end = body + align(u64::from(header.rest));
            if end < page + PAGE {
                return Ok(Some(end));
            }
            page += PAGE;
        }
        Ok(None)
    }

    fn record(&mut self, at: u64, previous: Option<u64>) -> io::Result<Step> {
        let mut page = at - at % PAGE;
        if self.page(page)?.is_none() {
            return Ok(Step::Invalid);
        }
        let length = self.bytes(at, 4)?.and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        let length = length.map_or(0, |length| length as usize);
        if !(RECORD_HEADER..1 << 30).contains(&length) {
            return Ok(Step::Invalid);
        }
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        let mut from = at;
        let step = loop {
            let room = usize::try_from(page + PAGE - from).unwrap_or(0);
            let take = room.min(length - record.len());
            let Some(bytes) = self.bytes(from, take)? else { break Step::Invalid };
            record.extend_from_slice(bytes);
            if record.len() == length {
                break self.checked(&record, at, previous, align(from + take as u64));
            }
            page += PAGE;
            let Some(header) = self.page(page)? else {
                // As the server does: what has no whole header yet counts as begun.
                let begun = record.len() < RECORD_HEADER || is_linked(&record, at, previous);
                break if begun { Step::Cut } else { Step::Invalid };
            };
            if header.info & OVERWRITES != 0 {
                break Step::Overwritten { page };
            }
            if header.info & CONTINUES == 0 || header.rest as usize != length - record.len() {
                break Step::Invalid;
            }
            from = page + self.header_size(page);
        };
        self.record = record;
        Ok(step)
    }

    fn checked(&self, record: &[u8], at: u64, previous: Option<u64>, end: u64) -> Step {
        let Some((header, body)) = record.split_at_checked(RECORD_HEADER) else { return Step::Invalid };
        let stored = header.get(20..24).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        let linked = is_linked(header, at, previous);
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

    /// `count` bytes at the address `at`, which lie in one page; `None` where the files end.
    fn bytes(&mut self, at: u64, count: usize) -> io::Result<Option<&[u8]>> {
        let within = |piece: &[u8], start: u64| {
            let offset = usize::try_from(at.checked_sub(start)?).ok()?;
            piece.get(offset..offset.checked_add(count)?).map(|_| offset)
        };
        let mut offset = within(&self.piece, self.piece_start);
        if offset.is_none() {
            let Some(into) = at.checked_sub(self.start) else { return Ok(None) };
            self.load(into - into % PIECE.min(self.segment_size))?;
            offset = within(&self.piece, self.piece_start);
        }
        Ok(offset.and_then(|offset| self.piece.get(offset..offset + count)))
    }

    /// Takes the piece into memory that begins `into` bytes behind the start, as far as its file goes.
    fn load(&mut self, into: u64) -> io::Result<()> {
        self.piece.clear();
        self.piece_start = self.start + into;
        let number = usize::try_from(into / self.segment_size).unwrap_or(usize::MAX);
        let Some(file) = self.files.get(number) else { return Ok(()) };
        let offset = into % self.segment_size;
        let mut piece = std::mem::take(&mut self.piece);
        piece.resize(usize::try_from(PIECE.min(self.segment_size - offset)).unwrap_or(0), 0);
        let mut filled = 0;
        while let Some(room) = piece.get_mut(filled..).filter(|room| !room.is_empty()) {
            match file.read_at(room, offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        piece.truncate(filled);
        self.piece = piece;
        Ok(())
    }
}

fn align(value: u64) -> u64 {
    value.div_ceil(8) * 8
}

/// Whether a record says that it follows the one before.
fn is_linked(record: &[u8], at: u64, previous: Option<u64>) -> bool {
    let link = record.get(8..16).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    link.is_some_and(|link| previous.map_or(link < at, |previous| link == previous))
}
