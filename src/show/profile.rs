//! How does a profile read in a terminal?

use super::{columns, plain};
use crate::quantity;
use metrics::{Kernel, Profile, Reading, facts};
use std::fmt::Write;

/// The rung, what was read of the whole call, then kernel by kernel, what bounds these by rule, then what has to be known.
#[must_use]
pub fn profile(profile: &Profile) -> String {
    let mut text = format!("profile on case {}: {}\n", profile.case, profile.rung.describe());
    text += &readings(&profile.readings);
    for kernel in &profile.kernels {
        let _ = write!(text, "  {}\n{}", kernel_heading(kernel), readings(&kernel.readings));
    }
    for note in facts::lines(profile).iter().chain(&profile.notes) {
        let _ = writeln!(text, "  {}", note.replace('\n', " "));
    }
    plain(&text)
}

/// A kernel's name, with how often a call launches it and what part of the time it takes, as far as that is known.
#[must_use]
pub fn kernel_heading(kernel: &Kernel) -> String {
    let launches =
        kernel.launches.map(|count| if count == 1 { "1 launch".into() } else { format!("{count} launches") });
    let share = kernel.share.map(|share| format!("{:.0} % of the time", share * 100.0));
    let known: Vec<String> = launches.into_iter().chain(share).collect();
    let known = if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) };
    format!("kernel {}{known}", kernel.name.replace('\n', " "))
}

/// A metric's name, marked where it stands for one that this machine does not have.
#[must_use]
pub fn reading_name(reading: &Reading) -> String {
    let mark = if reading.stands_for.is_some() { "nearest: " } else { "" };
    format!("{mark}{}", reading.name)
}

fn readings(readings: &[Reading]) -> String {
    let row = |reading: &Reading| {
        [format!("    {}", reading_name(reading)), quantity::reading(reading), reading.meaning.clone()]
    };
    columns(&readings.iter().map(row).collect::<Vec<_>>())
}
