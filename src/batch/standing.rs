//! How far has a task come, in a few numbers?

use super::limits::Used;
use crate::{exit::Trouble, progress::plain, quantity, store::RunFolder};
use agents::event::{End, Event, Step};
use kernelbench::{CertificateVerdict, CodeObject, Counts, Evaluation};
use metrics::{Claim, Speedup};

/// How far a task has come: a fold over its events that keeps next to nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// Rounds that are over, in which a candidate was asked for.
    pub rounds: u32,
    /// The round that is open.
    pub open: Option<u32>,
    /// What is going on.
    pub doing: &'static str,
    /// The best speedup so far, as measured in its round.
    pub best: Option<f64>,
    /// The certified speedup.
    pub certified: Option<Speedup>,
    /// Whether what is certified is right only as the task draws its inputs.
    pub only_as_drawn: bool,
    /// What was used up.
    pub used: Used,
    /// The device that was held last.
    pub device: Option<String>,
    /// Why it broke off, if it did and has not gone on.
    pub broke_off: Option<String>,
    /// Why it ended, if it has.
    pub end: Option<End>,
    /// How many rounds it may have in all, where it was given another number than its policy's.
    pub extended_to: Option<u32>,
    /// Why the last round came to no right candidate, while none was right.
    pub trouble: Option<String>,
    /// Whether any reply could be read as a candidate.
    pub has_candidate: bool,
    /// Whether the round is the reference's own.
    of_reference: bool,
    /// The instructions of the candidate that is right, where its processor is emulated.
    pub counted: Option<Counts>,
    /// What the compiler says of the last candidate that compiles, where its GPU is not here.
    pub compiled: Option<CodeObject>,
}

impl Standing {
    /// That of a task of this run; `None` where its turn has not come.
    ///
    /// # Errors
    ///
    /// If its record cannot be read.
    pub fn read(folder: &RunFolder, task: &str) -> Result<Option<Self>, Trouble> {
        if !folder.has_record(task) {
            return Ok(None);
        }
        let mut standing = Self::default();
        folder.record(task)?.lines.iter().for_each(|line| standing.take_in(&line.event));
        Ok(Some(standing))
    }

    /// Whether its best candidate is certified and faster.
    #[must_use]
    pub fn is_faster(&self) -> bool {
        self.certified.is_some_and(|speedup| speedup.claim() == Claim::Faster)
    }

    /// What it came to, in words: the certified speedup, or why there is none.
    #[must_use]
    pub fn came_to(&self) -> String {
        if let Some(speedup) = &self.certified {
            let beyond = if self.only_as_drawn { ", and wrong on inputs that the task does not draw" } else { "" };
            return format!("{}, {}, certified{beyond}", quantity::speedup(speedup), quantity::claim(speedup));
        }
        if let Some(counts) = &self.counted {
            return format!("right: {}", plain(&counts.to_string()));
        }
        if let Some(code) = &self.compiled {
            return plain(&code.to_string());
        }
        let ends = || (self.end == Some(End::RecordEnds)).then(|| "what answers holds no further reply".to_owned());
        let why = self.trouble.clone().or_else(ends).map(|why| format!(" ({})", plain(&why))).unwrap_or_default();
        format!("nothing correct{why}")
    }

    /// Whether it ended without a single candidate that could be read: the model's doing.
    #[must_use]
    pub fn is_speechless(&self) -> bool {
        self.end.is_some() && !self.has_candidate && self.trouble.is_some()
    }

    /// Takes in one event.
    pub fn take_in(&mut self, event: &Event) {
        self.broke_off = None;
        self.used_in(event);
        match event {
            Event::Opened { .. } => self.doing = "choosing the shapes",
            Event::SuiteFrozen { .. } => self.doing = "examining the reference",
            Event::Began { round, step } => {
                let profiles = matches!(step, Step::Optimize { .. });
                self.of_reference = matches!(step, Step::Baseline);
                (self.open, self.doing) = (Some(*round), if profiles { "profiling" } else { "deciding" });
            }
            Event::Asked { call } => self.doing = waiting_for(call.role),
            Event::Wrote { .. } => (self.doing, self.has_candidate) = ("examining the candidate", true),
            Event::Evaluated { evaluation, .. } => {
                self.close();
                if let Evaluation::Passed(timed) = evaluation {
                    self.best = Some(self.best.map_or(timed.speedup.ratio, |best| best.max(timed.speedup.ratio)));
                }
                if let Evaluation::Failed(failure) = evaluation {
                    self.trouble = Some(failure.to_string());
                }
                if let Evaluation::Counted(counts) = evaluation
                    && !self.of_reference
                {
                    self.counted = Some(counts.clone());
                }
                if let Evaluation::Compiled(code) = evaluation
                    && !self.of_reference
                {
                    self.compiled = Some(code.clone());
                }
            }
            Event::NotTimed { why, .. } => {
                self.trouble = Some(format!("right, but it could not be timed: {why}"));
                self.close();
            }
            Event::Unreadable { role, why } => {
                self.trouble = Some(format!("the {} gave no readable reply: {why}", role.name()));
                self.close();
            }
            Event::Certified { certificate, .. } => match &certificate.verdict {
                CertificateVerdict::Certified(timed) => {
                    (self.certified, self.only_as_drawn) = (Some(timed.speedup), timed.only_as_drawn());
                }
                CertificateVerdict::Refused(failure) => self.trouble = Some(format!("not certified: {failure}")),
            },
            Event::Extended { rounds } => {
                (self.end, self.certified, self.only_as_drawn) = (None, None, false);
                self.extended_to = rounds.or(self.extended_to);
            }
            // A workflow that goes on is certified anew at its end.
            Event::Ordered(_) if self.end.is_some() => {
                (self.end, self.certified, self.only_as_drawn) = (None, None, false);
            }
            Event::BrokeOff { why } => (self.broke_off, self.doing) = (Some(why.clone()), "broken off"),
            Event::Ended { end } => (self.end, self.doing) = (Some(*end), "ended"),
            Event::Spent { lease: Some(lease), .. } => self.device = Some(lease.device.clone()),
            _ => {}
        }
    }

    fn close(&mut self) {
        self.rounds += u32::from(self.open.take().is_some_and(|round| round > 0));
        self.doing = "deciding";
    }

    fn used_in(&mut self, event: &Event) {
        let used = Used::in_event(event);
        self.used.add(&used);
    }
}

fn waiting_for(role: agents::llm::Role) -> &'static str {
    use agents::llm::Role;
    match role {
        Role::Coder => "waiting for the coder",
        Role::Judge => "waiting for the judge",
        Role::Tester => "waiting for the tester",
        Role::Planner => "waiting for the planner",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right_only_as_drawn_is_so_until_more_rounds_are_asked_for() {
        let mut standing = Standing::default();
        let sample = crate::report::sample::certified_as_drawn();
        sample.lines.iter().for_each(|line| standing.take_in(&line.event));
        assert!(standing.came_to().ends_with("faster, certified, and wrong on inputs that the task does not draw"));
        standing.take_in(&Event::Extended { rounds: Some(9) });
        assert!(!standing.only_as_drawn && standing.certified.is_none());
    }

    #[test]
    fn a_run_that_had_ended_goes_on_with_what_was_ordered_since() {
        let hash = kernelbench::Hash::of(b"c1");
        let order = serde_json::json!({
            "event": "ordered", "transformation": "tune", "definition": hash, "from": hash, "tries": 1, "by_hand": true,
        });
        let mut standing = Standing::default();
        standing.take_in(&Event::Ended { end: End::SequenceEnds });
        standing.certified = serde_json::from_str(r#"{"ratio": 2.0, "interval": {"low": 1.9, "high": 2.1}}"#).unwrap();
        standing.take_in(&serde_json::from_value(order).unwrap());
        assert_eq!((standing.end, standing.certified), (None, None));
    }

    #[test]
    fn a_task_that_came_to_nothing_says_why() {
        let mut standing = Standing::default();
        standing.take_in(&Event::Ended { end: End::RecordEnds });
        assert_eq!(standing.came_to(), "nothing correct (what answers holds no further reply)");
    }
}
