//! The winning kernel as a file that can be compiled: `best.cpp`, `best.c`, `best.cu`, `best.hip`, `best.hlsl` or `best.py`.

use crate::store::{RunFolder, StoreError};
use agents::trajectory::Trajectory;
use kernelbench::{Candidate, CandidateId, Hash, Task};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The candidate to take: the certified one, else the fastest correct one that no certificate has refused, or the one
/// that there are no times of.
#[must_use]
pub fn of(story: &Trajectory) -> Option<CandidateId> {
    let certified = story.certified().map(|certificate| certificate.candidate.clone());
    certified.or_else(|| story.best().map(|best| best.candidate)).or_else(|| unmeasured(story).cloned())
}

/// The candidate that there are no times of: the one that is right where its processor is emulated, the last that compiles
/// where its GPU is not here.
fn unmeasured(story: &Trajectory) -> Option<&CandidateId> {
    let counted = story.counted().map(|(candidate, _)| candidate);
    counted.or_else(|| story.compiled().map(|(candidate, _)| candidate))
}

/// A candidate's source as it is compiled, with values in the place of tuning parameters.
#[must_use]
pub fn source(canonical: &str) -> String {
    Candidate::of_canonical(canonical).text()
}

/// Writes the certified kernel, or the one that there are no times of: beside the report where the run has
/// one task, else beside the task's record. `None` where there is none.
///
/// # Errors
///
/// If its text is damaged, or the file cannot be written.
pub fn write(folder: &RunFolder, name: &str, story: &Trajectory) -> Result<Option<PathBuf>, StoreError> {
    let certified = story.certified().map(|certificate| &certificate.candidate);
    let Some(candidate) = certified.or_else(|| unmeasured(story)) else {
        return Ok(None);
    };
    let blobs = folder.blobs();
    let text = source(&blobs.fetch(candidate)?);
    let task = story.task.as_ref().and_then(|task: &Hash| blobs.fetch(task).ok());
    let ending =
        task.and_then(|task| serde_json::from_str(&task).ok()).map_or("txt", |task: Task| task.language().ending());
    let place = if folder.batch()?.is_some() { folder.path().join("tasks").join(name) } else { folder.path().into() };
    let path = place.join(format!("best.{ending}"));
    put(&path, &text)?;
    Ok(Some(path))
}

/// Whole or not at all: an earlier one may be being read.
fn put(path: &Path, text: &str) -> Result<(), StoreError> {
    let beside = path.with_extension("part");
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
    written.map_err(|source| StoreError::System { what: "write the best kernel", path: path.into(), source, hint: "" })
}
