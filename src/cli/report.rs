//! What can be asked of `warpsmith report`?

use clap::Args;
use std::path::PathBuf;

/// `report`
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run's folder.
    pub run: PathBuf,
    /// Where to write it [default: report.html in the run's folder].
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write a picture instead (SVG), of the rounds of a run of one task: speedups and what the Judge said.
    #[arg(long, value_name = "FILE.svg", conflicts_with = "out")]
    pub picture: Option<PathBuf>,
    /// Open it, in what the desktop opens such files with.
    #[arg(long)]
    pub open: bool,
    /// Show the run in a browser while it goes on, until Ctrl-C: a page at 127.0.0.1 that only reads. Nothing is written.
    #[arg(long, conflicts_with_all = ["out", "picture"])]
    pub serve: bool,
    /// The port of that page [default: one that is free].
    #[arg(long, value_name = "N", requires = "serve")]
    pub port: Option<u16>,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  warpsmith report RUN
  warpsmith report RUN --out silu.html --open
  warpsmith report RUN --picture silu.svg
  warpsmith report RUN --serve --port 4720   # also of a batch or an ablation that runs";
