//! What the machine offers that problems are evaluated on.

use super::{options::Options, python::Facts};
use crate::machine::gpu::{Gpu, complete};
use metrics::{Arch, Bandwidth, Fact, Gpu as Paper, Machine, MachineKind};

/// The machine as the settings name it, else as Python found it; of a GPU also what it and its vendor's papers say.
pub(crate) fn machine(options: &Options, found: &Facts, gpu: Option<&Gpu>) -> Machine {
    if let Some(machine) = &options.machine {
        return machine.clone();
    }
    let on_gpu = found.capability.is_some();
    let arch = found.capability.as_deref().and_then(Arch::of_capability).unwrap_or_else(Arch::host);
    let mut facts = facts(found, on_gpu);
    if on_gpu {
        complete(&mut facts, gpu, &found.device, found.capability.as_deref());
    }
    let bandwidth = |bytes_per_second| Bandwidth { working_set_bytes: 2 << 30, bytes_per_second };
    Machine {
        kind: if on_gpu { MachineKind::Gpu } else { MachineKind::Cpu },
        name: found.device.clone(),
        arch,
        facts,
        bandwidths: found.copy_bytes_per_second.map(bandwidth).into_iter().collect(),
        peak_flops: Paper::named(&found.device).filter(|_| on_gpu).map(|paper| paper.fp32_tflops.0 * 1e12),
    }
}

/// What Python and its compilers are, and what torch says of the device.
fn facts(found: &Facts, on_gpu: bool) -> Vec<Fact> {
    let mut lines = vec![];
    let mut say = |name: &str, value: Option<String>| {
        lines.extend(value.map(|value| Fact { name: name.to_owned(), value }));
    };
    say("compute capability", found.capability.clone());
    say("memory", on_gpu.then(|| format!("{} GiB", found.memory_bytes >> 30)));
    say("multiprocessors", found.multiprocessors.map(|count| count.to_string()));
    say("L2 cache", found.l2_bytes.map(|bytes| format!("{} MiB", bytes >> 20)));
    say("torch", Some(found.torch.clone()));
    say("CUDA that torch was built for", found.cuda.clone().filter(|_| on_gpu));
    say("nvcc", found.nvcc.clone().filter(|_| on_gpu));
    say("Triton", found.triton.clone().filter(|_| on_gpu));
    say("Python", Some(found.python.clone()));
    say("extensions are built for", found.extensions_for.clone());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn found() -> Facts {
        Facts {
            python: "3.12.3".into(),
            torch: "2.11.0".into(),
            cuda: Some("13.0".into()),
            device: "NVIDIA H200".into(),
            capability: Some("9.0".into()),
            memory_bytes: 139 << 30,
            multiprocessors: Some(132),
            l2_bytes: Some(50 << 20),
            copy_bytes_per_second: Some(4.1e12),
            nvcc: Some("13.0".into()),
            triton: Some("3.5.0".into()),
            extensions_for: Some("sm_90a".into()),
            folders: vec![],
        }
    }

    #[test]
    fn a_gpu_of_problems_is_described_with_its_limits_its_peaks_and_its_compilers() {
        let options = Options::new(PathBuf::new(), "cuda", PathBuf::new(), vec![]);
        let machine = machine(&options, &found(), None);
        let value = |name: &str| machine.facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.as_str());
        for (name, part) in [
            ("shared memory", "227 a block"),
            ("registers", "255 a thread"),
            ("blocks", "32 a multiprocessor"),
            ("TF32 tensor", "TFLOP/s"),
            ("nvcc", "13.0"),
            ("Triton", "3.5.0"),
            ("extensions are built for", "sm_90a"),
        ] {
            assert!(value(name).is_some_and(|value| value.contains(part)), "{name}: {:?}", value(name));
        }
        assert!(machine.peak_flops.is_some_and(|peak| peak > 6e13));
        let names: Vec<_> = machine.facts.iter().map(|fact| &fact.name).collect();
        assert!(names.iter().all(|name| names.iter().filter(|other| other == &name).count() == 1), "{names:?}");
    }
}
