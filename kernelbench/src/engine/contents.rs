//! The arguments of kernel contexts on any device: where they lie, what they hold before a call, and what a comparison finds
//! after it.

use crate::{
    result::failure::{Failure, Fault},
    task::{
        Case, Dtype, KernelContext, Source, Task,
        layout::{Array, Layout},
    },
};
use arrays::{Comparison, e4m3};

/// The kernel context of a task that is one.
pub(crate) fn context(task: &Task) -> Result<&KernelContext, Fault> {
    match &task.source {
        Source::Context(context) => Ok(context),
        Source::Problem(_) => {
            Err(Fault::Machine(format!("task `{}` is a problem in Python: torch runs it", task.name)))
        }
    }
}

/// Where each argument of a case lies. The suite was to hold cases that fit alone.
pub(crate) fn layout(task: &Task, case: &Case) -> Result<Layout, Fault> {
    Layout::of(context(task)?, case).map_err(|e| Fault::Machine(format!("the task does not fit together: {e}")))
}

/// The element that outputs hold before a call: a NaN with a random payload, or a random whole number.
pub(crate) fn poison(dtype: Dtype, noise: [u8; 8]) -> [u8; 8] {
    let word = u64::from_ne_bytes(noise);
    let padded = |bytes: &[u8]| {
        let mut element = [0; 8];
        element[..bytes.len()].copy_from_slice(bytes);
        element
    };
    match dtype {
        Dtype::F16 => padded(&(0x7e00 | (word as u16 & 0x81ff)).to_ne_bytes()),
        Dtype::Bf16 => padded(&(0x7fc0 | (word as u16 & 0x803f)).to_ne_bytes()),
        Dtype::F32 => padded(&(0x7fc0_0000 | (word as u32 & 0x803f_ffff)).to_ne_bytes()),
        Dtype::F64 => (0x7ff8_0000_0000_0000 | (word & 0x8007_ffff_ffff_ffff)).to_ne_bytes(),
        Dtype::E4m3 => padded(&[e4m3::NAN | (word as u8 & 0x80)]),
        Dtype::I32 => padded(&(word as u32).to_ne_bytes()),
        Dtype::I64 => noise,
    }
}

/// The failure of an output that differs.
pub(crate) fn mismatch(case: String, array: &Array, found: &Comparison, while_timed: bool) -> Failure {
    Failure::Mismatch {
        case,
        argument: array.name.clone(),
        wrong: found.wrong,
        total: found.total,
        worst_at: found.worst_at,
        expected: found.expected.to_string(),
        got: found.got.to_string(),
        unwritten: found.unwritten,
        nan: found.nan,
        while_timed,
        spread: Box::new(found.spread.clone()),
    }
}
