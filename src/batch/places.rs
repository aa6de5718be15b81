//! The devices that a batch is worked on, and how many candidates may be under way on each.

use crate::{
    config::{Config, ordinals},
    exit::Trouble,
    guidance::{self, Told},
    wiring::{self, Kind},
};
use agents::{crew::Place, policy::Policy};
use kernelbench::{
    Absent, Workshop,
    gpu::{self, Gpu},
};
use metrics::Machine;
use std::sync::Arc;

/// Tasks under way for each GPU on which problems are open: each keeps processes and memory there.
const PROBLEMS_AT_ONCE: usize = 8;

/// What a batch is worked on with.
#[derive(Clone, Debug)]
pub enum Needs {
    /// Workshops of this kind.
    Workshops(Kind),
    /// None here: only models are asked. The machine is elsewhere.
    Absent(Box<Machine>),
}

impl Needs {
    /// What models are told of the devices' features: decided where the policy is new, else as it says.
    ///
    /// # Errors
    ///
    /// If the user's own features cannot be read.
    pub fn told(&self, policy: &mut Policy, new: bool, config: &Config) -> Result<Option<Told>, Trouble> {
        match self {
            Self::Absent(_) => Ok(None),
            Self::Workshops(kind) if new => guidance::decide(policy, *kind, config),
            Self::Workshops(kind) => guidance::recorded(policy, *kind, config),
        }
    }

    /// The devices' names.
    ///
    /// # Errors
    ///
    /// If the settings name none that can be.
    pub fn devices(&self, config: &Config) -> Result<Vec<String>, Trouble> {
        let (named, device) = (config.batch.gpus.trim(), config.workshop.device.as_str());
        let numbered = |numbers: Vec<u32>| numbers.iter().map(|number| format!("cuda:{number}")).collect();
        let kind = match self {
            Self::Absent(_) => return Ok(vec!["absent".to_owned()]),
            Self::Workshops(kind) => kind,
        };
        match kind {
            Kind::Native | Kind::Emulated(_) | Kind::Compiled(_) => Ok(vec!["cpu".to_owned()]),
            Kind::Simulated if named.is_empty() => Ok(vec!["simulated".to_owned()]),
            _ if !["", "all"].contains(&named) => {
                Ok(numbered(ordinals(named).map_err(|why| Trouble::usage(format!("--gpus {why}")))?))
            }
            Kind::Problems | Kind::Cuda if !["", "cuda"].contains(&device) => Ok(vec![device.to_owned()]),
            Kind::Problems if !wiring::has_gpu() => Ok(vec!["cpu".to_owned()]),
            _ => Ok(numbered((0..Gpu::visible().max(1)).collect())),
        }
    }

    /// Candidates that may be under way on each of so many devices, from the build on.
    #[must_use]
    pub fn builds(&self, config: &Config, devices: &[String]) -> usize {
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
    pub fn at_once(&self, config: &Config, devices: usize) -> usize {
        let busy = 2 * config.model.in_flight + PROBLEMS_AT_ONCE * devices;
        match (config.batch.at_once, self) {
            (0, Self::Workshops(Kind::Problems)) => (PROBLEMS_AT_ONCE * devices).min(busy),
            (0, _) => busy,
            (at_once, _) => at_once,
        }
    }

    /// A place for each device. Where `profiles` will be asked for, a process may wait under a profiler from the start; it reads
    /// the counters of what models are told of.
    ///
    /// # Errors
    ///
    /// If there is no such device, or no workshop for it.
    pub fn places(&self, config: &Config, profiles: bool, told: Option<&Told>) -> Result<Vec<Place>, Trouble> {
        let devices = self.devices(config)?;
        let builds = self.builds(config, &devices);
        let place = |device: &String| {
            let mut own = config.clone();
            own.workshop.device.clone_from(device);
            let workshop: Arc<dyn Workshop> = match self {
                Self::Workshops(kind) => wiring::workshop(*kind, &own, profiles, told.map(|told| &told.column))?,
                Self::Absent(machine) => Arc::new(Absent::new((**machine).clone())),
            };
            Ok(Place { workshop, device: device.clone(), builds })
        };
        wiring::of_each(&devices, place)
    }
}

/// The GPUs that a run's searches time configurations on, of which the first does all else: the run's own, where the settings
/// name one, then those of a list. None where none is given. Only some policies have a `search`.
///
/// # Errors
///
/// If the list names none that can be, or nothing of this kind is searched on several.
pub fn of_a_search(kind: Kind, search: bool, gpus: Option<&str>, config: &Config) -> Result<Vec<String>, Trouble> {
    let Some(gpus) = gpus else { return Ok(vec![]) };
    if !matches!(kind, Kind::Cuda | Kind::Simulated) || config.hosts.is_set() || !search {
        let why = "only transformations of a kernel context in CUDA, on this machine, time configurations on several";
        return Err(Trouble::usage(format!("--gpus: {why}; --device names a problem's GPU")));
    }
    let numbers = match gpus.trim() {
        "" => return Err(Trouble::usage("--gpus \"\" names no GPUs: expected numbers after commas, such as 0,1")),
        "all" => (0..Gpu::visible().max(1)).collect(),
        list => ordinals(list).map_err(|why| Trouble::usage(format!("--gpus {why}")))?,
    };
    let own = gpu::ordinal(&config.workshop.device);
    let others = numbers.into_iter().filter(|number| Some(*number) != own);
    Ok(own.into_iter().chain(others).map(|number| format!("cuda:{number}")).collect())
}

/// Whether what is faster on one of some places is so on the others.
///
/// # Errors
///
/// If two are of other models.
pub fn are_alike(places: &[Place]) -> Result<(), Trouble> {
    let Some((first, others)) = places.split_first() else { return Ok(()) };
    let (device, name) = (&first.device, &first.workshop.machine().name);
    match others.iter().find(|other| other.workshop.machine().name != *name) {
        None => Ok(()),
        Some(other) => Err(Trouble::usage(format!(
            "--gpus: a search's times on {device} ({name}) and {} ({}) do not compare: name GPUs of one model",
            other.device,
            other.workshop.machine().name
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernelbench::Simulated;

    fn with(gpus: &str, device: &str) -> Config {
        let mut config = Config::default();
        (config.batch.gpus, config.workshop.device) = (gpus.to_owned(), device.to_owned());
        config
    }

    #[test]
    fn a_search_has_the_gpus_that_are_named_its_own_first_and_they_are_of_one_model() {
        let of = |kind, gpus, device| of_a_search(kind, true, gpus, &with("0,1", device));
        assert_eq!(of(Kind::Cuda, Some("0,2"), "").unwrap(), ["cuda:0", "cuda:2"]);
        assert_eq!(of(Kind::Cuda, Some("0,2"), "cuda:2").unwrap(), ["cuda:2", "cuda:0"]);
        assert_eq!(of(Kind::Simulated, Some("0"), "cuda:1").unwrap(), ["cuda:1", "cuda:0"]);
        assert!(of(Kind::Cuda, None, "cuda:1").unwrap().is_empty(), "a batch's GPUs are none of a search's");
        for kind in [Kind::Problems, Kind::Native] {
            let why = of(kind, Some("0,2"), "").unwrap_err().message;
            assert!(why.starts_with("--gpus: only transformations of a kernel context in CUDA"), "{why}");
        }
        assert!(
            of_a_search(Kind::Cuda, false, Some("0,2"), &with("", "")).is_err(),
            "a policy without transformations"
        );
        assert!(of(Kind::Cuda, Some(""), "").is_err());
        let absent = |name: &str| Absent::new(Machine { name: name.into(), ..Simulated::new().machine().clone() });
        let place = |name: &str| Place::of_one(Arc::new(absent(name)));
        let places = |names: &[&str]| are_alike(&names.iter().copied().map(place).collect::<Vec<_>>());
        assert!(places(&[]).is_ok() && places(&["H200", "H200"]).is_ok());
        let why = places(&["H200", "H200", "A6000"]).unwrap_err().message;
        assert!(why.contains("(H200)") && why.contains("(A6000) do not compare"), "{why}");
    }

    #[test]
    fn the_devices_are_those_that_are_named() {
        let devices = |kind, gpus, device| Needs::Workshops(kind).devices(&with(gpus, device)).unwrap();
        assert_eq!(devices(Kind::Problems, "1, cuda:0", ""), ["cuda:0", "cuda:1"]);
        assert_eq!(devices(Kind::Problems, "", "cpu"), ["cpu"]);
        assert_eq!(devices(Kind::Cuda, "", "cuda:3"), ["cuda:3"]);
        assert_eq!(devices(Kind::Native, "0,1", ""), ["cpu"]);
        let wrong = Needs::Workshops(Kind::Cuda).devices(&with("first", "")).unwrap_err();
        assert!(wrong.message.contains("such as 0,1"));
    }
}
