//! What is Nsight Compute asked for, and what does this GPU not have of it?

use super::{
    DURATION, Launched,
    dominant::{Dominant, Launches, base, dominant, of_call},
};
use metrics::{Kernel, Metric, MetricSet, Profile, Reading, Rung, catalog};
use std::collections::HashSet;

/// What is read of every launch, whatever the set: how it fills the GPU, how it reads memory, and which tensor cores it uses.
const OF_EVERY_LAUNCH: [&str; 14] = [
    "launch__shared_mem_per_block",
    "launch__waves_per_multiprocessor",
    "launch__occupancy_limit_warps",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "smsp__sass_inst_executed_op_local_ld.sum",
    "smsp__sass_inst_executed_op_local_st.sum",
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "sm__ops_path_tensor_src_fp16.sum",
    "sm__ops_path_tensor_src_fp8.sum",
];

/// How metrics begin that Nsight Compute samples, derives or counts by patching code, and no range profiler reads.
const OF_NCU_ALONE: [&str; 4] = [DERIVED, "profiler__", "sass__", "smsp__pcsamp_"];

/// How metrics begin that Nsight Compute derives in a section: no name asks for one, and its section brings it along.
const DERIVED: &str = "derived__";
/// The section that has those which sets name.
const OF_DERIVED: &str = "SourceCounters";

/// Whether all that a set asks for can be read by CUPTI's range profiler, or follows from a launch.
pub(crate) fn is_of_ranges(set: &MetricSet) -> bool {
    let alone = |metric: &Metric| OF_NCU_ALONE.iter().any(|begins| metric.name.starts_with(begins));
    !set.is_full() && !set.metric.iter().any(alone)
}

/// The command line of Nsight Compute for these metrics, what stands for them anywhere, and the duration: of the
/// launches between a start and a stop of the profiler, at most `launches`, of these kernels alone where any are named.
#[must_use]
pub fn command(set: &MetricSet, launches: usize, kernels: &[String]) -> Vec<String> {
    let (derived, others): (Vec<&str>, Vec<&str>) = names(set).into_iter().partition(|name| name.starts_with(DERIVED));
    let names = others.join(",");
    let mut command = line(&if set.is_full() { ["--set", "full"] } else { ["--metrics", &names] }, launches);
    if !set.is_full() && !derived.is_empty() {
        command.extend(["--section", OF_DERIVED].map(str::to_owned));
    }
    if !kernels.is_empty() {
        command.extend(["--kernel-name".to_owned(), format!("regex:^({})$", kernels.join("|"))]);
    }
    command
}

/// The duration, the metrics of a set with what stands for them anywhere, and what is read of every launch, each once.
pub(crate) fn names(set: &MetricSet) -> Vec<&str> {
    let mut names: Vec<&str> = vec![DURATION];
    names.extend(set.metric.iter().flat_map(Metric::names));
    names.extend(OF_EVERY_LAUNCH);
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(*name));
    names
}

/// The same for every section, and beside these for what a set names: in the units that all launches have in common.
pub(crate) fn everything(beside: &MetricSet, launches: usize) -> Vec<String> {
    let mut names: Vec<&str> = beside.metric.iter().flat_map(Metric::names).chain(OF_EVERY_LAUNCH).collect();
    names.retain(|name| !name.starts_with(DERIVED));
    names.sort_unstable();
    names.dedup();
    line(&["--set", "full", "--metrics", &names.join(","), "--print-units", "base"], launches)
}

/// What is asked for, of the launches between a start and a stop of the profiler, with the clocks left alone.
fn line(asked: &[&str], launches: usize) -> Vec<String> {
    let launches = launches.to_string();
    let words = ["ncu", "--csv", "--page", "raw", "--clock-control", "none", "--profile-from-start", "off"];
    let more = ["--launch-count", &launches, "--target-processes", "application-only"];
    words.iter().chain(&more).chain(asked).map(ToString::to_string).collect()
}

/// The profile of a call whose launches were all read.
#[must_use]
pub fn profile(set: &MetricSet, case: &str, launches: &[Launched]) -> Profile {
    let mut notes = vec![];
    let kernels = kernels(set, launches, None, |_| vec![], &mut notes);
    let readings = of_call(&launches.iter().map(Launched::alone).collect::<Vec<_>>());
    Profile { rung: Rung::Ncu, case: case.to_owned(), readings, kernels, notes }
}

/// The kernels that the time of a call goes to, with what was read of one launch of each. `seen` is the whole call as another
/// profiler saw it, where not all of it was read; `otherwise` is what that says of a kernel of which nothing was read.
pub(crate) fn kernels(
    set: &MetricSet,
    launched: &[Launched],
    seen: Option<&[Launches]>,
    otherwise: impl Fn(&Launches) -> Vec<Reading>,
    notes: &mut Vec<String>,
) -> Vec<Kernel> {
    let alone: Vec<Launches> = launched.iter().map(Launched::alone).collect();
    let (shown, left_out) = dominant(seen.unwrap_or(&alone));
    notes.extend(left_out);
    let mut kernel = |kernel: &Dominant<'_>| {
        let (count, share) = (Some(kernel.launches), Some(kernel.share));
        let Some(read) = like(kernel.longest, launched) else {
            let name = kernel.longest.name.clone();
            notes.push(format!("Nsight Compute read nothing of {name}: its durations are torch.profiler's"));
            return Kernel { name, launches: count, share, readings: otherwise(kernel.longest) };
        };
        Kernel { name: read.kernel.clone(), launches: count, share, readings: readings(set, read, notes) }
    };
    shown.iter().map(&mut kernel).collect()
}

/// Whether profilers mean the same kernel: torch's writes one that is called `kernel` as `Kernel`.
pub(crate) fn is_called(kernel: &str, name: &str) -> bool {
    base(kernel).eq_ignore_ascii_case(name)
}

/// The launch that was read of this kernel: one of the very same name and of the same shape, if there is one, and the longest
/// of these.
fn like<'a>(kernel: &Launches, launched: &'a [Launched]) -> Option<&'a Launched> {
    let of_kernel = launched.iter().filter(|read| is_called(&read.kernel, &base(&kernel.name)));
    of_kernel.max_by(|one, other| {
        let rank = |read: &Launched| (read.kernel == kernel.name, read.shape == kernel.shape, read.duration_ns());
        rank(one).partial_cmp(&rank(other)).unwrap_or(std::cmp::Ordering::Equal)
    })
}

/// What was read of one launch: the set's metrics in order, and behind each that this GPU does not have the nearest that
/// it has. In the notes, those that nothing stands for.
#[must_use]
pub fn readings(set: &MetricSet, launched: &Launched, notes: &mut Vec<String>) -> Vec<Reading> {
    let mut readings = vec![launched.reading(DURATION, "the kernel's duration")];
    readings.extend(shape(launched));
    if set.is_full() {
        readings.extend(all_of(launched));
    } else {
        readings.extend(of_every_launch(set, launched));
    }
    for metric in &set.metric {
        let says = metric.says();
        readings.push(launched.reading(&metric.name, &says));
        let instead = metric.instead.get(&launched.capability).filter(|name| launched.value(name).is_some());
        if let Some(name) = instead {
            let says = catalog::meaning(name);
            readings.push(Reading { stands_for: Some(metric.name.clone()), ..launched.reading(name, &says) });
            continue;
        }
        if launched.value(&metric.name).is_some() {
            continue;
        }
        match metric.nearest.get(&launched.capability) {
            Some(near) => {
                readings.push(Reading { stands_for: Some(metric.name.clone()), ..launched.reading(near, &says) });
            }
            None => notes.push(format!(
                "{} was not to be had, and nothing near it is known for compute capability {}",
                metric.name, launched.capability
            )),
        }
    }
    readings
}

/// The grid and the block of a launch, where it says them.
fn shape(launched: &Launched) -> Vec<Reading> {
    let [grid, block] = launched.shape.map(|shape| shape.iter().map(|n| *n as f64).product::<f64>());
    let [g, b] = launched.shape.map(|[x, y, z]| format!("{x} x {y} x {z}"));
    let of = |name: &str, count: f64, unit: &str, says: String| Reading::new(name, Some(count), unit, &says);
    let both = [
        of("grid", grid, "block", format!("blocks: {g}")),
        of("block", block, "thread", format!("threads a block: {b}")),
    ];
    if grid > 0.0 { both.into() } else { vec![] }
}

/// What is read of every launch and is not in the set, as far as this GPU has it.
fn of_every_launch(set: &MetricSet, launched: &Launched) -> Vec<Reading> {
    let in_set = |name: &str| set.metric.iter().any(|metric| metric.name == name);
    let names = OF_EVERY_LAUNCH.into_iter().filter(|name| !in_set(name) && launched.value(name).is_some());
    names.map(|name| launched.reading(name, &catalog::meaning(name))).collect()
}

/// Every number that was read of a launch: what the catalogue has in its order, then the rest in the table's.
fn all_of(launched: &Launched) -> Vec<Reading> {
    let listed = catalog::entries().iter().map(|entry| entry.name.as_str());
    let rest = launched.metrics().map(|column| column.name).filter(|name| catalog::find(name).is_none());
    let names = listed.chain(rest).filter(|name| *name != DURATION && launched.value(name).is_some());
    names.map(|name| launched.reading(name, &catalog::meaning(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ncu::read;

    const ONE: &str = include_str!("../../../tests/ncu/h200-silu-cudaforge24.csv");
    /// Of `ncu --query-metrics` on an H200 (Nsight Compute 2025.3.1): all names of the families that the set asks for.
    const H200: &str = include_str!("../../../tests/ncu/h200-metric-names.txt");

    fn readings(printed: &str) -> (Vec<Reading>, Vec<String>) {
        let mut notes = vec![];
        let readings =
            crate::profile::ncu::asked::readings(&MetricSet::cudaforge24(), &read(printed).unwrap()[0], &mut notes);
        (readings, notes)
    }

    #[test]
    fn a_set_is_left_to_nsight_compute_where_it_asks_for_what_that_alone_has() {
        assert!(is_of_ranges(&MetricSet::cudaforge24()));
        assert!(!is_of_ranges(&MetricSet { metric: vec![], ..MetricSet::cudaforge24() }), "all metrics");
        let mut sampled = MetricSet::cudaforge24();
        sampled.metric[3].name = "smsp__pcsamp_warps_issue_stalled_long_scoreboard".to_owned();
        assert!(!is_of_ranges(&sampled));
    }

    #[test]
    fn everything_is_asked_for_and_what_the_judge_is_shown_beside_it() {
        let command = crate::profile::ncu::asked::everything(&MetricSet::cudaforge24(), 9);
        let after = |flag: &str| &command[command.iter().position(|word| word == flag).unwrap() + 1];
        assert_eq!((after("--set").as_str(), after("--launch-count").as_str()), ("full", "9"));
        assert!(after("--metrics").split(',').any(|name| name == "sm__inst_executed.sum"));
    }

    #[test]
    fn of_every_launch_it_is_read_how_it_fills_the_gpu_and_uses_its_tensor_cores() {
        let full = include_bytes!("../../../tests/ncu/h200-silu-full.csv.gz");
        let mut printed = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&full[..]), &mut printed).unwrap();
        let (readings, _) = readings(&printed);
        let value = |name: &str| readings.iter().find(|reading| reading.name == name).and_then(|reading| reading.value);
        assert_eq!((value("grid"), value("block")), (Some(262_144.0), Some(256.0)));
        assert_eq!(value("launch__waves_per_multiprocessor"), Some(248.24));
        assert_eq!(value("launch__shared_mem_per_block"), Some(1024.0));
        assert_eq!(value("sm__ops_path_tensor_src_tf32_dst_fp32.sum"), Some(0.0));
        let instead = readings.iter().find(|reading| {
            reading.stands_for.as_deref() == Some("sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active")
        });
        assert!(
            instead.is_some_and(|reading| reading.name.starts_with("sm__pipe_tensor_cycles_active")),
            "{readings:?}"
        );
    }

    #[test]
    fn a_kernel_that_is_called_kernel_is_found_though_torch_writes_it_large() {
        assert!(is_called("kernel", "Kernel") && !is_called("kernel4", "Kernel"));
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
        let mut of_set = readings.iter().filter(|reading| !OF_EVERY_LAUNCH.contains(&reading.name.as_str()));
        assert!(of_set.all(|reading| reading.value.is_none() || !reading.unit.is_empty()), "{readings:#?}");
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
    fn everything_is_asked_for_by_ncus_own_set_and_told_from_the_catalogue_on() {
        let line = command(&MetricSet::full(), 3, &[]).join(" ");
        assert!(line.contains("--set full") && !line.contains("--metrics"), "{line}");
        let mut notes = vec![];
        let readings = crate::profile::ncu::asked::readings(&MetricSet::full(), &read(ONE).unwrap()[0], &mut notes);
        assert!(readings.len() > 200 && notes.is_empty(), "{}", readings.len());
        assert_eq!([readings[1].name.as_str(), &readings[2].name], ["grid", "block"]);
        assert_eq!(readings[3].name, catalog::entries()[4].name);
        assert!(readings.iter().all(|reading| reading.value.is_some() && !reading.meaning.is_empty()));
    }

    #[test]
    fn what_is_derived_comes_with_its_section_for_no_name_asks_for_it() {
        let hopper = MetricSet::known("hopper24").unwrap();
        assert!(names(&hopper).iter().any(|name| name.starts_with(DERIVED)));
        let line = command(&hopper, 3, &[]).join(" ");
        assert!(line.contains("--section SourceCounters") && !line.contains(DERIVED), "{line}");
        assert!(!command(&MetricSet::cudaforge24(), 3, &[]).join(" ").contains("--section"));
        assert!(!everything(&hopper, 3).join(" ").contains(DERIVED));
    }

    #[test]
    fn where_no_nearest_is_known_a_note_says_so() {
        let mut launched = read(ONE).unwrap().remove(0);
        launched.capability = "7.0".into();
        let mut notes = vec![];
        let readings = crate::profile::ncu::asked::readings(&MetricSet::cudaforge24(), &launched, &mut notes);
        assert!(readings.iter().all(|reading| reading.stands_for.is_none()));
        assert!(notes.len() == 2 && notes[0].contains("compute capability 7.0"), "{notes:?}");
    }

    #[test]
    fn the_set_names_a_nearest_for_exactly_what_an_h200_lacks_and_the_nearest_exists_there() {
        let there: HashSet<&str> = H200.lines().filter(|line| !line.starts_with('#')).collect();
        let has = |name: &str| name.starts_with("launch__") || there.contains(name.split('.').next().unwrap());
        assert!(OF_EVERY_LAUNCH.iter().all(|name| has(name)));
        for metric in MetricSet::cudaforge24().metric {
            let near = metric.nearest.get("9.0");
            assert_eq!(has(&metric.name), near.is_none(), "{}", metric.name);
            assert!(near.is_none_or(|near| has(near)), "{near:?}");
            assert!(metric.instead.get("9.0").is_none_or(|instead| has(instead)), "{metric:?}");
        }
    }
}
