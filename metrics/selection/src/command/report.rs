//! `warpsmith-metrics report`: one HTML file about profiles

use super::{Wrong, say};
use crate::{cli::ReportArgs, report};

/// Writes it and says where.
pub(super) fn write(arguments: &ReportArgs) -> Result<(), Wrong> {
    let (evidence, data) = super::evidence(&arguments.profiles)?;
    let page = report::html(&evidence, &data, &super::wish(&arguments.profiles));
    let out = &arguments.out;
    std::fs::write(out, page).map_err(|e| Wrong::new(format!("{}: cannot write the report: {e}", out.display())))?;
    say(&out.display().to_string());
    Ok(())
}
