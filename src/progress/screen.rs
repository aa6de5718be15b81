//! How do lines and the moving lines at the bottom share a terminal?

use super::fitted;
use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::{self, IsTerminal, Write},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Whether what happens is told, or only what came of it.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Only what came of it is told from here on, with warnings and errors.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether only what came of it is told.
#[must_use]
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Standard output for lines, and on a terminal moving lines at the bottom for what is going on. Clones are one screen.
#[derive(Clone, Debug)]
pub struct Screen {
    all: MultiProgress,
    bar: ProgressBar,
    moving: bool,
}

/// Why standard output did not take all, where it did not.
static LOST: OnceLock<String> = OnceLock::new();

/// Prints a line to standard output. A reader that went away is no reason to fail; what else keeps it from being written is told
/// at the end.
pub(crate) fn out(line: &str) {
    match writeln!(io::stdout().lock(), "{line}") {
        Err(why) if why.kind() != io::ErrorKind::BrokenPipe => drop(LOST.set(why.to_string())),
        _ => {}
    }
}

/// Why not all that was printed is whole, where it is not.
pub(crate) fn lost() -> Option<&'static str> {
    LOST.get().map(String::as_str)
}

impl Screen {
    /// A screen; the moving lines are there only if both outputs are a terminal and they are wanted.
    #[must_use]
    pub fn new(moving: bool) -> Self {
        let moving = moving && !is_quiet() && io::stderr().is_terminal() && io::stdout().is_terminal();
        let target = if moving { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let all = MultiProgress::with_draw_target(target);
        let bar = all.add(ProgressBar::no_length());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
            bar.set_style(style);
        }
        if moving {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self { all, bar, moving }
    }

    /// Whether there are moving lines.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.moving
    }

    /// One more moving line, above the last.
    #[must_use]
    pub fn line(&self) -> ProgressBar {
        let line = self.all.insert_before(&self.bar, ProgressBar::no_length());
        if let Ok(style) = ProgressStyle::with_template("  {wide_msg}") {
            line.set_style(style);
        }
        line
    }

    /// Prints a line about what happens, unless that is not wanted. A reader that went away is no reason to stop.
    pub fn say(&self, line: &str) {
        if !is_quiet() {
            self.result(line);
        }
    }

    /// Prints a line about what came of it.
    pub fn result(&self, line: &str) {
        self.all.suspend(|| {
            out(&fitted(line, &Term::stdout()));
        });
    }

    /// Prints a line to standard error.
    pub fn warn(&self, line: &str) {
        self.all.suspend(|| {
            let _ = writeln!(io::stderr().lock(), "{}", fitted(line, &Term::stderr()));
        });
    }

    /// Shows what is going on.
    pub fn show(&self, doing: &str) {
        self.bar.set_message(doing.to_owned());
        self.bar.reset_elapsed();
    }

    /// Takes the moving lines away.
    pub fn close(&self) {
        self.bar.finish_and_clear();
    }
}

/// Lets `tracing` write to standard error around the moving lines.
impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.all.suspend(|| io::stderr().lock().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
