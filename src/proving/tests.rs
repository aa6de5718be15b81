//! Is a cell proved exactly where both kernels are right, every sign came with the feature, and it does not cost time? On a
//! simulated machine that does what stands in the kernels.

use super::{Proved, Proving, Record, identity};
use kernelbench::{
    Simulated,
    cuda::Options,
    feature::{Cell, Column, Features, State},
};
use std::{collections::BTreeMap, fs, path::Path};

const CONFIG: &str = r#"
schema = 1
row = "04"
cell = "wide"
architecture = "made"
summary = "Wide loads."
[[evidence]]
counter = "a__sectors.ratio"
direction = "higher"
least_gain = 2.0
target = true
[[evidence]]
counter = "a__loads.sum"
direction = "lower"
least_gain = 2.0
"#;

/// A cell whose kernels do this.
fn cell(naive: &str, optimized: &str) -> (Cell, Column) {
    let hopper = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernelbench/features/hopper/04_vector");
    let text = |name: &str| fs::read_to_string(hopper.join(name)).unwrap();
    let kernel = |does: &str| format!("// simulate: {does}\n{}", text("naive.cu"));
    let files = [
        ("column.toml", "schema = 1\ntitle = 'Made'\narchs = ['sm_121']\n".to_owned()),
        ("04_wide/config.toml", CONFIG.to_owned()),
        ("04_wide/task.toml", text("task.toml")),
        ("04_wide/reference.cu", text("reference.cu")),
        ("04_wide/naive.cu", kernel(naive)),
        ("04_wide/optimized.cu", kernel(optimized)),
        ("04_wide/guide.md", "Be wide.".to_owned()),
    ];
    let files: BTreeMap<String, String> = files.map(|(name, text)| (format!("made/{name}"), text)).into();
    let column = Features::with(files).unwrap().column("made").unwrap().clone();
    (column.cells[0].clone(), column)
}

/// What a cell comes to whose kernels do this.
async fn proved(naive: &str, optimized: &str, out: &Path) -> Proved {
    let ((cell, column), workshop) = (cell(naive, optimized), Simulated::new());
    let options = Options::new("program".into(), vec![], out.to_owned());
    let proving = Proving { workshop: &workshop, options: &options, column: &column, out };
    assert_eq!(proving.known(&cell), None);
    proving.build_ahead(&[&cell], 2).await.unwrap();
    let proved = proving.prove(&cell).await.unwrap();
    assert_eq!(proving.known(&cell), Some(proved.clone()), "what was found out is kept");
    proved
}

#[tokio::test]
async fn a_cell_is_proved_where_all_of_it_holds_and_else_it_is_said_what_does_not() {
    let (narrow, wide) = ("us=100 a__sectors.ratio=2 a__loads.sum=80", "us=50 a__sectors.ratio=16 a__loads.sum=10");
    for (naive, optimized, holds, said) in [
        (narrow, wide, true, "target a__sectors.ratio: 2 -> 16, 8.00x (gained)"),
        (narrow, narrow, false, "target a__sectors.ratio: 2 -> 2, 1.00x (kept)"),
        (narrow, "us=50 a__sectors.ratio=16 a__loads.sum=60", false, "a__loads.sum: 80 -> 60, 1.33x (missing)"),
        (narrow, "us=150 a__sectors.ratio=16 a__loads.sum=10", false, "NOT PROVED"),
        (narrow, "us=50 a__sectors.ratio=16", false, "this GPU, or a tool here, has no a__loads.sum"),
        ("us=100", "us=50", false, "simulated: no reading was measured"),
        ("wrong", wide, false, "the naive kernel: "),
        (narrow, "build-error", false, "the optimized kernel: "),
    ] {
        let out = tempfile::tempdir().unwrap();
        let proved = proved(naive, optimized, out.path()).await;
        let lines = proved.lines().join("\n");
        assert_eq!(proved.holds(), holds, "{optimized}: {lines}");
        assert!(lines.contains(said), "{said} is not in {lines}");
    }
}

#[test]
fn what_was_compiled_of_a_column_is_written_down_for_every_cell_as_it_is_now() {
    for (name, built, text) in [
        ("ampere", "sm_80, sm_90a", include_str!("../../docs/results/data/features_ampere.jsonl")),
        ("blackwell", "sm_100a", include_str!("../../docs/results/data/features_blackwell.jsonl")),
        ("mi350", "gfx950", include_str!("../../docs/results/data/features_mi350.jsonl")),
    ] {
        let records: Vec<Record> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let features = Features::embedded();
        let there = |cell: &&Cell| !matches!(cell.state, State::Unsupported(_));
        let cells: Vec<&Cell> = features.column(name).unwrap().cells.iter().filter(there).collect();
        assert_eq!(records.len(), cells.len());
        for (record, cell) in records.iter().zip(cells) {
            let again = format!(
                "`warpsmith features verify --arch {name}`, and its compiled.jsonl goes into docs/results/data"
            );
            assert_eq!((&record.cell, &record.files), (&cell.folder, &identity(cell)), "changed since: {again}");
            assert_eq!(record.built, built);
            for instruction in cell.instructions() {
                assert!(record.found.contains(instruction), "{}: {}", record.cell, record.found);
            }
            let told =
                if cell.no_instruction.is_some() { "no instruction shows" } else { "in the optimized kernel alone" };
            assert!(record.found.starts_with("compiles; ") && record.found.contains(told), "{}", record.found);
        }
    }
}

#[tokio::test]
async fn a_cell_that_was_changed_is_proved_again() {
    let out = tempfile::tempdir().unwrap();
    let first =
        proved("us=100 a__sectors.ratio=2 a__loads.sum=80", "us=50 a__sectors.ratio=16 a__loads.sum=10", out.path());
    let second =
        proved("us=90 a__sectors.ratio=2 a__loads.sum=80", "us=50 a__sectors.ratio=16 a__loads.sum=10", out.path());
    assert_ne!(first.await.files, second.await.files);
}
