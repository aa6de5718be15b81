//! What does Nsight Compute's full set read of one call?

use super::cuda::{Called, read};
use crate::{
    profile::ncu,
    result::{failure::Fault, survey::Survey},
};
use metrics::MetricSet;
use std::{process::Command, time::Duration};

/// What a survey may take: each launch is run dozens of times, for other counters each time.
pub(crate) const DEADLINE: Duration = Duration::from_mins(3);
/// Launches that are looked at, at most: one of them is the process's own.
const LAUNCHES: usize = 9;

/// Every section, and beside these what the set for the Judge names, of each launch of one call; in words why there is
/// nothing to be had.
pub(crate) fn survey(called: &Called<'_>) -> Result<Result<Survey, String>, Fault> {
    let read = called.under(None, &ncu::everything(&MetricSet::cudaforge24(), LAUNCHES), read)?;
    Ok(read.map(|(capture, behind)| {
        let behind = behind.map(|why| format!("the profiler ran without landlock; behind it: {why}"));
        let notes = capture.warnings.into_iter().chain(behind).collect();
        Survey { case: called.plan.case.clone(), tool: version(), launches: capture.launches, notes }
    }))
}

/// Nsight Compute's version, as it says it: `2025.3.1.0`; empty where it does not.
fn version() -> String {
    let Ok(output) = Command::new("ncu").arg("--version").output() else { return String::new() };
    version_in(&String::from_utf8_lossy(&output.stdout)).to_owned()
}

fn version_in(said: &str) -> &str {
    let line = said.lines().find_map(|line| line.strip_prefix("Version "));
    line.and_then(|line| line.split_whitespace().next()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_a_number() {
        let said = "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c)\nVersion 2025.3.1.0 (build 36398880) (public-release)\n";
        assert_eq!((version_in(said), version_in("no such tool")), ("2025.3.1.0", ""));
    }
}
