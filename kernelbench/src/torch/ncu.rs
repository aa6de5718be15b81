//! What did Nsight Compute read, of which kernel, and what does this GPU not have?

use super::dominant::{Dominant, Launches, dominant};
use metrics::{Kernel, Profile, Reading, Rung};
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};

/// `CudaForge`'s 24 metrics, and what an architecture has in the place of those it lacks.
const CUDAFORGE24: &str = include_str!("../../../metrics/sets/cudaforge24.toml");
/// A kernel's duration.
const DURATION: &str = "gpu__time_duration.sum";

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
    /// Its grid and its block, in blocks and in threads.
    pub shape: [[u64; 3]; 2],
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

    /// The command line of Nsight Compute for these metrics, what stands for them anywhere, and the duration: of the
    /// launches between a start and a stop of the profiler, at most `launches`, of these kernels alone where any are named.
    #[must_use]
    pub fn command(&self, launches: usize, kernels: &[String]) -> Vec<String> {
        let mut names: Vec<&str> = vec![DURATION];
        for metric in &self.metric {
            names.push(&metric.name);
            names.extend(metric.nearest.values().map(String::as_str));
        }
        let mut seen = HashSet::new();
        names.retain(|name| seen.insert(*name));
        let (names, launches) = (names.join(","), launches.to_string());
        let words = ["ncu", "--csv", "--page", "raw", "--metrics", &names, "--clock-control", "none"];
        let more =
            ["--profile-from-start", "off", "--launch-count", &launches, "--target-processes", "application-only"];
        let mut command: Vec<String> = words.iter().chain(&more).map(ToString::to_string).collect();
        if !kernels.is_empty() {
            command.extend(["--kernel-name".to_owned(), format!("regex:^({})$", kernels.join("|"))]);
        }
        command
    }

    /// The profile of a call whose launches were all read.
    #[must_use]
    pub fn profile(&self, case: &str, launches: &[Launched]) -> Profile {
        let alone: Vec<Launches> = launches.iter().map(Launched::alone).collect();
        let (shown, mut notes) = dominant(&alone);
        let longest = |kernel: &Dominant<'_>| {
            let of_kernel = launches.iter().filter(|read| read.kernel == kernel.longest.name);
            of_kernel.max_by(|one, other| one.duration_ns().total_cmp(&other.duration_ns()))
        };
        let mut kernels = vec![];
        for kernel in shown {
            let (count, share) = (Some(kernel.launches), Some(kernel.share));
            let readings = longest(&kernel).map(|read| self.readings(read, &mut notes)).unwrap_or_default();
            kernels.push(Kernel { name: kernel.longest.name.clone(), launches: count, share, readings });
        }
        Profile { rung: Rung::Ncu, case: case.to_owned(), readings: vec![], kernels, notes }
    }

    /// What was read of one launch: the set's metrics in order, and behind each that this GPU does not have the nearest that
    /// it has. In the notes, those that nothing stands for.
    #[must_use]
    pub fn readings(&self, launched: &Launched, notes: &mut Vec<String>) -> Vec<Reading> {
        let mut readings = vec![launched.reading(DURATION, "the kernel's duration")];
        for metric in &self.metric {
            readings.push(launched.reading(&metric.name, &metric.meaning));
            if launched.value(&metric.name).is_some() {
                continue;
            }
            match metric.nearest.get(&launched.capability) {
                Some(near) => readings
                    .push(Reading { stands_for: Some(metric.name.clone()), ..launched.reading(near, &metric.meaning) }),
                None => notes.push(format!(
                    "{} was not to be had, and nothing near it is known for compute capability {}",
                    metric.name, launched.capability
                )),
            }
        }
        readings
    }
}

impl Launched {
    /// What was read under this name; `None` where nothing was.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.get(name)?.0
    }

    /// How long it took, in nanoseconds.
    #[must_use]
    pub fn duration_ns(&self) -> f64 {
        let Some((Some(value), unit)) = self.values.get(DURATION) else { return 0.0 };
        let factor = match unit.as_str() {
            "us" | "usecond" => 1e3,
            "ms" | "msecond" => 1e6,
            "s" | "second" => 1e9,
            _ => 1.0,
        };
        value * factor
    }

    /// It alone, as one of a call's launches.
    #[must_use]
    pub fn alone(&self) -> Launches {
        let (name, ns) = (self.kernel.clone(), self.duration_ns());
        Launches { name, shape: self.shape, count: 1, ns, facts: vec![] }
    }

    fn reading(&self, name: &str, meaning: &str) -> Reading {
        let (value, unit) = self.values.get(name).cloned().unwrap_or_default();
        Reading::new(name, value, &unit, meaning)
    }
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
    let shape = ["Grid Size", "Block Size"].map(|name| triple(&text(name)));
    Launched { kernel, capability, shape, values }
}

/// Three numbers in brackets.
fn triple(text: &str) -> [u64; 3] {
    let mut numbers = text.trim_matches(['(', ')']).split(',').map(|part| part.trim().parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
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
    /// Of `ncu --query-metrics` on an H200 (Nsight Compute 2025.3.1): all names of the families that the set asks for.
    const H200: &str = include_str!("../../tests/ncu/h200-metric-names.txt");

    fn readings(printed: &str) -> (Vec<Reading>, Vec<String>) {
        let mut notes = vec![];
        let readings = MetricSet::cudaforge24().readings(&read(printed).unwrap()[0], &mut notes);
        (readings, notes)
    }

    #[test]
    fn a_real_capture_is_read_with_units_and_large_numbers() {
        let (readings, _) = readings(ONE);
        let find = |name: &str| readings.iter().find(|reading| reading.name == name).unwrap();
        assert_eq!(find("launch__registers_per_thread").unit, "register/thread");
        assert_eq!(
            (find("sm__inst_executed.sum").value, find("gpu__time_duration.sum").unit.as_str()),
            (Some(79_692_161.0), "ns")
        );
        assert!(readings.iter().all(|reading| reading.value.is_none() || !reading.unit.is_empty()), "{readings:#?}");
    }

    #[test]
    fn what_a_gpu_does_not_have_is_neither_zero_nor_dropped_and_the_nearest_stands_beside_it() {
        let (readings, notes) = readings(ONE);
        let absent: Vec<usize> = (0..readings.len())
            .filter(|at| readings[*at].stands_for.is_none() && readings[*at].value.is_none())
            .collect();
        assert_eq!((absent.len(), notes.len()), (2, 0), "{readings:#?}");
        assert_eq!(readings[absent[0]].name, "sm__inst_executed_pipe_fp32.avg.pct_of_peak_sustained_active");
        for at in absent {
            let near = &readings[at + 1];
            assert_eq!(near.stands_for.as_ref(), Some(&readings[at].name));
        }
        let near = &readings.iter().find(|reading| reading.name.contains("long_scoreboard")).unwrap();
        assert_eq!(near.value, Some(75.53));
    }

    #[test]
    fn where_no_nearest_is_known_a_note_says_so() {
        let mut launched = read(ONE).unwrap().remove(0);
        launched.capability = "7.0".into();
        let mut notes = vec![];
        let readings = MetricSet::cudaforge24().readings(&launched, &mut notes);
        assert!(readings.iter().all(|reading| reading.stands_for.is_none()));
        assert!(notes.len() == 2 && notes[0].contains("compute capability 7.0"), "{notes:?}");
    }

    #[test]
    fn the_set_names_a_nearest_for_exactly_what_an_h200_lacks_and_the_nearest_exists_there() {
        let there: HashSet<&str> = H200.lines().filter(|line| !line.starts_with('#')).collect();
        let has = |name: &str| name.starts_with("launch__") || there.contains(name.split('.').next().unwrap());
        for metric in MetricSet::cudaforge24().metric {
            let near = metric.nearest.get("9.0");
            assert_eq!(has(&metric.name), near.is_none(), "{}", metric.name);
            assert!(near.is_none_or(|near| has(near)), "{near:?}");
        }
    }

    #[test]
    fn many_launches_are_read_with_their_shapes_and_times() {
        assert_eq!(read(TWENTY).unwrap().len(), 20);
        let two = read(TWO_KERNELS).unwrap();
        assert_eq!((two[1].shape, two[1].duration_ns()), ([[4096, 1, 1], [1024, 1, 1]], 1_043_264.0));
    }

    #[test]
    fn what_ncu_says_instead_of_a_table_is_told() {
        assert!(read("==ERROR== ERR_NVGPUCTRPERM\n").unwrap_err().contains("ERR_NVGPUCTRPERM"));
        assert_eq!(number("1,234.5"), Some(1234.5));
        assert_eq!((number("n/a"), number("nan")), (None, None));
    }
}
