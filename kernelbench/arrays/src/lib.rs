//! Arrays: their element types, what they hold before a call, and whether two of them count as the same.
//!
//! All that looks at every element is here and nowhere else, so that this small crate alone is optimized in full.

mod compare;
mod dtype;
pub mod e4m3;
mod fill;
mod fresh;
mod spread;

pub use compare::{Comparison, Tolerance, compare, compare_on_cores};
pub use dtype::Dtype;
pub use fill::{Fill, fill};
pub use fresh::{Maker, repeat};
pub use spread::Spread;
