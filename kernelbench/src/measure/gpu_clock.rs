//! Work of ours on a GPU around a timed request: what comes before it hides that a process is woken, and what comes after
//! it says when the GPU was done with that process.
//!
//! Before: the second-level cache is emptied, and a kernel of ours keeps the GPU busy for 0.6 ms, while the process that was
//! resumed wakes and launches. After: an empty kernel of ours is enqueued as soon as the process has answered. The GPU turns
//! to it when the process's own work is done, or at the end of a time slice; what a process leaves unfinished that says it
//! is done counts as its time in the first case, and is found by its unfinished outputs in the second.

use crate::{
    machine::driver::{CudaDevice, Event, Kernel, Memory},
    result::{error::Attempt, failure::Fault},
    sandbox::{kernel_child::DeviceError, peer::LatencyHider},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How long the GPU is kept busy before a request, in nanoseconds.
const BUSY_NS: u64 = 600_000;
/// How much longer than that it may take, in nanoseconds, before it is said that others use the GPU.
const OVERRUN_NS: u64 = 300_000;
/// The share of requests with such an overrun from which that is said.
const SHARED: f64 = 0.1;
/// How long the work after a request may take: others' time slices come before it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that are written to empty the cache, at least: twice what any GPU's second-level cache holds.
const FLUSH: usize = 256 << 20;

/// Keeps the GPU busy for so many nanoseconds; and nothing at all. For any GPU of compute capability 7.5 or higher.
const PTX: &str = "\
.version 7.0
.target sm_75
.address_size 64
.visible .entry warpsmith_busy(.param .u64 nanoseconds)
{
    .reg .u64 %ns, %start, %now, %past;
    .reg .pred %p;
    ld.param.u64 %ns, [nanoseconds];
    mov.u64 %start, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %past, %now, %start;
    setp.lt.u64 %p, %past, %ns;
    @%p bra again;
    ret;
}
.visible .entry warpsmith_stamp() { ret; }
\0";

/// A failure of the driver on the trusted side is the machine's.
#[expect(clippy::needless_pass_by_value, reason = "as map_err hands it over")]
pub(crate) fn broken(error: DeviceError) -> Fault {
    Fault::told(format!("the workshop's own work on the GPU failed: {error}"))
}

/// The work around requests on one GPU.
#[derive(Debug)]
pub(crate) struct GpuClock {
    device: Arc<CudaDevice>,
    flush: Memory,
    busy: Kernel,
    idle_again: Event,
    stamp: Kernel,
    stamped: Event,
    /// Requests, and those before which ours took too long.
    requests: u32,
    overruns: u32,
}

impl GpuClock {
    /// That of this device.
    pub(crate) fn new(device: Arc<CudaDevice>) -> Result<Self, DeviceError> {
        let [busy, stamp] = device.kernels(PTX.as_bytes(), ["warpsmith_busy", "warpsmith_stamp"])?;
        let l2 = device.l2_bytes().unwrap_or(64 << 20) as usize;
        let flush = device.allocate((2 * l2).max(FLUSH))?;
        let (idle_again, stamped) = (device.event()?, device.event()?);
        Ok(Self { device, flush, busy, idle_again, stamp, stamped, requests: 0, overruns: 0 })
    }

    /// Empties the cache and waits: what comes next finds its data in memory. Then keeps the GPU busy.
    pub(crate) fn before(&mut self) -> Attempt<Around<'_>> {
        let launched = self.begin().map_err(broken)?;
        Ok(Around { busy_until: launched + Duration::from_nanos(BUSY_NS), launched, is_over: false, clock: self })
    }

    /// When the kernel was launched that keeps it busy.
    fn begin(&self) -> Result<Instant, DeviceError> {
        self.device.enter()?;
        self.device.set(self.flush.address, 42, self.flush.bytes)?;
        self.device.wait()?;
        let launched = Instant::now();
        self.device.launch(self.busy, 1, 1, &mut [BUSY_NS])?;
        self.device.mark(&self.idle_again)?;
        Ok(launched)
    }

    /// In words, that others used the GPU since this was last asked.
    pub(crate) fn shared(&mut self) -> Option<String> {
        let (requests, overruns) = (std::mem::take(&mut self.requests), std::mem::take(&mut self.overruns));
        let often = f64::from(overruns) > SHARED * f64::from(requests);
        often.then(|| {
            format!("others used the GPU: work of ours took too long before {overruns} of {requests} requests")
        })
    }
}

/// The work around one request.
pub(crate) struct Around<'a> {
    clock: &'a mut GpuClock,
    launched: Instant,
    /// Until when the work before lasted at least: who looks too late has its end too early, and nobody gains by that.
    busy_until: Instant,
    is_over: bool,
}

impl LatencyHider for Around<'_> {
    fn look(&mut self) -> Attempt<()> {
        if self.is_over {
            return Ok(());
        }
        let now = Instant::now();
        self.is_over = self.clock.idle_again.is_past().map_err(broken)?;
        if !self.is_over {
            self.busy_until = self.busy_until.max(now);
        }
        Ok(())
    }

    fn ended(&mut self) -> Attempt<Option<Instant>> {
        self.clock.requests += 1;
        let took = self.busy_until.duration_since(self.launched).as_nanos() as u64;
        self.clock.overruns += u32::from(took > BUSY_NS + OVERRUN_NS);
        Ok(self.is_over.then_some(self.busy_until))
    }

    fn stamp(&mut self) -> Attempt<Option<Instant>> {
        let clock = &self.clock;
        let stamped = clock.device.enter().and_then(|()| clock.device.launch(clock.stamp, 1, 1, &mut []));
        stamped.and_then(|()| clock.device.mark(&clock.stamped)).map_err(broken)?;
        let start = Instant::now();
        while !clock.stamped.is_past().map_err(broken)? {
            if start.elapsed() > PATIENCE {
                return Err(Fault::Disturbed("the GPU did not come back within 10 s".to_owned()).into());
            }
            std::hint::spin_loop();
        }
        self.look()?;
        Ok(Some(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_in_ptx_ends_with_a_zero_and_names_both_kernels() {
        assert!(PTX.ends_with('\0') && PTX.contains("warpsmith_busy(") && PTX.contains("warpsmith_stamp("));
    }
}
