//! Which tasks are here, for somebody who named none?

use crate::exit::Trouble;
use kernelbench::load;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// How deep below the working directory is looked, and how many are listed.
const DEPTH: usize = 3;
const MOST: usize = 24;

/// What to say where no task was named: those that are here, each with its summary.
pub(super) fn none_named() -> Trouble {
    let mut tasks = vec![];
    collect(Path::new(""), DEPTH, &mut tasks);
    tasks.sort_by_cached_key(|task: &Found| (!task.recorded, task.needs_gpu, task.path.clone()));
    Trouble::usage(words(&tasks))
}

/// A task that is here.
struct Found {
    path: PathBuf,
    summary: String,
    /// Whether a recorded run comes with it.
    recorded: bool,
    needs_gpu: bool,
}

fn words(tasks: &[Found]) -> String {
    let Some(first) = tasks.first() else {
        let make = "`warpsmith init FILE` makes one of a C++ or CUDA function or a PyTorch module";
        return format!("no task was named, and there is none in this folder: {make}");
    };
    let widest = tasks.iter().map(|task| task.path.display().to_string().len()).max().unwrap_or(0);
    let mut lines = vec!["no task was named; here are (* with a recorded run, which needs no model):".to_owned()];
    for Found { path, summary, recorded, .. } in tasks.iter().take(MOST) {
        let mark = if *recorded { '*' } else { ' ' };
        lines.push(format!("{mark} {:<widest$}  {summary}", path.display().to_string()).trim_end().to_owned());
    }
    if tasks.len() > MOST {
        lines.push(format!("  and {} more", tasks.len() - MOST));
    }
    lines.push(format!("For example: warpsmith run {}", first.path.display()));
    lines.join("\n")
}

/// The tasks in a folder and below, those of runs and of builds left out.
fn collect(folder: &Path, depth: usize, found: &mut Vec<Found>) {
    let place = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    if let Ok(task) = load::task(place).map_err(drop) {
        let summary = crate::progress::plain(task.summary.lines().next().unwrap_or_default());
        let (recorded, needs_gpu) = (load::recorded_run(place).is_some(), task.is_cuda());
        found.push(Found { path: folder.to_owned(), summary, recorded, needs_gpu });
        return;
    }
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && !["target", "runs", "recorded", "node_modules"].contains(&name.as_str()) {
            collect(&folder.join(name), depth - 1, found);
        }
    }
}
