//! Does the binary of `just dist` run on Debian 11 and Ubuntu 20.04?

use std::{path::Path, process::Command};

/// The newest glibc that it may ask for: that of Debian 11 and Ubuntu 20.04.
const NEWEST: [u32; 2] = [2, 31];

/// The versions of glibc that a dump of dynamic symbols names: `GLIBC_2.17`.
fn versions(dump: &str) -> Vec<Vec<u32>> {
    let words =
        dump.split("GLIBC_").skip(1).filter_map(|rest| rest.split(|c: char| !(c.is_ascii_digit() || c == '.')).next());
    let mut found: Vec<Vec<u32>> =
        words.map(|version| version.split('.').filter_map(|part| part.parse().ok()).collect()).collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn versions_are_compared_by_their_numbers() {
    let dump = "0 DF *UND* 0 (GLIBC_2.9) a\n0 DF *UND* 0 (GLIBC_2.2.5) b\n0 DF *UND* 0 (GLIBC_2.34) c\n";
    assert_eq!(versions(dump), [vec![2, 2, 5], vec![2, 9], vec![2, 34]]);
    assert!(versions(dump).last().unwrap()[..] > NEWEST[..] && vec![2, 9][..] < NEWEST[..]);
}

#[test]
#[ignore = "needs target/dist/warpsmith, which `just dist` makes"]
fn it_asks_for_no_newer_glibc_and_for_no_other_library() {
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/dist/warpsmith");
    let dump = Command::new("objdump").args(["-T", "-p"]).arg(&binary).output().unwrap();
    let dump = String::from_utf8_lossy(&dump.stdout).into_owned();
    let found = versions(&dump);
    assert!(!found.is_empty() && found.last().unwrap()[..] <= NEWEST[..], "{found:?}");
    let needed: Vec<&str> = dump.lines().filter_map(|line| line.trim().strip_prefix("NEEDED")).map(str::trim).collect();
    let of_glibc = [
        "libc.so.6",
        "libm.so.6",
        "libdl.so.2",
        "libpthread.so.0",
        "librt.so.1",
        "ld-linux-x86-64.so.2",
        "libutil.so.1",
    ];
    assert!(needed.iter().all(|name| of_glibc.contains(name)), "{needed:?}");
    let help = Command::new(&binary).arg("--version").output().unwrap();
    assert!(help.status.success());
}
