//! Hardware factors: what of a processor settles how a tensor operator is best written (QiMeng-TensorOp §2.3).

pub mod records;

use crate::{
    gpu::Gpu,
    machine::{Fact, Machine, MachineKind},
};
use serde::{Deserialize, Serialize};

/// The four kinds of factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// The memory hierarchy: caches, shared and global memory.
    Memory,
    /// The instructions of computation and data movement, and their use.
    Instructions,
    /// Vector and scalar registers: how many, how wide.
    Registers,
    /// Streaming multiprocessors, and the cores of each.
    Multiprocessors,
}

impl Group {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Instructions, Self::Registers, Self::Multiprocessors];

    /// The name, as in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Instructions => "instructions",
            Self::Registers => "registers",
            Self::Multiprocessors => "multiprocessors",
        }
    }
}

/// Every factor that there is a name for: its kind, the name, and what it is.
pub const NAMES: [(Group, &str, &str); 17] = [
    (Group::Memory, "l1d", "first-level data cache, of one core"),
    (Group::Memory, "l2", "second-level cache"),
    (Group::Memory, "l3", "third-level cache"),
    (Group::Memory, "line", "cache line"),
    (Group::Memory, "global", "global memory of a GPU"),
    (Group::Memory, "shared_sm", "shared memory of a multiprocessor"),
    (Group::Memory, "shared_block", "shared memory that a block may have"),
    (Group::Instructions, "vector", "vector extension"),
    (Group::Instructions, "multiply_add", "the multiply-add and its use"),
    (Group::Instructions, "load_store", "vector loads, stores and prefetches"),
    (Group::Instructions, "tensor", "instructions of tensor cores and of asynchronous copies"),
    (Group::Registers, "vector_registers", "vector registers"),
    (Group::Registers, "vector_bits", "bits of a vector register"),
    (Group::Registers, "scalar_registers", "general registers"),
    (Group::Multiprocessors, "sms", "streaming multiprocessors"),
    (Group::Multiprocessors, "cuda_cores_sm", "CUDA cores of a multiprocessor"),
    (Group::Multiprocessors, "tensor_cores_sm", "tensor cores of a multiprocessor"),
];

/// How far a factor is to be believed: what a probe found wins over what a manual says, and that over a shipped record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rank {
    /// A record that comes with the program.
    Record,
    /// A manual that the user gave.
    Manual,
    /// The machine was asked.
    Probe,
}

/// A factor with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Factor {
    /// One of [`NAMES`].
    pub name: String,
    /// Its value, with its unit.
    pub value: String,
    /// Where it is from.
    pub source: String,
    /// How far that is to be believed.
    pub rank: Rank,
    /// What a manual says, word for word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
}

/// What is known of a processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Factors {
    /// What it is called.
    pub hardware: String,
    /// Each name once, in the order of [`NAMES`].
    pub factors: Vec<Factor>,
    /// Those that another of the same name is believed before, where the two differ.
    pub conflicts: Vec<Factor>,
}

impl Factors {
    /// The factors of a hardware, of several sources: of one name the one of the highest rank counts.
    #[must_use]
    pub fn merged(hardware: &str, all: impl IntoIterator<Item = Factor>) -> Self {
        let mut all: Vec<Factor> = all.into_iter().collect();
        let place = |factor: &Factor| NAMES.iter().position(|(_, name, _)| *name == factor.name);
        all.retain(|factor| place(factor).is_some());
        all.sort_by_key(|factor| (place(factor), std::cmp::Reverse(factor.rank)));
        let mut merged = Self { hardware: hardware.to_owned(), ..Self::default() };
        for factor in all {
            match merged.factors.last().filter(|last| last.name == factor.name) {
                None => merged.factors.push(factor),
                Some(last) if plain(&last.value) != plain(&factor.value) => merged.conflicts.push(factor),
                Some(_) => {}
            }
        }
        merged
    }

    /// The value of a factor.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.factors.iter().find(|factor| factor.name == name).map(|factor| factor.value.as_str())
    }

    /// What the machine says of itself, and of a GPU what the records say of one of its name.
    #[must_use]
    pub fn of(machine: &Machine) -> Self {
        let record =
            Some(&machine.name).filter(|_| machine.kind == MachineKind::Gpu).and_then(|name| records::named(name));
        Self::merged(
            &machine.name,
            Self::told(machine.kind, &machine.facts).into_iter().chain(record.into_iter().flatten()),
        )
    }

    /// What these lines of a machine's specification say.
    #[must_use]
    pub fn told(kind: MachineKind, facts: &[Fact]) -> Vec<Factor> {
        let mut found = vec![];
        let source = if kind == MachineKind::Gpu { "the driver (NVML, CUDA)" } else { "/proc/cpuinfo and sysfs" };
        let mut say = |name: &str, value: Option<String>| {
            // What only the vendor's papers say has its source in the line itself.
            let paper = |value: &str| {
                let (value, source) = value.strip_suffix(')')?.split_once(" (")?;
                Some((value.to_owned(), source.to_owned(), Rank::Record))
            };
            found.extend(value.map(|value| {
                let of_gpu = if kind == MachineKind::Gpu { paper(&value) } else { None };
                let (value, source, rank) = of_gpu.unwrap_or((value, source.to_owned(), Rank::Probe));
                Factor { name: name.to_owned(), value, source, rank, quote: None }
            }));
        };
        let fact = |name: &str| facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.clone());
        for (level, name) in [("L1", "l1d"), ("L2", "l2"), ("L3", "l3")] {
            // Behind the size stand the lines, and who shares it.
            let cache = fact(&format!("{level} data cache"));
            let (size, rest) = cache.as_deref().map_or((None, ""), |text| {
                let (size, rest) = text.split_once(", ").unwrap_or((text, ""));
                (Some(size), rest)
            });
            let shared = rest.split(", ").find(|part| part.starts_with("shared")).map(|part| format!(", {part}"));
            say(name, size.map(|size| format!("{size}{}", shared.unwrap_or_default())));
            if name == "l1d" {
                let line = rest.split(", ").find_map(|part| part.strip_prefix("lines of "));
                say("line", line.map(ToOwned::to_owned));
            }
        }
        if let Some(extensions) = fact("vector extensions").filter(|_| kind == MachineKind::Cpu) {
            let registers = registers(&extensions);
            say("vector", Some(extensions));
            say("vector_registers", registers.map(|(count, _)| count.to_string()));
            say("vector_bits", registers.map(|(_, bits)| bits.to_string()));
        }
        if kind == MachineKind::Gpu {
            say("global", fact("memory"));
            say("sms", fact("multiprocessors"));
            say("l2", fact("L2 cache"));
        }
        // A machine that is emulated has those of its record, under the words for them.
        for (_, name, what) in NAMES {
            let known = facts.iter().find(|fact| fact.name == what).map(|fact| fact.value.clone());
            found.extend(known.map(|value| Factor {
                name: name.to_owned(),
                value,
                source: "its record".to_owned(),
                rank: Rank::Record,
                quote: None,
            }));
        }
        found
    }

    /// What the table of GPUs says of one.
    #[must_use]
    pub fn of_gpu(gpu: &Gpu) -> Vec<Factor> {
        let source = "the vendor's papers (metrics/gpus.toml)";
        let factor = |name: &str, value: String| Factor {
            name: name.to_owned(),
            value,
            source: source.to_owned(),
            rank: Rank::Record,
            quote: None,
        };
        let mut found = vec![factor("global", format!("{} GB", gpu.memory_gb.0))];
        found.extend(gpu.multiprocessors.as_ref().map(|(count, _)| factor("sms", count.to_string())));
        found.extend(gpu.l2_kib.as_ref().map(|(kib, _)| {
            factor("l2", if kib % 1024 == 0 { format!("{} MiB", kib / 1024) } else { format!("{kib} KiB") })
        }));
        found
    }
}

/// How many vector registers an extension has, and their bits.
fn registers(extensions: &str) -> Option<(u32, u32)> {
    let has = |name: &str| extensions.split(", ").any(|known| known == name);
    if has("avx512f") {
        Some((32, 512))
    } else if has("avx2") || has("avx") {
        Some((16, 256))
    } else if has("asimd") || has("neon") {
        Some((32, 128))
    } else {
        has("sse2").then_some((16, 128))
    }
}

/// A value without what differs between two ways to write it.
fn plain(value: &str) -> String {
    let text: String = value.chars().filter(|c| !c.is_whitespace() && *c != ',').collect();
    text.to_lowercase().replace("kib", "kb").replace("mib", "mb").replace("gib", "gb")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;

    fn factor(name: &str, value: &str, rank: Rank) -> Factor {
        Factor { name: name.into(), value: value.into(), source: "here".into(), rank, quote: None }
    }

    fn machine(kind: MachineKind, name: &str, facts: &[(&str, &str)]) -> Machine {
        let fact = |(name, value): &(&str, &str)| Fact { name: (*name).into(), value: (*value).into() };
        let (arch, facts) = (Arch::Cpu("x86_64".into()), facts.iter().map(fact).collect());
        Machine { kind, name: name.into(), arch, facts, bandwidths: vec![], peak_flops: None }
    }

    #[test]
    fn a_probe_wins_over_a_manual_and_that_over_a_record_and_what_differs_is_a_conflict() {
        let all = [
            factor("l2", "512 KiB", Rank::Record),
            factor("l2", "1024 KiB", Rank::Probe),
            factor("l2", "1024 KB", Rank::Manual),
            factor("l1d", "64 KiB", Rank::Manual),
            factor("colour", "red", Rank::Probe),
        ];
        let merged = Factors::merged("C910", all);
        let names: Vec<&str> = merged.factors.iter().map(|factor| factor.name.as_str()).collect();
        assert_eq!((names, merged.value("l2")), (vec!["l1d", "l2"], Some("1024 KiB")));
        assert_eq!(merged.conflicts, [factor("l2", "512 KiB", Rank::Record)]);
    }

    #[test]
    fn a_machine_says_its_caches_and_registers() {
        let facts = [
            ("L1 data cache", "32 KiB, lines of 64 bytes"),
            ("L3 data cache", "32768 KiB, lines of 64 bytes, shared by 8"),
            ("vector extensions", "sse2, avx, avx2, avx512f"),
        ];
        let factors = Factors::of(&machine(MachineKind::Cpu, "test", &facts));
        let values = ["l1d", "line", "l3", "vector_registers", "vector_bits"].map(|name| factors.value(name).unwrap());
        assert_eq!(values, ["32 KiB", "64 bytes", "32768 KiB, shared by 8", "32", "512"]);
    }

    #[test]
    fn a_gpu_says_its_own_and_has_the_rest_of_its_record() {
        let facts = [("multiprocessors", "132 (a paper)"), ("memory", "139 GiB"), ("L2 cache", "60 MiB")];
        let factors = Factors::of(&machine(MachineKind::Gpu, "NVIDIA H200", &facts));
        let values = ["global", "sms", "l2", "shared_block", "tensor"].map(|name| factors.value(name).unwrap());
        assert_eq!(values, ["139 GiB", "132", "60 MiB", "227 KiB", "mma, wgmma; cp.async, TMA"]);
        let of = |name: &str| factors.factors.iter().find(|factor| factor.name == name).unwrap();
        assert_eq!(
            (of("global").rank, of("sms").rank, of("sms").source.as_str()),
            (Rank::Probe, Rank::Record, "a paper")
        );
        assert!(!factors.conflicts.iter().any(|other| other.name == "sms"), "{factors:?}");
        assert!(Factors::of(&machine(MachineKind::Cpu, "NVIDIA H200", &facts)).value("tensor").is_none());
    }

    #[test]
    fn every_kind_of_factor_has_names() {
        assert!(Group::ALL.iter().all(|group| NAMES.iter().any(|(of, _, _)| of == group)));
    }
}
