//! `warpsmith config`: the settings in force.

use super::verbatim;
use crate::{
    cli::ConfigArgs,
    config::{DEFAULTS, Layers},
    exit::{Exit, Trouble},
};

/// Prints them with where each comes from, or the commented defaults.
#[expect(clippy::unnecessary_wraps, reason = "every command gives the same type")]
pub(super) fn config(arguments: &ConfigArgs, layers: &Layers) -> Result<Exit, Trouble> {
    let text = if arguments.defaults { DEFAULTS.to_owned() } else { layers.describe() };
    verbatim(text.trim_end());
    Ok(Exit::Done)
}
