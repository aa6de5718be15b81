//! Does a table keep what it was given, in the same bytes each time, and does it refuse what is none?

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{fs, path::Path};
use warpsmith_selection::{
    columns::{self, Values},
    table::{self, Launch, Measured, Profiled, Setup, Table},
};

fn profiled(task: &str, kernel: &str, runtime_ns: f64) -> Profiled {
    let measured = |metric: &str, unit: &str, value| Measured { metric: metric.into(), unit: unit.into(), value };
    Profiled {
        task: task.into(),
        kernel: kernel.into(),
        kernel_name: "silu_k".into(),
        launch: Launch { grid: Some("(4096, 1, 1)".into()), block: None, registers: Some(40), shared_bytes: None },
        runtime_ns,
        setup: Setup {
            architecture: "sm_90".into(),
            gpu: "NVIDIA H200".into(),
            driver: "580".into(),
            ncu: "2025.3.1".into(),
        },
        measured: vec![measured("a__b.sum", "byte", Some(1.5)), measured("c__d.avg", "", None)],
    }
}

fn message(bytes: &[u8]) -> String {
    Table::of_bytes(Path::new("some/profiles.parquet"), bytes.to_vec()).unwrap_err().to_string()
}

#[test]
fn profiles_come_back_from_a_file_whose_bytes_do_not_depend_on_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.parquet");
    let (one, two) = (profiled("matmul", "aa", 10.0), profiled("conv", "bb", 20.0));
    table::write(&path, &[one.clone(), two.clone()]).unwrap();
    let first = fs::read(&path).unwrap();
    table::write(&path, &[two.clone(), one.clone()]).unwrap();
    assert!(first == fs::read(&path).unwrap());
    assert_eq!(table::read(&path).unwrap(), [two, one]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing half-written is left");
}

#[test]
fn what_is_no_number_becomes_no_value() {
    let mut odd = profiled("matmul", "aa", 10.0);
    odd.measured[0].value = Some(f64::NAN);
    assert_eq!(Table::new(&[odd]).unwrap().profiles()[0].measured[0].value, None);
}

#[test]
fn a_profile_that_a_table_cannot_hold_is_named() {
    let error = |profiles: &[Profiled]| Table::new(profiles).unwrap_err().to_string();
    let one = profiled("matmul", "aa", 10.0);
    assert_eq!(error(&[one.clone(), one.clone()]), "aa of matmul: it was profiled twice; keep one");
    assert_eq!(error(&[profiled("matmul", "aa", 0.0)]), "aa of matmul: 0 ns is no time");
    let mut twice = one.clone();
    twice.measured.push(one.measured[0].clone());
    assert!(error(&[twice]).contains("\"a__b.sum\""));
}

#[test]
fn an_empty_a_foreign_and_a_cut_file_get_an_error_that_names_the_file_and_says_what_was_expected() {
    let whole = Table::new(&[profiled("matmul", "aa", 10.0)]).unwrap().bytes();
    assert!(message(b"").starts_with("some/profiles.parquet: it is empty; expected a table of profiles (Parquet)"));
    assert!(message(b"ID,Kernel Name\n").contains("it is no Parquet file"));
    assert!(message(&whole[..whole.len() - 9]).contains("it is cut off"));
}

#[test]
fn a_file_that_was_damaged_anywhere_gets_an_error_and_does_not_end_the_program() {
    let whole = Table::new(&[profiled("matmul", "aa", 10.0), profiled("conv", "bb", 20.0)]).unwrap().bytes();
    std::panic::set_hook(Box::new(|_| {}));
    let footer =
        whole.len() - 8 - u32::from_le_bytes(whole[whole.len() - 8..whole.len() - 4].try_into().unwrap()) as usize;
    for at in (4..whole.len() - 8).step_by(3) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        let read = Table::of_bytes(Path::new("x"), damaged);
        assert!(at >= footer || read.unwrap_err().to_string().contains("changed or damaged"), "at {at}");
    }
}

#[test]
fn the_same_kernel_in_two_files_is_an_error_that_names_it() {
    let table = Table::new(&[profiled("matmul", "aa", 10.0)]).unwrap();
    let joined = Table::joined(vec![(Path::new("one"), table.clone()), (Path::new("two"), table)]);
    assert_eq!(joined.unwrap_err().to_string(), "two: column metric: a row stands there twice: matmul, aa, a__b.sum");
}

#[test]
fn a_parquet_file_of_something_else_is_refused_by_the_column_that_it_lacks() {
    let columns =
        vec![("task".to_owned(), Values::Text(vec!["matmul".into()])), ("kernel".to_owned(), Values::Flag(vec![true]))];
    let bytes = columns::parquet(columns.clone()).unwrap();
    assert_eq!(message(&bytes), "some/profiles.parquet: column kernel: it is of type bool; expected str");
    let bytes = columns::parquet(columns[..1].to_vec()).unwrap();
    assert_eq!(message(&bytes), "some/profiles.parquet: column kernel: it is missing; expected str");
}
