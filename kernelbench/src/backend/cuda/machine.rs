//! What this GPU offers: as it says itself, as its vendor's papers say, and as was measured.

use super::verifier::Verifier;
use crate::{
    build::nvcc::Nvcc,
    machine::{
        driver::CudaDevice,
        gpu::{Gpu, complete},
    },
    measure::gpu_clock::broken,
    result::failure::Fault,
    sandbox::kernel_child::DeviceError,
};
use metrics::{Arch, Bandwidth, Fact, Gpu as Paper, Machine, MachineKind};

/// The architecture of a GPU.
pub(super) fn arch(device: &CudaDevice) -> Result<Arch, Fault> {
    let capability = device.capability().map_err(broken)?;
    Arch::of_capability(&capability).ok_or_else(|| Fault::Machine(format!("unknown compute capability {capability}")))
}

/// The GPU as a machine. Bandwidths are measured: within the cache and beyond it.
pub(super) fn machine(verifier: &Verifier, arch: Arch, gpu: Option<&Gpu>, nvcc: &Nvcc) -> Result<Machine, DeviceError> {
    let device = &verifier.device;
    let called = device.name();
    let fact = |name: &str, value: String| Fact { name: name.to_owned(), value };
    let mut facts = vec![
        fact("compute capability", arch.capability().unwrap_or_default()),
        fact("multiprocessors", device.multiprocessors()?.to_string()),
        fact("memory", format!("{} GiB", device.memory()?[1] >> 30)),
        fact("L2 cache", format!("{} MiB", device.l2_bytes()? >> 20)),
        fact("compiler", nvcc.version().to_owned()),
        fact("kernels are built for", arch.target()),
    ];
    facts.extend(
        nvcc.cutlass()
            .map(|cutlass| fact(metrics::CUTE, format!("of CUTLASS {}, on the include path", cutlass.version))),
    );
    complete(&mut facts, gpu, &called, arch.capability().as_deref());
    let paper = Paper::named(&called);
    Ok(Machine {
        kind: MachineKind::Gpu,
        arch,
        bandwidths: bandwidths(verifier)?,
        peak_flops: paper.map(|paper| paper.fp32_tflops.0 * 1e12),
        name: called,
        facts,
    })
}

fn bandwidths(verifier: &Verifier) -> Result<Vec<Bandwidth>, DeviceError> {
    let most = verifier.arena_bytes();
    let mut sizes = vec![most.min(8 << 20), most.min(64 << 20), most];
    sizes.dedup();
    let measured = |bytes: usize| {
        let bytes_per_second = verifier.bandwidth(bytes)?;
        Ok(Bandwidth { working_set_bytes: 2 * bytes as u64, bytes_per_second })
    };
    sizes.into_iter().map(measured).collect()
}
