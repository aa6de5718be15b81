//! How does another run go on from where one stands?

use super::{
    StoreError,
    blobs::{require_plain_file, sync},
    folder::RunFolder,
    header::RunHeader,
};
use agents::event::Event;
use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

impl RunFolder {
    /// Makes another run of one task that begins with what this one has recorded up to the last such event: its lines and
    /// its texts. What follows is written to the other alone.
    ///
    /// # Errors
    ///
    /// If this one cannot be read, has no such event, or the other's folder holds something or cannot be made.
    pub fn fork(&self, path: &Path, header: &RunHeader, last: impl Fn(&Event) -> bool) -> Result<Self, StoreError> {
        let task = self.only_task()?;
        let (record, events) = (self.record(&task)?, self.events(&task)?);
        let end = record.lines.iter().rposition(|line| last(&line.event)).map(|at| record.ends[at]);
        let end = end.ok_or_else(|| StoreError::damaged(&events, "it does not hold what a run could go on from"))?;
        Self::create_filled(path, header, |made| {
            let beside = made.join("tasks").join(&task).join("events.jsonl");
            texts(&self.path().join("blobs"), &made.join("blobs"))?;
            copy(&events, &beside, end)
        })
    }
}

/// Copies every text.
fn texts(from: &Path, to: &Path) -> Result<(), StoreError> {
    let entries = |folder: &Path| -> Result<Vec<PathBuf>, StoreError> {
        let found = fs::read_dir(folder).map_err(|e| StoreError::system("look into it", folder, e))?;
        let hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        Ok(found.flatten().map(|entry| entry.path()).filter(|path| !hidden(path)).collect())
    };
    for folder in entries(from)? {
        for text in entries(&folder)? {
            let place = text.strip_prefix(from).unwrap_or(&text);
            copy(&text, &to.join(place), u64::MAX)?;
        }
    }
    Ok(())
}

/// Copies the first bytes of a plain file, on the disk when this returns.
fn copy(from: &Path, to: &Path, bytes: u64) -> Result<(), StoreError> {
    require_plain_file(from)?;
    let folder = to.parent().unwrap_or(to);
    let copied = fs::create_dir_all(folder)
        .and_then(|()| Ok((File::open(from)?, File::create_new(to)?)))
        .and_then(|(read, mut write)| io::copy(&mut read.take(bytes), &mut write));
    copied.map_err(|e| StoreError::system("copy it", from, e))?;
    [to, folder].into_iter().try_for_each(sync)
}
