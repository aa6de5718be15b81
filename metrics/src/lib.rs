//! Numbers: what was measured, what it adds up to, and what the machine could do at best.
//!
//! Nothing here does I/O, and nothing here knows of tasks, models or actors.

mod arch;
mod bootstrap;
pub mod catalog;
pub mod columns;
pub mod factors;
pub mod facts;
pub mod feature;
pub mod gpu;
pub mod literature;
mod machine;
mod profile;
pub mod profiled;
pub mod quantity;
pub mod scores;
pub mod set;
mod speedup;
mod timing;
pub mod unit;

pub use arch::Arch;
pub use gpu::Gpu;
pub use machine::{Bandwidth, CUTE, Fact, Machine, MachineKind};
pub use profile::{Kernel, Profile, Reading, Rung};
pub use set::{Metric, MetricSet};
pub use speedup::{Claim, Interval, Speedup, geometric_mean};
pub use timing::{Statistic, Timing};
