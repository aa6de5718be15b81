//! What does a person learn who asks for what cannot be, and what is lost?

use crate::program::{self, TASK, Told, only_events, place, run, simulated, warpsmith};
use std::{
    fs::{self, File},
    os::unix::fs::{FileTypeExt, symlink},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

#[test]
fn a_limit_that_is_no_number_of_zero_or_more_is_refused_wherever_it_stands() {
    let (folder, out) = place();
    for limit in ["--usd=nan", "--usd=inf", "--usd=1e400", "--seconds=-1", "--task-usd=-0.5", "--task-gpu-seconds=nan"]
    {
        let told = run(&["run", TASK, "--simulate", "--out", &out, limit]).ended(2);
        assert!(told.err.contains("a number of 0 or more"), "{limit}: {told:?}");
    }
    let settings = folder.path().join("s.toml").display().to_string();
    for limit in ["usd = nan", "seconds = -1.0", "task_seconds = inf"] {
        fs::write(&settings, format!("[limits]\n{limit}\n")).unwrap();
        let told = run(&["run", TASK, "--simulate", "--out", &out, "--config", &settings]).ended(2);
        assert!(told.err.contains("a number of 0 or more"), "{limit}: {told:?}");
    }
    assert!(!Path::new(&out).exists());
}

#[test]
fn a_script_for_no_node_or_no_time_is_refused() {
    for [flag, value] in
        [["--nodes", "0"], ["--hours", "0"], ["--hours", "nan"], ["--hours", "inf"], ["--hours", "1e300"]]
    {
        let told = run(&["worker", "--slurm", "--hosts", "nats://head:4222", &format!("{flag}={value}")]).ended(2);
        assert!(told.err.contains(flag), "{told:?}");
    }
    let told = run(&["worker", "--hosts", "nats://head:4222", "--nodes", "4"]).ended(2);
    assert!(told.err.contains("--slurm"), "without it no script is made: {told:?}");
}

#[test]
fn one_sample_is_no_timing() {
    let (folder, out) = place();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let begin = |more: &[&str]| run(&[&["run", TASK, "--simulate", "--out", &out], more].concat()).ended(2).err;
    assert!(begin(&["--repetitions", "1"]).contains("2.."));
    fs::write(at("s.toml"), "[timing]\nrepetitions = 1\n").unwrap();
    assert!(begin(&["--config", &at("s.toml")]).contains("2 samples or more"));
    let policy = run(&["policies", "warpsmith"]).ended(0).out.replace("repetitions = 100", "repetitions = 1");
    fs::write(at("p.toml"), policy).unwrap();
    assert!(begin(&["--policy", &at("p.toml")]).contains("expected 2 or more"));
}

#[test]
fn a_flag_that_would_change_nothing_is_refused() {
    let (_folder, out) = place();
    let kernel = format!("{TASK}/reference.cpp");
    for [flag, value] in
        [["--precision", "fp16"], ["--device", "cpu"], ["--baselines", "eager"], ["--reference", "ieee"]]
    {
        for begun in [&["run", TASK, "--simulate", "--out", &out][..], &["evaluate", TASK, &kernel, "--simulate"]] {
            let told = run(&[begun, &[flag, value]].concat()).ended(2);
            assert!(told.err.contains(&format!("{flag} is for problems in KernelBench's format")), "{told:?}");
        }
    }
    let told =
        run(&["batch", "examples", "--match", "silu_and_mul", "--simulate", "--out", &out, "--precision", "fp16"])
            .ended(2);
    assert!(told.err.contains("--precision is for problems in KernelBench's format"), "{told:?}");
    // Which GPU a kernel in CUDA is for is no such thing.
    let cuda = "examples/cuda/silu_and_mul_fp16";
    let told = run(&["evaluate", cuda, &format!("{cuda}/reference.cu"), "--simulate", "--device", "cuda:0"]);
    assert!(told.err.is_empty(), "{told:?}");
    let told = run(&["run", TASK, "--simulate", "--out", &out, "--policy", ""]).ended(2);
    assert!(told.err.contains("--policy"), "{told:?}");
    assert!(!Path::new(&out).exists());
    simulated(&out, &[]).ended(0);
    let told = run(&["tree", &format!("{out}@c1")]).ended(2);
    assert!(told.err.contains("the tree is of a run"), "{told:?}");
}

#[test]
fn what_standard_output_does_not_take_is_told_and_a_reader_that_went_away_is_not() {
    let full =
        warpsmith(&["policies"]).stdout(File::options().write(true).open("/dev/full").unwrap()).output().unwrap();
    let told = Told::of(full).ended(3);
    assert!(told.err.contains("standard output") && told.err.contains("not whole"), "{told:?}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let told = Told::of(warpsmith(&["policies"]).stdout(writer).output().unwrap()).ended(0);
    assert_eq!(told.err, "");
}

#[test]
fn a_report_is_written_through_a_link_and_into_a_pipe() {
    let (folder, recorded) = place();
    simulated(&recorded, &[]).ended(0);
    let at = |name: &str| folder.path().join(name);
    fs::write(at("old.html"), "old").unwrap();
    symlink(at("old.html"), at("link.html")).unwrap();
    run(&["report", &recorded, "-o", &at("link.html").display().to_string()]).ended(0);
    assert!(fs::symlink_metadata(at("link.html")).unwrap().is_symlink());
    assert!(fs::read_to_string(at("old.html")).unwrap().contains("<html"));
    let pipe = at("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut writing = warpsmith(&["report", &recorded, "-o", &pipe.display().to_string()]).spawn().unwrap();
    let page = Command::new("timeout").arg("60").arg("cat").arg(&pipe).output().unwrap().stdout;
    assert!(writing.wait().unwrap().success() && String::from_utf8(page).unwrap().contains("</html>"));
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    // What lies in the run's own folder is followed nowhere.
    let (own, other) = (Path::new(&recorded).join("report.html"), at("other"));
    fs::remove_file(&own).unwrap();
    fs::write(&other, "other").unwrap();
    symlink(&other, &own).unwrap();
    symlink(&other, own.with_extension("html.part")).unwrap();
    run(&["report", &recorded]).ended(0);
    assert!(!fs::symlink_metadata(&own).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&other).unwrap(), "other");
}

#[test]
fn a_record_of_one_sample_and_of_an_odd_limit_is_read_as_it_is() {
    let (_folder, recorded) = place();
    simulated(&recorded, &[]).ended(0);
    let header = Path::new(&recorded).join("run.toml");
    let whole = fs::read_to_string(&header).unwrap();
    let odd = whole.replace("repetitions = 10", "repetitions = 1").replace("\nusd = 0.0", "\nusd = -1.0");
    assert!(odd.contains("repetitions = 1\n") && odd.contains("usd = -1.0"), "{odd}");
    fs::write(&header, odd).unwrap();
    run(&["verify", &recorded]).ended(0);
    run(&["report", &recorded]).ended(0);
}

#[test]
fn what_was_only_simulated_is_told_as_that_again() {
    let (_folder, recorded) = place();
    simulated(&recorded, &[]).ended(0);
    let best = format!("{recorded}@best");
    for arguments in [vec!["evaluate", &best], vec!["compare", &best, &best, "--recorded"]] {
        let told = run(&arguments).ended(0);
        assert!(told.out.contains("all times are made up"), "{arguments:?}: {told:?}");
    }
}

#[test]
fn what_was_asked_for_and_not_yet_ordered_is_what_an_interrupted_workflow_goes_on_with() {
    let (folder, out) = place();
    let model = folder.path().join("replies").display().to_string();
    fs::write(&model, "").unwrap();
    let begin = ["transform", "examples/matmul", "Refactor", "--repetitions", "1000000", "--model"];
    let model = format!("scripted:{model}");
    let words = [&begin[..], &[&model, "--out", &out]].concat();
    let mut child = warpsmith(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // The reference is timed for minutes, and nothing is ordered before.
    let is_open = || {
        fs::read_to_string(only_events(Path::new(&out)))
            .is_ok_and(|text| text.contains("\"prepared\"") || text.contains("\"opened\""))
    };
    while !is_open() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was interrupted");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let told = Told::of(child.wait_with_output().unwrap()).ended(130);
    assert!(
        told.err.contains(&format!("to go on: warpsmith transform {out} Refactor, as it was asked for")),
        "{told:?}"
    );
}

#[test]
fn a_reference_that_does_not_build_is_to_be_mended_and_not_to_be_gone_on_with() {
    let (folder, out) = place();
    let task = program::small_task(folder.path());
    fs::write(Path::new(&task).join("reference.cpp"), "extern \"C\" void silu_and_mul(").unwrap();
    let told = run(&["run", &task, "--model", program::SCRIPT, "--shapes", "task", "--out", &out]).ended(2);
    assert!(
        told.err.contains("the reference failed") && told.err.contains("mend the task and begin a new run"),
        "{told:?}"
    );
}

#[test]
fn an_editor_that_is_not_here_is_told_before_anything_is_begun() {
    let (_folder, out) = place();
    let words = ["transform", "examples/matmul", "Refactor", "--edit", "--model", program::SCRIPT, "--out", &out];
    let told =
        warpsmith(&words).env_remove("VISUAL").env("EDITOR", "/nowhere/editor -w").output().map(Told::of).unwrap();
    assert!(told.clone().ended(2).err.contains("there is no /nowhere/editor"), "{told:?}");
    assert!(!Path::new(&out).exists());
}
