//! A/A: a problem's own reference as a candidate, whose speedup is 1. How often does an interval leave 1 out, and by how much?
//!
//! `cargo bench -p warpsmith-kernelbench --bench aa -- PYTHON DEVICE CHECKOUT [NAME...]`: CHECKOUT is KernelBench's, a NAME is
//! such as `1-13`; without one, those of CudaForge's D*. Each is timed twice with the loop's settings, and once for a
//! certificate where `CERTIFY=1`; with `TIMES` it is timed so often. A line of JSON each: the reference over itself when it was
//! prepared, the ratio, its interval, by what part that is wider than resampling makes it, and every reading where `READINGS=1`.
//! The last line sums up.
#![expect(clippy::print_stdout, reason = "a program")]

use metrics::{Interval, Speedup};
use serde_json::{Value, json};
use std::{
    error::Error,
    path::{Path, PathBuf},
    time::Instant,
};
use warpsmith_kernelbench::{
    Asked, Candidate, CertificateVerdict, Evaluation, Job, JobFound, Suite, Task, TimingPlan, Workshop, load, native,
    torch::{Options, Torch},
};

/// CudaForge's D* (Appendix G.2).
const SUITE: &str = include_str!("../suites/dstar.toml");

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).is_some_and(|first| first == "child") {
        native::child_main();
    }
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [python, device, checkout, names @ ..] = arguments.as_slice() else {
        return Err("expected PYTHON DEVICE CHECKOUT [NAME...]".into());
    };
    let asked = std::env::var("RUST_LOG").ok().and_then(|level| level.parse().ok());
    let level = asked.unwrap_or(tracing_subscriber::filter::LevelFilter::ERROR);
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_max_level(level).init();
    let names = if names.is_empty() { suite()? } else { names.to_vec() };
    let times = std::env::var("TIMES").ok().map_or(Ok(2), |text| text.parse())?;
    let mut options = Options::new(python.into(), device, std::env::current_exe()?, vec!["child".into()]);
    options.profile_ahead = false;
    let bench = Bench {
        workshop: Torch::new(options)?,
        runtime: tokio::runtime::Builder::new_current_thread().enable_time().build()?,
        plan: TimingPlan::median_of(20, 100),
        times,
    };
    let mut all: Vec<(bool, Speedup)> = vec![];
    for name in &names {
        if let Err(why) = bench.one(Path::new(checkout), name, &mut all) {
            println!("{}", json!({"name": name, "broke": why.to_string()}));
        }
    }
    for certified in [false, true] {
        let of: Vec<Speedup> = all.iter().filter(|(kind, _)| *kind == certified).map(|(_, speedup)| *speedup).collect();
        println!("{}", summary(certified, &of));
    }
    Ok(())
}

struct Bench {
    workshop: Torch,
    runtime: tokio::runtime::Runtime,
    plan: TimingPlan,
    times: usize,
}

impl Bench {
    /// Adds what it finds of one problem: whether it was for a certificate, and the speedup.
    fn one(&self, checkout: &Path, name: &str, found: &mut Vec<(bool, Speedup)>) -> Result<(), Box<dyn Error>> {
        let task = load::task(&problem(checkout, name)?)?;
        let (suite, start) = (Suite::of_task(&task), Instant::now());
        let baseline = self.runtime.block_on(self.workshop.prepare(&task, &suite, &self.plan))?;
        let (over_itself, differs) = (baseline.over_itself, baseline.self_difference());
        println!("{}", json!({"name": name, "prepared": over_itself, "seconds": start.elapsed().as_secs_f64()}));
        for at in 0..self.times {
            let start = Instant::now();
            let candidate = copy(&task, at);
            let (suite, plan) = (suite.clone(), self.plan);
            let asked = Asked::Evaluate { candidate: candidate.clone(), suite, plan, self_difference: differs };
            let job = Job { task: task.clone().into(), asked };
            let JobFound::Evaluated(outcome) = self.runtime.block_on(job.work(&self.workshop)).0? else {
                unreachable!("an evaluation was asked for");
            };
            let remarks = self.workshop.remarks(&candidate.id());
            self.workshop.release(&candidate.id());
            let mut line = json!({"name": name, "seconds": start.elapsed().as_secs_f64()});
            match outcome {
                Evaluation::Passed(timed) => {
                    found.push((false, timed.speedup));
                    (line["speedup"], line["widened_by"]) = (json!(timed.speedup), json!(timed.widened_by));
                    line["labels"] = json!(timed.labels);
                }
                Evaluation::Counted(_) | Evaluation::Compiled(_) => unreachable!("torch times"),
                Evaluation::Failed(failure) => line["failed"] = json!(failure.to_string()),
            }
            if std::env::var_os("READINGS").is_some() {
                line["remarks"] = json!(remarks);
            }
            println!("{line}");
        }
        if std::env::var_os("CERTIFY").is_some() {
            let start = Instant::now();
            let certificate = self.runtime.block_on(async {
                let rebuilt = self.workshop.rebuild(&task, &copy(&task, self.times)).await?;
                self.workshop.certify(&task, rebuilt, &self.plan).await
            })?;
            let mut line = json!({"name": name, "certified": true, "seconds": start.elapsed().as_secs_f64()});
            match certificate.verdict {
                CertificateVerdict::Certified(timed) => {
                    found.push((true, timed.speedup));
                    line["speedup"] = json!(timed.speedup);
                    line["cases"] = json!(timed.cases);
                }
                CertificateVerdict::Refused(failure) => line["failed"] = json!(failure.to_string()),
            }
            println!("{line}");
        }
        self.workshop.close(&task);
        Ok(())
    }
}

/// The reference as a candidate that nobody saw before.
fn copy(task: &Task, at: usize) -> Candidate {
    Candidate::new(format!("{}\n# copy {at} of {}\n", task.reference_as_candidate(), std::process::id()))
}

fn suite() -> Result<Vec<String>, Box<dyn Error>> {
    let suite: toml::Table = SUITE.parse()?;
    let levels = suite["levels"].as_table().ok_or("the suite names no levels")?;
    let names = |(level, ids): (&String, &toml::Value)| {
        let ids = ids.as_array().into_iter().flatten().filter_map(toml::Value::as_integer);
        ids.map(|id| format!("{level}-{id}")).collect::<Vec<_>>()
    };
    Ok(levels.iter().flat_map(names).collect())
}

fn problem(checkout: &Path, name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let (level, id) = name.split_once('-').ok_or("a name is such as 1-13")?;
    let folder = checkout.join("KernelBench").join(format!("level{level}"));
    let mut paths = std::fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
    let start = format!("{id}_");
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start));
    paths.find(named).ok_or_else(|| format!("{} holds no problem {id}", folder.display()).into())
}

/// How many leave 1 out, the most that one does so by, and the median width.
fn summary(certified: bool, all: &[Speedup]) -> Value {
    let beyond = |Interval { low, high }: Interval| (low - 1.0).max(1.0 - high).max(0.0);
    let out: Vec<f64> = all.iter().map(|speedup| beyond(speedup.interval)).filter(|by| *by > 0.0).collect();
    let mut widths: Vec<f64> = all.iter().map(|speedup| speedup.interval.high - speedup.interval.low).collect();
    widths.sort_by(f64::total_cmp);
    json!({
        "certified": certified, "intervals": all.len(), "leave 1 out": out.len(),
        "by at most": out.iter().copied().fold(0.0, f64::max), "median width": widths.get(widths.len() / 2),
    })
}
