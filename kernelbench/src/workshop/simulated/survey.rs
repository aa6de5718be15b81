//! What would a profiler have read of a simulated candidate? As Nsight Compute prints it, made up from the candidate's time.

use crate::{hash::Hash, profile::ncu, result::survey::Survey};

/// The survey of a candidate that takes so many microseconds.
pub(super) fn survey(case: &str, id: &Hash, us: f64) -> Result<Survey, String> {
    let drawn = f64::from(u32::from_str_radix(id.short(), 16).unwrap_or(0)) / f64::from(u32::MAX);
    let readings = [
        (ncu::DURATION, "ns", (us * 1000.0).to_string()),
        ("sm__cycles_active.avg", "cycle", (us * 1500.0).to_string()),
        ("sm__cycles_active.sum", "cycle", (us * 1500.0 * 4.0).to_string()),
        ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", (2000.0 / us.max(20.0)).to_string()),
        ("lts__t_sector_hit_rate.pct", "%", (100.0 * drawn).to_string()),
        ("launch__registers_per_thread", "register/thread", "32".to_owned()),
        ("sm__pipe_tensor_cycles_active.avg", "", "n/a".to_owned()),
    ];
    let row = |cells: Vec<&str>| format!("\"{}\"\n", cells.join("\",\""));
    let who = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "CC"];
    let these = ["0", "1", "simulated", "(256, 1, 1)", "(1, 1, 1)", "0.0"];
    let line = |who: [&'static str; 6], cell: fn(&(&'static str, &'static str, String)) -> String| -> String {
        let cells: Vec<String> = readings.iter().map(cell).collect();
        row(who.into_iter().chain(cells.iter().map(String::as_str)).collect())
    };
    let table = [
        line(who, |reading| reading.0.to_owned()),
        line([""; 6], |reading| reading.1.to_owned()),
        line(these, |reading| reading.2.clone()),
    ];
    let notes = vec!["simulated: no reading was measured".to_owned()];
    Ok(Survey { case: case.to_owned(), tool: "none".to_owned(), launches: ncu::read(&table.concat())?, notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_up_is_read_as_a_real_table_is() {
        let survey = survey("c", &Hash::of(b""), 50.0).unwrap();
        let launch = &survey.launches[0];
        assert_eq!((launch.duration_ns(), launch.value("launch__registers_per_thread")), (50_000.0, Some(32.0)));
        assert_eq!(launch.value("sm__pipe_tensor_cycles_active.avg"), None);
    }
}
