//! The program: its commands, its configuration, where a run is kept, and what the terminal shows of it.
//!
//! It knows nothing of how a kernel is judged. Start reading at [`cli`] and [`session`].

pub mod ablation;
pub mod ask;
pub mod at;
pub mod batch;
pub mod best;
pub mod cli;
mod command;
pub mod compare;
pub mod config;
pub mod diff;
pub mod exit;
pub mod export;
pub mod guidance;
pub mod handover;
pub mod hosts;
pub mod init;
pub mod key;
pub mod live;
mod logging;
pub mod plan;
pub mod progress;
pub mod proving;
pub mod recall;
pub mod report;
pub mod sampling;
pub mod scores;
pub mod session;
pub mod show;
pub mod stacking;
pub mod start;
pub mod store;
pub mod study;
pub mod verify;
pub mod version;
pub mod wiring;

pub use metrics::quantity;

use exit::{Exit, Trouble};
use std::process::ExitCode;

/// The program. A child that is to run a candidate goes its own way at once: it has no settings and no threads.
#[must_use]
pub fn main() -> ExitCode {
    main_with(None)
}

/// The program, with what speaks to other hosts, where it was built with that.
#[must_use]
pub fn main_with(hosts: Option<hosts::Hosts>) -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|first| first == wiring::CHILD) {
        kernelbench::native::child_main()
    }
    let environment = key::Environment::take();
    if let Some(hosts) = hosts {
        hosts::present(hosts);
    }
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(told) => {
            cli::print(&told);
            return ExitCode::from(if told.use_stderr() { Exit::Usage.code() } else { Exit::Done.code() });
        }
    };
    match command::execute(cli, &environment) {
        Ok(_) if let Some(why) = progress::lost() => {
            fail(&Trouble::machine(format!("standard output: {why}: what was printed is not whole")))
        }
        Ok(exit) => ExitCode::from(exit.code()),
        Err(trouble) => fail(&trouble),
    }
}

fn fail(trouble: &Trouble) -> ExitCode {
    use std::io::Write;
    let words = trouble.to_string();
    let words = progress::fitted(&words, &console::Term::stderr());
    let _ = writeln!(std::io::stderr().lock(), "warpsmith: {words}");
    ExitCode::from(trouble.exit.code())
}
