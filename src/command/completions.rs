//! `warpsmith completions` and `warpsmith man`: what a shell and `man` know of the program.

use super::{say, verbatim};
use crate::{
    cli::{Cli, CompletionsArgs, ManArgs},
    exit::{Exit, Trouble},
};
use clap::CommandFactory;

/// Prints a shell's completions.
#[expect(clippy::unnecessary_wraps, reason = "every command ends in one way")]
pub(super) fn completions(arguments: &CompletionsArgs) -> Result<Exit, Trouble> {
    let mut text = vec![];
    clap_complete::generate(arguments.shell, &mut Cli::command(), "warpsmith", &mut text);
    verbatim(String::from_utf8_lossy(&text).trim_end());
    Ok(Exit::Done)
}

/// Writes a page for each command, and says where.
pub(super) fn man(arguments: &ManArgs) -> Result<Exit, Trouble> {
    let folder = &arguments.folder;
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    written.map_err(|e| Trouble::usage(format!("{}: {e}", folder.display())))?;
    say(&folder.join("warpsmith.1").display().to_string());
    Ok(Exit::Done)
}
