//! A whole step of a workshop as a message: what is asked, what came of it, and who did it.
//!
//! A whole step is what another host is asked for: an evaluation is building, checking and timing on one device.

use crate::{
    hash::Hash,
    result::{
        candidate::Candidate,
        certificate::Certificate,
        evaluation::Evaluation,
        failure::{Failure, Fault},
    },
    stage::{Hand, Recorder, Stretch},
    task::{Case, Task, suite::Suite},
    workshop::{Baseline, TimingPlan, Workshop},
};
use metrics::Profile;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A whole step for one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// For which task.
    pub task: Arc<Task>,
    /// What to do.
    pub asked: Asked,
}

/// What a whole step is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum Asked {
    /// Say which shapes fit the machine.
    Fit {
        /// Those proposed.
        cases: Vec<Case>,
    },
    /// Build, check and time the reference.
    Prepare {
        /// On which shapes.
        suite: Suite,
        /// How it is timed.
        plan: TimingPlan,
    },
    /// Build, check and time a candidate.
    Evaluate {
        /// Which.
        candidate: Candidate,
        /// On which shapes.
        suite: Suite,
        /// How it is timed.
        plan: TimingPlan,
        /// By what part the reference may differ from itself, as it was seen to.
        self_difference: f64,
    },
    /// Build and check a candidate, and do not time it.
    Check {
        /// Which.
        candidate: Candidate,
        /// On which shapes.
        suite: Suite,
        /// Whether it runs under sanitizers too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        sanitize: bool,
    },
    /// Build, check and profile a candidate.
    Profile {
        /// Which.
        candidate: Candidate,
        /// On which shapes.
        suite: Suite,
    },
    /// Rebuild a candidate from its text alone, check and time it anew.
    Certify {
        /// Which.
        candidate: Candidate,
        /// How it is timed.
        plan: TimingPlan,
    },
}

impl Asked {
    /// What people call it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fit { .. } => "fit",
            Self::Prepare { .. } => "prepare",
            Self::Evaluate { .. } => "evaluate",
            Self::Check { .. } => "check",
            Self::Profile { .. } => "profile",
            Self::Certify { .. } => "certify",
        }
    }

    /// The bytes that its blob holds and its name is the hash of. How far a reference differs from itself is a property of
    /// the device that takes it, which may change on the way, and not part of what is asked.
    #[must_use]
    pub fn canonical(&self) -> Vec<u8> {
        let mut asked = self.clone();
        if let Self::Evaluate { self_difference, .. } = &mut asked {
            *self_difference = 0.0;
        }
        // Texts, whole numbers and a zero always make JSON.
        serde_json::to_vec(&asked).unwrap_or_default()
    }
}

/// What came of a whole step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// The bytes that each case takes, or why it does not fit.
    Fits(Vec<Result<u64, String>>),
    /// What is known of the reference.
    Prepared(Baseline),
    /// What came of a candidate.
    Evaluated(Evaluation),
    /// How it failed; none where it is right.
    Checked(Option<Failure>),
    /// Where its time goes, or why nothing was measured.
    Profiled(Result<Profile, String>),
    /// What is claimed of it.
    Certified(Certificate),
}

/// What came of a whole step, who did it, and what the time was spent on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// What it came to.
    pub found: Result<Found, Fault>,
    /// Who did it.
    pub hand: Hand,
    /// What the time was spent on, in order, by a clock that was 0 when it began.
    pub stages: Vec<Stretch>,
}

impl Job {
    /// The bytes of its task, whose hash names the task's blob.
    #[must_use]
    pub fn task_text(&self) -> Vec<u8> {
        // A task is texts and numbers that were read from a file: it always makes JSON.
        serde_json::to_vec(&*self.task).unwrap_or_default()
    }

    /// What it is called among workers of one class: the hash of the task, of all that is asked, and of the class, which says
    /// the GPU and the toolchain. The same job has the same name wherever and however often it is asked for.
    #[must_use]
    pub fn id(&self, class: &str) -> Hash {
        let [task, asked] = [Hash::of(&self.task_text()), Hash::of(&self.asked.canonical())];
        Hash::of(format!("job\n{task}\n{asked}\n{class}").as_bytes())
    }

    /// Does it in this workshop, step by step, and says what the time was spent on.
    pub async fn work(&self, workshop: &dyn Workshop) -> (Result<Found, Fault>, Vec<Stretch>) {
        let recorder = Recorder::begin(0);
        let found = recorder.record(self.found(workshop)).await;
        (found, recorder.stretches())
    }

    async fn found(&self, workshop: &dyn Workshop) -> Result<Found, Fault> {
        let task = &*self.task;
        Ok(match &self.asked {
            Asked::Fit { cases } => Found::Fits(workshop.fits(task, cases).await?),
            Asked::Prepare { suite, plan } => Found::Prepared(workshop.prepare(task, suite, plan).await?),
            Asked::Evaluate { candidate, suite, plan, self_difference } => {
                Found::Evaluated(evaluated(workshop, task, candidate, suite, plan, *self_difference).await?)
            }
            Asked::Check { candidate, suite, sanitize } => {
                let built = workshop.build(task, candidate).await?;
                let verified = match built {
                    Ok(built) => workshop.check(task, built, suite).await?,
                    Err(failure) => Err(failure),
                };
                Found::Checked(match verified {
                    Ok(verified) if *sanitize => workshop.sanitize(task, &verified).await?.err(),
                    verified => verified.err(),
                })
            }
            Asked::Profile { candidate, suite } => Found::Profiled(profiled(workshop, task, candidate, suite).await?),
            Asked::Certify { candidate, plan } => {
                let rebuilt = workshop.rebuild(task, candidate).await?;
                Found::Certified(workshop.certify(task, rebuilt, plan).await?)
            }
        })
    }
}

async fn evaluated(
    workshop: &dyn Workshop,
    task: &Task,
    candidate: &Candidate,
    suite: &Suite,
    plan: &TimingPlan,
    self_difference: f64,
) -> Result<Evaluation, Fault> {
    let built = match workshop.build(task, candidate).await? {
        Ok(built) => built,
        Err(failure) => return Ok(Evaluation::Failed(failure)),
    };
    // Read before a candidate runs, in a folder that it may not write to.
    let object = std::fs::read(built.artifact()).ok().map(|content| Hash::of(&content));
    let mut evaluation = if plan.glance {
        workshop.glance(task, built, suite, plan, self_difference).await?
    } else {
        let verified = match workshop.check(task, built, suite).await? {
            Ok(verified) => verified,
            Err(failure) => return Ok(Evaluation::Failed(failure)),
        };
        workshop.measure(task, &verified, suite, plan, self_difference).await?
    };
    if let Evaluation::Passed(timed) = &mut evaluation {
        timed.object = object.or(timed.object.take());
    }
    Ok(evaluation)
}

async fn profiled(
    workshop: &dyn Workshop,
    task: &Task,
    candidate: &Candidate,
    suite: &Suite,
) -> Result<Result<Profile, String>, Fault> {
    let not = |failure: Failure| Ok(Err(format!("not measured: {failure}")));
    let built = match workshop.build(task, candidate).await? {
        Ok(built) => built,
        Err(failure) => return not(failure),
    };
    match workshop.check(task, built, suite).await? {
        Ok(verified) => Ok(Ok(workshop.profile(task, &verified, suite).await?)),
        Err(failure) => not(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(source: &str, self_difference: f64) -> Job {
        let text = include_str!("../../../examples/silu_and_mul/task.toml");
        assert!(!text.is_empty());
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/silu_and_mul");
        let task = Arc::new(crate::load::task(&folder).unwrap());
        let (suite, plan) = (Suite::of_task(&task), TimingPlan::median_of(1, 3));
        let candidate = Candidate::new(source);
        Job { task, asked: Asked::Evaluate { candidate, suite, plan, self_difference } }
    }

    #[test]
    fn a_job_is_called_by_what_is_asked_of_whom_and_not_by_what_a_device_is_like() {
        let id = |source, difference, class| job(source, difference).id(class);
        assert_eq!(id("a", 0.0, "h200"), id("a", 0.1, "h200"));
        assert_ne!(id("a", 0.0, "h200"), id("b", 0.0, "h200"));
        assert_ne!(id("a", 0.0, "h200"), id("a", 0.0, "h100"));
        let profile = match job("a", 0.0) {
            Job { task, asked: Asked::Evaluate { candidate, suite, .. } } => {
                Job { task, asked: Asked::Profile { candidate, suite } }
            }
            _ => unreachable!("it is an evaluation"),
        };
        assert_ne!(profile.id("h200"), id("a", 0.0, "h200"));
    }

    #[tokio::test]
    async fn a_check_is_sanitized_where_that_is_asked_for_and_is_then_another_job() {
        let workshop = crate::Simulated::new();
        let check = |source: &str, sanitize: bool| {
            let Job { task, asked: Asked::Evaluate { candidate, suite, .. } } = job(source, 0.0) else {
                unreachable!("it is an evaluation")
            };
            Job { task, asked: Asked::Check { candidate, suite, sanitize } }
        };
        for (source, sanitize, fails) in
            [("// simulate: racy", true, true), ("// simulate: racy", false, false), ("// simulate: us=1", true, false)]
        {
            let (found, _) = check(source, sanitize).work(&workshop).await;
            let Ok(Found::Checked(failure)) = found else { unreachable!("{found:?}") };
            assert_eq!(matches!(failure, Some(Failure::Sanitizer { .. })), fails, "{source}: {failure:?}");
        }
        assert_ne!(check("a", true).id("h200"), check("a", false).id("h200"));
    }

    #[test]
    fn a_job_comes_out_of_json_as_it_went_in() {
        let whole = job("a", 0.25);
        let text = serde_json::to_string(&whole).unwrap();
        assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), whole);
    }
}
