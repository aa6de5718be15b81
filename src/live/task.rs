//! What was seen of one task: a fold over its events, which its record is followed for.

use super::row::Turn;
use crate::{batch::standing::Standing, progress::plain, quantity};
use agents::event::{Event, Line};
use kernelbench::{CandidateId, CertificateVerdict, Evaluation};
use metrics::{Claim, Speedup};
use prompts::Verdict;

/// A task as far as its record was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) standing: Standing,
    /// Its rounds, the last of which may be under way.
    pub(super) turns: Vec<Turn>,
    /// What was right, in order, and not refused since.
    right: Vec<(CandidateId, Speedup)>,
    /// When the last event was noted, in milliseconds since 1970-01-01 UTC; none before the first.
    pub(super) at_ms: Option<i64>,
}

impl Seen {
    /// Takes in one line; gives the round that it ended.
    pub(super) fn take_in(&mut self, line: &Line) -> Option<Turn> {
        self.standing.take_in(&line.event);
        self.at_ms = Some(line.at_ms);
        match &line.event {
            Event::Began { round, step } => {
                self.turns.retain(|turn| turn.number != *round);
                self.turns.push(Turn::begun(*round, step.name(), line.at_ms));
            }
            Event::Judged { verdict, .. } => self.advised(match verdict {
                Verdict::Fix(fix) => &fix.minimal_fix_hint,
                Verdict::Optimization(optimization) => &optimization.method,
            }),
            Event::Ranked { approaches } => {
                self.advised(approaches.items.first().map(String::as_str).unwrap_or_default());
            }
            Event::Suggested { suggestions, .. } => {
                self.advised(suggestions.items.first().map(String::as_str).unwrap_or_default());
            }
            Event::Evaluated { candidate, evaluation } => return self.evaluated(candidate, evaluation, line.at_ms),
            Event::NotTimed { why, .. } => {
                return self.over("failed", &format!("right, but it could not be timed: {why}"), line.at_ms);
            }
            Event::Unreadable { role, why } => {
                return self.over("failed", &format!("the {} gave no readable reply: {why}", role.name()), line.at_ms);
            }
            Event::Certified { certificate, .. } => {
                if let CertificateVerdict::Refused(_) = certificate.verdict {
                    self.right.retain(|(candidate, _)| *candidate != certificate.candidate);
                }
            }
            _ => {}
        }
        None
    }

    /// The fastest right candidate of its rounds that no certificate has refused.
    pub(super) fn best(&self) -> Option<&Speedup> {
        self.right.iter().map(|(_, speedup)| speedup).max_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }

    fn advised(&mut self, advice: &str) {
        if let Some(turn) = self.turns.last_mut() {
            turn.advice = plain(advice);
        }
    }

    fn evaluated(&mut self, candidate: &CandidateId, evaluation: &Evaluation, at_ms: i64) -> Option<Turn> {
        match evaluation {
            Evaluation::Passed(timed) => {
                self.right.push((candidate.clone(), timed.speedup));
                self.over(kind(&timed.speedup), &told(&timed.speedup), at_ms)
            }
            Evaluation::Counted(counts) => self.over("none", &format!("right: {counts}"), at_ms),
            Evaluation::Compiled(code) => self.over("none", &code.to_string(), at_ms),
            Evaluation::Failed(failure) => self.over("failed", &failure.to_string(), at_ms),
        }
    }

    fn over(&mut self, kind: &'static str, outcome: &str, at_ms: i64) -> Option<Turn> {
        let turn = self.turns.last_mut()?;
        (turn.kind, turn.outcome, turn.at_ms) = (kind, plain(outcome), at_ms);
        Some(turn.clone())
    }
}

/// A speedup and what it allows one to say.
pub(super) fn told(speedup: &Speedup) -> String {
    format!("{}, {}", quantity::speedup(speedup), quantity::claim(speedup))
}

/// For the style sheet: what a speedup allows one to say.
pub(super) fn kind(speedup: &Speedup) -> &'static str {
    match speedup.claim() {
        Claim::Faster => "faster",
        Claim::NoDifference => "same",
        Claim::Slower => "slower",
    }
}
