//! `warpsmith metrics report`: one HTML file about profiles

use crate::{
    cli::MetricsReportArgs,
    exit::{Exit, Trouble},
};

/// Writes it.
pub(super) fn report(arguments: &MetricsReportArgs) -> Result<Exit, Trouble> {
    let _ = arguments;
    Err(Trouble::usage("not yet"))
}
