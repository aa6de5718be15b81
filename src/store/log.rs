//! What happened, line by line on disk?

use super::{
    StoreError,
    blobs::{Blobs, require_plain_file, sync},
};
use agents::{
    event::{Event, Line, evidence, readable},
    log::{Log, LogError},
};
use kernelbench::{CertificateVerdict, Evaluation, Hash, Hashing, Timed};
use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    panic::resume_unwind,
    path::{Path, PathBuf},
    thread::{self, ScopedJoinHandle},
};

/// The longest line that is read, in bytes: an event holds numbers and short texts, long ones are blobs.
pub(super) const LONGEST_LINE: u64 = 64 << 20;

/// The fewest lines for which a core more is used.
const FEWEST_LINES: usize = 64;
/// What is read before it is parsed: lines, and bytes, at most but for the last line.
const BLOCK: usize = 8192;
const BLOCK_BYTES: usize = 32 << 20;

/// What stands in a task's record.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its events in order, with their times.
    pub lines: Vec<Line>,
    /// Where it ended.
    pub end: End,
    /// Texts by hash.
    pub blobs: Blobs,
    /// Where each line ends, in bytes from the start of the file.
    pub ends: Vec<u64>,
    /// What each certificate rests on by the lines that stand before it, in order.
    pub evidence: Vec<Hash>,
}

/// Where a record ended when it was read.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// How many whole lines there were.
    lines: u64,
    /// Their bytes; a process that was killed while it wrote leaves a torn line behind them.
    whole: u64,
    /// Bytes of the torn line, 0 if there is none.
    torn: u64,
    /// The whole lines as one hash.
    digest: Hashing,
}

impl End {
    fn take(&mut self, line: &[u8]) {
        self.digest.take(line);
        self.whole += line.len() as u64;
        self.lines += 1;
    }
}

impl Record {
    /// The events alone.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        self.lines.iter().map(|line| line.event.clone())
    }

    /// Reads the record in this file.
    ///
    /// # Errors
    ///
    /// If it is not one, if its format is unknown, or if a line is damaged or missing, with the line's number.
    pub fn read(path: &Path, blobs: Blobs) -> Result<Self, StoreError> {
        require_plain_file(path)?;
        let file = File::open(path).map_err(|e| StoreError::system("open it", path, e))?;
        let mut record = Self { lines: vec![], end: End::default(), blobs, ends: vec![], evidence: vec![] };
        let mut from = BufReader::new(file);
        // The first line alone says whether this is a record.
        let mut most = 1;
        while record.read_block(&mut from, most, path)? {
            most = BLOCK;
        }
        Ok(record)
    }

    /// Takes in so many whole lines at most; whether more may stand behind them.
    fn read_block(&mut self, from: &mut impl BufRead, most: usize, path: &Path) -> Result<bool, StoreError> {
        let (mut block, mut lines, mut goes_on, mut why) = (vec![], vec![], true, None);
        while goes_on && why.is_none() && lines.len() < most && block.len() < BLOCK_BYTES {
            let begins = block.len();
            match whole_line(from, &mut block, self.lines.len() + lines.len() + 1, path) {
                Ok(Ok(())) => lines.push(begins..block.len()),
                Ok(Err(torn)) => (self.end.torn, goes_on) = (torn, false),
                Err(error) => why = Some(error),
            }
        }
        self.lines.reserve(lines.len());
        let raw: Vec<&[u8]> = lines.into_iter().map(|line| &block[line]).collect();
        // What is wrong with an earlier line is told first.
        for (line, bytes) in parse_all(&raw, self.lines.len(), path)?.into_iter().flatten().zip(&raw) {
            if let Event::Certified { certificate, .. } = &line.event {
                self.evidence.push(evidence(self.end.digest.clone(), certificate));
            }
            self.lines.push(line);
            self.end.take(bytes);
            self.ends.push(self.end.whole);
        }
        why.map_or(Ok(goes_on), Err)
    }
}
/// Puts a whole line behind others; or says the bytes of a torn one, with all that stands behind it: 0 at the end.
fn whole_line(
    from: &mut impl BufRead,
    block: &mut Vec<u8>,
    number: usize,
    path: &Path,
) -> Result<Result<(), u64>, StoreError> {
    let begins = block.len();
    let read = from.by_ref().take(LONGEST_LINE).read_until(b'\n', block);
    let length = read.map_err(|e| StoreError::system("read it", path, e))? as u64;
    if length == LONGEST_LINE {
        return Err(StoreError::damaged_at(path, number, "the line is longer than 64 MiB: no run writes that"));
    }
    // Where the power was cut, some systems leave zeros: what was not on the disk yet.
    let line = &block[begins..];
    if line.last() != Some(&b'\n') || line.contains(&0) {
        let rest = io::copy(from, &mut io::sink()).map_err(|e| StoreError::system("read it", path, e))?;
        return Ok(Err(length + rest));
    }
    Ok(Ok(()))
}

/// What lines say that stand behind so many others, by all cores: reading them is most of what a record costs. The first that
/// is damaged is told.
fn parse_all(raw: &[&[u8]], behind: usize, path: &Path) -> Result<Vec<Vec<Line>>, StoreError> {
    let parse_part = |(part, lines): (usize, &[&[u8]]), each: usize| {
        let numbered = lines.iter().zip(behind + part * each + 1..);
        numbered.map(|(bytes, number)| parse(bytes, number, path)).collect::<Result<Vec<Line>, StoreError>>()
    };
    if raw.len() <= FEWEST_LINES {
        return Ok(vec![parse_part((0, raw), 0)?]);
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let each = raw.len().div_ceil(cores).max(FEWEST_LINES);
    thread::scope(|scope| {
        let mut parts = raw.chunks(each).enumerate();
        let own = parts.next();
        let begin = |part| (part, thread::Builder::new().spawn_scoped(scope, move || parse_part(part, each)));
        let others: Vec<_> = parts.map(begin).collect();
        let own = own.map(|part| parse_part(part, each));
        // Where the system lends no thread, this one does it.
        let read = |(part, thread): (_, io::Result<ScopedJoinHandle<'_, _>>)| {
            thread.map_or_else(
                |_| parse_part(part, each),
                |thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            )
        };
        own.into_iter().chain(others.into_iter().map(read)).collect()
    })
}

pub(super) fn parse(bytes: &[u8], number: usize, path: &Path) -> Result<Line, StoreError> {
    let damaged = |why: String| StoreError::damaged_at(path, number, why);
    if number == 1 {
        check_format(bytes).map_err(damaged)?;
    }
    let line = Line::read(bytes).map_err(|e| {
        damaged(format!(
            "this is not an event ({e}): the file was damaged; restore it from a copy, or cut it before this line"
        ))
    })?;
    if line.seq != number as u64 - 1 {
        let (expected, got) = (number - 1, line.seq);
        return Err(damaged(format!(
            "event {expected} was expected and {got} stands here: lines are missing or doubled; restore the file from a copy"
        )));
    }
    if (line.seq == 0) != matches!(line.event, Event::Opened { .. }) {
        return Err(damaged(
            "a record opens with the event \"opened\", once: the file was put together by hand".to_owned(),
        ));
    }
    match timed(&line.event).map(Timed::recompute_ratios) {
        Some(Err(why)) => {
            Err(damaged(format!("{why}: the record was changed after it was written; restore it from a copy")))
        }
        _ => Ok(line),
    }
}

/// The times that an event holds, with their samples.
#[must_use]
pub fn timed(event: &Event) -> Option<&Timed> {
    match event {
        Event::Evaluated { evaluation: Evaluation::Passed(timed), .. } => Some(timed),
        Event::Certified { certificate, .. } => match &certificate.verdict {
            CertificateVerdict::Certified(timed) => Some(timed),
            CertificateVerdict::Refused(_) => None,
        },
        _ => None,
    }
}

/// The first line says the format, whatever else later formats may change.
fn check_format(bytes: &[u8]) -> Result<(), String> {
    #[derive(serde::Deserialize)]
    struct Opening {
        format: u32,
    }
    let opening: Opening = serde_json::from_slice(bytes).map_err(|_| {
        "this is not a record: the first line names no format; expected the events.jsonl of a run".to_owned()
    })?;
    readable(opening.format)
}

/// The record of one task, open for appending.
#[derive(Debug)]
pub struct TaskLog {
    path: PathBuf,
    file: File,
    next: u64,
    length: u64,
    blobs: Blobs,
    digest: Hashing,
    /// Texts that may not be on the disk yet, and those that are.
    put: Vec<Hash>,
    synced: HashSet<Hash>,
}

impl TaskLog {
    /// Opens or begins the record in this file, for whoever holds the run's lock. A torn last line is cut off; the
    /// word says so.
    ///
    /// # Errors
    ///
    /// If what is there cannot be read, or nothing can be written.
    pub(super) fn open(path: &Path, blobs: Blobs) -> Result<(Self, Option<String>), StoreError> {
        if fs::symlink_metadata(path).is_err() {
            return Self::open_behind(path, blobs, None);
        }
        let record = Record::read(path, blobs.clone())?;
        Self::open_behind(path, blobs, Some(&record.end))
    }

    /// The same behind a record that was read before; none where it has grown since, for whoever read it decided by what
    /// stood there then.
    ///
    /// # Errors
    ///
    /// If nothing can be written.
    pub(super) fn open_unchanged(path: &Path, blobs: Blobs, read: &End) -> Result<Option<Self>, StoreError> {
        let length = fs::symlink_metadata(path).map_err(|e| StoreError::system("open it for writing", path, e))?.len();
        if length != read.whole + read.torn {
            return Ok(None);
        }
        Self::open_behind(path, blobs, Some(read)).map(|(log, _)| Some(log))
    }

    fn open_behind(path: &Path, blobs: Blobs, read: Option<&End>) -> Result<(Self, Option<String>), StoreError> {
        let is_new = read.is_none();
        let End { lines: next, whole: length, torn, digest } = read.cloned().unwrap_or_default();
        let opened = File::options().create(true).append(true).open(path);
        let file = opened.map_err(|e| StoreError::system("open it for writing", path, e))?;
        if torn > 0 {
            file.set_len(length).map_err(|e| StoreError::system("cut off its torn last line", path, e))?;
        }
        let word = (torn > 0)
            .then(|| format!("{}: the last line was torn when the run was killed; it is dropped", path.display()));
        if is_new {
            path.ancestors().skip(1).take(2).try_for_each(sync)?;
        }
        let (path, put, synced) = (path.to_owned(), vec![], HashSet::new());
        Ok((Self { path, file, next, length, blobs, digest, put, synced }, word))
    }

    /// One write of one whole line. If only part of it went out, that part is taken back.
    fn append(&mut self, line: &[u8]) -> Result<(), StoreError> {
        if let Err(e) = self.file.write_all(line).and_then(|()| self.file.flush()) {
            let _ = self.file.set_len(self.length);
            return Err(StoreError::system("append to the record", &self.path, e));
        }
        self.digest.take(line);
        self.length += line.len() as u64;
        self.next += 1;
        Ok(())
    }

    /// A text is on the disk before an event that names it: no line ever names what a cut of power took.
    fn sync_texts(&mut self) -> Result<(), StoreError> {
        let put = std::mem::take(&mut self.put);
        if !put.is_empty() {
            self.blobs.sync(&put)?;
            self.synced.extend(put);
        }
        Ok(())
    }
}

impl Log for TaskLog {
    fn note(&mut self, event: &Event) -> Result<(), LogError> {
        let line = Line { seq: self.next, at_ms: jiff::Timestamp::now().as_millisecond(), event: event.clone() };
        let mut text = serde_json::to_vec(&line).map_err(|e| LogError(format!("an event cannot be written: {e}")))?;
        text.push(b'\n');
        self.sync_texts()?;
        self.append(&text)?;
        if event.is_dear() {
            self.file.sync_data().map_err(|e| StoreError::system("write it to the disk", &self.path, e))?;
        }
        Ok(())
    }

    fn keep(&mut self, text: &str) -> Result<Hash, LogError> {
        let hash = self.blobs.put(text)?;
        // Another task may have put it there and not have waited for it yet.
        if !self.synced.contains(&hash) && !self.put.contains(&hash) {
            self.put.push(hash.clone());
        }
        Ok(hash)
    }

    fn fetch(&self, hash: &Hash) -> Result<String, LogError> {
        Ok(self.blobs.fetch(hash)?)
    }

    fn digest(&self) -> Hashing {
        self.digest.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::event::{End, FORMAT, Step};
    use metrics::{Machine, MachineKind};

    fn opened() -> Event {
        let machine = Machine {
            kind: MachineKind::Simulated,
            name: "none".into(),
            arch: metrics::Arch::Cpu("none".into()),
            facts: vec![],
            bandwidths: vec![],
            peak_flops: None,
        };
        let hash = Hash::of(b"");
        Event::Opened { format: FORMAT, task: hash.clone(), name: "t".into(), policy: hash, model: "m".into(), machine }
    }

    fn three_events(folder: &Path) -> PathBuf {
        let path = folder.join("events.jsonl");
        let (mut log, _) = TaskLog::open(&path, Blobs::at(folder.join("blobs"))).unwrap();
        for event in [opened(), Event::Began { round: 1, step: Step::Seed }, Event::Ended { end: End::OutOfRounds }] {
            log.note(&event).unwrap();
        }
        path
    }

    fn read(path: &Path) -> Result<Record, String> {
        Record::read(path, Blobs::at(path.with_file_name("blobs"))).map_err(|e| e.to_string())
    }

    #[test]
    fn a_long_record_is_read_by_several_and_says_its_first_damaged_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let (mut log, _) = TaskLog::open(&path, Blobs::at(folder.path().join("blobs"))).unwrap();
        log.note(&opened()).unwrap();
        let count = FEWEST_LINES * 8;
        for at in 1..count {
            log.note(&Event::BrokeOff { why: at.to_string() }).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        let whole = read(&path).unwrap();
        let mut digest = Hashing::default();
        for line in text.split_inclusive('\n') {
            digest.take(line.as_bytes());
        }
        assert_eq!((whole.lines.len(), whole.end.torn, whole.end.whole), (count, 0, text.len() as u64));
        assert_eq!(
            (whole.ends.len(), whole.ends.last(), whole.end.digest.clone().hash()),
            (count, Some(&(text.len() as u64)), digest.hash())
        );
        assert!(whole.lines.iter().enumerate().all(|(at, line)| line.seq == at as u64));
        let damaged = |lines: &[usize]| {
            let damage =
                |(at, line): (usize, &str)| if lines.contains(&(at + 1)) { "{}\n".into() } else { line.to_owned() };
            fs::write(&path, text.split_inclusive('\n').enumerate().map(damage).collect::<String>()).unwrap();
            read(&path).unwrap_err()
        };
        let (early, late) = (FEWEST_LINES / 2, count - FEWEST_LINES / 2);
        assert!(damaged(&[late, early]).contains(&format!("events.jsonl:{early}:")), "{}", damaged(&[late, early]));
        assert!(damaged(&[late]).contains(&format!("events.jsonl:{late}:")), "{}", damaged(&[late]));
        fs::write(&path, &text[..text.len() - 1]).unwrap();
        let torn = read(&path).unwrap();
        assert_eq!((torn.lines.len(), torn.end.whole + torn.end.torn), (count - 1, text.len() as u64 - 1));
    }

    #[test]
    fn a_record_cut_at_any_byte_keeps_every_whole_line_and_can_be_appended_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = three_events(folder.path());
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let lines = String::from_utf8_lossy(&whole[..cut]).matches('\n').count();
            assert_eq!(read(&path).unwrap().lines.len(), lines);
            let (mut log, word) = TaskLog::open(&path, Blobs::at(folder.path().join("blobs"))).unwrap();
            assert_eq!(word.is_some(), cut > 0 && whole[cut - 1] != b'\n');
            log.note(&if lines == 0 { opened() } else { Event::BrokeOff { why: "x".into() } }).unwrap();
            assert_eq!(read(&path).unwrap().lines.len(), lines + 1);
        }
    }

    #[test]
    fn what_was_decided_by_a_record_is_noted_behind_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = three_events(folder.path());
        let more = |line: &str| fs::write(&path, fs::read_to_string(&path).unwrap() + line).unwrap();
        more("{\"seq\":3,");
        let (torn, event) = (read(&path).unwrap(), Event::BrokeOff { why: "x".into() });
        let behind = |read: &Record| TaskLog::open_unchanged(&path, read.blobs.clone(), &read.end).unwrap();
        behind(&torn).unwrap().note(&event).unwrap();
        let four = read(&path).unwrap();
        assert_eq!((four.lines.len(), four.end.torn, four.lines[3].seq), (4, 0, 3));
        // It stands behind what was read before, and another has written since.
        assert!(behind(&torn).is_none());
        behind(&four).unwrap().note(&event).unwrap();
        assert!(behind(&four).is_none());
        let record = read(&path).unwrap();
        assert_eq!(record.end.digest.hash(), Hash::of(&fs::read(&path).unwrap()));
    }

    #[test]
    fn a_missing_line_is_named_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = three_events(folder.path());
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        fs::write(&path, format!("{}\n{}\n", lines[0], lines[2])).unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.contains("events.jsonl:2:") && error.contains("event 1 was expected and 2"), "{error}");
    }

    #[test]
    fn garbage_inside_and_a_foreign_file_and_another_format_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = three_events(folder.path());
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen("\"event\":\"began\"", "\"event\":\"begun\"", 1)).unwrap();
        assert!(read(&path).unwrap_err().contains("events.jsonl:2: this is not an event"));
        fs::write(&path, text.replacen("\"format\":1", "\"format\":99", 1)).unwrap();
        assert!(read(&path).unwrap_err().contains("has format 99"));
        fs::write(&path, "Dear diary\n").unwrap();
        assert!(read(&path).unwrap_err().contains("this is not a record"));
    }
}
