//! How do lines and the moving line at the bottom share a terminal?

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

/// Standard output for lines, and on a terminal a line at the bottom for what is going on. Clones are one screen.
#[derive(Clone, Debug)]
pub struct Screen {
    bar: ProgressBar,
}

impl Screen {
    /// A screen; the moving line is there only if both outputs are a terminal and it is wanted.
    #[must_use]
    pub fn new(moving: bool) -> Self {
        let moving = moving && io::stderr().is_terminal() && io::stdout().is_terminal();
        let bar = ProgressBar::with_draw_target(
            None,
            if moving { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() },
        );
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
            bar.set_style(style);
        }
        if moving {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self { bar }
    }

    /// Prints a line. A reader that went away is no reason to stop.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stdout().lock(), "{line}");
        });
    }

    /// Prints a line to standard error.
    pub fn warn(&self, line: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr().lock(), "{line}");
        });
    }

    /// Shows what is going on.
    pub fn show(&self, doing: &str) {
        self.bar.set_message(doing.to_owned());
        self.bar.reset_elapsed();
    }

    /// Takes the moving line away.
    pub fn close(&self) {
        self.bar.finish_and_clear();
    }
}

/// Lets `tracing` write to standard error around the moving line.
impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bar.suspend(|| io::stderr().lock().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
