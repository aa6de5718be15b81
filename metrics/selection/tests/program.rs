//! Can anyone choose a set of metrics from a file of profiles, see why, and make the same again?

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{fs, path::Path, process::Command};
use warpsmith_selection::table::{self, Launch, Measured, Profiled, Setup};

/// How the program ended, what it printed, and what it complained of.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_warpsmith-metrics")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// What it printed, after it ended well.
#[track_caller]
fn printed(arguments: &[&str]) -> String {
    let (code, out, err) = run(arguments);
    assert_eq!(code, Some(0), "{err}");
    out
}

/// Three tasks of six kernels; two metrics go with the time, one of them downwards, and twelve do not.
fn profiles(path: &Path) {
    let mut profiles = vec![];
    for task in ["conv", "matmul", "<b>softmax</b>"] {
        for kernel in 0..6_u32 {
            let wobble = |step: u32| f64::from((kernel * step + step * step) % 5) / 5.0;
            let mut measured = vec![
                Measured {
                    metric: "up__of.sum".into(),
                    unit: "byte".into(),
                    value: Some(f64::from(kernel) + wobble(3)),
                },
                Measured {
                    metric: "down__of.avg".into(),
                    unit: String::new(),
                    value: Some(9.0 - f64::from(kernel) + 2.0 * wobble(2)),
                },
                Measured {
                    metric: "gpu__time_duration.sum".into(),
                    unit: "ns".into(),
                    value: Some(f64::from(kernel + 1)),
                },
            ];
            for step in 1..13 {
                let metric = format!("wobble__{step:02}.avg");
                measured.push(Measured { metric, unit: "%".into(), value: Some(wobble(step * 7 + task.len() as u32)) });
            }
            profiles.push(Profiled {
                task: task.into(),
                kernel: format!("{kernel:064}"),
                kernel_name: "k".into(),
                launch: Launch::default(),
                runtime_ns: 1000.0 * f64::from(kernel + 1),
                setup: Setup { architecture: "sm_90".into(), gpu: "G".into(), driver: "1".into(), ncu: "2".into() },
                measured,
            });
        }
    }
    table::write(path, &profiles).unwrap();
}

#[test]
fn a_set_is_chosen_the_same_twice_shown_and_scored() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    profiles(Path::new(&at("p.parquet")));
    let select =
        |more: &[&str]| printed(&[&["select", &at("p.parquet"), "--want", "2", "--rule", "stable"], more].concat());
    select(&["--out", &at("two.toml")]);
    let first = fs::read(at("two.toml")).unwrap();
    select(&["--out", &at("two.toml")]);
    assert!(first == fs::read(at("two.toml")).unwrap());
    let set = metrics::MetricSet::parse(&fs::read_to_string(at("two.toml")).unwrap()).unwrap();
    let names: Vec<&str> = set.metric.iter().map(|metric| metric.name.as_str()).collect();
    assert!(names.contains(&"up__of.sum") && names.contains(&"down__of.avg"), "{names:?}");
    let public = printed(&["select", &at("p.parquet"), "--rule", "public", "--percentile", "50"]);
    assert!(public.contains("rule = \"public\""), "{public}");
    let scores = printed(&["score", &at("p.parquet"), "--set", &at("two.toml"), "--json"]);
    let scores: serde_json::Value = serde_json::from_str(&scores).unwrap();
    assert!(scores[0]["set"] == "two" && scores[0]["spearman"]["mean"].as_f64().unwrap() > 0.8, "{scores}");
    assert_eq!(scores[0]["chosen_on"].as_array().map(Vec::len), Some(3), "it has seen all three: {scores}");
    assert!(scores[1].get("chosen_on").is_none(), "the rules choose on the others alone: {scores}");
    let words = printed(&["score", &at("p.parquet"), "--set", &at("two.toml")]);
    assert_eq!(words.matches('*').count(), 4, "three scores and what the mark says: {words}");
}

#[test]
fn the_report_needs_nothing_but_itself_and_repeats_no_markup_of_a_task() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    profiles(Path::new(&at("p.parquet")));
    printed(&["report", &at("p.parquet"), "--out", &at("r.html")]);
    let page = fs::read_to_string(at("r.html")).unwrap();
    assert!(page.contains("up__of.sum") && page.contains("<circle"));
    assert!(!page.contains("<b>softmax") && page.contains("&lt;b&gt;softmax"), "markup is text");
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("<script"));
}

#[test]
fn a_file_that_is_no_table_of_profiles_ends_with_2_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("foreign.csv"), "ID,Kernel Name\n").unwrap();
    fs::write(at("empty.parquet"), "").unwrap();
    for (file, why) in
        [("foreign.csv", "it is no Parquet file"), ("empty.parquet", "it is empty"), ("none", "os error 2")]
    {
        let (code, _, said) = run(&["select", &at(file)]);
        assert!(code == Some(2) && said.contains(file) && said.contains(why), "{said}");
    }
}

/// docs/results/metrics.md is made of that file.
#[test]
fn the_scores_that_are_published_come_out_again() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let profiles = root.join("metrics/profiles/h200.parquet").display().to_string();
    let scored = printed(&["score", &profiles, "--seeds", "1", "--json"]);
    let scored: Vec<serde_json::Value> = serde_json::from_str(&scored).unwrap();
    let published = fs::read_to_string(root.join("docs/results/data/metrics.jsonl")).unwrap();
    let published: Vec<serde_json::Value> = published.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(scored.len(), published.len());
    for (now, then) in scored.iter().zip(&published).filter(|(now, _)| !now["set"].to_string().contains("random")) {
        assert_eq!(now["set"], then["set"]);
        for at in ["/spearman/mean", "/kendall", "/ridge", "/metrics"] {
            let [now, then] = [now, then].map(|line| line.pointer(at).and_then(serde_json::Value::as_f64));
            let near = now.zip(then).is_none_or(|(now, then)| (now - then).abs() < 1e-9);
            assert!(near && now.is_some() == then.is_some(), "{at}: {now:?}, published {then:?}");
        }
    }
}
