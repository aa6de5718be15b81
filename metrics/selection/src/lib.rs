//! Which metrics tell a fast kernel from a slow one, by real profiles?
//!
//! Profiles of many kernels of many tasks lie in one tidy table ([`table`]); a set of metrics is chosen from it offline,
//! without a GPU and without a network. `warpsmith-metrics` does it; `warpsmith metrics` hands over to that.

mod cli;
pub mod collinear;
pub mod columns;
mod command;
pub mod evidence;
pub mod name;
pub mod report;
pub mod rule;
pub mod score;
pub mod set;
pub mod table;

pub use evidence::Evidence;
pub use rule::{Choice, Rule, Wish, choose};
pub use table::{Profiled, Table, TableError};

use clap::Parser;
use std::{io::Write, process::ExitCode};

/// The program `warpsmith-metrics`.
#[must_use]
pub fn main() -> ExitCode {
    match command::execute(&cli::Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(command::Wrong(why)) => {
            let _ = writeln!(std::io::stderr().lock(), "warpsmith-metrics: {why}");
            ExitCode::from(2)
        }
    }
}
