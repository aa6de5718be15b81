//! Is a real capture read whole, and is a broken one refused at its line?

use super::*;
use metrics::{Kernel, Profile, Rung, catalog, facts};
use std::{collections::HashSet, io::Read};

const ONE: &str = include_str!("../../../tests/ncu/h200-silu-cudaforge24.csv");
const TWENTY: &str = include_str!("../../../tests/ncu/h200-silu-20-launches.csv");
const TWO_KERNELS: &str = include_str!("../../../tests/ncu/h200-softplus-softmax.csv");
/// `ncu --set full` on an H200: one launch, 2,238 columns, 6 metrics that could not be read.
const FULL: &[u8] = include_bytes!("../../../tests/ncu/h200-silu-full.csv.gz");
/// `ncu --query-metrics` on an H200: 3,601 names with their kinds and units.
const LIST: &[u8] = include_bytes!("../../../tests/ncu/h200-query-metrics.txt.gz");

fn unpacked(bytes: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).unwrap();
    text
}

fn full() -> String {
    unpacked(FULL)
}

fn refused(printed: &str) -> (usize, String) {
    let Unread { line, why } = Capture::read(printed).unwrap_err();
    (line, why)
}

#[test]
fn the_full_set_is_read_with_all_its_columns_numbers_words_and_units() {
    let capture = Capture::read(&full()).unwrap();
    let launch = &capture.launches[0];
    assert_eq!((capture.launches.len(), launch.metrics().count()), (1, 2238 - 11));
    let kinds = |wanted: fn(&Value) -> bool| launch.metrics().filter(|column| wanted(column.value)).count();
    assert_eq!(kinds(|value| matches!(value, Value::Number(_))), 2207);
    assert_eq!(kinds(|value| matches!(value, Value::Text(_))), 5);
    assert_eq!(kinds(|value| matches!(value, Value::Absent)), 15);
    let column = launch.column("dram__bytes_read.sum.per_second").unwrap();
    assert_eq!((column.unit, column.value), ("byte/s", &Value::Number(1_257_244_417_803.09)));
    let word = launch.column("launch__cluster_scheduling_policy").unwrap();
    assert_eq!(word.value, &Value::Text("PolicySpread".into()));
    assert_eq!(launch.column("sass__inst_executed_register_spilling_mem_local").unwrap().value, &Value::Absent);
    assert!(capture.warnings.iter().any(|said| said.starts_with("Unable to access the following 6 metrics")));
}

#[test]
fn many_launches_are_read_with_their_shapes_and_times_between_the_words_of_others() {
    assert_eq!(read(TWENTY).unwrap().len(), 20);
    let two = read(TWO_KERNELS).unwrap();
    assert_eq!((two[1].shape, two[1].duration_ns()), ([[4096, 1, 1], [1024, 1, 1]], 1_043_264.0));
    assert!(TWO_KERNELS.contains("\nreal\t0m5"));
}

#[test]
fn a_capture_that_is_cut_off_anywhere_is_read_up_to_a_whole_row_or_refused_at_a_line() {
    let whole = read(ONE).unwrap().remove(0);
    let lines = ONE.lines().count();
    let heading = ONE.find("\"ID\"").unwrap();
    for end in (0..ONE.len()).filter(|end| end % 97 == 0 || ONE.len() - end < 40) {
        match Capture::read(&ONE[..end]) {
            Ok(capture) => assert!(capture.launches[0].cells == whole.cells, "{end}"),
            Err(unread) => assert!((1..=lines).contains(&unread.line) && !unread.why.is_empty(), "{end}: {unread}"),
        }
        assert!(end > heading || Capture::read(&ONE[..end]).is_err());
    }
}

#[test]
fn what_is_no_whole_table_is_refused_with_the_line_and_the_reason() {
    let at = ONE.lines().position(|line| line.starts_with("\"ID\"")).unwrap() + 1;
    let lines: Vec<&str> = ONE.lines().collect();
    let upto = |count: usize| lines[..count].join("\n");
    let (table, row) = (upto(at + 2), lines[at + 1]);
    let cut = format!("{table}\n{}", &row[..row.len() / 2].trim_end_matches(|c| c != ','));
    let cases = [
        (String::new(), 1, "nothing was printed"),
        ("==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - no permission\n".into(), 2, "ERR_NVGPUCTRPERM"),
        ("a,b,c\n1,2,3\n".into(), 2, "instead: 1,2,3"),
        ("x\n\"ID\",\"Process ID\",\"Kernel Name\"\n".into(), 2, "has no \"Block Size\""),
        (upto(at), at, "units does not follow"),
        (format!("{}\n{row}", upto(at)), at + 1, "expected the row of units"),
        (upto(at + 1), at + 1, "no kernel was launched"),
        (cut.trim_end_matches(',').into(), at + 3, "the row is cut off: it has"),
        (table[..table.len() - 1].into(), at + 2, "its last cell is not closed"),
        (format!("{table},\"1\""), at + 2, "only"),
        (format!("{ONE}\n{ONE}"), lines.len() + 1 + at, "a second table"),
    ];
    for (printed, line, reason) in cases {
        let (found, why) = refused(&printed);
        assert!(found == line && why.contains(reason), "line {found}, expected {line} and {reason:?}: {why}");
    }
}

#[test]
fn a_cell_is_a_number_only_where_it_is_one() {
    for (cell, number) in [("1,234.5", 1234.5), ("-0.5", -0.5), ("2,550,137,138", 2_550_137_138.0), ("1e3", 1000.0)] {
        assert_eq!(Value::of(cell), Value::Number(number), "{cell}");
    }
    for absent in ["", "n/a", "(!) n/a", "nan", "inf", "no data"] {
        assert_eq!(Value::of(absent), Value::Absent, "{absent}");
    }
    for words in ["(256, 1, 1)", "1,2", "12,34,567", "infinite", "3 (1; 2)", "all"] {
        assert_eq!(Value::of(words), Value::Text(words.into()), "{words}");
    }
}

#[test]
fn every_metric_that_the_catalogue_says_exists_on_9_0_does_and_has_the_unit_that_it_says() {
    let list = unpacked(LIST);
    let there: HashSet<&str> = list.lines().filter_map(|line| line.split_once(' ')).map(|(name, _)| name).collect();
    let (full, set) = (read(&full()).unwrap().remove(0), read(ONE).unwrap().remove(0));
    let (mut read, mut listed) = (0, 0);
    for entry in catalog::entries() {
        let claimed = entry.on.iter().any(|capability| capability == "9.0");
        let column = full.column(&entry.name).or(set.column(&entry.name));
        let name = there.contains(entry.name.split('.').next().unwrap());
        assert_eq!(claimed, column.is_some() || name, "{}", entry.name);
        read += usize::from(column.is_some());
        listed += usize::from(name);
        assert!(column.is_none_or(|column| column.unit == entry.unit), "{}: {column:?}", entry.name);
    }
    assert!(read > 150 && listed > 150, "{read} read, {listed} listed");
}

#[test]
fn no_name_of_an_h200_is_left_bare() {
    let (list, full) = (unpacked(LIST), read(&full()).unwrap().remove(0));
    let listed = list.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(' ').next());
    let names: Vec<&str> = listed.chain(full.metrics().map(|column| column.name)).collect();
    assert!(names.len() > 5_800);
    for name in names {
        let meaning = catalog::meaning(name);
        assert!(meaning.contains(' ') && !meaning.contains("__") && meaning != name, "{name}: {meaning}");
    }
}

#[test]
fn of_the_real_captures_it_is_said_what_bounds_their_kernels_and_by_which_numbers() {
    let said = |printed: &str| -> Vec<String> {
        let kernel = |launch: &Launched| Kernel {
            name: launch.kernel.clone(),
            launches: None,
            share: None,
            readings: launch.metrics().map(|column| launch.reading(column.name, "")).collect(),
        };
        let kernels = read(printed).unwrap().iter().map(kernel).collect();
        let profile = Profile { rung: Rung::Ncu, case: String::new(), readings: vec![], kernels, notes: vec![] };
        facts::facts(&profile).iter().map(ToString::to_string).collect()
    };
    insta::assert_debug_snapshot!([said(ONE), said(&full()), said(TWO_KERNELS)].concat());
}
