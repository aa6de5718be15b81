//! What does this GPU offer, as it says itself, as its vendor's papers say, and as was measured?

use super::{driver::CudaError, verifier::Judge};
use crate::machine::gpu::Gpu;
use metrics::{Bandwidth, Fact, Gpu as Paper, Machine, MachineKind};

/// The GPU as a machine. Bandwidths are measured: within the cache and beyond it.
pub(crate) fn machine(judge: &Judge, gpu: Option<&Gpu>, nvcc: &str) -> Result<Machine, CudaError> {
    let device = &judge.device;
    let (called, capability) = (device.name(), device.capability()?);
    let fact = |name: &str, value: String| Fact { name: name.to_owned(), value };
    let mut facts = vec![
        fact("compute capability", capability.clone()),
        fact("multiprocessors", device.multiprocessors()?.to_string()),
        fact("memory", format!("{} GiB", device.memory()?[1] >> 30)),
        fact("L2 cache", format!("{} MiB", device.l2_bytes()? >> 20)),
        fact("compiler", nvcc.to_owned()),
    ];
    let paper = Paper::named(&called);
    let more = gpu.map_or_else(|| paper.map(Paper::facts).unwrap_or_default(), Gpu::facts);
    for fact in more {
        if facts.iter().all(|known| known.name != fact.name) {
            facts.push(fact);
        }
    }
    Ok(Machine {
        kind: MachineKind::Gpu,
        arch: metrics::gpu::arch(&capability),
        bandwidths: bandwidths(judge)?,
        peak_flops: paper.map(|paper| paper.fp32_tflops.0 * 1e12),
        name: called,
        facts,
    })
}

fn bandwidths(judge: &Judge) -> Result<Vec<Bandwidth>, CudaError> {
    let most = judge.arena_bytes();
    let mut sizes = vec![most.min(8 << 20), most.min(64 << 20), most];
    sizes.dedup();
    let measured = |bytes: usize| {
        let bytes_per_second = judge.bandwidth(bytes)?;
        Ok(Bandwidth { working_set_bytes: 2 * bytes as u64, bytes_per_second })
    };
    sizes.into_iter().map(measured).collect()
}
