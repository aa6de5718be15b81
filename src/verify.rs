//! Does what a record says follow from what it holds?
//!
//! Every text is compared with its hash, every ratio and interval with its samples, every step, candidate and certificate with
//! the fold of what stands before it, and every certificate's evidence with the lines that it was noted after.

use crate::{
    plan,
    store::{Record, timed},
};
use agents::{
    event::{Event, Line},
    head,
    policy::{self, Decider, Policy},
    trajectory::Trajectory,
    validator::Validated,
};
use kernelbench::{Bindings, CandidateId, CertificateVerdict, Failure, Timed};
use serde::Serialize;
use std::{collections::BTreeSet, ops::ControlFlow};

/// What looking at a record found.
#[derive(Debug, Default, Serialize)]
pub struct Verification {
    /// Events that were looked at.
    pub events: usize,
    /// Texts that they name.
    pub texts: usize,
    /// Evaluations and certificates whose numbers were computed again from their samples.
    pub timings: usize,
    /// What each certificate rests on, as far as the record says: two copies of a run with other evidence differ somewhere.
    pub evidence: Vec<String>,
    /// What does not follow, in words; by event where one is at fault.
    pub differences: Vec<String>,
}

impl Verification {
    /// Of one task's record.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        let mut found = Self { events: record.lines.len(), ..Self::default() };
        found.texts(record);
        found.timings(record);
        found.story(record);
        found.certificates(record);
        found
    }

    fn differs(&mut self, line: &Line, what: impl std::fmt::Display) {
        self.differences.push(format!("event {}: {what}", line.seq));
    }

    fn texts(&mut self, record: &Record) {
        let mut seen = BTreeSet::new();
        for line in &record.lines {
            for text in line.event.texts() {
                if seen.insert(text)
                    && let Err(why) = record.blobs.fetch(text)
                {
                    self.differs(line, why);
                }
            }
        }
        self.texts = seen.len();
    }

    fn timings(&mut self, record: &Record) {
        for line in &record.lines {
            let Some(timed) = timed(&line.event) else { continue };
            self.timings += 1;
            if let Err(why) = Timed::recompute(timed) {
                self.differs(line, why);
            }
        }
    }

    /// What is done next, and what is certified, follows from what happened before.
    fn story(&mut self, record: &Record) {
        let policy = record.lines.first().and_then(|line| match &line.event {
            Event::Opened { policy, .. } => plan::parse("the record's policy", &record.blobs.fetch(policy).ok()?).ok(),
            _ => None,
        });
        let mut so_far = Trajectory::default();
        for line in &record.lines {
            if let Err(why) = follows(&line.event, &so_far, policy.as_ref()) {
                self.differs(line, why);
            }
            so_far.apply(line.event.clone());
        }
    }

    fn certificates(&mut self, record: &Record) {
        let certified = record.lines.iter().filter(|line| matches!(line.event, Event::Certified { .. }));
        for (line, computed) in certified.zip(&record.evidence) {
            let Event::Certified { evidence: Some(said), .. } = &line.event else { continue };
            self.evidence.push(said.to_string());
            if said != computed {
                self.differs(
                    line,
                    format!("the certificate's evidence is {said}, and what stands here comes to {computed}"),
                );
            }
        }
    }
}

/// Whether this is what failed of the configurations of an open candidate.
fn is_configuration(candidate: &CandidateId, so_far: &Trajectory) -> bool {
    so_far.open().is_some_and(|round| {
        let failed = |last: Option<&(Bindings, Option<Failure>)>| last.is_some_and(|(_, failure)| failure.is_some());
        let found = |last: Option<&(String, Bindings, Validated)>| {
            last.is_some_and(|(.., v)| matches!(v, Validated::Failed(_)))
        };
        failed(round.checked.last())
            || failed(round.sanitized.last())
            || found(round.validated.last())
            || round.tried.iter().any(|tried| tried.candidate == *candidate)
    })
}

fn follows(event: &Event, so_far: &Trajectory, policy: Option<&Policy>) -> Result<(), String> {
    match event {
        Event::Began { step, .. } => {
            let Some(policy) = policy.filter(|policy| policy.planner == Decider::Rule) else { return Ok(()) };
            match policy::next(so_far, policy) {
                ControlFlow::Continue(next) if next == *step => Ok(()),
                ControlFlow::Continue(next) => {
                    Err(format!("the step is {}, and by its policy it is {}", step.name(), next.name()))
                }
                ControlFlow::Break(_) => Ok(()),
            }
        }
        Event::Evaluated { candidate, .. } => match so_far.open().and_then(|round| round.candidate.as_ref()) {
            Some(written) if written != candidate && !is_configuration(candidate, so_far) => {
                Err(format!("{} was evaluated, and {} was written", candidate.short(), written.short()))
            }
            _ => Ok(()),
        },
        Event::Weighed(weighed) => {
            let Some(policy) = policy else { return Ok(()) };
            let (over_head, slower) = (head::over_head(so_far, &weighed.candidate), policy.slower.unwrap_or_default());
            let (accepted, why) = head::decide(over_head.as_ref(), weighed.fired(), slower);
            if over_head == weighed.over_head && (accepted, why) == (weighed.accepted, weighed.why.as_str()) {
                return Ok(());
            }
            let name = weighed.candidate.short();
            Err(format!("{name} was weighed as {:?}, and by its times and counters it is {why:?}", weighed.why))
        }
        Event::Certified { certificate, .. } => {
            let name = certificate.candidate.short();
            match (so_far.best(), &certificate.verdict) {
                (Some(best), _) if best.candidate == certificate.candidate => Ok(()),
                (Some(best), _) => Err(format!("{name} was certified, and the best was {}", best.candidate.short())),
                (None, CertificateVerdict::Certified(_)) => Err(format!("{name} was certified, and never passed")),
                (None, CertificateVerdict::Refused(_)) => Ok(()),
            }
        }
        _ => Ok(()),
    }
}
