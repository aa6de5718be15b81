//! What did Nsight Compute read, of which kernel, and what does this GPU not have?

use metrics::{Profile, Reading, Rung};
use serde::Deserialize;
use std::collections::BTreeMap;

/// `CudaForge`'s 24 metrics, and what an architecture has in the place of those it lacks.
const CUDAFORGE24: &str = include_str!("../../../metrics/sets/cudaforge24.toml");
/// A kernel's duration, by which the kernels of a call are ranked.
const DURATION: &str = "gpu__time_duration.sum";
/// Kernels that are shown at most.
const SHOWN: usize = 3;
/// The share of the time after which further kernels are left out.
const ENOUGH: f64 = 0.9;
/// Launches that are profiled at most.
const LAUNCHES: usize = 64;

/// A set of metrics, as its file writes it.
#[derive(Clone, Debug, Deserialize)]
pub struct MetricSet {
    /// The set's name.
    pub name: String,
    /// Its metrics, in order.
    pub metric: Vec<Metric>,
}

/// One metric of a set.
#[derive(Clone, Debug, Deserialize)]
pub struct Metric {
    /// Its name, as Nsight Compute calls it.
    pub name: String,
    /// What it says.
    pub meaning: String,
    /// What an architecture (a compute capability) has in its place.
    #[serde(default)]
    pub nearest: BTreeMap<String, String>,
}

/// One launch: its kernel, and all that was read of it.
#[derive(Clone, Debug)]
pub struct Launched {
    /// The kernel's name.
    pub kernel: String,
    /// The GPU's compute capability.
    pub capability: String,
    values: BTreeMap<String, (Option<f64>, String)>,
}

impl MetricSet {
    /// The set that comes with the program.
    ///
    /// # Panics
    ///
    /// Never: the file is part of the program, and tested.
    #[must_use]
    pub fn cudaforge24() -> Self {
        toml::from_str(CUDAFORGE24).expect("the set that comes with the program is well-formed")
    }

    /// The command line of Nsight Compute for these metrics, their substitutes, and the duration.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        let mut names: Vec<&str> = vec![DURATION];
        for metric in &self.metric {
            names.push(&metric.name);
            names.extend(metric.nearest.values().map(String::as_str));
        }
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(*name));
        let launches = LAUNCHES.to_string();
        let words = ["ncu", "--csv", "--page", "raw", "--metrics", &names.join(","), "--clock-control", "none"];
        let more =
            ["--profile-from-start", "off", "--launch-count", &launches, "--target-processes", "application-only"];
        words.iter().chain(&more).map(ToString::to_string).collect()
    }

    /// The profile of one call, from its launches.
    #[must_use]
    pub fn profile(&self, case: &str, launches: &[Launched]) -> Profile {
        let (dominant, mut notes) = dominant(launches);
        let mut readings = vec![];
        for (rank, launched) in dominant.iter().enumerate() {
            let suffix = if rank == 0 { String::new() } else { format!(" [kernel {}]", rank + 1) };
            readings.push(launched.reading(DURATION, "the kernel's duration", &suffix));
            for metric in &self.metric {
                readings.push(launched.reading(&metric.name, &metric.meaning, &suffix));
                if let Some(near) = metric.nearest.get(&launched.capability).filter(|_| !launched.has(&metric.name)) {
                    let meaning = format!("{}; what this GPU has in the place of {}", metric.meaning, metric.name);
                    readings.push(launched.reading(near, &meaning, &suffix));
                }
            }
        }
        let absent = readings.iter().filter(|reading| reading.value.is_none()).count();
        if absent > 0 {
            notes.push(format!("{absent} readings are not available on this GPU"));
        }
        Profile { rung: Rung::Ncu, case: case.to_owned(), readings, notes }
    }
}

impl Launched {
    /// What was read under this name; `None` where nothing was.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.get(name)?.0
    }

    fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    fn reading(&self, name: &str, meaning: &str, suffix: &str) -> Reading {
        let (value, unit) = self.values.get(name).cloned().unwrap_or_default();
        Reading { name: format!("{name}{suffix}"), value, unit, meaning: meaning.to_owned() }
    }
}

/// The kernels that the time goes to, the longest launch of each, with a note of each one's share.
fn dominant(launches: &[Launched]) -> (Vec<&Launched>, Vec<String>) {
    let time = |launched: &Launched| launched.value(DURATION).unwrap_or(0.0);
    let whole: f64 = launches.iter().map(time).sum();
    let mut kernels: BTreeMap<&str, (f64, usize, &Launched)> = BTreeMap::new();
    for launched in launches {
        let entry = kernels.entry(&launched.kernel).or_insert((0.0, 0, launched));
        (entry.0, entry.1) = (entry.0 + time(launched), entry.1 + 1);
        if time(launched) > time(entry.2) {
            entry.2 = launched;
        }
    }
    let mut ranked: Vec<_> = kernels.into_iter().collect();
    ranked.sort_by(|one, other| other.1.0.total_cmp(&one.1.0));
    let (mut shown, mut notes, mut share) = (vec![], vec![], 0.0);
    for (kernel, (spent, count, longest)) in &ranked {
        if shown.len() == SHOWN || (share >= ENOUGH && !shown.is_empty()) {
            break;
        }
        let part = if whole > 0.0 { spent / whole } else { 0.0 };
        share += part;
        shown.push(*longest);
        let percent = part * 100.0;
        notes.push(format!("kernel {}: {kernel}: {count} launches, {percent:.0} % of the time", shown.len()));
    }
    if ranked.len() > shown.len() {
        notes.push(format!("{} further kernels take the rest", ranked.len() - shown.len()));
    }
    if launches.len() >= LAUNCHES {
        notes.push(format!("the first {LAUNCHES} launches of the call were looked at, and no more"));
    }
    (shown, notes)
}

/// Reads what `ncu --csv --page raw` printed, with whatever else stands before the table.
///
/// # Errors
///
/// In words, where there is no table or no launch in it.
pub fn read(printed: &str) -> Result<Vec<Launched>, String> {
    let start = printed.find("\"ID\",\"Process ID\"").ok_or_else(|| complaint(printed))?;
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(&printed.as_bytes()[start..]);
    let names = reader.headers().map_err(|e| e.to_string())?.clone();
    let mut rows = reader.records().map_while(Result::ok).filter(|row| row.len() == names.len());
    let units = rows.next().ok_or("the table has no row of units")?;
    let launches: Vec<Launched> = rows.map(|row| launched(&names, &units, &row)).collect();
    if launches.is_empty() { Err("no kernel was launched between start and stop".to_owned()) } else { Ok(launches) }
}

fn launched(names: &csv::StringRecord, units: &csv::StringRecord, row: &csv::StringRecord) -> Launched {
    let text = |name: &str| {
        let at = names.iter().position(|column| column == name);
        at.and_then(|at| row.get(at)).unwrap_or_default().to_owned()
    };
    let (kernel, capability) = (text("Kernel Name"), text("CC"));
    let columns = names.iter().zip(units.iter().zip(row.iter()));
    let values = columns.map(|(name, (unit, value))| (name.to_owned(), (number(value), unit.to_owned()))).collect();
    Launched { kernel, capability, values }
}

/// Numbers come with thousands separators; what is not available is no number.
fn number(text: &str) -> Option<f64> {
    text.replace(',', "").parse().ok().filter(|value: &f64| value.is_finite())
}

/// What it said instead of a table.
fn complaint(printed: &str) -> String {
    let told: Vec<&str> = printed.lines().filter(|line| line.contains("==ERROR==") || line.contains("Error")).collect();
    let last = printed.lines().rev().find(|line| !line.trim().is_empty());
    told.first().copied().or(last).unwrap_or("it printed nothing").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = include_str!("../../tests/ncu/h200-silu-cudaforge24.csv");
    const TWENTY: &str = include_str!("../../tests/ncu/h200-silu-20-launches.csv");
    const TWO_KERNELS: &str = include_str!("../../tests/ncu/h200-softplus-softmax.csv");

    #[test]
    fn a_real_capture_is_read_with_units_and_large_numbers() {
        let profile = MetricSet::cudaforge24().profile("default", &read(ONE).unwrap());
        let find = |name: &str| profile.readings.iter().find(|reading| reading.name == name).unwrap();
        assert_eq!(find("launch__registers_per_thread").unit, "register/thread");
        assert!(find("sm__cycles_active.avg").value.unwrap() > 1000.0);
    }

    #[test]
    fn what_a_gpu_does_not_have_is_neither_zero_nor_dropped() {
        let profile = MetricSet::cudaforge24().profile("default", &read(ONE).unwrap());
        let absent: Vec<&str> =
            profile.readings.iter().filter(|r| r.value.is_none()).map(|r| r.name.as_str()).collect();
        assert!(absent.contains(&"sm__inst_executed_pipe_fp32.avg.pct_of_peak_sustained_active"), "{absent:?}");
        let near = |reading: &&Reading| reading.meaning.contains("in the place of sm__inst_executed_pipe_fp32");
        assert_eq!(
            profile.readings.iter().find(near).unwrap().name,
            "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active"
        );
    }

    #[test]
    fn many_launches_of_one_kernel_are_one_kernel_and_several_have_their_shares() {
        let twenty = read(TWENTY).unwrap();
        assert_eq!((twenty.len(), dominant(&twenty).0.len()), (20, 1));
        let two = read(TWO_KERNELS).unwrap();
        let (shown, notes) = dominant(&two);
        assert!(shown[0].kernel.contains("SoftMax") && shown.len() == 2, "{notes:?}");
        assert!(notes[0].contains("67 % of the time"), "{notes:?}");
    }

    #[test]
    fn what_ncu_says_instead_of_a_table_is_told() {
        assert!(read("==ERROR== ERR_NVGPUCTRPERM\n").unwrap_err().contains("ERR_NVGPUCTRPERM"));
        assert_eq!(number("1,234.5"), Some(1234.5));
        assert_eq!((number("n/a"), number("nan")), (None, None));
    }
}
