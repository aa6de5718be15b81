//! On which devices is a batch worked on, and how many candidates may be under way on each?

use crate::{config::Config, exit::Trouble, wiring};
use agents::crew::Place;
use kernelbench::{Simulated, Task, Workshop, gpu::Gpu};
use std::sync::Arc;

/// Tasks under way for each GPU on which problems are open: each keeps processes and memory there.
const PROBLEMS_AT_ONCE: usize = 8;

/// What kind of workshop a batch needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// None: all is simulated.
    Simulated,
    /// None here: only models are asked.
    Absent,
    /// For problems in KernelBench's format.
    Problems,
    /// For kernels in CUDA.
    Cuda,
    /// For kernels in C and C++.
    Native,
}

impl Kind {
    /// What this task needs, as all of its batch do.
    #[must_use]
    pub fn of(task: &Task, simulated: bool) -> Self {
        match task {
            _ if simulated => Self::Simulated,
            task if task.problem().is_some() => Self::Problems,
            task if task.is_cuda() => Self::Cuda,
            _ => Self::Native,
        }
    }

    /// The devices' names.
    ///
    /// # Errors
    ///
    /// If the settings name none that can be.
    pub fn devices(self, config: &Config) -> Result<Vec<String>, Trouble> {
        let (named, device) = (config.batch.gpus.trim(), config.workshop.device.as_str());
        let numbered = |numbers: Vec<u32>| numbers.iter().map(|number| format!("cuda:{number}")).collect();
        match self {
            Self::Native => Ok(vec!["cpu".to_owned()]),
            Self::Absent => Ok(vec!["absent".to_owned()]),
            Self::Simulated if named.is_empty() => Ok(vec!["simulated".to_owned()]),
            _ if !["", "all"].contains(&named) => Ok(numbered(ordinals(named)?)),
            Self::Problems | Self::Cuda if !["", "cuda"].contains(&device) => Ok(vec![device.to_owned()]),
            Self::Problems if !wiring::has_gpu() => Ok(vec!["cpu".to_owned()]),
            _ => Ok(numbered((0..Gpu::visible().max(1)).collect())),
        }
    }

    /// Candidates that may be under way on each of so many devices, from the build on.
    #[must_use]
    pub fn builds(self, config: &Config, devices: &[String]) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match config.batch.builds {
            // What times on the processor needs a core for itself.
            0 if devices == ["cpu"] => (cores - 1).max(1),
            0 => (cores / devices.len().max(1)).max(2),
            builds => builds,
        }
    }

    /// Tasks under way at once.
    #[must_use]
    pub fn at_once(self, config: &Config, devices: usize) -> usize {
        let busy = 2 * config.model.in_flight + PROBLEMS_AT_ONCE * devices;
        match (config.batch.at_once, self) {
            (0, Self::Problems) => (PROBLEMS_AT_ONCE * devices).min(busy),
            (0, _) => busy,
            (at_once, _) => at_once,
        }
    }
}

/// A place for each device, with the workshop that `make` makes of the settings for it.
///
/// # Errors
///
/// If there is no such device, or no workshop for it.
pub fn places<W: Workshop>(
    kind: Kind,
    config: &Config,
    make: impl Fn(&Config) -> Result<W, Trouble>,
) -> Result<Vec<Place<W>>, Trouble> {
    let devices = kind.devices(config)?;
    let builds = kind.builds(config, &devices);
    let place = |device: &String| {
        let mut own = config.clone();
        own.workshop.device.clone_from(device);
        Ok(Place { workshop: Arc::new(make(&own)?), device: device.clone(), builds })
    };
    devices.iter().map(place).collect()
}

/// Simulated places.
///
/// # Errors
///
/// If the settings name no devices that can be.
pub fn simulated(config: &Config) -> Result<Vec<Place<Simulated>>, Trouble> {
    places(Kind::Simulated, config, |_| Ok(Simulated::new()))
}

fn ordinals(list: &str) -> Result<Vec<u32>, Trouble> {
    let wrong = || Trouble::usage(format!("--gpus {list:?} names no GPUs: expected numbers after commas, such as 0,1"));
    let ordinal = |word: &str| {
        let word = word.trim();
        word.strip_prefix("cuda:").unwrap_or(word).parse().map_err(|_| wrong())
    };
    let mut ordinals = list.split(',').map(ordinal).collect::<Result<Vec<u32>, _>>()?;
    ordinals.sort_unstable();
    ordinals.dedup();
    Ok(ordinals)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(gpus: &str, device: &str) -> Config {
        let mut config = Config::default();
        (config.batch.gpus, config.workshop.device) = (gpus.to_owned(), device.to_owned());
        config
    }

    #[test]
    fn the_devices_are_those_that_are_named() {
        let devices = |kind: Kind, gpus, device| kind.devices(&with(gpus, device)).unwrap();
        assert_eq!(devices(Kind::Problems, "1, cuda:0", ""), ["cuda:0", "cuda:1"]);
        assert_eq!(devices(Kind::Problems, "", "cpu"), ["cpu"]);
        assert_eq!(devices(Kind::Cuda, "", "cuda:3"), ["cuda:3"]);
        assert_eq!(devices(Kind::Native, "0,1", ""), ["cpu"]);
        assert!(Kind::Cuda.devices(&with("first", "")).unwrap_err().message.contains("such as 0,1"));
    }
}
