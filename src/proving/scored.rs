//! Pass@1: a model is asked once to bring each feature into the kernel that does without it, and nothing is shown to it but
//! that kernel and the feature in a sentence (Hawkeye, B.1).

use super::{Proving, against, task};
use crate::{config::Config, exit::Trouble, wiring};
use agents::llm::{Call, CallId, Llm, Purpose, Role};
use kernelbench::{
    Candidate, Failure, Language, Suite, Task,
    cuda::{self, Options},
    feature::{
        Cell, Column,
        score::{Bucket, Came, bucket, invented},
    },
};
use metrics::{Arch, Machine, feature::Counters};
use prompts::{Optimization, Prompts};
use serde::Serialize;
use std::{fs, path::Path, sync::Arc};

/// What is said of the kernel that does without the feature.
const BOTTLENECK: &str = "The kernel does without a feature of this architecture that it calls for.";
const PLAN: &str = "Write the kernel with this feature; a hardware counter tells whether it runs.";

/// What came of a model's first reply for a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scored {
    /// The cell.
    pub cell: String,
    /// How far it came, or how it failed.
    pub bucket: Bucket,
    /// Intrinsics and instructions that do not exist.
    pub invented: Vec<String>,
    /// How it failed, in words; empty where it did not.
    pub why: String,
}

impl Scored {
    /// It as a line.
    #[must_use]
    pub fn line(&self) -> String {
        let invented = match self.invented.as_slice() {
            [] => String::new(),
            names => format!(" (invented: {})", names.join(", ")),
        };
        let why = if self.why.is_empty() { String::new() } else { format!(": {}", self.why) };
        format!("{:<11} {}{invented}{why}", self.cell, self.bucket.name())
    }
}

/// Who is asked, and where what was said is kept.
pub struct Asking<'a> {
    /// The model.
    pub llm: Arc<dyn Llm>,
    /// The words.
    pub prompts: &'a Prompts,
    /// The machine that it is told of.
    pub machine: Machine,
    /// The column.
    pub column: &'a Column,
    /// Where replies are kept.
    pub out: &'a Path,
}

impl Asking<'_> {
    /// The model's reply for a cell, which is asked for once.
    ///
    /// # Errors
    ///
    /// Where the model does not answer, or its answer cannot be kept.
    pub async fn reply(&self, cell: &Cell) -> Result<String, Trouble> {
        let file = self.out.join(&self.column.name).join(format!("{}.reply.txt", cell.folder));
        if let Ok(known) = fs::read_to_string(&file) {
            return Ok(known);
        }
        let task = task(cell, self.column, self.out)?;
        let wanted = Optimization {
            metrics: vec![],
            bottleneck: BOTTLENECK.to_owned(),
            features: vec![],
            method: format!("{}: {}", cell.name, cell.summary),
            plan: PLAN.to_owned(),
        };
        let prompt = self.prompts.optimize(&task, &self.machine, &Candidate::new(cell.naive()), Some(&wanted));
        let (role, purpose) = (Role::Coder, Purpose::Optimize);
        let id = CallId { task: task.name, round: 1, role, purpose, part: String::new(), attempt: 1 };
        let asked = self.llm.ask(Call { id, prompt }).await;
        let reply = asked.map_err(|e| Trouble { exit: crate::exit::Exit::Model, message: e.to_string() })?;
        fs::write(&file, &reply.text).map_err(|e| Trouble::record(format!("{}: {e}", file.display())))?;
        Ok(reply.text)
    }
}

/// The machine that a model is told of where none of the column is here.
///
/// # Errors
///
/// If no figures of such a GPU are known.
pub fn stand_in(column: &Column) -> Result<Machine, Trouble> {
    let known = metrics::Gpu::known().iter().find(|gpu| column.archs.contains(&gpu.arch()));
    known.map(metrics::Gpu::machine).ok_or_else(|| Trouble::usage(format!("no GPU of {} is known", column.title)))
}

/// Whether a reply compiles, where it cannot be run.
///
/// # Errors
///
/// Where nothing can be built here.
pub fn compiled(cell: &Cell, column: &Column, reply: &str, out: &Path, config: &Config) -> Result<Scored, Trouble> {
    let Ok(candidate) = prompts::read_candidate(reply, Language::Cuda) else {
        return Ok(scored(cell, Bucket::Unreadable, None));
    };
    let Some(arch) = column.archs.first().filter(|arch| matches!(arch, Arch::Cuda { .. })) else {
        return Err(Trouble::machine(format!("nothing here builds for {}", column.title)));
    };
    let (task, source): (Task, _) = (task(cell, column, out)?, candidate.text());
    let options: Options = wiring::cuda_options(config)?;
    Ok(match cuda::build_reference(&options, arch.clone(), &against(&task, &source))? {
        Ok(_) => scored(cell, bucket(column, cell, &source, Came::Built), None),
        Err(failure) => scored(cell, bucket(column, cell, &source, Came::Failed(&failure)), Some(&failure)),
    })
}

impl Proving<'_> {
    /// What a reply comes to on the GPU, beside the example.
    ///
    /// # Errors
    ///
    /// Where the machine fails, or the example itself is not right there.
    pub async fn score(&self, cell: &Cell, reply: &str) -> Result<Scored, Trouble> {
        let Ok(candidate) = prompts::read_candidate(reply, Language::Cuda) else {
            return Ok(scored(cell, Bucket::Unreadable, None));
        };
        let (task, source) = (task(cell, self.column, self.out)?, candidate.text());
        let suite = Suite::of_task(&task);
        self.workshop.prepare(&task, &suite, &super::measured::PLAN).await?;
        let example = self.verified(&task, cell.optimized(), &suite).await?;
        let example =
            example.map_err(|failure| Trouble::machine(format!("the example of {}: {failure}", cell.name)))?;
        let verified = match self.verified(&task, &source, &suite).await? {
            Ok(verified) => verified,
            Err(failure) => {
                return Ok(scored(cell, bucket(self.column, cell, &source, Came::Failed(&failure)), Some(&failure)));
            }
        };
        let mut read = vec![];
        for verified in [&example, &verified] {
            read.push(Counters::of(&self.workshop.profile(&task, verified, &suite).await?));
        }
        Ok(scored(cell, bucket(self.column, cell, &source, Came::Counted(&read[0], &read[1])), None))
    }
}

fn scored(cell: &Cell, bucket: Bucket, failure: Option<&Failure>) -> Scored {
    let log = match failure {
        Some(Failure::Build { log } | Failure::Interface { log }) => log.as_str(),
        _ => "",
    };
    let why = failure.map(ToString::to_string).unwrap_or_default();
    Scored { cell: cell.name.clone(), bucket, invented: invented(log), why }
}
