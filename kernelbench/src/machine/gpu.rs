//! What does the driver's management library (NVML) say of a GPU: what it is, and how it is doing?
//!
//! The library is looked for when it is needed; a machine without it has no GPU, or one that says nothing of itself.

use metrics::{Fact, Gpu as Paper};
use nvml_wrapper::{
    Device, Nvml,
    bitmasks::device::ThrottleReasons,
    enum_wrappers::device::{Clock, PerformancePolicy, TemperatureSensor},
};
use std::sync::OnceLock;

/// A GPU, as NVML knows it.
#[derive(Clone, Copy, Debug)]
pub struct Gpu {
    nvml: &'static Nvml,
    index: u32,
}

/// How a GPU is doing at one moment. What the driver does not say is `None`, or is not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The clock of the multiprocessors, in MHz.
    pub sm_mhz: Option<u32>,
    /// The memory's clock, in MHz.
    pub memory_mhz: Option<u32>,
    /// The chip's temperature, in degrees Celsius.
    pub celsius: Option<u32>,
    /// What it draws, in watts.
    pub watts: Option<u32>,
    /// Why its clocks are held down, beside idling and what its owner has set.
    pub slowed_by: Vec<&'static str>,
    /// How long it has been held down for power and for heat since the driver was loaded, in nanoseconds.
    pub slowed_ns: u64,
    /// The processes that compute on it, by their ids as NVML numbers them.
    pub processes: Vec<u32>,
    /// Those of them that neither this program nor one that it started is.
    pub strangers: Vec<u32>,
}

/// The library, loaded once.
fn nvml() -> Result<&'static Nvml, String> {
    static NVML: OnceLock<Result<Nvml, String>> = OnceLock::new();
    NVML.get_or_init(|| Nvml::init().map_err(|e| format!("NVML cannot be used: {e}"))).as_ref().map_err(Clone::clone)
}

/// Which GPU a device of torch's is: the first for `cuda` and `cuda:0`, the second for `cuda:1`, none for `cpu`.
#[must_use]
pub fn ordinal(device: &str) -> Option<u32> {
    match device.strip_prefix("cuda")? {
        "" => Some(0),
        rest => rest.strip_prefix(':')?.parse().ok(),
    }
}

/// What is known of a GPU beside the lines that stand there: what it says of itself, else what its vendor's papers say of a
/// GPU of this name, or of every one of this compute capability.
pub(crate) fn complete(facts: &mut Vec<Fact>, gpu: Option<&Gpu>, name: &str, capability: Option<&str>) {
    let limits = || capability.and_then(metrics::gpu::limits).map(metrics::gpu::Capability::facts).unwrap_or_default();
    let more = gpu.map(Gpu::facts).filter(|facts| !facts.is_empty());
    let more = more.or_else(|| Paper::named(name).map(Paper::facts)).unwrap_or_else(limits);
    for fact in more {
        if facts.iter().all(|known| known.name != fact.name) {
            facts.push(fact);
        }
    }
}

impl Gpu {
    /// The GPU that CUDA counts as this one, where it counts by PCI bus (`CUDA_DEVICE_ORDER=PCI_BUS_ID`) and sees what
    /// `CUDA_VISIBLE_DEVICES` names.
    ///
    /// # Errors
    /// In words, where there is no such GPU or no library to ask.
    pub fn at(ordinal: u32) -> Result<Self, String> {
        let nvml = nvml()?;
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
        let device = match nth(&visible, ordinal)? {
            Name::Index(index) => nvml.device_by_index(index),
            Name::Uuid(uuid) => nvml.device_by_uuid(uuid),
        };
        let index = device.and_then(|device| device.index()).map_err(|e| format!("NVML has no such GPU: {e}"))?;
        Ok(Self { nvml, index })
    }

    /// How many there are.
    #[must_use]
    pub fn count() -> u32 {
        nvml().ok().and_then(|nvml| nvml.device_count().ok()).unwrap_or(0)
    }

    /// How many CUDA sees: those that `CUDA_VISIBLE_DEVICES` names, else all.
    #[must_use]
    pub fn visible() -> u32 {
        let named = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
        if named.trim().is_empty() { Self::count() } else { named.split(',').count() as u32 }
    }

    /// The size of its second-level cache as CUDA's driver tells it, of which NVML is silent.
    #[must_use]
    pub fn cache(&self) -> Option<Fact> {
        let bytes = super::driver::l2_bytes(&self.device()?.pci_info().ok()?.bus_id)?;
        Some(Fact { name: "L2 cache".to_owned(), value: format!("{} MiB", bytes >> 20) })
    }

    fn device(&self) -> Option<Device<'static>> {
        self.nvml.device_by_index(self.index).ok()
    }

    /// What it calls itself: `NVIDIA H200`.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        self.device()?.name().ok()
    }

    /// The bytes of its memory that nobody holds.
    #[must_use]
    pub fn memory_free(&self) -> Option<u64> {
        self.device()?.memory_info().ok().map(|memory| memory.free)
    }

    /// Its compute capability: `9.0`.
    #[must_use]
    pub fn capability(&self) -> Option<String> {
        self.device()?.cuda_compute_capability().ok().map(|c| format!("{}.{}", c.major, c.minor))
    }

    /// The lines of its specification: what it says of itself, then what only its vendor's papers say, each of these with
    /// its source.
    #[must_use]
    pub fn facts(&self) -> Vec<Fact> {
        let mut facts = self.told();
        if !facts.is_empty() {
            facts.extend(self.paper(&facts));
        }
        facts
    }

    /// What it says of itself.
    #[must_use]
    pub fn told(&self) -> Vec<Fact> {
        let Some(device) = self.device() else { return vec![] };
        let mut facts = vec![];
        let mut say = |name: &str, value: Option<String>| {
            facts.extend(value.map(|value| Fact { name: name.to_owned(), value }));
        };
        let clock = |clock| device.max_clock_info(clock).ok().map(|mhz| format!("{mhz} MHz at most"));
        say("driver", self.nvml.sys_driver_version().ok());
        say("compute capability", self.capability());
        say("memory", device.memory_info().ok().map(|memory| format!("{} GiB", memory.total >> 30)));
        say("multiprocessor clock", clock(Clock::SM));
        say("memory clock", clock(Clock::Memory));
        say("power limit", device.enforced_power_limit().ok().map(|mw| format!("{} W", mw / 1000)));
        facts
    }

    /// What the papers say and it does not.
    fn paper(&self, told: &[Fact]) -> Vec<Fact> {
        let paper = self.name().and_then(|name| Paper::named(&name));
        let known = match (paper, self.capability().and_then(|c| metrics::gpu::limits(&c))) {
            (Some(paper), _) => paper.facts(),
            (None, Some(limits)) => limits.facts(),
            (None, None) => vec![],
        };
        known.into_iter().filter(|fact| told.iter().all(|told| told.name != fact.name)).collect()
    }

    /// How it is doing now. Takes below a millisecond as a rule.
    #[must_use]
    pub fn look(&self) -> Look {
        let Some(device) = self.device() else { return Look::default() };
        let processes: Vec<u32> = device
            .running_compute_processes()
            .map(|all| all.iter().map(|process| process.pid).collect())
            .unwrap_or_default();
        let slowed = |policy| device.violation_status(policy).map_or(0, |violation| violation.violation_time);
        Look {
            sm_mhz: device.clock_info(Clock::SM).ok(),
            memory_mhz: device.clock_info(Clock::Memory).ok(),
            celsius: device.temperature(TemperatureSensor::Gpu).ok(),
            watts: device.power_usage().ok().map(|milliwatts| milliwatts / 1000),
            slowed_by: device.current_throttle_reasons().map(reasons).unwrap_or_default(),
            slowed_ns: slowed(PerformancePolicy::Power) + slowed(PerformancePolicy::Thermal),
            strangers: processes.iter().copied().filter(|id| is_stranger(*id)).collect(),
            processes,
        }
    }
}

/// Whether a process is here, and neither this one nor started by it. In a container NVML may number processes as the host
/// does: what is not here by its number is not known, and passed over.
fn is_stranger(mut id: u32) -> bool {
    let parent = |id: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    while id > 1 && id != std::process::id() {
        let Some(next) = parent(id) else { return false };
        id = next;
    }
    id != std::process::id()
}

fn reasons(flags: ThrottleReasons) -> Vec<&'static str> {
    let known = [
        (ThrottleReasons::SW_POWER_CAP, "its power limit"),
        (ThrottleReasons::HW_SLOWDOWN, "the hardware's slowdown"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "heat (the driver)"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "heat (the hardware)"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "the power supply"),
        (ThrottleReasons::SYNC_BOOST, "another GPU of its group"),
    ];
    known.into_iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, why)| why).collect()
}

#[derive(Debug, PartialEq)]
enum Name<'a> {
    Index(u32),
    Uuid(&'a str),
}

/// What shows a process this GPU and no other, which it then counts as its first: the value of its `CUDA_VISIBLE_DEVICES`, where
/// CUDA counts by PCI bus.
pub(crate) fn alone(ordinal: u32) -> String {
    alone_of(&std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default(), ordinal)
}

fn alone_of(visible: &str, ordinal: u32) -> String {
    match nth(visible, ordinal) {
        Ok(Name::Uuid(uuid)) => uuid.to_owned(),
        Ok(Name::Index(index)) => index.to_string(),
        // There is no such GPU, which whoever opens it is told.
        Err(_) => ordinal.to_string(),
    }
}

/// What stands at this place of `CUDA_VISIBLE_DEVICES`.
fn nth(visible: &str, ordinal: u32) -> Result<Name<'_>, String> {
    if visible.trim().is_empty() {
        return Ok(Name::Index(ordinal));
    }
    let named = visible.split(',').map(str::trim).nth(ordinal as usize);
    let named = named.ok_or_else(|| format!("CUDA_VISIBLE_DEVICES={visible} shows no GPU {ordinal}"))?;
    Ok(named.parse().map_or(Name::Uuid(named), Name::Index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cuda_is_shown_decides_which_gpu_is_asked() {
        assert_eq!(nth("", 1), Ok(Name::Index(1)));
        assert_eq!(nth("3, 5", 1), Ok(Name::Index(5)));
        assert_eq!(nth("GPU-8f2c", 0), Ok(Name::Uuid("GPU-8f2c")));
        assert!(nth("3", 1).unwrap_err().contains("shows no GPU 1"));
    }

    #[test]
    fn a_process_is_shown_one_gpu_alone_by_the_name_that_it_has_here() {
        assert_eq!(
            [("", 1), ("3, 5", 1), ("GPU-8f2c,GPU-11aa", 0)].map(|(all, at)| alone_of(all, at)),
            ["1", "5", "GPU-8f2c"]
        );
    }

    #[test]
    fn a_device_names_its_gpu_and_the_processor_none() {
        assert_eq!(["cuda", "cuda:0", "cuda:3"].map(ordinal), [Some(0), Some(0), Some(3)]);
        assert_eq!(["cpu", "cuda:", "cuda3", "cuda:-1", ""].map(ordinal), [None; 5]);
    }

    #[test]
    fn this_program_and_what_it_started_is_no_stranger() {
        let child = std::process::Command::new("sleep").arg("5").spawn();
        let mut child = child.expect("there is a sleep");
        assert!(!is_stranger(child.id()) && !is_stranger(std::process::id()) && !is_stranger(u32::MAX));
        assert!(is_stranger(1));
        let _ = child.kill();
        let _ = child.wait();
    }

    #[test]
    fn only_what_slows_it_down_is_named() {
        let idle = ThrottleReasons::GPU_IDLE | ThrottleReasons::APPLICATIONS_CLOCKS_SETTING;
        assert!(reasons(idle).is_empty());
        assert_eq!(reasons(idle | ThrottleReasons::SW_POWER_CAP), ["its power limit"]);
    }
}
