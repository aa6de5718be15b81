//! What has come to a record since it was last looked at?
//!
//! Whoever follows takes whole lines only: half a line is one that is still being written, or one that a killed process left
//! and whoever goes on will cut off. A record that was cut, or set in another's place, is read anew.

use super::{
    StoreError,
    blobs::require_plain_file,
    log::{LONGEST_LINE, parse},
};
use agents::event::Line;
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    path::PathBuf,
};

/// Bytes before the place that was reached, by which it is known again.
const KNOWN_BY: usize = 64;
/// After so many bytes at once the rest waits for the next look: a record that is long already is not all in memory.
const AT_ONCE: u64 = 4 << 20;

/// What has come.
#[derive(Clone, Debug, PartialEq)]
pub enum Grown {
    /// These events, perhaps none; and whether there are more already.
    By(Vec<Line>, bool),
    /// What was read before is no longer so: the next look begins at the start.
    Anew,
}

/// A record that is read while others write it.
#[derive(Clone, Debug)]
pub struct Follow {
    path: PathBuf,
    /// Bytes of whole lines that were read, and how many lines those are.
    read: u64,
    lines: usize,
    /// The last of these bytes.
    known_by: Vec<u8>,
}

impl Follow {
    /// From its first line on. It need not be there yet.
    #[must_use]
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, read: 0, lines: 0, known_by: vec![] }
    }

    /// The whole lines that came since the last look.
    ///
    /// # Errors
    ///
    /// If it is damaged or cannot be read, as [`Record::read`](super::Record::read) says it.
    pub fn look(&mut self) -> Result<Grown, StoreError> {
        let length = fs::symlink_metadata(&self.path).map_or(0, |about| about.len());
        if length == self.read {
            return Ok(Grown::By(vec![], false));
        }
        if length < self.read {
            return Ok(self.anew());
        }
        require_plain_file(&self.path)?;
        let mut file = File::open(&self.path).map_err(|e| StoreError::system("open it", &self.path, e))?;
        if !self.is_known(&mut file)? {
            return Ok(self.anew());
        }
        self.lines_of(&mut BufReader::new(file))
    }

    fn anew(&mut self) -> Grown {
        *self = Self::new(std::mem::take(&mut self.path));
        Grown::Anew
    }

    /// Whether what stands before the place that was reached is what was read there, which the file then stands at.
    fn is_known(&self, file: &mut File) -> Result<bool, StoreError> {
        let mut bytes = vec![0; self.known_by.len()];
        let read = file.seek(SeekFrom::Start(self.read - bytes.len() as u64)).and_then(|_| file.read_exact(&mut bytes));
        read.map_err(|e| StoreError::system("read it", &self.path, e))?;
        Ok(bytes == self.known_by)
    }

    fn lines_of(&mut self, from: &mut impl BufRead) -> Result<Grown, StoreError> {
        let (mut lines, until) = (vec![], self.read + AT_ONCE);
        while self.read < until {
            let mut bytes = vec![];
            let read = from.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes);
            read.map_err(|e| StoreError::system("read it", &self.path, e))?;
            // Zeros stand where a cut of power left a line that was not on the disk yet.
            if bytes.last() != Some(&b'\n') || bytes.contains(&0) {
                return Ok(Grown::By(lines, false));
            }
            match parse(&bytes, self.lines + 1, &self.path) {
                Ok(line) => lines.push(line),
                // What came before it counts; the next look begins here and says why.
                Err(_) if !lines.is_empty() => return Ok(Grown::By(lines, true)),
                Err(why) => return Err(why),
            }
            self.lines += 1;
            self.read += bytes.len() as u64;
            self.known_by = bytes.split_off(bytes.len().saturating_sub(KNOWN_BY));
        }
        Ok(Grown::By(lines, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::event::{Event, FORMAT};
    use kernelbench::{Hash, Simulated, Workshop};
    use std::{fs::OpenOptions, io::Write};

    fn line(seq: u64, why: &str) -> String {
        let (task, policy) = (Hash::of(b""), Hash::of(b""));
        let event = match seq {
            0 => Event::Opened {
                format: FORMAT,
                task,
                name: "t".into(),
                policy,
                model: "m".into(),
                machine: Simulated::new().machine().clone(),
            },
            _ => Event::BrokeOff { why: why.into() },
        };
        serde_json::to_string(&Line { seq, at_ms: 0, event }).unwrap()
    }

    fn append(path: &std::path::Path, text: &str) {
        OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn seqs(grown: Grown) -> Vec<u64> {
        let Grown::By(lines, false) = grown else { panic!("{grown:?}") };
        lines.iter().map(|line| line.seq).collect()
    }

    #[test]
    fn each_whole_line_is_told_once_and_half_a_line_waits_for_its_other_half() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut follow = Follow::new(path.clone());
        assert_eq!(seqs(follow.look().unwrap()), [0; 0], "it need not be there");
        let (first, second) = (line(0, ""), line(1, "x"));
        append(&path, &format!("{first}\n{}", &second[..20]));
        assert_eq!(seqs(follow.look().unwrap()), [0]);
        assert_eq!(seqs(follow.look().unwrap()), [0; 0]);
        append(&path, &second[20..]);
        assert_eq!(seqs(follow.look().unwrap()), [0; 0], "its end is missing still");
        append(&path, "\n");
        assert_eq!(seqs(follow.look().unwrap()), [1]);
    }

    #[test]
    fn a_torn_line_that_another_process_cuts_off_and_writes_over_is_never_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut follow = Follow::new(path.clone());
        let first = line(0, "") + "\n";
        append(&path, &format!("{first}{}", &line(1, "torn")[..40]));
        assert_eq!(seqs(follow.look().unwrap()), [0]);
        OpenOptions::new().write(true).open(&path).unwrap().set_len(first.len() as u64).unwrap();
        append(&path, &(line(1, "whole") + "\n"));
        let Grown::By(lines, false) = follow.look().unwrap() else { panic!() };
        assert!(format!("{lines:?}").contains("whole"), "{lines:?}");
    }

    #[test]
    fn a_record_that_was_cut_is_read_anew_even_where_it_is_longer_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut follow = Follow::new(path.clone());
        let first = line(0, "") + "\n";
        append(&path, &format!("{first}{}\n", line(1, "one")));
        assert_eq!(seqs(follow.look().unwrap()), [0, 1]);
        OpenOptions::new().write(true).open(&path).unwrap().set_len(first.len() as u64).unwrap();
        append(&path, &format!("{}\n{}\n", line(1, "another and a longer one"), line(2, "two")));
        assert_eq!(follow.look().unwrap(), Grown::Anew);
        assert_eq!(seqs(follow.look().unwrap()), [0, 1, 2]);
        fs::write(&path, &first).unwrap();
        assert_eq!(follow.look().unwrap(), Grown::Anew);
        assert_eq!(seqs(follow.look().unwrap()), [0]);
    }
}
