//! `warpsmith report`: one HTML file, or a page that follows the run.

use super::{on_threads, say};
use crate::{
    ablation::AblationFolder,
    cli::ReportArgs,
    exit::{Exit, Trouble},
    live::{self, Live},
    report::file::{picture, write},
    session::interrupted,
    store::{self, RunFolder},
};
use std::{
    ffi::OsStr,
    fs, io,
    path::Path,
    process::{Command, Stdio},
};

/// Writes the report and says where, or shows the run until it is interrupted.
pub(super) fn report(arguments: &ReportArgs) -> Result<Exit, Trouble> {
    if arguments.serve {
        return serve(arguments);
    }
    if let Some(ablation) = AblationFolder::at(&arguments.run) {
        for run in store::runs(&ablation.path().join("runs"))? {
            say(&write(&RunFolder::open(&run)?, None)?.display().to_string());
        }
        return Ok(Exit::Done);
    }
    let folder = RunFolder::open(&arguments.run)?;
    let path = match &arguments.picture {
        Some(path) => {
            draw(&folder, path)?;
            path.clone()
        }
        None => write(&folder, arguments.out.as_deref())?,
    };
    say(&path.display().to_string());
    if arguments.open {
        open(path.as_os_str())?;
    }
    Ok(Exit::Done)
}

/// Draws the rounds of a run of one task.
fn draw(folder: &RunFolder, path: &Path) -> Result<(), Trouble> {
    let drawn = picture(folder)?;
    let drawn = drawn.ok_or_else(|| Trouble::usage("no round of this run has ended: there is nothing to draw"))?;
    fs::write(path, drawn).map_err(|e| Trouble::record(format!("{}: cannot write it: {e}", path.display())))
}

/// Shows the run in a browser until Ctrl-C, which is how it ends.
fn serve(arguments: &ReportArgs) -> Result<Exit, Trouble> {
    let page = Live::of(&arguments.run)?;
    on_threads(async {
        let served = live::serve(page, arguments.port.unwrap_or(0)).await?;
        let address = served.address();
        say(&address);
        if arguments.open {
            open(OsStr::new(&address))?;
        }
        interrupted().await;
        Ok(Exit::Done)
    })
}

/// Opens a file or an address as the desktop does, and does not wait for that to end.
fn open(what: &OsStr) -> Result<(), Trouble> {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(opener);
    command.arg(what).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let why = |e: io::Error| format!("--open: {opener}: {e}; open {} in a browser", what.to_string_lossy());
    command.spawn().map(drop).map_err(|e| Trouble::machine(why(e)))
}
