//! What does Nsight Compute's full set read of one call?

use super::{child::NOTHING, profile::Called};
use crate::{failure::Fault, ncu, survey::Survey};
use metrics::MetricSet;
use std::{process::Command, time::Duration};

/// What a survey may take: each launch is run dozens of times, for other counters each time.
pub(crate) const DEADLINE: Duration = Duration::from_mins(3);
/// Launches that are looked at, at most.
const LAUNCHES: &str = "8";

/// Every section, and beside these what the set for the Judge names, of each launch of one call; in words why there is
/// nothing to be had.
pub(crate) fn survey(called: &Called<'_>) -> Result<Result<Survey, String>, Fault> {
    let read = called.under(None, &command(&MetricSet::cudaforge24()), read)?;
    Ok(read.map(|(capture, behind)| {
        let behind = behind.map(|why| format!("the profiler ran without landlock; behind it: {why}"));
        let notes = capture.warnings.into_iter().chain(behind).collect();
        Survey { case: called.plan.case.clone(), tool: version(), launches: capture.launches, notes }
    }))
}

/// What was printed of the candidate's own launches.
fn read(printed: &str) -> Result<ncu::Capture, String> {
    let mut capture = ncu::Capture::read(printed).map_err(|unread| unread.to_string())?;
    capture.launches.retain(|launch| !launch.kernel.starts_with(NOTHING));
    if capture.launches.is_empty() { Err("the call launched no kernel".to_owned()) } else { Ok(capture) }
}

/// The command line: everything, of the launches between a start and a stop of the profiler, with the clocks left alone.
fn command(beside: &MetricSet) -> Vec<String> {
    let asked = beside.metric.iter().flat_map(|metric| std::iter::once(&metric.name).chain(metric.nearest.values()));
    let mut names: Vec<&str> = asked.map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let names = names.join(",");
    let words = ["ncu", "--csv", "--page", "raw", "--set", "full", "--metrics", &names, "--clock-control", "none"];
    let more = ["--profile-from-start", "off", "--launch-count", LAUNCHES, "--target-processes", "application-only"];
    // The first launch of such a process is one that does nothing, and would be looked at as long as any other.
    let units = ["--print-units", "base", "--launch-skip", "1"];
    words.iter().chain(&more).chain(&units).map(ToString::to_string).collect()
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
    fn everything_is_asked_for_and_what_the_judge_is_shown_beside_it() {
        let command = command(&MetricSet::cudaforge24());
        let after = |flag: &str| &command[command.iter().position(|word| word == flag).unwrap() + 1];
        assert_eq!(after("--set"), "full");
        assert!(after("--metrics").split(',').any(|name| name == "sm__inst_executed.sum"));
    }

    #[test]
    fn the_version_is_a_number() {
        let said = "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c)\nVersion 2025.3.1.0 (build 36398880) (public-release)\n";
        assert_eq!((version_in(said), version_in("no such tool")), ("2025.3.1.0", ""));
    }
}
