//! Other hosts: what the program asks of the part that speaks to them, where it was built with that part.
//!
//! That part is `warpsmith-hosts`, a program of its own: this one with NATS. Whoever works on one machine waits for nothing
//! of it. What is asked for here is handed over to it whole, with the same words.

mod roll;

pub use roll::{Roll, RollDevice, RollWorker};

use crate::{
    config::{Config, Layers},
    exit::{Exit, Trouble},
    handover::Companion,
    key::{Environment, without_credentials},
    wiring::Kind,
};
use clap::Args;
use kernelbench::{Hash, Workshop};
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

/// What speaks to other hosts.
#[derive(Clone, Copy, Debug)]
pub struct Hosts {
    /// Gathers workers, and gives the workshop that they are.
    pub gather: fn(&Address, &Wanted) -> Result<Gathered, Trouble>,
    /// Works for whoever asks, until it is told to end.
    pub serve: fn(&Address, Staff) -> Result<Exit, Trouble>,
    /// Says what there is.
    pub look: fn(&Address) -> Result<Found, Trouble>,
}

/// What there is at a message server.
#[derive(Clone, Debug)]
pub struct Found {
    /// The server, its workers and their classes, a line each.
    pub lines: Vec<String>,
    /// Whether a batch could begin.
    pub able: bool,
}

/// A message server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Where it is: `nats://head:4222`, `tls://head:4222`.
    pub url: String,
    /// A file that says who asks: credentials, or the seed of an nkey.
    pub credentials: Option<PathBuf>,
}

/// When a worker counts as gone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// A job whose worker has said nothing for so long is given to another.
    pub ack: Duration,
    /// A worker says so often that it is at it.
    pub progress: Duration,
}

/// Which workers a run wants.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What they have to be able to do.
    pub lane: &'static str,
    /// Of which class; of the one that has the most GPUs where it is `None`.
    pub class: Option<String>,
    /// What the run is called there.
    pub run: String,
    /// The run's folder, where what the hosts do is shown.
    pub folder: PathBuf,
    /// The public keys of workers that are believed; empty for whoever the server lets in.
    pub trusted: Vec<String>,
    /// When a worker counts as gone.
    pub pace: Pace,
}

/// Workers that were found.
pub struct Gathered {
    /// They, as one workshop.
    pub workshop: Arc<dyn Workshop>,
    /// How many devices they have now.
    pub devices: usize,
    /// What there is to say of them.
    pub words: Vec<String>,
}

/// A worker and its devices.
pub struct Staff {
    /// What it is called; made up from the host's name where it is `None`.
    pub name: Option<String>,
    /// Where its key is kept; in the user's folder of settings where it is `None`.
    pub identity: Option<PathBuf>,
    /// Its devices.
    pub slots: Vec<Slot>,
    /// What their numbers depend on beside the machine: a worker with another is of another class.
    pub toolchain: String,
    /// When it counts as gone.
    pub pace: Pace,
    /// How long what is under way may take when it is told to end.
    pub grace: Duration,
}

/// A device of a worker.
#[derive(Clone)]
pub struct Slot {
    /// `cuda:0`, `cpu`.
    pub device: String,
    /// What it can do, and where.
    pub lanes: Vec<(&'static str, Arc<dyn Workshop>)>,
    /// Jobs that are under way there at once.
    pub at_once: usize,
}

/// `[hosts]`: other hosts that candidates are built and run on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The message server; empty for none: everything happens on this machine.
    pub url: String,
    /// A file of credentials or of an nkey's seed; empty for none. Never written to a run.
    pub credentials: String,
    /// The class of workers; empty for the one with the most devices.
    pub class: String,
    /// The public keys of workers that are believed; empty for whoever the server lets in.
    pub trusted: Vec<String>,
    /// A job whose worker has said nothing for so many seconds is given to another; 0 for 30.
    pub ack_s: f64,
    /// A worker says every so many seconds that it is at it; 0 for 10.
    pub progress_s: f64,
}

impl Settings {
    /// Whether other hosts are asked.
    #[must_use]
    pub fn is_set(&self) -> bool {
        !self.url.is_empty()
    }

    /// Where the server is.
    #[must_use]
    pub fn address(&self) -> Address {
        let credentials = Some(&self.credentials).filter(|file| !file.is_empty()).map(PathBuf::from);
        Address { url: self.url.clone(), credentials }
    }

    /// When a worker counts as gone.
    #[must_use]
    pub fn pace(&self) -> Pace {
        let seconds = |set: f64, usual| Duration::try_from_secs_f64(set).ok().filter(|s| !s.is_zero()).unwrap_or(usual);
        Pace {
            ack: seconds(self.ack_s, Duration::from_secs(30)),
            progress: seconds(self.progress_s, Duration::from_secs(10)),
        }
    }

    /// As a run's record has them: without what is secret.
    #[must_use]
    pub fn recorded(&self) -> Self {
        let (url, credentials) = (without_credentials(&self.url), String::new());
        Self { url, credentials, ..self.clone() }
    }

    /// Those of a run that goes on: a server that is named now, with what says who asks; else the recorded one, with nothing.
    #[must_use]
    pub fn over(&self, recorded: &Self) -> Self {
        let class = if self.class.is_empty() { recorded.class.clone() } else { self.class.clone() };
        if self.is_set() { Self { class, ..self.clone() } } else { recorded.clone() }
    }

    /// The workers that a run in this folder wants.
    #[must_use]
    pub fn wanted(&self, kind: Kind, folder: &Path) -> Wanted {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let class = Some(&self.class).filter(|class| !class.is_empty()).cloned();
        let (trusted, pace) = (self.trusted.clone(), self.pace());
        Wanted { lane: kind.lane(), class, run: name_there(&folder), folder, trusted, pace }
    }
}

/// The flags of commands that other hosts may be asked by.
#[derive(Clone, Debug, Default, Args)]
pub struct HostsArgs {
    /// Have candidates built and run by the workers of a message server, such as `nats://head:4222`, that
    /// `warpsmith worker` was started with.
    #[arg(long, value_name = "URL", help_heading = "Hosts")]
    pub hosts: Option<String>,
    /// A file that says to the server who asks: credentials (.creds), or the seed of an nkey.
    #[arg(long, value_name = "FILE", help_heading = "Hosts")]
    pub hosts_credentials: Option<String>,
    /// The class of workers, as `warpsmith doctor --hosts URL` names it [default: the one with the most devices].
    #[arg(long, value_name = "CLASS", help_heading = "Hosts")]
    pub hosts_class: Option<String>,
}

impl HostsArgs {
    /// Overrules the settings.
    pub(crate) fn apply(&self, layers: &mut Layers) {
        layers.flag("hosts.url", self.hosts.clone(), |config, url| config.hosts.url = url);
        let credentials = self.hosts_credentials.clone();
        layers.flag("hosts.credentials", credentials, |config, file| config.hosts.credentials = file);
        layers.flag("hosts.class", self.hosts_class.clone(), |config, class| config.hosts.class = class);
    }
}

/// What a run in this folder is called on the server: the same whenever it goes on, and no other's.
fn name_there(folder: &Path) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let hash = Hash::of(format!("{}\n{}", host.trim(), folder.display()).as_bytes());
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect();
    format!("{plain}-{}", hash.short())
}

static PRESENT: OnceLock<Hosts> = OnceLock::new();

/// Says once, at the start, what speaks to other hosts.
pub(crate) fn present(hosts: Hosts) {
    // A second call would change nothing, and there is none.
    let _ = PRESENT.set(hosts);
}

/// What speaks to other hosts. Where this program was built without it, it becomes the one that was built with it.
///
/// # Errors
///
/// Where there is no such program: how to get it.
pub fn behind(environment: &Environment) -> Result<&'static Hosts, Trouble> {
    match PRESENT.get() {
        Some(hosts) => Ok(hosts),
        None => Err(Companion::hosts()?.take_over(environment)),
    }
}

/// The workers that a run in this folder wants.
///
/// # Errors
///
/// Where the server cannot be reached, lets nobody in, or has no such workers.
pub fn gather(config: &Config, kind: Kind, folder: &Path, environment: &Environment) -> Result<Gathered, Trouble> {
    let hosts = behind(environment)?;
    (hosts.gather)(&config.hosts.address(), &config.hosts.wanted(kind, folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_one_name_there_and_another_folder_has_another() {
        let name = |folder: &str| name_there(Path::new(folder));
        assert_eq!(name("/a/kb 250.x"), name("/a/kb 250.x"));
        assert!(name("/a/kb 250.x").starts_with("kb250x-") && name("/a/kb 250.x") != name("/b/kb 250.x"));
    }

    #[test]
    fn what_is_not_set_has_its_usual_pace() {
        let usual = Settings::default().pace();
        assert_eq!((usual.ack.as_secs(), usual.progress.as_secs()), (30, 10));
        let quick = Settings { ack_s: 1.5, progress_s: -1.0, ..Settings::default() }.pace();
        assert_eq!((quick.ack.as_millis(), quick.progress.as_secs()), (1500, 10));
    }
}
