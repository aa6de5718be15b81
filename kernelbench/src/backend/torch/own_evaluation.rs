//! KernelBench's own evaluation of a certified candidate, unchanged, out of a checkout of it.
//!
//! It compares and times in one process, which is the candidate's too and could say what it likes, so it is confined as a
//! candidate is and decides nothing: what it said stands in the certificate beside what was found here.

use super::{TorchBackend, problem::problem};
use crate::{
    engine::backend::Backend,
    hash::Hash,
    lease::Lease,
    plain::plain,
    profile::tool::{Tool, Tools},
    result::{
        candidate::Candidate,
        certificate::{Check, OwnEvaluation},
        error::fault,
        failure::Fault,
    },
    stage::{self, Stage},
    task::{Problem, Task},
};
use serde::Deserialize;
use serde_json::json;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

/// What it may take once it has the device: it draws inputs of a billion elements on the processor, six times.
const EVALUATING: Duration = Duration::from_mins(15);
/// What it may take to be read once its process has ended.
const AFTERWARDS: Duration = Duration::from_secs(10);
/// How often it is looked whether the candidate's extensions are built.
const LOOK: Duration = Duration::from_millis(20);
/// The file that says that they are, and the one that lets it begin (`harness/kernelbench_eval.py`).
const BUILT: &str = "built";
const GO: &str = "go";
/// Characters of what it says that are kept.
const KEPT: usize = 500;

/// A checkout of KernelBench that evaluates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelBench {
    /// The folder that its package lies in.
    sources: PathBuf,
    /// What names the text of its evaluation and its clock.
    hash: Hash,
}

impl KernelBench {
    /// The checkout in this folder.
    ///
    /// # Errors
    ///
    /// In words, if none is there.
    pub fn at(folder: &Path) -> Result<Self, String> {
        let sources = folder.join("src");
        let text = |name: &str| {
            let path = sources.join("kernelbench").join(name);
            fs::read(&path).map_err(|e| format!("{}: {e}; expected a checkout of KernelBench", path.display()))
        };
        let hash = Hash::of(&[text("eval.py")?, text("timing.py")?].concat());
        let sources = fs::canonicalize(&sources).map_err(|e| format!("{}: {e}", sources.display()))?;
        Ok(Self { sources, hash })
    }
}

/// What its process prints.
#[derive(Deserialize)]
#[serde(untagged)]
enum Said {
    Why { why: String },
    Verdict { correct: bool, ms: Option<f64>, reference_ms: Option<f64>, said: String },
}

impl TorchBackend {
    /// Has KernelBench evaluate a candidate, alone on the device. What hinders it is said in the row.
    pub(super) fn own_evaluation(
        &self,
        task: &Task,
        (candidate, ratio): (&Candidate, f64),
        lease: &mut Lease<'_>,
        be_alone: &dyn Fn(&mut Lease<'_>),
    ) -> Option<Check> {
        let theirs = self.options.kernelbench.as_ref()?;
        let _stage = stage::begin(Stage::Elsewhere);
        let found = self.evaluated(theirs, (task, candidate), lease, be_alone);
        lease.let_others_in();
        let outcome = found.unwrap_or_else(|fault| Err(fault.to_string()));
        Some(Check::KernelBench { version: theirs.hash.short().to_owned(), ours: ratio, outcome })
    }

    fn evaluated(
        &self,
        theirs: &KernelBench,
        (task, candidate): (&Task, &Candidate),
        lease: &mut Lease<'_>,
        be_alone: &dyn Fn(&mut Lease<'_>),
    ) -> Result<Result<OwnEvaluation, String>, Fault> {
        let mark = format!("kernelbench {:016x} ", rand::random::<u64>());
        let tools = self.profilers.tools();
        let readable = tools.readable.iter().cloned().chain([theirs.sources.clone()]).collect();
        let tools = Tools { readable, ..tools.clone() };
        let (folder, user) = tools.folder()?;
        let line = self.asked((theirs, &mark), problem(task)?, candidate, folder.path())?;
        let started = lease.aside(|| {
            let _turn = self.starting.turn().ok();
            let _ = self.starting.wait_for_noise();
            let mut tool = tools.start(line, folder.path(), user, None, self.python.sandbox.has_landlock())?;
            let built = self.starting.while_starting(tool.id(), true, || self.has_built(&mut tool, folder.path()));
            self.starting.release(tool.id());
            Ok::<_, Fault>(built.then_some(tool))
        })?;
        let Some(mut tool) = started else {
            let limit = self.options.build_deadline.as_secs();
            return Ok(Err(format!(
                "importing torch and building the candidate's extensions took more than {limit} s, what a build may take"
            )));
        };
        be_alone(lease);
        let _quiet = self.quiet();
        // Its folder is the candidate's to write in.
        if let Err(error) = File::create_new(folder.path().join(GO)) {
            return Ok(Err(format!("the candidate made a file {GO:?} in the folder of the evaluation: {error}")));
        }
        tool.end_within(EVALUATING);
        Ok(tool.output(AFTERWARDS).and_then(|printed| read(&printed, &mark)))
    }

    /// Waits until it has built the candidate's extensions, as long as a build may take while nobody is timed; whether it has. One
    /// that ended before has said why.
    fn has_built(&self, tool: &mut Tool, folder: &Path) -> bool {
        let mut left = self.options.build_deadline;
        while !left.is_zero() {
            if folder.join(BUILT).exists() || !tool.runs() {
                return true;
            }
            std::thread::sleep(LOOK);
            if !self.starting.is_quiet() {
                left = left.saturating_sub(LOOK);
            }
        }
        false
    }

    /// Its command line, with what it is asked written into its folder.
    fn asked(
        &self,
        (theirs, mark): (&KernelBench, &str),
        problem: &Problem,
        candidate: &Candidate,
        folder: &Path,
    ) -> Result<Vec<String>, Fault> {
        let asked = json!({
            "sources": theirs.sources,
            "device": self.python.own_device(),
            "precision": problem.precision.torch_name(),
            "mark": mark,
        });
        let source = candidate.source().into_owned();
        let files = [("asked", asked.to_string()), ("problem.py", problem.source.clone()), ("candidate.py", source)];
        for (name, text) in files {
            fs::write(folder.join(name), text).map_err(fault("cannot write what KernelBench is asked"))?;
        }
        Ok(self.python.script(&self.python.harness.kernelbench_eval(), &folder.display().to_string()))
    }
}

/// What it said, behind its mark; in words why there is nothing.
fn read(printed: &str, mark: &str) -> Result<OwnEvaluation, String> {
    let kept = |text: &str| plain(text).chars().take(KEPT).collect::<String>();
    let last = || kept(printed.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing"));
    let line = printed.lines().rev().find_map(|line| line.strip_prefix(mark)).ok_or_else(last)?;
    let time = |ms: Option<f64>| ms.filter(|ms| ms.is_finite() && *ms > 0.0);
    match serde_json::from_str(line).map_err(|e| format!("what it printed cannot be read: {e}"))? {
        Said::Why { why } => Err(kept(&why)),
        Said::Verdict { correct: false, said, .. } if Fault::told(said.clone()).is_of_memory() => {
            Err(format!("it found no memory for both: {}", kept(&said)))
        }
        Said::Verdict { correct, ms, reference_ms, said } => {
            Ok(OwnEvaluation { correct, ms: time(ms), reference_ms: time(reference_ms), said: kept(&said) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kernelbench_said_stands_behind_its_mark_and_anything_else_is_why_there_is_nothing() {
        let printed =
            "loading\nkernelbench 1 {\"correct\": true, \"ms\": 2.0, \"reference_ms\": 3.0, \"said\": \"\"}\nbye\n";
        let found = read(printed, "kernelbench 1 ").unwrap();
        assert_eq!((found.correct, found.ratio()), (true, Some(1.5)));
        assert_eq!(read(printed, "kernelbench 2 ").unwrap_err(), "bye");
        let none = "kernelbench 1 {\"correct\": false, \"ms\": -1.0, \"reference_ms\": null, \"said\": \"a: b\"}";
        assert_eq!(read(none, "kernelbench 1 ").unwrap().ratio(), None, "KernelBench's time of what is wrong is -1");
        assert_eq!(read("kernelbench 1 {\"why\": \"no GPU\"}", "kernelbench 1 ").unwrap_err(), "no GPU");
        assert_eq!(read("", "kernelbench 1 ").unwrap_err(), "it printed nothing");
        let memory =
            "kernelbench 1 {\"correct\": false, \"ms\": -1.0, \"said\": \"runtime_error: CUDA out of memory. Tried\"}";
        assert!(read(memory, "kernelbench 1 ").unwrap_err().starts_with("it found no memory"), "that is no verdict");
        let long = format!("kernelbench 1 {{\"why\": \"\u{1b}{}\"}}", "a".repeat(9000)).replace('\u{1b}', "\\u001b");
        let why = read(&long, "kernelbench 1 ").unwrap_err();
        assert!(why.chars().count() == KEPT && !why.contains('\u{1b}'), "{why}");
    }

    #[test]
    fn a_folder_that_is_no_checkout_is_refused_with_the_file_that_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let why = KernelBench::at(folder.path()).unwrap_err();
        assert!(why.contains("src/kernelbench/eval.py") && why.contains("expected a checkout"), "{why}");
    }
}
