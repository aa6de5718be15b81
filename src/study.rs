//! What do a workflow and its tries say of PEAK's research questions (PEAK §5)?
//!
//! Folds over records, like all that is told of a run: the speed along a workflow's checkpoints, what came of single tries of
//! its transformations, and what searches found by how much they may test.

mod depth;
mod evolution;
mod tries;

pub use depth::{Depth, Found};
pub use evolution::{Evolution, Stage};
pub use tries::{Errors, ModelTries, Outcome, StepName, SuccessRates};
