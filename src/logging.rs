//! Where does the program write down what it does inside?

use crate::progress::Screen;
use clap::ColorChoice;
use std::{fs::File, path::Path, sync::Mutex};
use tracing_subscriber::{
    Layer,
    filter::{FilterExt, LevelFilter, Targets, filter_fn},
    layer::{Filter, SubscriberExt},
    util::SubscriberInitExt,
};

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
        .with_filter(without_secrets(asked_for(std::env::var("RUST_LOG").ok().as_deref())));
    let file = run.and_then(|run| File::options().create(true).append(true).open(run.join("warpsmith.log")).ok());
    let file = file.map(|file| {
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Mutex::new(file));
        layer.with_filter(without_secrets(Targets::new().with_default(LevelFilter::INFO)))
    });
    let _ = tracing_subscriber::registry().with(stderr).with(file).try_init();
}

/// What `RUST_LOG` asks for: levels, alone or as `TARGET=LEVEL`; warnings where it asks for nothing or cannot be read.
fn asked_for(variable: Option<&str>) -> Targets {
    let asked = variable.filter(|text| !text.trim().is_empty()).and_then(|text| text.parse().ok());
    asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN))
}

/// The same without the silent crates and all of their modules, whatever is asked for.
fn without_secrets<S: tracing::Subscriber>(filter: Targets) -> impl Filter<S> {
    let silent = |target: &str| target.split("::").next().is_some_and(|name| SILENT.contains(&name));
    FilterExt::<S>::and(filter, filter_fn(move |said| !silent(said.target())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io, sync::Arc};

    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Said {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What comes of a word of each of these targets, where `RUST_LOG` holds this.
    fn heard(variable: &str) -> String {
        let said = Said::default();
        let to = said.clone();
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || to.clone());
        let subscriber =
            tracing_subscriber::registry().with(layer.with_filter(without_secrets(asked_for(Some(variable)))));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target: "warpsmith::batch", "ours");
            tracing::warn!(target: "hyper::proto", "a header");
            tracing::warn!(target: "reqwest", "another");
        });
        let bytes = said.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn no_request_is_logged_however_closely_one_asks_for_it() {
        for variable in
            ["trace", "hyper=trace,reqwest=trace,warpsmith=info", "hyper::proto=trace,warpsmith::batch=info"]
        {
            let heard = heard(variable);
            assert!(
                heard.contains("ours") && !heard.contains("header") && !heard.contains("another"),
                "{variable}: {heard}"
            );
        }
        assert!(!heard("").contains("ours") && !heard("warn=what=ever").contains("ours"), "warnings alone");
    }
}
