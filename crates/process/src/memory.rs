//! Giving back memory that a long-lived process does not need for what it does all day.

use crate::sys;
use std::ops::Range;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(30);

/// Calls [`give_back`] twice a minute, for as long as it is polled.
pub async fn give_back_regularly() {
    loop {
        tokio::time::sleep(EVERY).await;
        give_back();
    }
}

/// Takes program code that ran only once, the start above all, out of this process's resident memory, and freed heap with
/// it. Code that is used again is mapped anew from the page cache, a few microseconds a page. Costs about a millisecond;
/// does nothing where `/proc` is not there.
pub fn give_back() {
    sys::trim_heap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for range in maps.lines().filter_map(never_written) {
        // Refused: then it stays resident, which is all there is to lose.
        let _ = sys::forget_pages(range);
    }
}

/// The range of a line of `/proc/self/maps` if it maps code of a file, or the head of one, privately. Read-only data
/// further on is left alone: relocated pages look the same and are not what the file holds.
fn never_written(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_whitespace();
    let (range, access, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let path = fields.nth(2)?;
    let head = access == "r--p" && offset.bytes().all(|digit| digit == b'0');
    if !path.starts_with('/') || !(access == "r-xp" || head) {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_and_heads_of_files_are_given_back() {
        let table = [
            ("1000-3000 r-xp 00001000 fe:00 1 /bin/x", Some(0x1000..0x3000)),
            ("1000-3000 r--p 00000000 fe:00 1 /bin/x", Some(0x1000..0x3000)),
            ("1000-3000 r--p 00005000 fe:00 1 /bin/x", None),
            ("1000-3000 rw-p 00000000 fe:00 1 /bin/x", None),
            ("1000-3000 r-xs 00000000 fe:00 1 /bin/x", None),
            ("1000-3000 r-xp 00000000 00:00 0 [vdso]", None),
            ("1000-3000 r-xp 00000000 00:00 0", None),
        ];
        for (line, expected) in table {
            assert_eq!(never_written(line), expected, "{line}");
        }
    }

    #[test]
    fn a_process_goes_on_after_giving_back() {
        let kept: Vec<u64> = (0..100_000).collect();
        give_back();
        assert_eq!(kept.iter().sum::<u64>(), 4_999_950_000);
    }
}
