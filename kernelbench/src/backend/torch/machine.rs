//! What the machine offers that problems are evaluated on.

use super::{options::Options, python::Facts};
use metrics::{Arch, Bandwidth, Fact, Machine, MachineKind};

/// The machine as the settings name it, else as Python found it.
pub(crate) fn machine(options: &Options, facts: &Facts) -> Machine {
    if let Some(machine) = &options.machine {
        return machine.clone();
    }
    let on_gpu = facts.capability.is_some();
    let mut lines = vec![];
    let mut say = |name: &str, value: Option<String>| {
        lines.extend(value.map(|value| Fact { name: name.to_owned(), value }));
    };
    say("compute capability", facts.capability.clone());
    say("memory", on_gpu.then(|| format!("{} GiB", facts.memory_bytes >> 30)));
    say("multiprocessors", facts.multiprocessors.map(|count| count.to_string()));
    say("L2 cache", facts.l2_bytes.map(|bytes| format!("{} MiB", bytes >> 20)));
    say("torch", Some(facts.torch.clone()));
    say("CUDA", facts.cuda.clone().filter(|_| on_gpu));
    say("Python", Some(facts.python.clone()));
    let bandwidth = |bytes_per_second| Bandwidth { working_set_bytes: 2 << 30, bytes_per_second };
    Machine {
        kind: if on_gpu { MachineKind::Gpu } else { MachineKind::Cpu },
        name: facts.device.clone(),
        arch: facts.capability.as_deref().and_then(Arch::of_capability).unwrap_or_else(Arch::host),
        facts: lines,
        bandwidths: facts.copy_bytes_per_second.map(bandwidth).into_iter().collect(),
        peak_flops: None,
    }
}
