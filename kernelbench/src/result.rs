//! What came of a candidate: built, evaluated, failed, certified.

pub(crate) mod candidate;
pub(crate) mod certificate;
pub(crate) mod code_object;
pub(crate) mod counts;
pub(crate) mod error;
pub(crate) mod evaluation;
pub(crate) mod failure;
pub(crate) mod label;
pub(crate) mod operator;
pub(crate) mod survey;
