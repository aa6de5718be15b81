//! How do lines and the moving lines at the bottom share a terminal?

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

/// Standard output for lines, and on a terminal moving lines at the bottom for what is going on. Clones are one screen.
#[derive(Clone, Debug)]
pub struct Screen {
    all: MultiProgress,
    bar: ProgressBar,
    moving: bool,
}

impl Screen {
    /// A screen; the moving lines are there only if both outputs are a terminal and they are wanted.
    #[must_use]
    pub fn new(moving: bool) -> Self {
        let moving = moving && io::stderr().is_terminal() && io::stdout().is_terminal();
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

    /// Prints a line. A reader that went away is no reason to stop.
    pub fn say(&self, line: &str) {
        self.all.suspend(|| {
            let _ = writeln!(io::stdout().lock(), "{line}");
        });
    }

    /// Prints a line to standard error.
    pub fn warn(&self, line: &str) {
        self.all.suspend(|| {
            let _ = writeln!(io::stderr().lock(), "{line}");
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
