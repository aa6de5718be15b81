//! Which kernel goes back, of which run, and what is claimed of it?

use crate::{exit::Trouble, quantity, sglang::operator, store::RunFolder};
use agents::trajectory::Trajectory;
use kernelbench::{
    CandidateId, Case, Certificate, CertificateVerdict, Evaluation, Gate, Hash, KernelContext, Origin, Task,
};
use metrics::Claim;
use std::path::Path;

/// The framework that kernels go back into.
const FRAMEWORK: &str = "sglang";

/// A kernel that goes back.
#[derive(Debug)]
pub struct Found {
    /// Its task's context.
    context: KernelContext,
    /// Where the reference was taken from.
    origin: Origin,
    /// Its hash.
    pub candidate: CandidateId,
    /// Its text.
    pub source: String,
    /// The certificate, where it is the certified one.
    pub certificate: Option<Certificate>,
    /// The shapes that it was checked on: those of the certificate too, where there is one.
    pub shapes: Vec<Case>,
    /// The compute capability of the GPU that it ran on.
    pub capability: (u32, u32),
    /// That GPU's name.
    pub machine: String,
}

impl Found {
    /// The certified kernels of this run, or the candidate that is named, certified or not.
    ///
    /// # Errors
    ///
    /// If the run cannot be read, none of its tasks was taken out of SGLang, or there is no such kernel.
    pub fn of(run: &Path, named: Option<&str>) -> Result<Vec<Self>, Trouble> {
        let folder = RunFolder::open(run)?;
        let (mut found, mut left_out) = (vec![], vec![]);
        for name in folder.tasks()? {
            let record = folder.record(&name)?;
            let story: Trajectory = record.events().collect();
            let fetch = |hash: &Hash| record.blobs.fetch(hash).ok();
            match Self::in_story(&story, named, &fetch) {
                Ok(one) => found.push(one),
                Err(why) => left_out.push(format!("\n  {}: {why}", crate::progress::plain(&name))),
            }
        }
        if found.is_empty() {
            let why = format!("{}: there is nothing to put back{}", run.display(), left_out.concat());
            return Err(Trouble::usage(why));
        }
        Ok(found)
    }

    fn in_story(
        story: &Trajectory,
        named: Option<&str>,
        fetch: &dyn Fn(&Hash) -> Option<String>,
    ) -> Result<Self, String> {
        let task = story.task.as_ref().and_then(fetch).ok_or("its record lacks the task")?;
        let task: Task = serde_json::from_str(&task).map_err(|e| format!("its task cannot be read: {e}"))?;
        let (context, origin) = came_from_sglang(&task)?;
        let certified = story.certified();
        let candidate = if let Some(named) = named {
            let candidate = one_of(story, named)?;
            passed(story, &candidate)?;
            candidate
        } else {
            let why = "it has no certified candidate: go on with it (`warpsmith resume`), or name a candidate with --candidate, which the export will say";
            certified.ok_or(why)?.candidate.clone()
        };
        let certificate = certified.filter(|certificate| certificate.candidate == candidate).cloned();
        let source = fetch(&candidate).ok_or_else(|| format!("its record lacks the text of {candidate}"))?;
        // A certificate is of the task's own shapes; those that a model proposed for the loop are not among them.
        let mut shapes = task.cases.clone();
        if certificate.is_some() {
            shapes.extend(task.final_cases.iter().cloned());
        }
        let shapes = shapes.into_iter().fold(vec![], |mut all: Vec<Case>, shape| {
            if !all.iter().any(|other| other.scalars == shape.scalars) {
                all.push(shape);
            }
            all
        });
        let machine = story.machine.as_ref().ok_or("its record does not say on which machine it ran")?;
        let capability = machine.facts.iter().find(|fact| fact.name == "compute capability");
        let capability = capability.and_then(|fact| version(&fact.value)).ok_or_else(|| {
            let name = crate::progress::plain(&machine.name);
            format!("it ran on {name}, whose compute capability is not known: a kernel for a GPU is tried on one")
        })?;
        Ok(Self { candidate, source, certificate, shapes, capability, machine: machine.name.clone(), context, origin })
    }

    /// The kernel's context.
    #[must_use]
    pub fn context(&self) -> &KernelContext {
        &self.context
    }

    /// Where its reference was taken from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether its text is the framework's own.
    #[must_use]
    pub fn is_original(&self) -> bool {
        self.source == self.context.reference
    }

    /// What is claimed of it, in a line.
    #[must_use]
    pub fn summary(&self) -> String {
        match self.certificate.as_ref().map(|certificate| &certificate.verdict) {
            Some(CertificateVerdict::Certified(timed)) => format!(
                "certified: {} over the original in warpsmith's harness, on {}, {} shapes checked{}",
                quantity::speedup(&timed.speedup),
                crate::progress::plain(&self.machine),
                self.shapes.len(),
                if self.is_original() {
                    "; it is the original's own text: nothing faster was found, and putting it back changes nothing"
                } else if timed.speedup.claim() == Claim::NoDifference {
                    "; no difference"
                } else {
                    ""
                }
            ),
            _ => format!("NOT CERTIFIED: candidate {} was named by hand", self.candidate),
        }
    }

    /// What the gate said of what was taken out, in a line.
    #[must_use]
    pub fn gate(&self) -> &'static str {
        match self.origin.gate {
            Some(Gate::Passed) => {
                "the gate passed: what was taken out had the bits and the time of sglang's own operator"
            }
            Some(Gate::NotRun | Gate::Refused) => {
                "WARNING: the gate was not run: nobody compared what was taken out with sglang's own operator, so a speedup is over the extract alone"
            }
            None => {
                "nothing is known of the gate: the run's record does not say whether what was taken out was compared with sglang's own operator"
            }
        }
    }
}

fn came_from_sglang(task: &Task) -> Result<(KernelContext, Origin), String> {
    match task.context().and_then(|context| Some((context, context.origin.as_ref()?))) {
        Some((context, origin)) if origin.framework == FRAMEWORK => {
            is_sound(origin)?;
            Ok((context.clone(), (**origin).clone()))
        }
        Some((_, origin)) => {
            let framework = crate::progress::plain(&origin.framework);
            Err(format!("it was taken out of {framework}, not out of SGLang"))
        }
        None => Err("it was not taken out of SGLang, so there is no place to put it back to: `warpsmith sglang extract` makes tasks that have one".to_owned()),
    }
}

/// Whether what a run's folder says of the origin can stand in files that others run: a run may come from elsewhere.
fn is_sound(origin: &Origin) -> Result<(), String> {
    let operator = operator::named(&origin.operator)?;
    operator.precision(&origin.dtype)?;
    if origin.gate == Some(Gate::Refused) {
        return Err("the gate refused what was taken out: it is not sglang's own operator (gate.json beside the task has why); take it out anew".to_owned());
    }
    let plain = |text: &str, more: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    let file = plain(&origin.file, "._-/") && origin.file.split('/').all(|part| !part.is_empty() && part != "..");
    let sound = file && plain(&origin.version, ".+-_, ") && plain(&origin.sha256, "");
    sound.then_some(()).ok_or_else(|| {
        "its [origin] is not what `warpsmith sglang extract` writes (file, version or sha256): take it out anew"
            .to_owned()
    })
}

/// The candidate of this hash or beginning of one.
fn one_of(story: &Trajectory, named: &str) -> Result<CandidateId, String> {
    let mut all: Vec<_> = story.rounds.iter().filter_map(|round| round.candidate.as_ref()).collect();
    all.sort_by_key(|candidate| candidate.as_str());
    all.dedup();
    let mut fitting = all.iter().filter(|candidate| candidate.as_str().starts_with(named));
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Ok((*one).clone()),
        (Some(_), Some(_)) => {
            Err(format!("more than one of its candidates begins with {named}: give more of the hash"))
        }
        (None, _) => Err(format!("none of its candidates begins with {named}: `warpsmith show RUN` lists them")),
    }
}

/// Whether the shapes that the export will name were those that it was right on.
fn passed(story: &Trajectory, candidate: &CandidateId) -> Result<(), String> {
    let of_it = |round: &&agents::trajectory::Round| round.candidate.as_ref() == Some(candidate);
    match story.rounds.iter().rev().filter(of_it).find_map(|round| round.evaluation.as_ref()) {
        Some(Evaluation::Passed(_)) => Ok(()),
        Some(Evaluation::Failed(failure)) => {
            let failure = crate::progress::plain(&failure.to_string());
            Err(format!(
                "candidate {candidate} failed when it was evaluated: {failure}; name one that passed, `warpsmith show RUN` lists them"
            ))
        }
        None => Err(format!("candidate {candidate} was never evaluated: go on with the run (`warpsmith resume`)")),
    }
}

fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
