//! `warpsmith export`: a run for other programs' scripts

use super::{run::run_name, say};
use crate::{
    exit::{Exit, Trouble},
    export::kernelbench::{Layout, layout},
    progress::plain,
    store::RunFolder,
};
use clap::{Args, ValueEnum};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// `export`
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The run's folder.
    pub run: PathBuf,
    /// Whose layout.
    #[arg(long = "as", value_enum, default_value_t = Layouts::Kernelbench)]
    pub layout: Layouts,
    /// The folder to make; it must not exist or be empty.
    #[arg(long, short, value_name = "DIR")]
    pub out: PathBuf,
}

/// A layout.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Layouts {
    /// `KernelBench`'s runs and results.
    Kernelbench,
}

/// What `--help` shows below the options.
pub(crate) const EXAMPLES: &str = "\
Kernels, eval_results.json and the references' times as KernelBench lays them out, a run for each level. It prints how
KernelBench's own script scores them, to be run in KernelBench's repository.

Examples:
  warpsmith export RUN --as kernelbench -o exported";

/// Writes the files and says how to have them scored.
pub(super) fn export(arguments: &ExportArgs) -> Result<Exit, Trouble> {
    let Layouts::Kernelbench = arguments.layout;
    let folder = RunFolder::open(&arguments.run)?;
    let laid = layout(&folder, &run_name(folder.path()))?;
    if laid.runs.is_empty() {
        let why: Vec<String> =
            laid.left_out.iter().map(|(task, why)| format!("\n  {}: {}", plain(task), plain(why))).collect();
        let why = why.concat();
        return Err(Trouble::usage(format!("{}: there is nothing to lay out{why}", arguments.run.display())));
    }
    write(&laid, &arguments.out)?;
    tell(&laid, &arguments.out);
    Ok(Exit::Done)
}

fn write(laid: &Layout, out: &Path) -> Result<(), Trouble> {
    if fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Trouble::usage(format!(
            "{}: there is something in this folder already; name another",
            out.display()
        )));
    }
    for (path, text) in &laid.files {
        let path = out.join(path);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        made.map_err(|e| Trouble::record(format!("{}: cannot write it: {e}", path.display())))?;
    }
    Ok(())
}

fn tell(laid: &Layout, out: &Path) {
    for (task, why) in &laid.left_out {
        say(&format!("left out   {}: {}", plain(task), plain(why)));
    }
    let out = std::path::absolute(out).unwrap_or_else(|_| out.to_owned());
    say(&format!("written    {} files in {}", laid.files.len(), out.display()));
    say("to have it scored, in KernelBench's repository:");
    for (run, level) in &laid.runs {
        let (runs, times) = (out.join("runs"), out.join("results/timing").join(&laid.hardware));
        say(&format!(
            "  python scripts/benchmark_eval_analysis.py run_name={run} level={level} hardware={} \
             baseline=baseline_time_torch baseline_file={} eval_results_dir={}",
            laid.hardware,
            times.join("baseline_time_torch.json").display(),
            runs.display()
        ));
    }
}
