//! What can be asked about metrics?

use clap::{Args, Subcommand};

/// `metrics`
#[derive(Debug, Subcommand)]
pub enum Metrics {
    /// Print a set of metrics as a table.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(MetricsShowArgs),
}

/// `metrics show`
#[derive(Debug, Args)]
pub struct MetricsShowArgs {
    /// The set: a file, or cudaforge24, which comes with the program.
    pub set: String,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

const SHOW_EXAMPLES: &str = "\
Examples:
  warpsmith metrics show cudaforge24
  warpsmith metrics show metrics/sets/hopper24.toml";
