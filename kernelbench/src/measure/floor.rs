//! Roofline floors: how soon could this machine move the data of a call?

use crate::task::layout::{Array, Layout};
use metrics::{Machine, MachineKind};

/// The bytes of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Of its inputs, each read once.
    pub(crate) inputs: u64,
    /// Of its outputs, each written once.
    pub(crate) outputs: u64,
    /// Of parameters that it reads beside them.
    pub(crate) parameters: u64,
    /// Whether it must read all of its inputs: a problem's may hold what nothing depends on (half of a triangular matrix,
    /// rows that no index names).
    pub(crate) reads_all: bool,
}

impl Traffic {
    /// That of a case of a kernel context.
    pub(crate) fn of(layout: &Layout) -> Self {
        let of = |is: fn(&Array) -> bool| {
            layout.arrays.iter().filter(|array| is(array)).map(|array| array.bytes as u64).sum()
        };
        Self { inputs: of(Array::is_input), outputs: of(Array::is_output), parameters: 0, reads_all: true }
    }
}

/// What is known of the least time of a call, in nanoseconds; `None` where no bandwidth is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Floors {
    /// Below this a time is impossible.
    pub(crate) impossible_below_ns: Option<f64>,
    /// What the roofline says: the best bandwidth at this size moves all the data once.
    pub(crate) roofline_ns: Option<f64>,
}

impl Floors {
    /// Those of a call on a machine whose physical limit may lie `margin` times above the best bandwidth measured.
    pub(crate) fn of(traffic: Traffic, machine: &Machine, margin: f64) -> Self {
        let Traffic { inputs, outputs, parameters, reads_all } = traffic;
        let all = inputs + outputs + parameters;
        // On a GPU the cache is emptied before each request.
        let from = if machine.kind == MachineKind::Gpu { u64::MAX } else { all };
        let compulsory = outputs + if reads_all { inputs } else { inputs / 2 };
        Self {
            impossible_below_ns: machine.floor_ns(compulsory).map(|floor| floor / margin),
            roofline_ns: machine.bandwidth_at(from).map(|bandwidth| all as f64 / bandwidth * 1e9),
        }
    }
}
