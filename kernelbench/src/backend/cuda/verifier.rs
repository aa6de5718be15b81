//! The verifier: the trusted side on the GPU, which draws inputs and compares outputs.
//!
//! It holds the memory that both children compute in, one arena for each, draws inputs where they lie, and looks at all
//! that was left there. What its kernels find wrong is looked at once more on the processor, by the rule that decides.

use crate::{
    engine::{
        backend::{Look, Side},
        contents::{mismatch, poison},
    },
    machine::driver::{CudaDevice, HANDLE, Kernel, Memory},
    measure::gpu_clock::broken,
    result::{
        error::Attempt,
        failure::{Failure, Fault},
    },
    sandbox::kernel_child::DeviceError,
    task::{
        Dtype, Fill, Tolerance,
        layout::{Array, Layout, PAGE},
    },
};
use arrays::{Comparison, compare_on_cores};
use rand::{Rng, rngs::StdRng};
use std::sync::Arc;

/// The sources of its kernels by name, the one that is compiled first.
pub(crate) const SOURCES: [(&str, &str); 2] =
    [("verifier.cu", include_str!("verifier.cu")), ("tolerance.h", include_str!("tolerance.h"))];
/// Counters: so many for each array of a case.
const COUNTERS: usize = 4096;
/// Arrays of a case that may be looked at.
pub(crate) const MOST_ARRAYS: usize = 32;
/// Slots of an arena at most.
pub(crate) const MOST_SLOTS: usize = COUNTERS - 2;
/// The counter of an input's elements that changed.
const CHANGED: usize = COUNTERS - 2;
/// The counter of what changed in the zones around an array.
const BESIDE: usize = COUNTERS - 1;
/// Elements that are compared once more on the processor after a check, at most.
const TWICE: usize = 64 << 20;

/// What is drawn for one filling: the same inputs for both, another poison for each.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    keys: Vec<u64>,
    poisons: [[u8; 8]; 2],
    zones: u64,
}

impl Draw {
    /// A new one.
    pub(crate) fn new(layout: &Layout, rng: &mut StdRng) -> Self {
        let keys = layout.arrays.iter().map(|_| rng.random()).collect();
        Self { keys, poisons: [rng.random(), rng.random()], zones: rng.random() }
    }
}

/// The trusted side.
#[derive(Debug)]
pub(crate) struct Verifier {
    pub(crate) device: Arc<CudaDevice>,
    inputs: Kernel,
    paint: Kernel,
    compare: Kernel,
    arenas: [Memory; 2],
    counters: Memory,
}

impl Verifier {
    /// Allocates both arenas, each of so many bytes, with its kernels from their compiled image.
    pub(crate) fn new(device: Arc<CudaDevice>, image: &[u8], arena_bytes: usize) -> Result<Self, DeviceError> {
        let [inputs, paint, compare] = device.kernels(image, ["inputs", "paint", "compare"])?;
        let arenas = [device.allocate(arena_bytes)?, device.allocate(arena_bytes)?];
        let counters = device.allocate(MOST_ARRAYS * COUNTERS * 8)?;
        Ok(Self { device, inputs, paint, compare, arenas, counters })
    }

    /// The handle by which a child opens its arena.
    pub(crate) fn handle(&self, side: Side) -> Result<[u8; HANDLE], DeviceError> {
        self.device.handle(self.arena(side))
    }

    /// Bytes of an arena.
    pub(crate) fn arena_bytes(&self) -> usize {
        self.arenas[0].bytes
    }

    fn arena(&self, side: Side) -> &Memory {
        &self.arenas[side as usize]
    }

    fn array(&self, side: Side, slot: usize, layout: &Layout, array: &Array) -> u64 {
        self.arena(side).address + (slot * layout.slot_bytes + array.offset) as u64
    }

    /// Writes the inputs of the first slots, the same for both sides; paints the zones around all arrays; and poisons the
    /// outputs, each side's with a poison of its own.
    pub(crate) fn fill(&self, layout: &Layout, slots: usize, draw: &Draw) -> Result<(), DeviceError> {
        self.device.enter()?;
        for (at, array) in layout.arrays.iter().enumerate() {
            if array.is_input() {
                self.content(Side::Reference, layout, slots, array, draw.keys[at], 0)?;
            }
            for zone in zones(array) {
                self.pattern(Side::Reference, layout, slots, zone, draw.zones, 0)?;
            }
        }
        let [reference, candidate] = [Side::Reference, Side::Candidate].map(|side| self.arena(side).address);
        self.device.copy(candidate, reference, slots * layout.slot_bytes)?;
        for array in layout.arrays.iter().filter(|array| !array.is_input()) {
            for side in [Side::Reference, Side::Candidate] {
                let element = poison(array.dtype, draw.poisons[side as usize]);
                let range = [array.offset, array.offset + array.bytes];
                self.pattern(side, layout, slots, range, repeated(element, array.dtype), 0)?;
            }
        }
        Ok(())
    }

    /// Writes or looks at an input.
    fn content(
        &self,
        side: Side,
        layout: &Layout,
        slots: usize,
        array: &Array,
        key: u64,
        to: u64,
    ) -> Result<(), DeviceError> {
        let elements = (array.bytes / array.dtype.bytes()) as u64;
        let [kind, a, b, c] = numbers(array.fill);
        let address = self.array(side, 0, layout, array);
        let dtype = number(array.dtype);
        let mut arguments = [address, layout.slot_bytes as u64, elements, dtype, kind, a, b, c, key, to];
        self.device.launch(self.inputs, elements, slots, &mut arguments)
    }

    /// Writes or looks at a stretch of each slot.
    fn pattern(
        &self,
        side: Side,
        layout: &Layout,
        slots: usize,
        [from, to]: [usize; 2],
        pattern: u64,
        changed: u64,
    ) -> Result<(), DeviceError> {
        let address = self.arena(side).address;
        let mut arguments = [address, layout.slot_bytes as u64, from as u64, to as u64, pattern, changed];
        self.device.launch(self.paint, (to - from).div_ceil(8) as u64, slots, &mut arguments)
    }

    /// Looks at what the candidate left in the first slots: its outputs beside the reference's, its surroundings, its inputs.
    pub(crate) fn verify(&self, layout: &Layout, slots: usize, draw: &Draw, look: &Look<'_>) -> Attempt<()> {
        let (tolerance, while_timed, twice) = (look.tolerance, look.while_timed(), look.twice());
        let counts = self.counts(layout, slots, draw, tolerance).map_err(broken)?;
        for (array, counts) in layout.arrays.iter().zip(&counts) {
            if counts[BESIDE] > 0 {
                return Err(Failure::OutOfBounds { case: look.case.to_owned(), argument: array.name.clone() }.into());
            }
        }
        for (array, counts) in layout.arrays.iter().zip(&counts) {
            if counts[CHANGED] > 0 {
                return Err(Failure::InputChanged { case: look.case.to_owned(), argument: array.name.clone() }.into());
            }
        }
        for (array, counts) in layout.arrays.iter().zip(&counts).filter(|(array, _)| array.is_output()) {
            for (slot, wrong) in counts[..slots].iter().enumerate() {
                let twice = twice && array.bytes <= TWICE;
                if *wrong == 0 && !twice {
                    continue;
                }
                let found = self.compared(layout, slot, array, draw, tolerance).map_err(broken)?;
                if found.wrong != *wrong {
                    let what = format!("the GPU counts {wrong} wrong elements, the CPU {}", found.wrong);
                    return Err(Fault::Machine(format!("{} of case {}: {what}", array.name, layout.case)).into());
                }
                if !found.passes(tolerance.share) {
                    return Err(mismatch(look.case.to_owned(), array, &found, while_timed).into());
                }
            }
        }
        Ok(())
    }

    /// Counts, by array: wrong elements of each slot, and in the last two places what changed in it and beside it.
    fn counts(
        &self,
        layout: &Layout,
        slots: usize,
        draw: &Draw,
        tolerance: &Tolerance,
    ) -> Result<Vec<Vec<u64>>, DeviceError> {
        self.device.enter()?;
        let used = layout.arrays.len() * COUNTERS * 8;
        self.device.set(self.counters.address, 0, used)?;
        let place = |array: usize, counter: usize| self.counters.address + ((array * COUNTERS + counter) * 8) as u64;
        for (at, array) in layout.arrays.iter().enumerate().filter(|(_, array)| array.is_output()) {
            let elements = (array.bytes / array.dtype.bytes()) as u64;
            let [right, got] = [Side::Reference, Side::Candidate].map(|side| self.array(side, 0, layout, array));
            let bounds = [tolerance.atol.to_bits(), tolerance.rtol.to_bits()];
            let (slot_bytes, dtype) = (layout.slot_bytes as u64, number(array.dtype));
            let mut arguments = [right, got, slot_bytes, elements, dtype, bounds[0], bounds[1], place(at, 0)];
            self.device.launch(self.compare, elements, slots, &mut arguments)?;
        }
        for (at, array) in layout.arrays.iter().enumerate() {
            if !array.is_output() {
                self.content(Side::Candidate, layout, slots, array, draw.keys[at], place(at, CHANGED))?;
            }
            for zone in zones(array) {
                self.pattern(Side::Candidate, layout, slots, zone, draw.zones, place(at, BESIDE))?;
            }
        }
        let mut bytes = vec![0; used];
        self.device.read(self.counters.address, &mut bytes)?;
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|b| u64::from_ne_bytes(b.try_into().unwrap_or([0; 8]))).collect();
        Ok(words.chunks(COUNTERS).map(<[u64]>::to_vec).collect())
    }

    fn compared(
        &self,
        layout: &Layout,
        slot: usize,
        array: &Array,
        draw: &Draw,
        tolerance: &Tolerance,
    ) -> Result<Comparison, DeviceError> {
        let [mut right, mut got] = [vec![0; array.bytes], vec![0; array.bytes]];
        self.device.read(self.array(Side::Reference, slot, layout, array), &mut right)?;
        self.device.read(self.array(Side::Candidate, slot, layout, array), &mut got)?;
        let element = poison(array.dtype, draw.poisons[Side::Candidate as usize]);
        let element = (!array.is_input()).then(|| &element[..array.dtype.bytes()]);
        Ok(compare_on_cores(array.dtype, &right, &got, tolerance, element))
    }

    /// The content of one slot, newly drawn.
    pub(crate) fn drawn(&self, layout: &Layout, rng: &mut StdRng) -> Result<Vec<u8>, DeviceError> {
        self.fill(layout, 1, &Draw::new(layout, rng))?;
        let mut bytes = vec![0; layout.slot_bytes];
        self.device.read(self.arena(Side::Candidate).address, &mut bytes)?;
        Ok(bytes)
    }

    /// Bytes a second that copying so many bytes from one arena to the other reads and writes: the best of several tries.
    pub(crate) fn bandwidth(&self, bytes: usize) -> Result<f64, DeviceError> {
        self.device.enter()?;
        let watch = self.device.stopwatch()?;
        let [to, from] = [self.arenas[0].address, self.arenas[1].address];
        let mut best = 0.0_f64;
        for _ in 0..8 {
            self.device.start(&watch)?;
            self.device.copy(to, from, bytes)?;
            self.device.stop(&watch)?;
            self.device.wait()?;
            best = best.max(2.0 * bytes as f64 / (self.device.elapsed_ns(&watch)?.max(1) as f64 / 1e9));
        }
        Ok(best)
    }
}

/// The zones around an array, from the start of a slot.
fn zones(array: &Array) -> [[usize; 2]; 2] {
    [[array.offset - PAGE, array.offset], [array.offset + array.bytes, array.end_of_zone()]]
}

/// Eight bytes of an element, again and again.
fn repeated(element: [u8; 8], dtype: Dtype) -> u64 {
    let size = dtype.bytes();
    u64::from_ne_bytes(std::array::from_fn(|at| element[at % size]))
}

/// The numbers that the kernels know element types by.
fn number(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::F32 => 0,
        Dtype::F64 => 1,
        Dtype::F16 => 2,
        Dtype::Bf16 => 3,
        Dtype::I32 => 4,
        Dtype::I64 => 5,
        Dtype::E4m3 => 6,
    }
}

/// The numbers that the kernels know fills by: the kind, and the bits of up to three doubles.
fn numbers(fill: Fill) -> [u64; 4] {
    let [kind, a, b, c] = match fill {
        Fill::Zeros => return [0; 4],
        Fill::Ones => return [1, 0, 0, 0],
        Fill::Uniform { low, high } => [2.0, low, high, 0.0],
        Fill::Normal { mean, std, minus_infinity } => [3.0, mean, std, minus_infinity],
        Fill::Integers { low, high } => [4.0, low as f64, high as f64, 0.0],
    };
    [kind as u64, a.to_bits(), b.to_bits(), c.to_bits()]
}
