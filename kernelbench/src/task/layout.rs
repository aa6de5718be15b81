//! The layout of a case: where each argument lies in the memory that a child computes in.
//!
//! A segment holds one or several slots, each a whole set of arrays, so that a batch of calls has fresh contents for every
//! call. Before and after each array lies a red zone of one page.

use crate::task::{Argument, ArgumentKind, Case, Dtype, Fill, KernelContext, Number, Transfer};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The alignment of every array, and the size of a red zone, in bytes.
pub(crate) const PAGE: usize = 4096;

/// One array of a slot.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) transfer: Transfer,
    pub(crate) fill: Fill,
    /// From the start of the slot, in bytes; a multiple of [`PAGE`].
    pub(crate) offset: usize,
    /// Its length in bytes.
    pub(crate) bytes: usize,
    /// What belongs to it with the red zones around it, from the start of the slot.
    pub(crate) room: Range<usize>,
}

impl Array {
    pub(crate) fn is_input(&self) -> bool {
        self.transfer != Transfer::Out
    }

    pub(crate) fn is_output(&self) -> bool {
        self.transfer != Transfer::In
    }

    /// Where its red zone ends, from the start of the slot.
    pub(crate) fn end_of_zone(&self) -> usize {
        self.offset + self.bytes.next_multiple_of(PAGE) + PAGE
    }
}

/// What the child passes for one argument.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum KernelArg {
    /// A pointer, this far into the slot.
    Array(usize),
    /// A number, by the bits of its C type, low bytes first.
    Scalar(u64),
}

/// One case, laid out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) case: String,
    pub(crate) arrays: Vec<Array>,
    pub(crate) passed: Vec<KernelArg>,
    /// Bytes of a slot, red zones included.
    pub(crate) slot_bytes: usize,
}

impl Layout {
    /// Lays out the arguments of one case.
    ///
    /// # Errors
    /// Where a size has no value or a scalar is missing or of the wrong type.
    pub(crate) fn of(context: &KernelContext, case: &Case) -> Result<Self, String> {
        let mut layout = Self { case: case.name.clone(), arrays: vec![], passed: vec![], slot_bytes: 0 };
        for argument in &context.arguments {
            let placed = layout.place(argument, case);
            placed.map_err(|e| format!("case `{}`, argument `{}`: {e}", case.name, argument.name))?;
        }
        Ok(layout)
    }

    fn place(&mut self, argument: &Argument, case: &Case) -> Result<(), String> {
        let ArgumentKind::Array { size, transfer, fill } = &argument.kind else {
            let value = case.scalars.get(&argument.name).ok_or("the case gives it no value")?;
            self.passed.push(KernelArg::Scalar(bits(argument.dtype, *value)?));
            return Ok(());
        };
        let elements = size.elements(&case.scalars).map_err(|e| e.to_string())?;
        let bytes = usize::try_from(elements).ok().and_then(|n| n.checked_mul(argument.dtype.bytes()));
        let bytes = bytes.filter(|b| *b < usize::MAX >> 8).ok_or("its size overflows")?;
        let offset = self.slot_bytes + PAGE;
        let mut array = Array {
            name: argument.name.clone(),
            dtype: argument.dtype,
            transfer: *transfer,
            fill: *fill,
            offset,
            bytes,
            room: self.slot_bytes..offset,
        };
        array.room.end = array.end_of_zone();
        self.slot_bytes = array.end_of_zone();
        self.passed.push(KernelArg::Array(array.offset));
        self.arrays.push(array);
        Ok(())
    }

    /// Bytes of all arrays together, without red zones.
    pub(crate) fn array_bytes(&self) -> u64 {
        self.arrays.iter().map(|a| a.bytes as u64).sum()
    }

    /// Bytes that one call must move at least: every input read once, every output written once.
    pub(crate) fn compulsory_bytes(&self) -> u64 {
        let times = |a: &Array| u64::from(a.is_input()) + u64::from(a.is_output());
        self.arrays.iter().map(|a| a.bytes as u64 * times(a)).sum()
    }
}

fn bits(dtype: Dtype, value: Number) -> Result<u64, String> {
    let float = match value {
        Number::Integer(whole) => whole as f64,
        Number::Float(float) => float,
    };
    match (dtype, value) {
        (Dtype::F32, _) => Ok(u64::from((float as f32).to_bits())),
        (Dtype::F64, _) => Ok(float.to_bits()),
        (Dtype::F16, _) => Ok(u64::from(half::f16::from_f64(float).to_bits())),
        (Dtype::Bf16, _) => Ok(u64::from(half::bf16::from_f64(float).to_bits())),
        (Dtype::E4m3, _) => Ok(u64::from(arrays::e4m3::from_f64(float))),
        (Dtype::I32, Number::Integer(whole)) => {
            i32::try_from(whole).map(|v| u64::from(v as u32)).map_err(|_| format!("{whole} does not fit 32 bits"))
        }
        (Dtype::I64, Number::Integer(whole)) => Ok(whole as u64),
        (Dtype::I32 | Dtype::I64, Number::Float(float)) => Err(format!("expected a whole number, found {float}")),
    }
}
