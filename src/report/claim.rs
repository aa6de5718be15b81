//! What may be claimed, in the largest letters of the page?

use crate::quantity;
use agents::trajectory::Trajectory;
use kernelbench::{CertificateVerdict, Timed};
use metrics::{Claim, MachineKind};
use serde::Serialize;

/// The claim and what it rests on.
#[derive(Serialize)]
pub(super) struct Headline {
    /// For the style sheet: faster, slower, same or none.
    pub(super) kind: &'static str,
    /// A number or a few words.
    pub(super) words: String,
    /// What the number is.
    pub(super) detail: String,
    /// What a reader must not overlook.
    pub(super) warnings: Vec<String>,
}

impl Headline {
    pub(super) fn of(story: &Trajectory) -> Self {
        let (kind, words, detail) = match (certified(story), story.best()) {
            (Some(timed), _) => measured(timed),
            (None, Some(best)) => (
                "none",
                "Not certified".into(),
                format!(
                    "The best candidate so far measured {} in round {}. Only a certified number counts, and this one has no certificate.",
                    quantity::speedup(&best.speedup),
                    best.round
                ),
            ),
            (None, None) => nothing(story),
        };
        if simulated(story) {
            return Self { kind: "none", words: format!("Simulated: {words}"), detail, warnings: warnings(story) };
        }
        Self { kind, words, detail, warnings: warnings(story) }
    }
}

/// The certified times, if there are any.
pub(super) fn certified(story: &Trajectory) -> Option<&Timed> {
    match &story.certified()?.verdict {
        CertificateVerdict::Certified(timed) => Some(timed),
        CertificateVerdict::Refused(_) => None,
    }
}

fn measured(timed: &Timed) -> (&'static str, String, String) {
    let interval = quantity::interval(&timed.speedup);
    let ratio = quantity::ratio(&timed.speedup);
    let (over, beside) = (over(timed), timed.over());
    match timed.speedup.claim() {
        Claim::Faster => {
            ("faster", ratio, format!("the speed of {beside}{over}. 95 % interval: {interval}. Certified."))
        }
        Claim::Slower => (
            "slower",
            ratio,
            format!("the speed of {beside}{over}: the best correct candidate is slower. 95 % interval: {interval}."),
        ),
        Claim::NoDifference => (
            "same",
            "No difference".into(),
            format!("The certified ratio to {beside}{over} is {ratio}; its 95 % interval, {interval}, holds 1."),
        ),
    }
}

fn over(timed: &Timed) -> String {
    match timed.cases.as_slice() {
        [one] => format!(" on case {}", one.case),
        several => format!(", geometric mean over {} cases", several.len()),
    }
}

fn nothing(story: &Trajectory) -> (&'static str, String, String) {
    if let Some((candidate, counts)) = story.counted() {
        let words = format!("Right on an emulated {}", counts.processor.full_name());
        let why = "An emulator has no times, so nothing here is faster than anything, and nothing is certified.";
        return ("none", words, format!("Candidate {}: {counts}. {why}", candidate.short()));
    }
    if let Some((candidate, code)) = story.compiled() {
        let words = format!("Compiled, not run, for {}", code.arch);
        let why = "The GPU is not here, so nothing is known of its answers or its speed, and nothing is certified.";
        return ("none", words, format!("Candidate {}: {code}. {why}", candidate.short()));
    }
    let refused = story.certificates.last().and_then(|certificate| match &certificate.verdict {
        CertificateVerdict::Refused(failure) => Some((certificate.candidate.short(), failure)),
        CertificateVerdict::Certified(_) => None,
    });
    let rounds = story.finished().count();
    match refused {
        Some((candidate, failure)) => (
            "none",
            "Nothing was certified".into(),
            format!(
                "No candidate that passed in the loop passed again when examined anew; the last, {candidate}: {failure}."
            ),
        ),
        None if rounds == 0 => ("none", "Nothing was tried".into(), "No round has ended yet.".into()),
        None => ("none", "Nothing correct was found".into(), format!("None of {rounds} rounds gave a right answer.")),
    }
}

fn simulated(story: &Trajectory) -> bool {
    story.machine.as_ref().is_some_and(|machine| machine.kind == MachineKind::Simulated)
}

fn warnings(story: &Trajectory) -> Vec<String> {
    let mut warnings = vec![];
    if simulated(story) {
        warnings.push("This run was simulated: no kernel ran, and its numbers say nothing about any machine.".into());
    }
    if let Some(why) = &story.broke_off {
        warnings.push(format!("The run broke off and can be resumed: {why}"));
    } else if story.end.is_none() {
        warnings.push("The run has not ended: what follows is as far as it got.".into());
    }
    warnings
}
