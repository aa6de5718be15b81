//! Which kernel of a run goes back into SGLang?

use crate::{command::say, exit::Trouble, progress::plain, store::RunFolder};
use agents::trajectory::{Round, Trajectory};
use kernelbench::{CandidateId, Evaluation, Hash, Task};
use sglang::export::found::{Extracted, Found};
use std::path::Path;

/// The certified kernels of this run, or the candidate that is named, certified or not.
pub(super) fn of(run: &Path, named: Option<&str>) -> Result<Vec<Found>, Trouble> {
    let folder = RunFolder::open(run)?;
    let (mut found, mut left_out, mut damaged) = (vec![], vec![], vec![]);
    for name in folder.tasks()? {
        let record = match folder.record(&name) {
            Ok(record) => record,
            // One of many does not keep the others from going back.
            Err(why) => {
                damaged.push(format!("{}: its record cannot be read, and it is left out: {why}", plain(&name)));
                continue;
            }
        };
        let story: Trajectory = record.events().collect();
        let fetch = |hash: &Hash| record.blobs.fetch(hash).ok();
        match in_story(&story, named, &fetch) {
            Ok(one) => found.push(one),
            Err(why) => left_out.push(format!("\n  {}: {why}", plain(&name))),
        }
    }
    if found.is_empty() {
        left_out.extend(damaged.iter().map(|why| format!("\n  {why}")));
    } else {
        for why in &damaged {
            say(&format!("note       {why}"));
        }
    }
    if found.is_empty() {
        let why = format!("{}: there is nothing to put back{}", run.display(), left_out.concat());
        return Err(Trouble::usage(why));
    }
    Ok(found)
}

fn in_story(story: &Trajectory, named: Option<&str>, fetch: &dyn Fn(&Hash) -> Option<String>) -> Result<Found, String> {
    let task = story.task.as_ref().and_then(fetch).ok_or("its record lacks the task")?;
    let task: Task = serde_json::from_str(&task).map_err(|e| format!("its task cannot be read: {e}"))?;
    let extracted = Extracted::of(&task)?;
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
    let machine = story.machine.as_ref().ok_or("its record does not say on which machine it ran")?;
    extracted.kernel(candidate, source, certificate, machine)
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
    let of_it = |round: &&Round| round.candidate.as_ref() == Some(candidate);
    match story.rounds.iter().rev().filter(of_it).find_map(|round| round.evaluation.as_ref()) {
        Some(Evaluation::Passed(_)) => Ok(()),
        Some(Evaluation::Counted(_)) => Err(format!("candidate {candidate} ran on an emulated processor alone")),
        Some(Evaluation::Compiled(_)) => Err(format!("candidate {candidate} was compiled, not run")),
        Some(Evaluation::Failed(failure)) => {
            let failure = plain(&failure.to_string());
            Err(format!(
                "candidate {candidate} failed when it was evaluated: {failure}; name one that passed, `warpsmith show RUN` lists them"
            ))
        }
        None => Err(format!("candidate {candidate} was never evaluated: go on with the run (`warpsmith resume`)")),
    }
}
