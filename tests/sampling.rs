//! Does a sampling keep the extremes, name what is wrong, and go on after an interruption?

use crate::program::{self, Told};
use selection::table::{self, Profiled};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Twelve kernels of 10 to 120 µs by their own words, of which one in four is wrong.
fn family(folder: &Path) -> PathBuf {
    let task = folder.join("twelve");
    fs::create_dir(&task).unwrap();
    let of = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernelbench/families/transpose");
    for name in ["task.toml", "reference.cu"] {
        fs::copy(of.join(name), task.join(name)).unwrap();
    }
    let family = "schema = 1\n[[design]]\nname = \"told\"\ntemplate = \"told.cu\"\n\
                  grid = { tens = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] }\n";
    fs::write(task.join("family.toml"), family).unwrap();
    let told = "// simulate: us={{ tens * 10 }}{% if tens % 4 == 0 %} wrong{% endif %}\nvoid transpose();\n";
    fs::write(task.join("told.cu"), told).unwrap();
    task
}

fn sample(task: &Path, out: &Path, more: &[&str]) -> Told {
    let [task, out] = [task, out].map(|path| path.display().to_string());
    let keep = if more.contains(&"--keep") { &[][..] } else { &["--keep", "2"] };
    let arguments = ["metrics", "sample", &task, "--simulate", "--out", &out];
    program::with_metrics(&[&arguments[..], keep, more].concat()).output().map(Told::of).unwrap()
}

fn microseconds(profiles: &[Profiled]) -> Vec<u64> {
    let mut times: Vec<u64> =
        profiles.iter().map(|profile| (profile.runtime_ns / 10_000.0).round() as u64 * 10).collect();
    times.sort_unstable();
    times
}

#[test]
fn the_fastest_and_the_slowest_correct_kernels_are_in_the_table_with_all_that_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let (task, out) = (family(folder.path()), folder.path().join("profiles.parquet"));
    let told = sample(&task, &out, &[]).ended(0);
    let profiles = table::read(&out).unwrap();
    assert_eq!(microseconds(&profiles), [10, 20, 100, 110], "{told:?}");
    assert!(told.out.contains("9 of 12 correct") && told.out.matches("wrong:").count() == 3, "{told:?}");
    assert!(profiles.iter().all(|profile| profile.task == "transpose" && profile.launch.registers == Some(32)));
    let absent = profiles[0].measured.iter().find(|measured| measured.metric.contains("tensor")).unwrap();
    assert_eq!((absent.value, profiles[0].measured.len()), (None, 7));
}

#[test]
fn an_interrupted_sampling_goes_on_and_comes_to_the_same_table() {
    let folder = tempfile::tempdir().unwrap();
    let (task, out) = (family(folder.path()), folder.path().join("profiles.parquet"));
    sample(&task, &out, &[]).ended(0);
    let (whole, notes) = (fs::read(&out).unwrap(), folder.path().join("profiles.sampling/notes.jsonl"));
    let text = fs::read_to_string(&notes).unwrap();
    assert_eq!(text.lines().count(), 12 + 4);
    // Killed in the middle of the eighth line.
    let eighth: usize = text.split_inclusive('\n').take(8).map(str::len).sum();
    fs::write(&notes, &text[..eighth - 20]).unwrap();
    fs::remove_file(&out).unwrap();
    let told = sample(&task, &out, &[]).ended(0);
    assert!(told.out.contains("1/5 told") && !told.out.contains("  6/"), "{told:?}");
    assert!(fs::read(&out).unwrap() == whole && fs::read_to_string(&notes).unwrap() == text);
}

#[test]
fn fewer_or_more_can_be_kept_later_and_the_table_has_exactly_these() {
    let folder = tempfile::tempdir().unwrap();
    let (task, out) = (family(folder.path()), folder.path().join("profiles.parquet"));
    let kept = |keep: &str| {
        let told = sample(&task, &out, &["--keep", keep]).ended(0);
        (microseconds(&table::read(&out).unwrap()), told.out.matches("survey ").count())
    };
    assert_eq!(kept("2"), (vec![10, 20, 100, 110], 4));
    assert_eq!(kept("1"), (vec![10, 110], 0));
    assert_eq!(kept("3"), (vec![10, 20, 30, 90, 100, 110], 2));
}

#[test]
fn fewer_kernels_are_the_first_of_more_and_another_task_s_notes_are_not_heard() {
    let folder = tempfile::tempdir().unwrap();
    let (task, out) = (family(folder.path()), folder.path().join("profiles.parquet"));
    sample(&task, &out, &["--kernels", "4"]).ended(0);
    let told = sample(&task, &out, &["--kernels", "5"]).ended(0);
    assert!(told.out.contains("1/1 told"), "{told:?}");
    let reference = task.join("reference.cu");
    fs::write(&reference, fs::read_to_string(&reference).unwrap() + "// changed\n").unwrap();
    assert!(sample(&task, &out, &["--kernels", "5"]).ended(0).out.contains("5/5 told"));
}

#[test]
fn a_models_kernels_are_sampled_from_its_run_before_those_of_the_family() {
    let folder = tempfile::tempdir().unwrap();
    let (task, out, run) = (family(folder.path()), folder.path().join("profiles.parquet"), folder.path().join("run"));
    let reply = |round: u32, us: u32| {
        let source = format!("// simulate: us={us}\nextern \"C\" void transpose() {{}}\n");
        serde_json::json!({ "role": "coder", "round": round, "reply": format!("```cuda\n{source}```\n") }).to_string()
    };
    let script = folder.path().join("script.jsonl");
    fs::write(&script, [reply(1, 500), reply(2, 1)].join("\n")).unwrap();
    let [task_text, run_text] = [&task, &run].map(|path| path.display().to_string());
    let model = format!("scripted:{}", script.display());
    let arguments = ["run", &task_text, "--simulate", "--policy", "self-refine", "--rounds", "2", "--out", &run_text];
    program::warpsmith(&[&arguments[..], &["--model", &model]].concat()).output().map(Told::of).unwrap().ended(0);
    let told = sample(&task, &out, &["--from", &run_text, "--kernels", "4", "--keep", "1"]).ended(0);
    assert_eq!(microseconds(&table::read(&out).unwrap()), [0, 500], "{told:?}");
    assert!(told.out.contains("1/4") && !told.out.contains("  5/"), "{told:?}");
}

#[test]
fn what_cannot_be_sampled_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("profiles.parquet");
    let told = sample(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/silu_and_mul")), &out, &[]).ended(2);
    assert!(told.err.contains("expected a family.toml"), "{told:?}");
    let task = family(folder.path());
    fs::create_dir_all(folder.path().join("profiles.sampling")).unwrap();
    fs::write(folder.path().join("profiles.sampling/notes.jsonl"), "Dear diary\n").unwrap();
    let told = sample(&task, &out, &[]);
    assert!(told.err.contains("notes.jsonl: line 1: this is no note"), "{told:?}");
}

/// What `metrics/profiles/README.md` says of it.
#[test]
fn the_table_of_an_h200_holds_ten_kernels_of_each_family_as_it_stands() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let profiles = table::read(&root.join("metrics/profiles/h200.parquet")).unwrap();
    assert_eq!(profiles.len(), 70);
    for name in ["matmul", "conv2d", "row_sum", "layer_norm", "attention", "sparse_rows", "transpose"] {
        let family = kernelbench::load::family(&root.join("kernelbench/families").join(name)).unwrap().unwrap();
        let members: Vec<String> =
            family.draw(24, 0).unwrap().iter().map(|member| member.candidate.id().to_string()).collect();
        let of_task: Vec<&Profiled> = profiles.iter().filter(|profile| profile.task == name).collect();
        let times = of_task.iter().map(|profile| profile.runtime_ns);
        let [low, high] = times.fold([f64::INFINITY, 0.0_f64], |[low, high], ns| [low.min(ns), high.max(ns)]);
        assert!(of_task.len() == 10 && high / low > 5.0, "{name}: {low} to {high}");
        let stranger = of_task.iter().find(|profile| !members.contains(&profile.kernel));
        assert!(stranger.is_none(), "{name}: the family has no kernel {stranger:?} now: take the table anew");
    }
}
