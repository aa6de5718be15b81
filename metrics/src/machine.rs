//! What could this machine do at best?

use crate::arch::Arch;
use serde::{Deserialize, Serialize};

/// What kind of machine it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineKind {
    /// A CPU; one core of it runs a candidate.
    Cpu,
    /// A GPU.
    Gpu,
    /// No machine at all: a simulation.
    Simulated,
}

/// The fact that says that CuTe may be included in candidates in CUDA, and whose.
pub const CUTE: &str = "CuTe";

/// One line of a machine's specification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What it is: "L2 cache", "vector extensions".
    pub name: String,
    /// Its value with its unit, as a reader wants it.
    pub value: String,
}

/// How fast one core moves a working set of this size: the best of copying, adding two arrays into a third, and reading.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Bytes read and written in one pass.
    pub working_set_bytes: u64,
    /// Bytes read plus bytes written, a second.
    pub bytes_per_second: f64,
}

/// The machine that a candidate runs on: stands where the GPU's specification stands in CudaForge (§2.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// What kind of machine.
    pub kind: MachineKind,
    /// The processor's model name.
    pub name: String,
    /// The architecture.
    pub arch: Arch,
    /// The specification, line by line, in a stable order.
    pub facts: Vec<Fact>,
    /// Measured bandwidths, by growing working set; empty where nothing was measured.
    pub bandwidths: Vec<Bandwidth>,
    /// Measured peak of fused multiply-adds on one core, in operations a second (two a multiply-add), single precision.
    pub peak_flops: Option<f64>,
}

impl Machine {
    /// The least time, in nanoseconds, in which this machine moves `bytes`: the best bandwidth measured at any size,
    /// so that data which stays in a cache is never called impossible. `None` where nothing was measured.
    #[must_use]
    pub fn floor_ns(&self, bytes: u64) -> Option<f64> {
        let best = self.bandwidths.iter().map(|b| b.bytes_per_second).fold(0.0, f64::max);
        (best > 0.0).then(|| bytes as f64 / best * 1e9)
    }

    /// The bandwidth at a working set of this size, in bytes a second: that of the next measured size above it,
    /// or of the largest. `None` where nothing was measured.
    #[must_use]
    pub fn bandwidth_at(&self, bytes: u64) -> Option<f64> {
        let above = self.bandwidths.iter().find(|b| b.working_set_bytes >= bytes);
        above.or(self.bandwidths.last()).map(|b| b.bytes_per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        let at = |kib: u64, gb: f64| Bandwidth { working_set_bytes: kib << 10, bytes_per_second: gb * 1e9 };
        Machine {
            kind: MachineKind::Cpu,
            name: "test".into(),
            arch: Arch::Cpu("x86_64".into()),
            facts: vec![],
            bandwidths: vec![at(16, 100.0), at(1024, 50.0), at(65536, 10.0)],
            peak_flops: None,
        }
    }

    #[test]
    fn the_floor_assumes_the_nearest_cache() {
        assert_eq!(machine().floor_ns(100_000), Some(1000.0));
        assert_eq!(Machine { bandwidths: vec![], ..machine() }.floor_ns(1), None);
    }

    #[test]
    fn the_bandwidth_is_that_of_the_working_set() {
        assert_eq!(machine().bandwidth_at(512 << 10), Some(50e9));
        assert_eq!(machine().bandwidth_at(1 << 40), Some(10e9));
    }
}
