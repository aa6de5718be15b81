//! Is the reply to this one request there, and is it whole?

use crate::llm::{AskError, chat::Completion};
use kernelbench::Hash;
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const ENDINGS: [&str; 3] = ["reply.json", "reply.txt", "reply.md"];
const LONGEST_NAME: usize = 160;
const LARGEST_REPLY: u64 = 16 << 20;
/// An empty file is often one that a shell has opened for a program that still thinks.
const LOOKS_AT_AN_EMPTY_FILE: u32 = 20;

/// One request, and what was seen of its reply so far.
pub(super) struct Letter {
    dir: PathBuf,
    custom_id: String,
    seen: Option<(PathBuf, u64, Option<SystemTime>)>,
    looks: u32,
}

/// What one look saw.
pub(super) enum Seen {
    /// No reply.
    Nothing,
    /// A reply that may still be growing.
    Unsettled,
    /// The reply.
    Reply(Completion),
}

/// A name that is safe as a file's name, and another one for every other name.
pub(super) fn file_name(name: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let mut safe: String = name.chars().map(|c| if keep(c) { c } else { '_' }).take(LONGEST_NAME).collect();
    if safe.starts_with('.') {
        safe.replace_range(..1, "_");
    }
    if safe != name {
        safe = format!("{safe}-{}", Hash::of(name.as_bytes()).short());
    }
    safe
}

impl Letter {
    pub(super) fn new(dir: &Path, custom_id: String) -> Self {
        Self { dir: dir.to_owned(), custom_id, seen: None, looks: 0 }
    }

    pub(super) fn request(&self) -> PathBuf {
        self.path("request.json")
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.dir.join(format!("{}.{ending}", self.custom_id))
    }

    /// Writes the request, unless it lies there already. What lies there of another request with this name is moved aside.
    pub(super) fn post(&self, line: &str) -> io::Result<()> {
        if std::fs::read(self.request()).is_ok_and(|there| there == line.as_bytes()) {
            return Ok(());
        }
        self.move_aside()?;
        let unfinished = self.dir.join(format!(".{}.request-{}", self.custom_id, std::process::id()));
        std::fs::write(&unfinished, line)?;
        std::fs::rename(unfinished, self.request())
    }

    fn move_aside(&self) -> io::Result<()> {
        let endings: Vec<&str> = ["request.json"].into_iter().chain(ENDINGS).collect();
        let stale: Vec<&&str> = endings.iter().filter(|ending| self.path(ending).exists()).collect();
        if stale.is_empty() {
            return Ok(());
        }
        let free = |n: &u32| endings.iter().all(|ending| !self.path(&format!("{ending}.stale-{n}")).exists());
        let n = (1..10_000).find(free).unwrap_or(10_000);
        tracing::warn!(request = %self.request().display(), "the question has changed since these files were written: they are kept as .stale-{n} and not used");
        stale
            .into_iter()
            .try_for_each(|ending| std::fs::rename(self.path(ending), self.path(&format!("{ending}.stale-{n}"))))
    }

    /// Looks once.
    pub(super) fn look(&mut self) -> Result<Seen, AskError> {
        let Some((ending, path)) = ENDINGS.map(|e| (e, self.path(e))).into_iter().find(|(_, path)| path.exists())
        else {
            self.seen = None;
            return Ok(Seen::Nothing);
        };
        let settled = self.is_settled(&path)?;
        if ending != "reply.json" {
            return if settled { plain(&path).map(Seen::Reply) } else { Ok(Seen::Unsettled) };
        }
        match serde_json::from_str::<Value>(&read(&path)?) {
            Ok(line) => self.open(&path, &line).map(Seen::Reply),
            Err(_) if !settled => Ok(Seen::Unsettled),
            Err(e) => Err(bad(&path, &format!("is not JSON: {e}"))),
        }
    }

    fn is_settled(&mut self, path: &Path) -> Result<bool, AskError> {
        let about = match std::fs::metadata(path) {
            Ok(about) => about,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(bad(path, &format!("cannot be read: {e}"))),
        };
        if !about.is_file() {
            return Err(bad(path, "is not a file"));
        }
        if about.len() > LARGEST_REPLY {
            return Err(bad(path, &format!("has {} bytes; at most {LARGEST_REPLY} were expected", about.len())));
        }
        let now = Some((path.to_owned(), about.len(), about.modified().ok()));
        self.looks = if self.seen == now { self.looks + 1 } else { 1 };
        self.seen = now;
        Ok(self.looks >= if about.len() == 0 { LOOKS_AT_AN_EMPTY_FILE } else { 2 })
    }

    fn open(&self, path: &Path, line: &Value) -> Result<Completion, AskError> {
        let answers = line.get("custom_id").and_then(Value::as_str);
        if answers != Some(&self.custom_id) {
            let answers = answers.unwrap_or("no custom_id");
            return Err(bad(path, &format!("answers {answers}, but {} was expected", self.custom_id)));
        }
        if let Some(error) = line.get("error").filter(|error| !error.is_null()) {
            return Err(bad(path, &format!("holds an error in place of a reply: {}", message(error))));
        }
        let response = line.get("response").unwrap_or(&Value::Null);
        let body = response.get("body").unwrap_or(&Value::Null);
        let status = response.get("status_code").and_then(Value::as_u64).unwrap_or(200);
        if status != 200 {
            let why = body.get("error").map(message).unwrap_or_default();
            return Err(bad(path, &format!("holds a response with status {status} {why}")));
        }
        Completion::read(body).map_err(|why| bad(path, &format!("cannot be read at response.body: {why}")))
    }
}

fn message(error: &Value) -> String {
    error.get("message").and_then(Value::as_str).map_or_else(|| error.to_string(), str::to_owned)
}

fn read(path: &Path) -> Result<String, AskError> {
    std::fs::read(path)
        .map_err(|e| bad(path, &format!("cannot be read: {e}")))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn plain(path: &Path) -> Result<Completion, AskError> {
    Ok(Completion { text: read(path)?, model: None, usage: None, finish_reason: None })
}

fn bad(path: &Path, what: &str) -> AskError {
    AskError::Refused(format!("the reply {} {what}; mend or remove it, then resume", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seen: Result<Seen, AskError>) -> Option<String> {
        match seen.unwrap() {
            Seen::Reply(completion) => Some(completion.text),
            Seen::Nothing | Seen::Unsettled => None,
        }
    }

    #[test]
    fn a_reply_is_not_read_while_it_grows() {
        let dir = tempfile::tempdir().unwrap();
        for (ending, last_look) in [("reply.txt", 2), ("reply.json", 1)] {
            let mut letter = Letter::new(dir.path(), ending.into());
            letter.post("{}").unwrap();
            let (half, whole) = match ending {
                "reply.txt" => ("so", "so far".to_owned()),
                _ => (
                    "{",
                    format!(
                        "{{\"custom_id\":\"{ending}\",\"response\":{{\"body\":{{\"choices\":[{{\"message\":{{\"content\":\"so far\"}}}}]}}}}}}"
                    ),
                ),
            };
            for growing in ["", half] {
                std::fs::write(letter.path(ending), growing).unwrap();
                assert_eq!(text(letter.look()), None, "{ending} read as {growing:?}");
            }
            std::fs::write(letter.path(ending), &whole).unwrap();
            for look in 1..=last_look {
                assert_eq!(text(letter.look()).is_some(), look == last_look, "{ending}, look {look}");
            }
        }
    }

    #[test]
    fn a_reply_whose_question_is_not_there_is_moved_aside() {
        let dir = tempfile::tempdir().unwrap();
        let mut letter = Letter::new(dir.path(), "x".into());
        std::fs::write(letter.path("reply.txt"), "to whom?").unwrap();
        letter.post("{}").unwrap();
        assert!(matches!(letter.look(), Ok(Seen::Nothing)));
        assert!(letter.path("reply.txt.stale-1").exists());
    }
}
