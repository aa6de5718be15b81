//! Words: what is said to a model, and what its reply means.
//!
//! Nothing here starts a process, opens a connection or knows of actors. Each page of `templates/` has a source file of
//! its name, which renders it and, where the page asks for something of its own, reads the reply.

mod action;
mod advise;
mod again;
mod apply;
mod approaches;
mod catalogue;
mod code;
mod context;
mod diagnose;
mod documents;
mod example;
mod extract;
mod features;
mod fix;
pub mod hints;
mod learned;
mod library;
mod lookup;
mod optimize;
mod pages;
mod plan;
mod pooled;
mod primitives;
mod prompt;
mod propose;
mod refine;
mod reflect;
mod reply;
mod retry;
mod rewrite;
mod seed;
mod sentence;
mod shapes;
mod sketch;
mod space;
mod suggest;
mod transform;
mod transformation;
mod verdict;
mod words;

#[cfg(test)]
mod rules;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod untrusted;

pub use action::{Choosing, Taken, read_action};
pub use advise::read_optimization;
pub use approaches::read_approaches;
pub use catalogue::{Catalogue, Listed, nearest};
pub use code::{code_text, read_candidate};
pub use context::Context;
pub use diagnose::read_fix;
pub use documents::Documents;
pub use extract::{Manual, Passage, passages, read_factors};
pub use features::bundle;
pub use learned::{Learned, Taught, read_skill};
pub use lookup::{Looking, Lookup, Shelf, Written, of_round, read_written};
pub use pages::{Prompts, TemplateError};
pub use plan::{PlanLine, PlanProposal, read_plan};
pub use primitives::read_primitives;
pub use prompt::{Prompt, Speaker, Turn};
pub use propose::{OpenTransformation, Proposing};
pub use reflect::{MOST_REFLECTIONS, Past, read_reflections};
pub use rewrite::read_region;
pub use seed::FirstPage;
pub use sentence::{Fact, Sayable, read_facts};
pub use shapes::read_shapes;
pub use sketch::{Sketch, read_sketch, read_whole};
pub use space::{Offering, read_space};
pub use suggest::read_suggestions;
pub use transform::{Rewriting, backend};
pub use transformation::{BACKENDS, Origin, Pass, RegionCall, Transformation, TransformationError};
pub use verdict::{Approaches, Attempted, Fix, Hints, Offered, Optimization, Suggestions, Unreadable, Verdict};
