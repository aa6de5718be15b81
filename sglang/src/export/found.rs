//! Which kernel goes back, and what is claimed of it?

use crate::operator;
use kernelbench::{CandidateId, Case, Certificate, CertificateVerdict, Gate, KernelContext, Origin, Task, plain};
use metrics::{Claim, Machine, quantity};

/// The framework that kernels go back into.
const FRAMEWORK: &str = "sglang";

/// A task that was taken out of SGLang, and so has a place that a kernel goes back to.
#[derive(Debug)]
pub struct Extracted {
    context: KernelContext,
    origin: Origin,
    cases: Vec<Case>,
    final_cases: Vec<Case>,
}

impl Extracted {
    /// This task.
    ///
    /// # Errors
    ///
    /// If it was not taken out of SGLang, the gate refused it, or its origin is not as `extract` writes it.
    pub fn of(task: &Task) -> Result<Self, String> {
        let (context, origin) = came_from_sglang(task)?;
        Ok(Self { context, origin, cases: task.cases.clone(), final_cases: task.final_cases.clone() })
    }

    /// A kernel for it, which ran on this machine; the certificate, where it is the certified one.
    ///
    /// # Errors
    ///
    /// If the machine's compute capability is not known.
    pub fn kernel(
        self,
        candidate: CandidateId,
        source: String,
        certificate: Option<Certificate>,
        machine: &Machine,
    ) -> Result<Found, String> {
        let Self { context, origin, cases: mut shapes, final_cases } = self;
        // A certificate is of the task's own shapes; those that a model proposed for the loop are not among them.
        if certificate.is_some() {
            shapes.extend(final_cases);
        }
        let shapes = shapes.into_iter().fold(vec![], |mut all: Vec<Case>, shape| {
            if !all.iter().any(|other| other.scalars == shape.scalars) {
                all.push(shape);
            }
            all
        });
        let capability = machine.facts.iter().find(|fact| fact.name == "compute capability");
        let capability = capability.and_then(|fact| version(&fact.value)).ok_or_else(|| {
            let name = plain(&machine.name);
            format!("it ran on {name}, whose compute capability is not known: a kernel for a GPU is tried on one")
        })?;
        Ok(Found { candidate, source, certificate, shapes, capability, machine: machine.name.clone(), context, origin })
    }
}

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
                plain(&self.machine),
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
            let framework = plain(&origin.framework);
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

fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
