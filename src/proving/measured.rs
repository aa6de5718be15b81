//! What is found out of a cell on its GPU: both kernels against the oracle, their counters, and their times side by side.

use super::{against, identity, task};
use crate::{exit::Trouble, progress::plain, quantity};
use futures::StreamExt;
use kernelbench::{
    Candidate, Failure, Fault, Hash, Suite, Task, TimingPlan, Verified, Workshop,
    cuda::{self, Options},
    feature::{Cell, Column},
};
use metrics::{
    Claim, Profile, Speedup,
    feature::{Counters, Proof, prove},
};
use serde::{Deserialize, Serialize};
use std::{fs, path::Path};

/// How the two kernels are timed.
pub(super) const PLAN: TimingPlan = TimingPlan::median_of(5, 50);

/// A proving on one machine.
pub struct Proving<'a> {
    /// Where the kernels are built, checked, timed and profiled, with the column's counters.
    pub workshop: &'a dyn Workshop,
    /// How their code is looked into.
    pub options: &'a Options,
    /// The column.
    pub column: &'a Column,
    /// Where everything is kept.
    pub out: &'a Path,
}

/// What came of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proved {
    /// Its name.
    pub cell: String,
    /// What its files were.
    pub files: Hash,
    /// The GPU.
    pub gpu: String,
    /// Why it is no proof: a kernel that is wrong, counters that cannot be read; none where all was found out.
    pub wrong: Vec<String>,
    /// What nobody looked at here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
    /// What its signs say.
    pub proof: Option<Proof>,
    /// How many times as fast as the naive kernel the optimized one is.
    pub speedup: Option<Speedup>,
    /// By what part the target differed when it was read again.
    pub again: Option<f64>,
}

impl Proved {
    /// Whether both kernels are right, every sign tells them apart, and the optimized one is not slower.
    #[must_use]
    pub fn holds(&self) -> bool {
        let whole = self.proof.as_ref().is_some_and(Proof::whole);
        let slower = self.speedup.is_none_or(|speedup| speedup.claim() == Claim::Slower);
        self.wrong.is_empty() && whole && !slower
    }

    /// It as lines for a reader.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let verdict = if self.holds() { "fired" } else { "NOT PROVED" };
        let speedup = self.speedup.as_ref().map(quantity::speedup).unwrap_or_default();
        let mut lines = vec![format!("{:<11} {verdict:<11} {speedup}", self.cell)];
        for found in self.proof.iter().flat_map(|proof| &proof.found) {
            let read = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), |value| format!("{value}"));
            let values = match (found.before, found.after) {
                (None, None) => String::new(),
                (before, after) => format!(": {} -> {}", read(before), read(after)),
            };
            let gain = found.gain.map(|gain| format!(", {gain}")).unwrap_or_default();
            let target = if found.target { "target " } else { "" };
            let stand = serde_json::to_string(&found.stand).unwrap_or_default();
            lines.push(format!("    {target}{}{values}{gain} ({})", found.sign, stand.trim_matches('"')));
        }
        lines.extend(self.again.map(|part| format!("    read again, the target differs by {:.2} %", part * 100.0)));
        lines.extend(self.wrong.iter().chain(&self.unseen).map(|why| format!("    {}", plain(why))));
        lines
    }
}

impl Proving<'_> {
    /// Builds all kernels of these cells ahead, so many at a time: what is timed afterwards is timed alone.
    ///
    /// # Errors
    ///
    /// Where the machine fails.
    pub async fn build_ahead(&self, cells: &[&Cell], at_once: usize) -> Result<(), Trouble> {
        let mut jobs = vec![];
        for cell in cells.iter().filter(|cell| self.known(cell).is_none()) {
            let task = task(cell, self.column, self.out)?;
            let kernels = [task.reference().to_owned(), cell.naive().to_owned(), cell.optimized().to_owned()];
            jobs.extend(kernels.map(|kernel| (task.clone(), Candidate::new(kernel))));
        }
        let job = |(task, candidate): (Task, Candidate)| async move {
            self.workshop.build(&task, &candidate).await.map(drop)
        };
        let built: Vec<Result<(), Fault>> =
            futures::stream::iter(jobs).map(job).buffer_unordered(at_once).collect().await;
        Ok(built.into_iter().collect::<Result<(), Fault>>()?)
    }

    /// What was found of a cell earlier, where neither its files nor the GPU changed since.
    #[must_use]
    pub fn known(&self, cell: &Cell) -> Option<Proved> {
        let text = fs::read_to_string(self.file(cell)).ok()?;
        let known: Proved = serde_json::from_str(&text).ok()?;
        (known.files == identity(cell) && known.gpu == self.workshop.machine().name).then_some(known)
    }

    fn file(&self, cell: &Cell) -> std::path::PathBuf {
        self.out.join(&self.column.name).join(format!("{}.json", cell.folder))
    }

    /// Finds out all of a cell and keeps it.
    ///
    /// # Errors
    ///
    /// Where the machine fails, or it cannot be kept.
    pub async fn prove(&self, cell: &Cell) -> Result<Proved, Trouble> {
        let proved = self.find_out(cell).await?;
        let (file, text) = (self.file(cell), serde_json::to_string_pretty(&proved).unwrap_or_default());
        fs::write(&file, text).map_err(|e| Trouble::record(format!("{}: {e}", file.display())))?;
        Ok(proved)
    }

    async fn find_out(&self, cell: &Cell) -> Result<Proved, Trouble> {
        let (gpu, files) = (self.workshop.machine().name.clone(), identity(cell));
        let (name, wrong, unseen) = (cell.name.clone(), vec![], vec![]);
        let mut proved = Proved { cell: name, files, gpu, wrong, unseen, proof: None, speedup: None, again: None };
        let task = task(cell, self.column, self.out)?;
        let suite = suite(&task);
        self.workshop.prepare(&task, &suite, &PLAN).await?;
        self.look_at_the_oracle(&task, &mut proved).await?;
        let mut kernels = vec![];
        for (what, kernel) in [("naive", cell.naive()), ("optimized", cell.optimized())] {
            match self.verified(&task, kernel, &suite).await? {
                Ok(verified) => kernels.push(verified),
                Err(failure) => proved.wrong.push(format!("the {what} kernel: {failure}")),
            }
        }
        if let [naive, optimized] = &kernels[..] {
            self.count(cell, &task, &suite, [naive, optimized], &mut proved).await?;
            self.race(&task, cell, &mut proved).await?;
        }
        Ok(proved)
    }

    /// The oracle is to be scalar (Hawkeye, G.3): no instruction of a matrix unit is in its code, if anybody can look.
    async fn look_at_the_oracle(&self, task: &Task, proved: &mut Proved) -> Result<(), Trouble> {
        let Ok(built) = self.workshop.build(task, &Candidate::new(task.reference())).await? else { return Ok(()) };
        match cuda::disassembly(self.options, built.artifact())? {
            Err(why) => proved.unseen.push(format!("nobody looked whether the oracle is scalar: {why}")),
            Ok(code) => {
                let found = matrix_instruction(&code);
                proved.wrong.extend(found.map(|name| format!("the oracle multiplies by {name}: it is to be scalar")));
            }
        }
        Ok(())
    }

    /// A kernel, built and compared with the oracle.
    pub(super) async fn verified(
        &self,
        task: &Task,
        kernel: &str,
        suite: &Suite,
    ) -> Result<Result<Verified, Failure>, Fault> {
        let candidate = Candidate::new(kernel);
        match self.workshop.build(task, &candidate).await? {
            Ok(built) => self.workshop.check(task, built, suite).await,
            Err(failure) => Ok(Err(failure)),
        }
    }

    /// Reads the counters of both, those of the optimized kernel twice.
    async fn count(
        &self,
        cell: &Cell,
        task: &Task,
        suite: &Suite,
        [naive, optimized]: [&Verified; 2],
        proved: &mut Proved,
    ) -> Result<(), Trouble> {
        let mut read = vec![];
        for verified in [naive, optimized, optimized] {
            let profile = self.workshop.profile(task, verified, suite).await?;
            if let Some(why) = denied(&profile) {
                proved.wrong.push(why);
                return Ok(());
            }
            let counters = Counters::of(&profile);
            read.push(match cuda::disassembly(self.options, verified.built().artifact())? {
                Ok(code) => counters.with_code(code),
                Err(_) => counters,
            });
        }
        let proof = prove(&cell.signs, &read[0], &read[1]);
        let unread = proof.found.iter().filter(|found| found.stand == metrics::feature::Stand::Unread);
        proved.wrong.extend(unread.map(|found| format!("this GPU, or a tool here, has no {}", found.sign)));
        proved.again = cell.target().and_then(|target| {
            let [one, other] = [&read[1], &read[2]].map(|read| read.value(&target.name, target.over));
            let (one, other) = (one?, other?);
            Some((one - other).abs() / one.abs().max(other.abs()).max(f64::MIN_POSITIVE))
        });
        proved.proof = Some(proof);
        Ok(())
    }

    /// Times the optimized kernel beside the naive one, which stands in the reference's place.
    async fn race(&self, task: &Task, cell: &Cell, proved: &mut Proved) -> Result<(), Trouble> {
        let mut task = against(task, cell.naive());
        // Each may be off by the tolerance on its own side.
        (task.tolerance.atol, task.tolerance.rtol) = (2.0 * task.tolerance.atol, 2.0 * task.tolerance.rtol);
        let suite = Suite::of_task(&task);
        let baseline = self.workshop.prepare(&task, &suite, &PLAN).await?;
        match self.verified(&task, cell.optimized(), &suite).await? {
            Err(failure) => proved.wrong.push(format!("the optimized kernel beside the naive one: {failure}")),
            Ok(verified) => {
                let timed = self.workshop.time(&task, &verified, &suite, &PLAN, baseline.self_difference()).await?;
                match timed {
                    Ok(timed) => proved.speedup = Some(timed.speedup),
                    Err(failure) => proved.wrong.push(format!("while it was timed: {failure}")),
                }
            }
        }
        Ok(())
    }
}

/// The first instruction of a matrix unit in machine code, such as HMMA.16816.F32 or UTCHMMA.
fn matrix_instruction(code: &str) -> Option<&str> {
    let is_one = |word: &&str| {
        let name = word.split('.').next().unwrap_or_default();
        name.ends_with("MMA") && name.bytes().all(|byte| byte.is_ascii_uppercase())
    };
    // Behind its address, and a predicate where it has one.
    let behind = code.lines().filter_map(|line| Some(line.split_once("*/")?.1));
    behind.flat_map(|line| line.split_whitespace().take(2)).find(is_one)
}

/// All cases of a task, those of the certificate among them; the first is timed and profiled.
fn suite(task: &Task) -> Suite {
    let mut suite = Suite::of_task(task);
    suite.cases.extend(task.final_cases.iter().cloned());
    suite
}

/// Why a profile has no hardware counters, if it has none.
fn denied(profile: &Profile) -> Option<String> {
    (!profile.rung.has_counters_of_gpu())
        .then(|| profile.notes.first().cloned().unwrap_or_else(|| "no counters were read".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oracle_may_have_no_instruction_of_a_matrix_unit() {
        let line = |instruction: &str| {
            format!("        /*0a10*/                   {instruction} R4, R8, R6, R4 ;  /* 0x0 */\n")
        };
        for name in [
            "HMMA.16816.F32.BF16",
            "HGMMA.64x64x16.F32",
            "IMMA.16832.S8.S8",
            "DMMA.884",
            "QGMMA.64x64x32.F32.E4M3.E4M3",
            "UTCHMMA",
        ] {
            assert_eq!(matrix_instruction(&[line("FFMA"), line(name)].concat()), Some(name));
        }
        let others = ["FFMA", "HFMA2.MMA", "HFMA2.BF16_V2", "IMAD.WIDE", "DFMA"].map(line).concat();
        assert_eq!(matrix_instruction(&format!("\t\tFunction : SGEMMA.x MMA\n{others}")), None);
        assert_eq!(matrix_instruction(&line("@!P0 HMMA.1688.F32")), Some("HMMA.1688.F32"));
    }
}
