//! `warpsmith worker`: this host's devices work for whoever asks a message server.

mod slurm;

use super::verbatim;
use crate::{
    cli::ProblemArgs,
    config::{Config, Layers},
    exit::{Exit, Trouble},
    hosts::{self, Slot, Staff},
    key::Environment,
    logging,
    progress::Screen,
    wiring::{self, Kind},
};
use clap::Args;
use kernelbench::{Beyond, Precision, ReferenceMode, gpu::Gpu};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// Examples of its use.
pub(crate) const WORKER_EXAMPLES: &str = "\
Examples:
  warpsmith worker --hosts nats://head:4222
  warpsmith worker --hosts nats://head:4222 --gpus 0,1 --lanes problem --hosts-credentials worker.creds
  sbatch <(warpsmith worker --slurm --nodes 4 --gres gpu:8 --hours 12 --hosts nats://head:4222)";

/// `worker`
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// The message server that jobs are taken from.
    #[arg(long, value_name = "URL")]
    pub hosts: Option<String>,
    /// A file that says to the server who asks: credentials (.creds), or the seed of an nkey.
    #[arg(long, value_name = "FILE")]
    pub hosts_credentials: Option<String>,
    /// The GPUs that work, 0,1 or all [default: all].
    #[arg(long, value_name = "LIST")]
    pub gpus: Option<String>,
    /// What it works on, of problem, cuda and native; on a device that has several, one job at a time [default: problem and
    /// cuda where there is a GPU, else native].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub lanes: Vec<String>,
    /// What it is called; no two workers may have one name [default: the host's name and the process's number].
    #[arg(long)]
    pub name: Option<String>,
    /// The file of its key, which signs what it says; made where there is none [default: worker.seed in the user's settings].
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Jobs under way on each device at once [default: 2, or 1 where it has several lanes or is the processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub at_once: Option<u16>,
    /// How long what is under way may take when it is told to end, in seconds; then it is given back.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub grace: u64,
    /// So many simulated devices: nothing is compiled or run, the times are made up. For trying the machinery.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub simulate: Option<u16>,
    #[command(flatten)]
    pub problem: ProblemArgs,
    #[command(flatten)]
    pub slurm: slurm::SlurmArgs,
}

/// Works, or prints the script that has it work.
pub(super) fn worker(
    arguments: &WorkerArgs,
    settings: Option<&Path>,
    mut layers: Layers,
    environment: &Environment,
) -> Result<Exit, Trouble> {
    arguments.problem.apply(&mut layers);
    layers.flag("hosts.url", arguments.hosts.clone(), |config, url| config.hosts.url = url);
    let credentials = arguments.hosts_credentials.clone();
    layers.flag("hosts.credentials", credentials, |config, file| config.hosts.credentials = file);
    let config = &layers.config;
    if !config.hosts.is_set() {
        return Err(Trouble::usage(
            "a worker needs a message server: name it with --hosts nats://HOST:4222, or as hosts.url in warpsmith.toml",
        ));
    }
    if arguments.slurm.slurm {
        verbatim(slurm::script(arguments, settings, config).trim_end());
        return Ok(Exit::Done);
    }
    let hosts = hosts::behind(environment)?;
    logging::start(&Screen::new(false), None);
    let staff = Staff {
        name: arguments.name.clone(),
        identity: arguments.identity.clone(),
        slots: slots(arguments, config)?,
        toolchain: toolchain(config),
        pace: config.hosts.pace(),
        grace: Duration::from_secs(arguments.grace),
    };
    (hosts.serve)(&config.hosts.address(), staff)
}

/// The settings that a number depends on, beside the machine: workers that differ in them are of different classes.
fn toolchain(config: &Config) -> String {
    let mut workshop = config.workshop.clone();
    (workshop.cache, workshop.python, workshop.device) = <(String, String, String)>::default();
    // A task brings these along.
    (workshop.reference, workshop.beyond, workshop.precision) = <(ReferenceMode, Beyond, Precision)>::default();
    let timing = toml::to_string(&workshop).unwrap_or_default();
    format!("{}\n{timing}", crate::version::VERSION)
}

fn slots(arguments: &WorkerArgs, config: &Config) -> Result<Vec<Slot>, Trouble> {
    let kinds = kinds(arguments)?;
    let usual = if kinds.len() > 1 || kinds == [Kind::Native] { 1 } else { 2 };
    let at_once = arguments.at_once.map_or(usual, usize::from);
    let slot = |device: &String| {
        let mut own = config.clone();
        own.workshop.device.clone_from(device);
        let lane = |kind: &Kind| Ok((kind.lane(), wiring::workshop(*kind, &own, true, None)?));
        let lanes = kinds.iter().map(lane).collect::<Result<_, Trouble>>()?;
        Ok(Slot { device: device.clone(), lanes, at_once })
    };
    wiring::of_each(&devices(arguments, &kinds)?, slot)
}

fn kinds(arguments: &WorkerArgs) -> Result<Vec<Kind>, Trouble> {
    if arguments.simulate.is_some() {
        return Ok(vec![Kind::Simulated]);
    }
    let named = |name: &String| {
        let known = Kind::of_lane(name).filter(|kind| *kind != Kind::Simulated);
        known.ok_or_else(|| {
            Trouble::usage(format!(
                "--lanes: expected problem, cuda, native, emulated-k1 (-a72, -a76, -c908) or compiled-gfx90a (-gfx942, -gfx950), found {name:?}"
            ))
        })
    };
    match arguments.lanes.as_slice() {
        [] if wiring::has_gpu() => Ok(vec![Kind::Problems, Kind::Cuda]),
        [] => Ok(vec![Kind::Native]),
        several => several.iter().map(named).collect(),
    }
}

/// Whether none of these needs a GPU.
fn on_cpu(kinds: &[Kind]) -> bool {
    kinds.iter().all(|kind| matches!(kind, Kind::Native | Kind::Emulated(_) | Kind::Compiled(_)))
}

fn devices(arguments: &WorkerArgs, kinds: &[Kind]) -> Result<Vec<String>, Trouble> {
    let gpus = arguments.gpus.as_deref().unwrap_or("all").trim();
    let numbered = |numbers: Vec<u32>| numbers.iter().map(|number| format!("cuda:{number}")).collect();
    match (arguments.simulate, gpus) {
        (Some(count), _) => Ok((0..count).map(|number| format!("simulated:{number}")).collect()),
        (None, _) if on_cpu(kinds) || !wiring::has_gpu() => Ok(vec!["cpu".to_owned()]),
        (None, "" | "all") => Ok(numbered((0..Gpu::visible().max(1)).collect())),
        (None, named) => {
            crate::config::ordinals(named).map(numbered).map_err(|why| Trouble::usage(format!("--gpus {why}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_task_brings_along_makes_no_other_class_of_worker_and_what_a_number_depends_on_does() {
        let with = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            toolchain(&config)
        };
        let usual = with(|_| ());
        assert_eq!(with(|config| config.workshop.precision = Precision::Bf16), usual);
        assert_eq!(with(|config| config.workshop.reference = ReferenceMode::Ieee), usual);
        assert_eq!(with(|config| config.workshop.beyond = Beyond::Failure), usual);
        assert_ne!(with(|config| config.workshop.memory_mib += 1), usual);
    }
}
