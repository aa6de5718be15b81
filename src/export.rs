//! How is a run laid out for other programs?

pub mod kernelbench;
