//! What if a person, a script or another agent is the model? Requests and replies are files in one folder.
//!
//! `<custom_id>.request.json` is a request line of the OpenAI Batch format. The answer lies beside it: `<custom_id>.reply.json` in the format
//! of a Batch output line, or the bare text as `<custom_id>.reply.txt` or `.reply.md`. Write the answer under another name and rename it:
//! a plain text is otherwise taken to be whole once size and time of change stay the same from one look to the next.

mod letter;

use super::chat::{self, Samplings};
use super::{Answer, AskError, Call, Llm, Reply};
use letter::{Letter, Seen};
use serde_json::json;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const HOW_TO_ANSWER: &str = "\
For each NAME.request.json (a request line of the OpenAI Batch format), give one answer beside it:
  NAME.reply.txt or NAME.reply.md   the answer's text, or
  NAME.reply.json                   a line of the OpenAI Batch output format, with the request's custom_id
Write it under another name first and rename it, so that no half of it is read.
A file ANSWERED_BY may hold the name of who answers. Files that end in .stale-N answer a question that has changed since.
";

/// A folder in a model's place.
pub struct Mailbox {
    dir: PathBuf,
    prefix: String,
    poll: Duration,
    exit_when_waiting: bool,
    samplings: Samplings,
}

impl Mailbox {
    /// Requests go to this folder, which is made when the first is written, and name these models. Looks for replies every 250 ms.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, samplings: Samplings) -> Self {
        let poll = Duration::from_millis(250);
        Self { dir: dir.into(), prefix: String::new(), poll, exit_when_waiting: false, samplings }
    }

    /// Puts this, the run's name, in front of each request's name, so that runs can share a folder.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long to wait between looks.
    #[must_use]
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// Ends with [`AskError::Waiting`], naming the request's file, where there is no reply yet.
    #[must_use]
    pub fn exit_when_waiting(mut self, yes: bool) -> Self {
        self.exit_when_waiting = yes;
        self
    }

    /// The request's name for this call: letters, digits, `.`, `-` and `_` alone. Where the call's own name holds anything else,
    /// or is very long, a part of its hash tells it from others.
    #[must_use]
    pub fn custom_id(&self, call: &Call) -> String {
        if self.prefix.is_empty() {
            return letter::file_name(&call.id.to_string());
        }
        letter::file_name(&format!("{}.{}", self.prefix, call.id))
    }

    fn answered_by(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.dir.join("ANSWERED_BY")).ok()?;
        text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    }

    fn post(&self, call: &Call) -> Result<Letter, AskError> {
        let custom_id = self.custom_id(call);
        let body = chat::body(call, self.samplings.of(call.id.role));
        let request = json!({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body});
        let letter = Letter::new(&self.dir, custom_id);
        let cannot = |e: std::io::Error| {
            AskError::Refused(format!(
                "the mailbox {} cannot be written: {e}; give a folder that can",
                self.dir.display()
            ))
        };
        std::fs::create_dir_all(&self.dir).map_err(cannot)?;
        match std::fs::File::create_new(self.dir.join("HOW_TO_ANSWER.txt")) {
            Ok(mut file) => std::io::Write::write_all(&mut file, HOW_TO_ANSWER.as_bytes()).map_err(cannot)?,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(cannot(e)),
        }
        letter.post(&format!("{request}\n")).map_err(cannot)?;
        Ok(letter)
    }

    async fn exchange(&self, call: Call) -> Result<Reply, AskError> {
        let since = Instant::now();
        let mut letter = self.post(&call)?;
        let completion = loop {
            match letter.look()? {
                Seen::Reply(completion) => break completion,
                Seen::Nothing if self.exit_when_waiting => {
                    return Err(AskError::Waiting(letter.request().display().to_string()));
                }
                Seen::Nothing | Seen::Unsettled => tokio::time::sleep(self.poll).await,
            }
        };
        Ok(Reply {
            text: completion.text,
            model: completion.model.or_else(|| self.answered_by()).unwrap_or_else(|| "mailbox".into()),
            usage: completion.usage,
            usd: None,
            latency_ms: since.elapsed().as_millis() as u64,
            requests: 1,
        })
    }
}

impl Llm for Mailbox {
    fn describe(&self) -> String {
        let who = self.answered_by().map(|who| format!(" (answered by {who})")).unwrap_or_default();
        format!("mailbox {}{who}", self.dir.display())
    }

    fn ask(&self, call: Call) -> Answer<'_> {
        Box::pin(self.exchange(call))
    }
}
