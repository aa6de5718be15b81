//! Are the features whole, do recorded counters decide as they were measured, and do profiles lead to the row they should?

use super::{load::embedded, *};
use crate::{
    result::failure::Failure,
    task::{Source, Task, load},
};
use metrics::{
    Kernel, Profile, Reading, Rung,
    feature::{Counters, Fired, Stand, prove},
};
use std::path::Path;

fn hopper() -> (Features, Column) {
    let features = Features::embedded();
    let column = features.column("hopper").unwrap().clone();
    (features, column)
}

#[test]
fn the_hopper_column_has_a_cell_in_each_of_the_ten_rows_and_all_are_measured() {
    let (features, column) = hopper();
    assert_eq!(features.rows().iter().map(|row| row.number).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    assert_eq!(column.cells.iter().map(|cell| cell.row).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    assert!(column.cells.iter().all(|cell| matches!(cell.state, State::Measured(_)) && cell.target().is_some()));
    assert_eq!(
        features.of_arch(&Arch::of_capability("9.0").unwrap()).map(|column| column.name.as_str()),
        Some("hopper")
    );
    assert_eq!(features.column("sm_90a").map(|column| column.name.as_str()), Ok("hopper"));
}

#[test]
fn a_cell_is_a_task_that_evaluate_and_run_take() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("features");
    for column in Features::embedded().columns() {
        for cell in column.cells.iter().filter(|cell| !matches!(cell.state, State::Unsupported(_))) {
            let task = load::task(&folder.join(&column.name).join(&cell.folder)).unwrap();
            assert_eq!(task.name, format!("{}_{}", column.name, cell.folder));
            assert_eq!(task.is_cuda(), task.gfx().is_none(), "{}", cell.name);
            assert!(cell.optimized().contains(&task.context().unwrap().entry), "{}", cell.name);
        }
    }
}

#[test]
fn the_ampere_column_has_all_rows_but_one_and_each_says_by_which_instruction_it_is_told_or_why_by_none() {
    let features = Features::embedded();
    let column = features.of_arch(&Arch::of_capability("8.0").unwrap()).unwrap();
    assert_eq!(column.cells.iter().map(|cell| cell.row).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    for cell in &column.cells {
        match &cell.state {
            State::Unsupported(why) => assert!(cell.row == 2 && why.contains("FP8"), "{}: {why}", cell.name),
            state => {
                assert_eq!((state.name(), cell.target().is_some()), ("compiled", true), "{}", cell.name);
                assert_ne!(cell.instructions().next().is_some(), cell.no_instruction.is_some(), "{}", cell.name);
            }
        }
    }
    assert_eq!(column.also_on, [Arch::of_capability("9.0").unwrap()]);
    assert_eq!(features.columns()[0].name, "hopper", "a column that was measured stands first");
}

#[test]
fn the_blackwell_column_has_all_rows_and_each_says_by_which_instruction_it_is_told_or_why_by_none() {
    let features = Features::embedded();
    let column = features.of_arch(&Arch::of_capability("10.0").unwrap()).unwrap();
    assert_eq!(column.cells.iter().map(|cell| cell.row).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    for cell in &column.cells {
        assert_eq!((cell.state.name(), cell.target().is_some()), ("compiled", true), "{}", cell.name);
        assert_ne!(cell.instructions().next().is_some(), cell.no_instruction.is_some(), "{}", cell.name);
        let tcgen05 = cell.optimized().contains("tcgen05.mma");
        assert_eq!(tcgen05, [1, 2, 3, 6, 7, 10].contains(&cell.row), "{}", cell.name);
        assert!(!tcgen05 || cell.guide.contains("not run"), "{} says that nobody ran it", cell.name);
    }
}

#[test]
fn the_mi350_column_has_all_rows_and_every_text_says_that_nobody_ran_it() {
    let features = Features::embedded();
    let column = features.of_arch(&"gfx950".parse().unwrap()).unwrap();
    assert_eq!(column.cells.iter().map(|cell| cell.row).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    for cell in &column.cells {
        assert_eq!((cell.state.name(), cell.target().is_some()), ("compiled", true), "{}", cell.name);
        assert_ne!(cell.instructions().next().is_some(), cell.no_instruction.is_some(), "{}", cell.name);
        assert!(cell.guide.contains("Compiled for gfx950 and its assembly looked at, not run"), "{}", cell.name);
        assert!(cell.optimized().replace("\n//", "").contains("Compiled for gfx950 and not run."), "{}", cell.name);
        let foreign = |text: &str| column.foreign.iter().find(|word| text.contains(word.as_str())).cloned();
        assert_eq!((foreign(&cell.guide), foreign(cell.optimized())), (None, None), "{}", cell.name);
        let mfma = cell.optimized().contains("_mfma_");
        assert_eq!(mfma, ![4, 8].contains(&cell.row), "{}", cell.name);
        // No guide is longer than the longest of the column that was measured first.
        let longest = features.columns()[0].cells.iter().map(|cell| cell.guide.len()).max();
        assert!(Some(cell.guide.len()) <= longest, "{}", cell.name);
    }
}

/// What was recorded, as counters; `launches` is no counter but a count.
fn recorded(measured: &Measured, which: usize) -> Counters {
    let launches = measured.read.get("launches").map_or(1.0, |read| read[which]);
    let read = measured.read.iter().map(|(name, read)| (name.as_str(), read[which]));
    Counters::of_launch(read).launched(launches as u64)
}

#[test]
fn the_recorded_counters_of_all_ten_cells_decide_as_they_were_measured() {
    for cell in hopper().1.cells {
        let State::Measured(measured) = &cell.state else { panic!("{} is not measured", cell.name) };
        let (naive, optimized) = (recorded(measured, 0), recorded(measured, 1));
        let code = cell.instructions().collect::<Vec<_>>().join(" ");
        let whole = prove(&cell.signs, &naive.clone().with_code(String::new()), &optimized.clone().with_code(code));
        assert!(whole.whole(), "{}: {whole:?}", cell.name);
        assert!(prove(&cell.signs, &naive, &optimized).fired == Fired::Yes, "{}", cell.name);
        for (before, after) in [(&naive, &naive), (&optimized, &optimized), (&optimized, &naive)] {
            assert_eq!(prove(&cell.signs, before, after).fired, Fired::No, "{}", cell.name);
        }
        assert_eq!(prove(&cell.signs, &Counters::default(), &optimized).fired, Fired::Unknown, "{}", cell.name);
        assert!(whole.target().is_some_and(|target| target.stand == Stand::Gained));
    }
}

#[test]
fn a_new_architecture_is_a_folder_and_no_code() {
    let mut files = BTreeMap::from([(
        "rubin/column.toml".to_owned(),
        "schema = 1\ntitle = 'Rubin'\narchs = ['sm_120']\n".to_owned(),
    )]);
    for (name, text) in embedded() {
        if let Some(rest) = name.strip_prefix("hopper/01_wgmma/") {
            files.insert(
                format!("rubin/01_mma/{rest}"),
                text.replace("\"hopper\"", "\"rubin\"").replace("coupled = [\"swizzle\", \"tma\", \"roles\"]\n", ""),
            );
        }
    }
    let features = Features::with(files).unwrap();
    let column = features.of_arch(&"sm_120".parse().unwrap()).unwrap();
    assert_eq!((column.title.as_str(), column.cells[0].state.name()), ("Rubin", "compiled"));
}

#[test]
fn every_column_has_modules_of_its_instructions_and_the_six_patterns_in_the_order_of_a_budget() {
    for column in Features::embedded().columns() {
        let names = |modules: &[Module]| modules.iter().map(|module| module.name.clone()).collect::<Vec<_>>();
        assert_eq!(
            names(&column.patterns),
            ["pipeline", "roles", "epilogue", "persistent", "reduction", "cluster"],
            "{}",
            column.name
        );
        assert_eq!(column.api.len(), 6, "{}: {:?}", column.name, names(&column.api));
        for module in column.api.iter().chain(&column.patterns) {
            assert!(module.text.starts_with(&format!("# {}: ", module.name)), "{}", module.text);
            let foreign = column.foreign.iter().find(|word| module.text.contains(word.as_str()));
            assert_eq!(foreign, None, "{} of {} is of another architecture", module.name, column.name);
        }
    }
    let empty = BTreeMap::from([("hopper/api/new.md".to_owned(), " ".to_owned())]);
    assert_eq!(Features::with(empty).unwrap_err().to_string(), "features/hopper/api/new.md: this file is empty");
}

#[test]
fn what_is_wrong_with_a_cell_is_said_with_its_file() {
    let config = embedded()["hopper/01_wgmma/config.toml"].clone();
    let error = |file: &str, text: &str| {
        Features::with(BTreeMap::from([(format!("hopper/{file}"), text.to_owned())])).unwrap_err().to_string()
    };
    for (file, text, why) in [
        ("01_wgmma/guide.md", " \n".to_owned(), "features/hopper/01_wgmma/guide.md: this file is empty"),
        ("01_wgmma/optimized.cu", String::new(), "features/hopper/01_wgmma/optimized.cu: this file is missing"),
        ("11_new/guide.md", "x".into(), "features/hopper/11_new/config.toml: this file is missing"),
        ("01_wgmma/config.toml", config.replace("op_gmma.sum", "op gmma"), "is no counter: expected a metric"),
        ("01_wgmma/config.toml", config.replace("target = true\n", ""), "0 of its [[evidence]] say target = true"),
        ("01_wgmma/config.toml", config.replace("row = \"01\"", "row = \"11\""), "there is no row \"11\""),
        ("01_wgmma/config.toml", config.replace("\"tma\"", "\"tmo\""), "coupled with a cell that is not there"),
        ("01_wgmma/config.toml", config.replace("operator = \"product\"", "operator = \"x\""), "no operator \"x\""),
        ("01_wgmma/config.toml", config.replace("direction", "way"), "unknown field `way`"),
        (
            "01_wgmma/config.toml",
            config.replace("[paper]", "no_instruction = 'x'\n[paper]"),
            "an [[evidence]] names one",
        ),
        ("01_wgmma/config.toml", config.replace("= \"hopper\"", "= \"ampere\""), "lies in another's folder"),
        ("column.toml", "schema = 1\ntitle = 'x'\narchs = ['sm_x']".into(), "is no architecture"),
        ("measured.toml", "[99_x]\ngpu=''\ndate=''\nspeedup=1.0\nread={}".into(), "there is no cell 99_x"),
    ] {
        assert!(error(file, &text).contains(why), "{file}: {}", error(file, &text));
    }
    let (features, column) = hopper();
    assert_eq!(
        features.column("hoper").unwrap_err(),
        "there is no architecture \"hoper\" among the features; there are hopper, ampere, blackwell, mi350"
    );
    assert!(column.cell("wgma").unwrap_err().starts_with("hopper has no feature \"wgma\"; it has wgmma, fp8"));
    assert_eq!((column.cell("01").unwrap().row, column.cell("05_tma").unwrap().row), (1, 5));
}

#[test]
fn the_counters_of_all_cells_are_asked_for_once_and_behind_the_sets_own() {
    let column = hopper().1;
    let (own, asked) = (MetricSet::cudaforge24(), column.asked(MetricSet::cudaforge24()));
    assert_eq!(asked.metric[..24], own.metric[..]);
    for cell in &column.cells {
        for name in cell.counters() {
            assert_eq!(asked.metric.iter().filter(|metric| metric.name == name).count(), 1, "{name}");
        }
    }
    assert_eq!(MetricSet::parse(&asked.text()).unwrap(), asked);
    assert!(column.asked(MetricSet::full()).is_full());
}

/// A task with this summary.
fn task(summary: &str) -> Task {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("features/hopper/04_vector");
    let mut task = Task { name: "t".into(), summary: summary.into(), ..load::task(&folder).unwrap() };
    if let Source::Context(context) = &mut task.source {
        context.entry = "kernel".into();
    }
    task
}

fn profile(readings: &[(&str, f64)]) -> Profile {
    let readings: Vec<Reading> =
        readings.iter().map(|(name, value)| Reading::new(name, Some(*value), "", "")).collect();
    let kernels = vec![Kernel { name: "k".into(), launches: Some(1), share: Some(1.0), readings }];
    Profile { rung: Rung::Ncu, case: "c".into(), readings: vec![], kernels, notes: vec![] }
}

#[test]
fn profiles_lead_to_the_row_that_they_call_for() {
    const GMMA: &str = "sm__inst_executed_pipe_tensor_op_gmma.sum";
    const TMA: &str = "smsp__inst_executed_op_tma_ld.sum";
    const LONG: &str = "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct";
    const BARRIER: &str = "smsp__warp_issue_stalled_barrier_per_warp_active.pct";
    const CONFLICTS: &str = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum";
    const SECTORS: &str = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio";
    const SHUFFLES: &str = "smsp__sass_thread_inst_executed_op_inter_thread_communication_pred_on.sum";
    let (features, column) = hopper();
    for (summary, readings, row) in [
        ("A matrix product.", vec![(GMMA, 0.0), (TMA, 0.0), (LONG, 40.0)], 1),
        ("A product in fp8.", vec![(GMMA, 10.0), ("sm__ops_path_tensor_src_fp8.sum", 0.0)], 2),
        ("A transposition.", vec![(CONFLICTS, 2e7), (LONG, 30.0)], 3),
        ("Scale each element.", vec![(SECTORS, 2.0), (LONG, 10.0)], 4),
        ("A stencil.", vec![(LONG, 60.0), (SECTORS, 16.0)], 5),
        ("A matrix product.", vec![(GMMA, 2e6), (TMA, 9.0), (BARRIER, 30.0)], 6),
        ("A row's sum.", vec![(SHUFFLES, 0.0), (SECTORS, 4.0)], 8),
        (
            "A mean over rows.",
            vec![(SHUFFLES, 9e5), (SECTORS, 16.0), ("dram__throughput.avg.pct_of_peak_sustained_elapsed", 88.0)],
            9,
        ),
        ("A matrix product.", vec![(GMMA, 2e6), (TMA, 9.0), ("launch__waves_per_multiprocessor", 3.9)], 6),
    ] {
        let chosen = features.choose(&column, &task(summary), Some(&profile(&readings)), 3);
        assert_eq!(
            chosen.first().map(|choice| choice.cell.row),
            Some(row),
            "{summary} {readings:?}: {:?}",
            named(&chosen)
        );
    }
    let gelu =
        Profile { readings: vec![Reading::new("launches", Some(3.0), "", "")], ..profile(&[(GMMA, 9.0), (TMA, 9.0)]) };
    let chosen = features.choose(&column, &task("A product with bias and GeLU."), Some(&gelu), 3);
    assert_eq!(named(&chosen), [7, 6, 4], "wgmma runs already");
    assert!(chosen[0].why[0].ends_with("(launches = 3)"), "{:?}", chosen[0].why);
}

fn named(chosen: &[Choice<'_>]) -> Vec<u8> {
    chosen.iter().map(|choice| choice.cell.row).collect()
}

#[test]
fn first_replies_fall_into_three_buckets_and_invented_intrinsics_are_named() {
    use super::score::{Bucket, Came, bucket, invented};
    let column = hopper().1;
    let (wgmma, swizzle) = (column.cell("wgmma").unwrap(), column.cell("swizzle").unwrap());
    let log = "a.cu(7): error: identifier \"__pack_half2\" is undefined\na.cu(9): error: identifier \"tile\" is undefined\n\
               ptxas a.ptx, line 3; error: Not a name of any known instruction: 'wgmma.mma_sync'\n\
               a.cu(8): error: identifier \"__pack_half2\" is undefined";
    assert_eq!(invented(log), ["__pack_half2", "wgmma.mma_sync"]);
    let build = Failure::Build { log: log.into() };
    let read = |cell: &Cell, value: f64| Counters::of_launch([(cell.target().unwrap().name.as_str(), value)]);
    let of = |cell: &Cell, source: &str, example: f64, reply: f64| {
        bucket(&column, cell, source, Came::Counted(&read(cell, example), &read(cell, reply)))
    };
    assert_eq!(bucket(&column, wgmma, "wgmma.mma_async", Came::Failed(&build)), Bucket::InvalidSyntax);
    assert_eq!(bucket(&column, wgmma, "tcgen05.mma", Came::Failed(&build)), Bucket::WrongArchitecture);
    assert_eq!(bucket(&column, wgmma, "wgmma // not tcgen05", Came::Failed(&build)), Bucket::InvalidSyntax);
    assert_eq!(bucket(&column, wgmma, "wgmma", Came::Built), Bucket::Compiles);
    assert_eq!(of(wgmma, "fmaf(a, b, c)", 1000.0, 0.0), Bucket::NoGain);
    assert_eq!(of(wgmma, "mma.sync.aligned", 1000.0, 0.0), Bucket::WrongArchitecture);
    assert_eq!((of(wgmma, "", 1000.0, 990.0), of(wgmma, "", 1000.0, 989.0)), (Bucket::Passed, Bucket::NoGain));
    assert_eq!((of(swizzle, "", 990.0, 1000.0), of(swizzle, "", 990.0, 1001.0)), (Bucket::Passed, Bucket::NoGain));
    assert_eq!((of(swizzle, "", 0.0, 0.0), of(swizzle, "", 0.0, 1.0)), (Bucket::Passed, Bucket::NoGain));
    let uncounted = bucket(&column, wgmma, "", Came::Counted(&read(wgmma, 1.0), &Counters::default()));
    assert_eq!(uncounted, Bucket::Uncounted);
}

#[test]
fn without_counters_the_task_alone_chooses_and_a_task_that_calls_for_nothing_gets_nothing() {
    let (features, column) = hopper();
    let choose = |summary: &str| named(&features.choose(&column, &task(summary), None, 3));
    assert_eq!(choose("A matrix product."), [1]);
    assert!(choose("Random numbers.").is_empty());
}
