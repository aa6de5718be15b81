//! `warpsmith metrics report`: one HTML file about profiles

use super::super::say;
use crate::{
    cli::MetricsReportArgs,
    exit::{Exit, Trouble},
    report::profiles,
};

/// Writes it and says where.
pub(super) fn report(arguments: &MetricsReportArgs) -> Result<Exit, Trouble> {
    let (evidence, data) = super::evidence(&arguments.profiles)?;
    let page = profiles::html(&evidence, &data, &super::wish(&arguments.profiles));
    let out = &arguments.out;
    std::fs::write(out, page)
        .map_err(|e| Trouble::usage(format!("{}: cannot write the report: {e}", out.display())))?;
    say(&out.display().to_string());
    Ok(Exit::Done)
}
