//! Does a candidate touch memory on the GPU that is not its own?
//!
//! `compute-sanitizer --tool memcheck` over one call of the certified build, in a process of its own, where every tensor has
//! an allocation of its own: what a process with torch's cache lets pass is found there.

use super::{
    tool::Room,
    waiting::{Plan, Waiting},
};
use crate::result::{
    error::Attempt,
    failure::{Failure, Fault},
};
use serde_json::{Value, json};
use std::{path::Path, time::Duration};

/// What it may take: the tool slows a kernel down up to a hundredfold.
const DEADLINE: Duration = Duration::from_mins(1);
const START: Duration = Duration::from_mins(1);
/// What begins a line of the tool's.
const MARK: &str = "========= ";
/// What its lines begin with that tell a finding.
const FINDINGS: [&str; 5] = ["Invalid ", "Misaligned ", "Out-of-range ", "Program hit ", "Malloc/Free error"];

/// What came of it: nothing was found, or in words why it could not be looked.
pub(crate) type Looked = Result<(), String>;

/// Looks at one call; a finding is a failure. `job` is what a process under a profiler is told, `owner` the candidate's user.
pub(crate) fn memcheck(room: &Room<'_>, candidate: &Path, owner: Option<u32>, job: &Value) -> Attempt<Looked> {
    let first = look(room, candidate, owner, job)?;
    let told = match first {
        Err(_) if room.landlock => look(&Room { landlock: false, ..*room }, candidate, owner, job)?,
        told => told,
    };
    Ok(match told {
        Ok(Some(finding)) => return Err(Failure::Sanitizer { tool: "memcheck".to_owned(), finding }.into()),
        Ok(None) => Ok(()),
        Err(why) => Err(why),
    })
}

fn look(
    room: &Room<'_>,
    candidate: &Path,
    owner: Option<u32>,
    job: &Value,
) -> Result<Result<Option<String>, String>, Fault> {
    let words = ["env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1", "compute-sanitizer", "--tool", "memcheck"];
    let wrapper = words.map(str::to_owned).to_vec();
    let mut waiting = Waiting::start(room, Plan { wrapper, primed: false, beside: candidate, permit: None })?;
    if let Err(why) = waiting.settle(START) {
        return Ok(Err(why));
    }
    let mut job = job.clone();
    let done = format!("done {:016x}", rand::random::<u64>());
    job["once"] = json!(done);
    Ok(waiting.work(candidate, owner, &job, DEADLINE).and_then(|printed| read(&printed, &done)))
}

/// What the tool found; in words why it did not look through to the end.
fn read(printed: &str, done: &str) -> Result<Option<String>, String> {
    let lines: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix(MARK)).map(str::trim).collect();
    if let Some(at) = lines.iter().position(|line| FINDINGS.iter().any(|start| line.starts_with(start))) {
        let more = lines[at + 1..].iter().take_while(|line| !line.is_empty()).take(3);
        return Ok(Some(std::iter::once(&lines[at]).chain(more).copied().collect::<Vec<_>>().join("; ")));
    }
    let clean = lines.iter().any(|line| line.starts_with("ERROR SUMMARY: 0 errors"));
    if clean && printed.lines().any(|line| line == done) {
        return Ok(None);
    }
    let told = printed.lines().rev().find(|line| !line.trim_matches(['=', ' ']).is_empty());
    Err(told.unwrap_or("it printed nothing").trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As compute-sanitizer 2025.3 prints it.
    const FOUND: &str = "========= COMPUTE-SANITIZER\n========= Invalid __global__ read of size 4 bytes\n=========     at softplus_k+0x1b0 in module.py:9\n=========     by thread (0,0,0) in block (0,0,0)\n=========     Access at 0x7f0000200000 is out of bounds\n=========\n=========     Saved host backtrace\ndone 1\n========= ERROR SUMMARY: 1 error\n";

    #[test]
    fn a_finding_is_told_with_its_place() {
        let finding = read(FOUND, "done 1").unwrap().unwrap();
        assert!(finding.starts_with("Invalid __global__ read of size 4 bytes; at softplus_k"), "{finding}");
    }

    #[test]
    fn only_a_call_that_came_to_its_end_under_the_tool_is_clean() {
        let clean = "========= COMPUTE-SANITIZER\ndone 1\n========= ERROR SUMMARY: 0 errors\n";
        assert_eq!(read(clean, "done 1"), Ok(None));
        assert!(read(clean, "done 2").is_err(), "it ended before its call did");
        assert!(read("done 1\n", "done 1").is_err(), "the tool said nothing");
        assert!(read("cannot start compute-sanitizer: No such file\n", "done 1").unwrap_err().contains("No such file"));
    }
}
