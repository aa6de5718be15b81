//! What could a GPU do at best, by its vendor's papers?
//!
//! For prompts about a GPU that is not here, and for what a GPU that is here does not say of itself. The figures are data,
//! each with its source: `metrics/gpus.toml`.

use crate::{
    arch::Arch,
    machine::{Bandwidth, Fact, Machine, MachineKind},
};
use serde::{Deserialize, de::DeserializeOwned};
use std::{collections::BTreeMap, sync::LazyLock};

const TABLE: &str = include_str!("../gpus.toml");

/// A figure and the key of its source.
type Figure<T> = (T, String);

/// One GPU of the table. What no paper of the vendor's states is `None`; rates are dense, at boost clock.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// What it calls itself, without the vendor, and short forms.
    pub names: Vec<String>,
    /// The compute capability, such as `9.0`.
    pub capability: Figure<String>,
    /// Streaming multiprocessors.
    pub multiprocessors: Option<Figure<u32>>,
    /// Memory, in GB of 10^9 bytes.
    pub memory_gb: Figure<f64>,
    /// Bandwidth of its memory, in GB (10^9 bytes) a second.
    pub bandwidth_gb_s: Figure<f64>,
    /// Second-level cache, in KiB.
    pub l2_kib: Option<Figure<u64>>,
    /// Single precision, in 10^12 operations a second, two a multiply-add.
    pub fp32_tflops: Figure<f64>,
    /// TF32 on tensor cores, likewise.
    pub tf32_tensor_tflops: Option<Figure<f64>>,
    /// FP16 and BF16 on tensor cores, accumulating in FP32, likewise.
    pub fp16_tensor_tflops: Option<Figure<f64>>,
    /// FP8 on tensor cores, likewise.
    pub fp8_tensor_tflops: Option<Figure<f64>>,
    /// What it may draw, in watts.
    pub power_w: Option<Figure<f64>>,
}

/// What every GPU of a compute capability has.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capability {
    /// Shared memory of a multiprocessor, in KiB.
    pub shared_kib_sm: u32,
    /// Shared memory that one block may have, in KiB.
    pub shared_kib_block: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers_sm: u32,
    /// Threads resident on a multiprocessor.
    pub threads_sm: u32,
    /// Threads of a block.
    pub threads_block: u32,
    /// 32-bit registers that one thread may have.
    pub registers_thread: u32,
    /// Warps resident on a multiprocessor.
    pub warps_sm: u32,
    /// Blocks resident on a multiprocessor.
    pub blocks_sm: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    sources: BTreeMap<String, String>,
    capability: BTreeMap<String, Capability>,
    gpu: Vec<Gpu>,
}

static GPUS: LazyLock<Table> = LazyLock::new(|| read(TABLE));

fn read<T: DeserializeOwned>(text: &str) -> T {
    toml::from_str(text).expect("the table that comes with the program is well-formed: a test reads it")
}

impl Gpu {
    /// The GPU that calls itself so, or that people call so: `NVIDIA H200`, `h100 pcie`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        let wanted = plain(name);
        GPUS.gpu.iter().find(|gpu| gpu.names.iter().any(|known| plain(known) == wanted))
    }

    /// All of the table.
    #[must_use]
    pub fn known() -> &'static [Self] {
        &GPUS.gpu
    }

    /// What its compute capability says.
    #[must_use]
    pub fn limits(&self) -> Option<Capability> {
        limits(&self.capability.0)
    }

    /// Its architecture. Every row of the table has a compute capability (a test checks that).
    #[must_use]
    pub fn arch(&self) -> Arch {
        Arch::of_capability(&self.capability.0).unwrap_or(Arch::Cuda { major: 0, minor: 0 })
    }

    /// Its dense peaks by the precision of the operands, in operations a second, the slowest first: `FP32` on its CUDA
    /// cores, the others on its tensor cores.
    #[must_use]
    pub fn peaks(&self) -> Vec<(&'static str, f64)> {
        let tensor = [
            ("TF32", &self.tf32_tensor_tflops),
            ("FP16 or BF16", &self.fp16_tensor_tflops),
            ("FP8", &self.fp8_tensor_tflops),
        ];
        let tensor = tensor.into_iter().filter_map(|(name, figure)| Some((name, figure.as_ref()?.0 * 1e12)));
        std::iter::once(("FP32", self.fp32_tflops.0 * 1e12)).chain(tensor).collect()
    }

    /// It as a machine, every line with its source: what the papers promise, nothing measured.
    #[must_use]
    pub fn machine(&self) -> Machine {
        let peak = Bandwidth { working_set_bytes: u64::MAX, bytes_per_second: self.bandwidth_gb_s.0 * 1e9 };
        Machine {
            kind: MachineKind::Gpu,
            name: format!("NVIDIA {}", self.names[0]),
            arch: self.arch(),
            facts: self.facts(),
            bandwidths: vec![peak],
            peak_flops: Some(self.fp32_tflops.0 * 1e12),
        }
    }

    /// Its lines of a specification, each with its source.
    #[must_use]
    pub fn facts(&self) -> Vec<Fact> {
        let mut facts = vec![];
        let mut say = |name: &str, value: Option<(String, &String)>| {
            let line = |(value, source): (String, &String)| {
                let source = GPUS.sources.get(source).map_or("", String::as_str);
                Fact { name: name.to_owned(), value: format!("{value} ({source})") }
            };
            facts.extend(value.map(line));
        };
        let rate = |figure: &Option<Figure<f64>>| {
            figure.clone().map(|(value, source)| (format!("{value} TFLOP/s, dense"), source))
        };
        say("compute capability", Some((self.capability.0.clone(), &self.capability.1)));
        say("multiprocessors", self.multiprocessors.as_ref().map(|f| (f.0.to_string(), &f.1)));
        say("memory", Some((format!("{} GB", self.memory_gb.0), &self.memory_gb.1)));
        say("memory bandwidth", Some((format!("{} GB/s", self.bandwidth_gb_s.0), &self.bandwidth_gb_s.1)));
        say("L2 cache", self.l2_kib.as_ref().map(|f| (format!("{} MiB", f.0 >> 10), &f.1)));
        say("FP32", Some((format!("{} TFLOP/s", self.fp32_tflops.0), &self.fp32_tflops.1)));
        for (name, figure) in [
            ("TF32 tensor", rate(&self.tf32_tensor_tflops)),
            ("FP16 and BF16 tensor", rate(&self.fp16_tensor_tflops)),
            ("FP8 tensor", rate(&self.fp8_tensor_tflops)),
        ] {
            say(name, figure.as_ref().map(|f| (f.0.clone(), &f.1)));
        }
        say("power limit", self.power_w.as_ref().map(|f| (format!("{} W", f.0), &f.1)));
        facts.extend(self.limits().map(Capability::facts).into_iter().flatten());
        facts
    }
}

/// What every GPU of a compute capability such as `9.0` has, where the table knows it.
#[must_use]
pub fn limits(capability: &str) -> Option<Capability> {
    GPUS.capability.get(capability).copied()
}

impl Capability {
    /// Its lines of a specification.
    #[must_use]
    pub fn facts(self) -> Vec<Fact> {
        let fact = |name: &str, value: String| Fact { name: name.to_owned(), value };
        vec![
            fact(
                "shared memory",
                format!("{} KiB a multiprocessor, {} a block", self.shared_kib_sm, self.shared_kib_block),
            ),
            fact(
                "registers",
                format!(
                    "{} of 32 bits a multiprocessor, {} a thread at most",
                    self.registers_sm, self.registers_thread
                ),
            ),
            fact("threads", format!("{} a multiprocessor, {} a block", self.threads_sm, self.threads_block)),
            fact("warps", format!("{} a multiprocessor", self.warps_sm)),
            fact("blocks", format!("{} a multiprocessor", self.blocks_sm)),
        ]
    }
}

/// A name without what every other also has in it.
fn plain(name: &str) -> String {
    let kept = name.split([' ', '-', '_']).map(str::to_lowercase);
    kept.filter(|word| !["nvidia", "geforce", "gpu", ""].contains(&word.as_str())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_names_a_source_that_is_listed() {
        let keys = TABLE.lines().filter_map(|line| {
            let (_, rest) = line.split_once(" = [")?;
            rest.split_once(']')?.0.split_once(", ").map(|(_, source)| source.trim_matches('"').to_owned())
        });
        let keys: Vec<String> = keys.filter(|key| key.contains('-') && !key.contains(' ')).collect();
        assert!(keys.len() > 100, "{}", keys.len());
        for key in keys {
            assert!(GPUS.sources.contains_key(&key), "{key}");
        }
    }

    #[test]
    fn every_name_is_one_gpu_s_and_every_capability_is_known() {
        let mut names: Vec<String> = Gpu::known().iter().flat_map(|gpu| gpu.names.iter().map(|n| plain(n))).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(Gpu::known().iter().all(|gpu| gpu.limits().is_some() && gpu.facts().len() >= 8));
    }

    #[test]
    fn a_device_is_found_by_its_own_name_and_a_likeness_is_not() {
        let capability = |name: &str| Gpu::named(name).map(|gpu| gpu.capability.0.as_str());
        assert_eq!(capability("NVIDIA H200"), Some("9.0"));
        assert_eq!(capability("NVIDIA A100-SXM4-40GB"), Some("8.0"));
        assert_eq!(capability("NVIDIA GeForce RTX 4090"), Some("8.9"));
        assert_eq!((capability("NVIDIA GeForce RTX 3090 Ti"), capability("")), (None, None));
        let [sxm, pcie] =
            ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"].map(|n| Gpu::named(n).unwrap().bandwidth_gb_s.0);
        assert!(sxm > pcie);
    }

    #[test]
    fn the_peaks_of_a_gpu_grow_as_its_operands_shrink() {
        let peaks = Gpu::named("NVIDIA H200").unwrap().peaks();
        assert_eq!(peaks.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["FP32", "TF32", "FP16 or BF16", "FP8"]);
        assert!(peaks.windows(2).all(|pair| pair[0].1 < pair[1].1), "{peaks:?}");
    }

    #[test]
    fn an_absent_gpu_is_a_machine_with_a_floor() {
        let machine = Gpu::named("H200").unwrap().machine();
        assert_eq!(machine.arch.to_string(), "sm_90");
        assert_eq!(machine.floor_ns(4_800_000), Some(1000.0));
    }
}
