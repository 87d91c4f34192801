//! What containers write, kept in files.
//!
//! `<data_dir>/logs/<namespace>_<pod>_<uid>/<container>/<restart>.log`, a line of a file being
//! `<time> stdout|stderr F|P <text>` as container runtimes write it; `P` marks a part of a longer line.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::{io::AsyncReadExt, net::unix::pipe, sync::watch};

/// Size at which a file is set aside, and how many such files are kept beside the current one.
const ROTATE_AT: u64 = 10 * 1024 * 1024;
const KEPT: usize = 2;
/// A longer line is written in parts.
const LONGEST_LINE: usize = 16 * 1024;
/// Files of so many runs of a container are kept.
const RUNS_KEPT: usize = 5;

/// The folder of a pod's logs.
pub(crate) fn folder(data_dir: &Path, pod: &Pod) -> PathBuf {
    let meta = &pod.metadata;
    let part = |value: &Option<String>| value.clone().unwrap_or_default();
    let name = format!("{}_{}_{}", part(&meta.namespace), part(&meta.name), part(&meta.uid));
    data_dir.join("logs").join(name)
}

/// Which stream a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The log of one run of a container, while it runs.
#[derive(Debug)]
pub(crate) struct RunLog {
    writer: Mutex<Writer>,
    /// Moves with every write; closed for good when both streams have ended.
    progress: watch::Sender<Progress>,
}

/// How far a log has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    writes: u64,
    open: u8,
    /// Both streams have ended; nothing more will be written.
    pub ended: bool,
}

#[derive(Debug)]
struct Writer {
    path: PathBuf,
    file: File,
    size: u64,
}

impl RunLog {
    /// Opens the log of run `restart` and makes room by removing those of the oldest runs.
    pub fn create(folder: &Path, container: &str, restart: i32) -> io::Result<Arc<Self>> {
        let folder = folder.join(container);
        fs::create_dir_all(&folder)?;
        let mut runs = runs(&folder)?;
        while runs.len() >= RUNS_KEPT {
            let (_, oldest) = runs.remove(0);
            (0..=KEPT).for_each(|n| drop(fs::remove_file(numbered(&oldest, n))));
        }
        let path = folder.join(format!("{restart}.log"));
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let size = file.metadata()?.len();
        Ok(Arc::new(Self { writer: Mutex::new(Writer { path, file, size }), progress: watch::Sender::default() }))
    }

    /// Copies what comes out of `output` into the log until it ends.
    pub fn pump(self: &Arc<Self>, stream: Stream, output: OwnedFd) -> io::Result<tokio::task::JoinHandle<()>> {
        let mut output = pipe::Receiver::from_owned_fd(output)?;
        self.progress.send_modify(|p| p.open += 1);
        let log = Arc::clone(self);
        Ok(tokio::spawn(async move {
            let mut lines = Lines::default();
            let mut buffer = vec![0; 32 * 1024];
            while let Ok(n) = output.read(&mut buffer).await {
                if n == 0 {
                    break;
                }
                log.write(stream, lines.push(&buffer[..n]));
            }
            log.write(stream, lines.finish());
            log.progress.send_modify(|p| {
                p.open -= 1;
                p.ended = p.open == 0;
            });
        }))
    }

    fn write(&self, stream: Stream, lines: Vec<(bool, Vec<u8>)>) {
        if lines.is_empty() {
            return;
        }
        let mut text = Vec::new();
        let now = stamp(Timestamp::now());
        for (whole, line) in lines {
            let tag = if whole { 'F' } else { 'P' };
            text.extend_from_slice(format!("{now} {} {tag} ", stream.name()).as_bytes());
            text.extend_from_slice(&line);
            text.push(b'\n');
        }
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk must not stop the program whose output this is: the lines are lost, it goes on.
        if let Err(e) = writer.append(&text) {
            tracing::warn!(path = %writer.path.display(), "log lines lost: {e}");
        }
        drop(writer);
        self.progress.send_modify(|p| p.writes += 1);
    }

    /// Resolves with every write and at the end.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }
}

impl Writer {
    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        if self.size + text.len() as u64 > ROTATE_AT && self.size > 0 {
            for n in (0..KEPT).rev() {
                let _ = fs::rename(numbered(&self.path, n), numbered(&self.path, n + 1));
            }
            self.file = OpenOptions::new().create(true).append(true).open(&self.path)?;
            self.size = 0;
        }
        self.file.write_all(text)?;
        self.size += text.len() as u64;
        Ok(())
    }
}

/// `x.log`, `x.log.1`, `x.log.2`: the current file and the older ones.
fn numbered(path: &Path, n: usize) -> PathBuf {
    if n == 0 { path.to_owned() } else { PathBuf::from(format!("{}.{n}", path.display())) }
}

/// The runs of which there are logs, oldest first.
fn runs(folder: &Path) -> io::Result<Vec<(i32, PathBuf)>> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let number = path.file_name().and_then(|n| n.to_str()?.strip_suffix(".log")?.parse().ok());
        runs.extend(number.map(|n| (n, path)));
    }
    runs.sort();
    Ok(runs)
}

/// The log file of the newest run of a container, or of the one before.
pub(crate) fn file(folder: &Path, container: &str, previous: bool) -> Option<PathBuf> {
    let mut runs = runs(&folder.join(container)).ok()?;
    let newest = runs.pop();
    if previous { runs.pop().map(|(_, path)| path) } else { newest.map(|(_, path)| path) }
}

/// RFC 3339 with nanoseconds of a fixed width, so that lines sort.
fn stamp(t: Timestamp) -> String {
    format!("{t:.9}")
}

/// Splits a stream into lines: `true` for the end of a line, `false` for a part of a long one.
#[derive(Debug, Default)]
struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) -> Vec<(bool, Vec<u8>)> {
        let mut out = Vec::new();
        self.rest.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(found) = self.rest[start..].iter().position(|b| *b == b'\n') {
            cut(&self.rest[start..start + found], true, &mut out);
            start += found + 1;
        }
        self.rest.drain(..start);
        while self.rest.len() >= LONGEST_LINE {
            out.push((false, self.rest.drain(..LONGEST_LINE).collect()));
        }
        out
    }

    fn finish(&mut self) -> Vec<(bool, Vec<u8>)> {
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() { Vec::new() } else { vec![(true, rest)] }
    }
}

fn cut(line: &[u8], whole: bool, out: &mut Vec<(bool, Vec<u8>)>) {
    let mut parts = line.chunks(LONGEST_LINE).peekable();
    if parts.peek().is_none() {
        out.push((whole, Vec::new()));
    }
    while let Some(part) = parts.next() {
        out.push((parts.peek().is_none() && whole, part.to_vec()));
    }
}

/// What a reader of a log wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    pub tail_lines: Option<usize>,
    pub since: Option<Timestamp>,
    pub timestamps: bool,
    pub limit_bytes: Option<usize>,
}

/// Reads a log from its beginning on, across rotated files, and goes on where it stopped.
#[derive(Debug)]
pub(crate) struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    selection: Selection,
    left: usize,
    partial: Vec<u8>,
}

impl Reader {
    /// A reader of `path` and what is there now.
    pub fn open(path: &Path, selection: Selection) -> io::Result<(Self, Vec<u8>)> {
        let left = selection.limit_bytes.unwrap_or(usize::MAX);
        let mut older = Vec::new();
        for n in (1..=KEPT).rev() {
            if let Ok(mut file) = File::open(numbered(path, n)) {
                file.read_to_end(&mut older)?;
            }
        }
        let file = BufReader::new(File::open(path)?);
        let mut reader = Self { path: path.to_owned(), file, selection, left, partial: Vec::new() };
        let mut all: Vec<Vec<u8>> = older.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
        all.extend(reader.raw_lines()?);
        if let Some(since) = reader.selection.since {
            all.retain(|line| time_of(line).is_none_or(|t| t >= since));
        }
        if let Some(n) = reader.selection.tail_lines {
            all.drain(..all.len().saturating_sub(n));
        }
        let text = reader.render(&all);
        Ok((reader, text))
    }

    /// What has been added since the last call.
    pub fn more(&mut self) -> io::Result<Vec<u8>> {
        let mut lines = self.raw_lines()?;
        // Set aside under us: the old file is read to its end above, now comes the new one.
        use std::os::unix::fs::MetadataExt;
        let current = fs::metadata(&self.path)?;
        if current.ino() != self.file.get_ref().metadata()?.ino() {
            lines.extend(self.raw_lines()?);
            self.file = BufReader::new(File::open(&self.path)?);
            lines.extend(self.raw_lines()?);
        }
        Ok(self.render(&lines))
    }

    /// Whether `limit_bytes` is used up.
    pub fn exhausted(&self) -> bool {
        self.left == 0
    }

    fn raw_lines(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut lines = Vec::new();
        loop {
            let n = self.file.read_until(b'\n', &mut self.partial)?;
            if n == 0 || self.partial.last() != Some(&b'\n') {
                return Ok(lines);
            }
            lines.push(std::mem::take(&mut self.partial));
        }
    }

    fn render(&mut self, lines: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            let mut fields = line.splitn(4, |b| *b == b' ');
            let (Some(time), Some(_), Some(tag), Some(text)) =
                (fields.next(), fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if self.selection.timestamps {
                out.extend_from_slice(time);
                out.push(b' ');
            }
            let text = if tag == b"P" { text.strip_suffix(b"\n").unwrap_or(text) } else { text };
            out.extend_from_slice(text);
        }
        out.truncate(self.left);
        self.left -= out.len();
        out
    }
}

fn time_of(line: &[u8]) -> Option<Timestamp> {
    let end = line.iter().position(|b| *b == b' ')?;
    std::str::from_utf8(&line[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> (tempfile::TempDir, PathBuf, Arc<RunLog>) {
        let dir = tempfile::tempdir().unwrap();
        let log = RunLog::create(dir.path(), "c", 0).unwrap();
        for line in lines {
            log.write(Stream::Stdout, vec![(true, line.as_bytes().to_vec())]);
        }
        let path = file(dir.path(), "c", false).unwrap();
        (dir, path, log)
    }

    fn read(path: &Path, selection: Selection) -> String {
        String::from_utf8(Reader::open(path, selection).unwrap().1).unwrap()
    }

    #[test]
    fn lines_are_selected_as_kubectl_logs_asks() {
        let (_dir, path, _log) = log(&["one", "two", "three"]);
        assert_eq!(read(&path, Selection::default()), "one\ntwo\nthree\n");
        assert_eq!(read(&path, Selection { tail_lines: Some(2), ..Selection::default() }), "two\nthree\n");
        assert_eq!(read(&path, Selection { tail_lines: Some(0), ..Selection::default() }), "");
        assert_eq!(read(&path, Selection { limit_bytes: Some(5), ..Selection::default() }), "one\nt");
        let later = Timestamp::now() + jiff::SignedDuration::from_secs(60);
        assert_eq!(read(&path, Selection { since: Some(later), ..Selection::default() }), "");
        let stamped = read(&path, Selection { timestamps: true, tail_lines: Some(1), ..Selection::default() });
        let (time, text) = stamped.split_once(' ').unwrap();
        assert!(time.parse::<Timestamp>().is_ok(), "{time}");
        assert_eq!(text, "three\n");
    }

    #[test]
    fn a_reader_goes_on_across_a_rotation_without_losing_a_line() {
        let (_dir, path, log) = log(&["one"]);
        let (mut reader, first) = Reader::open(&path, Selection::default()).unwrap();
        assert_eq!(first, b"one\n");
        log.write(Stream::Stderr, vec![(true, b"two".to_vec())]);
        log.writer.lock().unwrap().size = ROTATE_AT;
        log.write(Stream::Stdout, vec![(true, b"three".to_vec())]);
        assert_eq!(reader.more().unwrap(), b"two\nthree\n");
        assert_eq!(read(&path, Selection::default()), "one\ntwo\nthree\n");
    }

    #[test]
    fn long_lines_are_cut_and_read_back_whole() {
        let mut lines = Lines::default();
        let long = vec![b'x'; LONGEST_LINE * 2 + 7];
        let mut out = lines.push(&long);
        out.extend(lines.push(b"\nshort\n\nend"));
        out.extend(lines.finish());
        let shape: Vec<(bool, usize)> = out.iter().map(|(whole, l)| (*whole, l.len())).collect();
        let full = LONGEST_LINE;
        assert_eq!(shape, [(false, full), (false, full), (true, 7), (true, 5), (true, 0), (true, 3)]);
    }

    #[test]
    fn only_the_newest_runs_keep_their_logs() {
        let dir = tempfile::tempdir().unwrap();
        for restart in 0..12 {
            RunLog::create(dir.path(), "c", restart).unwrap();
        }
        let kept: Vec<i32> = runs(&dir.path().join("c")).unwrap().into_iter().map(|(n, _)| n).collect();
        assert_eq!(kept, [7, 8, 9, 10, 11]);
        assert!(file(dir.path(), "c", true).unwrap().ends_with("c/10.log"));
    }
}
