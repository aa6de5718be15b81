//! How does one batch get from its questions to their answers?

use super::{Asked, Outcome, Shared, Whence, lines, lines::Line, wire::Ended};
use crate::llm::AskError;
use std::{collections::HashMap, sync::Arc, time::Instant};

/// Batches that a question may be in, where the endpoint keeps failing at it.
const TRIES: u32 = 2;
/// Batches that a question may be in, where they end before its turn comes.
const TURNS: u32 = 3;

impl Shared {
    /// Sees these questions through one batch.
    pub(super) async fn work(self: Arc<Self>, whence: Whence, mut asks: Vec<Asked>) {
        let is_new = matches!(whence, Whence::New(_));
        for asked in &mut asks {
            asked.batches += u32::from(is_new);
        }
        match self.lines(&whence, &asks).await {
            Ok(lines) => self.hand_out(lines, asks, is_new),
            Err(Stopped::Crowded(why)) => {
                tracing::warn!(why, "the endpoint has no room for the batch yet");
                tokio::time::sleep(self.batching.longest_pause).await;
                self.put_back(asks, &why);
            }
            Err(Stopped::For(error)) => asks.into_iter().for_each(|asked| tell(asked, Err(error.clone()))),
        }
    }

    fn put_back(self: &Arc<Self>, mut asks: Vec<Asked>, why: &str) {
        for asked in &mut asks {
            asked.batches = asked.batches.saturating_sub(1);
        }
        let (again, late): (Vec<_>, Vec<_>) =
            asks.into_iter().partition(|asked| asked.since.elapsed() < self.batching.longest);
        for asked in late {
            tell(asked, Err(AskError::Unreachable(why.to_owned())));
        }
        self.gather(again);
    }

    async fn lines(&self, whence: &Whence, asks: &[Asked]) -> Result<HashMap<String, Line>, Stopped> {
        let (file, batch, ended) = match whence {
            Whence::New(model) => self.anew(model, asks).await?,
            Whence::Recorded(file) => self.recorded(file).await.map_err(|error| self.with_a_way_out(error))?,
        };
        if let (Whence::New(_), Some(failure)) = (whence, ended.failure) {
            let word = format!("the batch {batch} failed: {}", failure.why);
            return Err(if failure.crowded { Stopped::Crowded(word) } else { Stopped::For(AskError::Refused(word)) });
        }
        let mut lines = HashMap::new();
        for text in &ended.files {
            lines.extend(lines::read(text, |status, body| self.wire.complaint(status, body)));
        }
        for custom_id in lines.keys().filter(|custom_id| !self.journal.asked(&file, custom_id)) {
            tracing::warn!(batch, custom_id, "the batch answers a question that was not in it: ignored");
        }
        Ok(lines)
    }

    /// Begins a new batch and waits for its end. The journal names the file before a batch can be made of it.
    async fn anew(&self, model: &str, asks: &[Asked]) -> Result<(String, String, Ended), AskError> {
        let lines: String = asks.iter().flat_map(|asked| [asked.line.as_str(), "\n"]).collect();
        let file = self.wire.upload(lines, model).await?;
        self.journal.sent(&file, asks.iter().map(|asked| (asked.custom_id.clone(), asked.hash.clone())).collect())?;
        let batch = self.wire.create(&file, false).await?;
        self.journal.began(&file, &batch)?;
        tracing::info!(batch, questions = asks.len(), "a batch was begun");
        let ended = self.follow(&batch).await?;
        Ok((file, batch, ended))
    }

    /// Waits for the batch of a file that an earlier process sent. It may have been killed before it knew of the batch, or before there was one.
    async fn recorded(&self, file: &str) -> Result<(String, String, Ended), AskError> {
        let batch = self.found(file).await?;
        tracing::info!(batch, "waiting for a batch that was begun before");
        let ended = self.follow(&batch).await?;
        Ok((file.to_owned(), batch, ended))
    }

    async fn found(&self, file: &str) -> Result<String, AskError> {
        let _alone = self.seeking.lock().await;
        if let Some(batch) = self.journal.batch(file) {
            return Ok(batch);
        }
        let batch = self.wire.create(file, true).await?;
        self.journal.began(file, &batch)?;
        Ok(batch)
    }

    /// Looks until it has ended.
    async fn follow(&self, batch: &str) -> Result<Ended, AskError> {
        let (began, mut well, mut pause) = (Instant::now(), Instant::now(), self.batching.first_pause);
        loop {
            match self.wire.look(batch).await {
                Ok(Some(ended)) => return Ok(ended),
                Ok(None) => well = Instant::now(),
                Err(AskError::Unreachable(why)) if well.elapsed() < self.wire.patience.deadline => {
                    tracing::warn!(batch, why, "looking again later");
                }
                Err(error) => return Err(error),
            }
            if began.elapsed() > self.batching.longest {
                let hours = self.batching.longest.as_secs() / 3600;
                return Err(AskError::Unreachable(format!(
                    "the batch {batch} has not ended within {hours} hours; resume to wait on"
                )));
            }
            tokio::time::sleep(pause).await;
            pause = pause.mul_f64(1.5).min(self.batching.longest_pause);
        }
    }

    fn with_a_way_out(&self, error: AskError) -> AskError {
        let AskError::Refused(why) = error else { return error };
        let journal = self.batching.journal.display();
        AskError::Refused(format!(
            "{why}; it was asked for a batch of an earlier process: if that is gone, remove {journal} to ask and pay anew"
        ))
    }

    fn hand_out(self: &Arc<Self>, mut lines: HashMap<String, Line>, asks: Vec<Asked>, is_new: bool) {
        let mut again = Vec::new();
        for asked in asks {
            let (why, limit) = match lines.remove(&asked.custom_id) {
                Some(Line::Answer(completion)) => {
                    let batches = asked.batches.max(1);
                    tell(asked, Ok((completion, batches)));
                    continue;
                }
                Some(Line::Refused(why)) if is_new => {
                    tell(asked, Err(AskError::Refused(why)));
                    continue;
                }
                Some(Line::Refused(why) | Line::Failed(why)) => (why, TRIES),
                None | Some(Line::NoTurn) => ("the batch ended before its turn".to_owned(), TURNS),
            };
            if asked.batches < limit {
                tracing::info!(question = asked.custom_id, why, "asked again in the next batch");
                again.push(asked);
            } else {
                let word = format!(
                    "no answer to {} in {} batches: {why}; resume to ask again",
                    asked.custom_id, asked.batches
                );
                tell(asked, Err(AskError::Unreachable(word)));
            }
        }
        self.gather(again);
    }
}

/// Why no batch has lines.
enum Stopped {
    /// The endpoint holds too much of ours already.
    Crowded(String),
    /// Anything else.
    For(AskError),
}

impl From<AskError> for Stopped {
    fn from(error: AskError) -> Self {
        Self::For(error)
    }
}

/// Whoever asked may have gone.
fn tell(asked: Asked, answer: Outcome) {
    let _ = asked.answer.send(answer);
}
