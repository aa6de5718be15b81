//! Where does the program write down what it does inside?

use crate::progress::Screen;
use clap::ColorChoice;
use std::{fs::File, path::Path, sync::Mutex};
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

/// Crates whose own words may hold a request's headers, and so the key.
const SILENT: [&str; 6] = ["async_openai", "h2", "hyper", "hyper_util", "reqwest", "rustls"];

/// Decides whether anything is coloured from here on: as the flag says, and without one as the terminal and `NO_COLOR` do.
pub(crate) fn colour(choice: ColorChoice) {
    let decided = match choice {
        ColorChoice::Always => Some(true),
        ColorChoice::Never => Some(false),
        ColorChoice::Auto => std::env::var_os("NO_COLOR").filter(|set| !set.is_empty()).map(|_| false),
    };
    if let Some(decided) = decided {
        console::set_colors_enabled(decided);
        console::set_colors_enabled_stderr(decided);
    }
}

/// Writes to standard error what `RUST_LOG` asks for, warnings without it, and to the run's `warpsmith.log` whatever is
/// of interest later. A log that cannot be written is no reason not to run.
pub(crate) fn start(screen: &Screen, run: Option<&Path>) {
    let colour = console::colors_enabled_stderr();
    let screen = screen.clone();
    let stderr = tracing_subscriber::fmt::layer()
        .with_ansi(colour)
        .with_writer(move || screen.clone())
        .with_filter(without_secrets(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"))));
    let file = run.and_then(|run| File::options().create(true).append(true).open(run.join("warpsmith.log")).ok());
    let file = file.map(|file| {
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Mutex::new(file));
        layer.with_filter(without_secrets(EnvFilter::new("info")))
    });
    let _ = tracing_subscriber::registry().with(stderr).with(file).try_init();
}

fn without_secrets(filter: EnvFilter) -> EnvFilter {
    let silence = |name: &str| format!("{name}=off").parse().ok();
    SILENT.iter().filter_map(|name| silence(name)).fold(filter, EnvFilter::add_directive)
}
