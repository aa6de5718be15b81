//! `warpsmith doctor`: what can this machine do?

use super::say;
use crate::{
    cli::DoctorArgs,
    config::{Config, Layers},
    exit::{Exit, Trouble},
    hosts::{self, Found},
    key::{Environment, without_credentials},
    progress::plain,
    version::VERSION,
    wiring,
};
use kernelbench::{
    Clang, Gfx, Layer, Processor, answer_within, cuda, emulator_tools,
    gpu::{Gpu, Look},
    hlsl_version, profiler,
};
use metrics::Machine;
use serde::Serialize;
use std::{process::Command, time::Duration};

/// How long a program may take to say what it is: a Python that imports torch from a cold disk takes half a minute.
const PATIENCE: Duration = Duration::from_mins(2);

/// One thing that was looked for.
#[derive(Debug, Serialize)]
struct Finding {
    /// What.
    what: String,
    /// Whether it is there.
    found: bool,
    /// What was found, or why it is missing.
    detail: String,
    /// What it costs the user that it is missing, and how to get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

#[derive(Debug, Serialize)]
struct Findings {
    version: &'static str,
    machine: Machine,
    compilers: Vec<Finding>,
    profilers: Vec<Finding>,
    confinement: Vec<Finding>,
    model: Vec<Finding>,
    python: Vec<Finding>,
    gpu: Vec<Finding>,
    emulators: Vec<Finding>,
    hip: Vec<Finding>,
    vulkan: Vec<Finding>,
}

/// Looks, and says what it found.
pub(super) fn doctor(arguments: &DoctorArgs, mut layers: Layers, environment: &Environment) -> Result<Exit, Trouble> {
    arguments.hosts.apply(&mut layers);
    if layers.config.hosts.is_set() {
        return of_hosts(&layers.config, arguments.json, environment);
    }
    let workshop = wiring::native(&layers.config)?;
    let findings = Findings {
        version: VERSION,
        machine: kernelbench::Workshop::machine(&workshop).clone(),
        compilers: vec![compiler("CXX", "g++", "C++"), compiler("CC", "gcc", "C")],
        profilers: profilers(),
        confinement: confinement(&workshop.confinement()?),
        model: model(&layers.config, environment),
        python: vec![python(&layers.config.workshop.python)],
        gpu: vec![gpu(), nvcc(), ncu()],
        emulators: ["aarch64", "riscv64"].map(emulator).into(),
        hip: Gfx::ALL.map(hip).into(),
        vulkan: vec![hlsl(), vulkan(&layers.config)],
    };
    let able = findings.compilers.first().is_some_and(|compiler| compiler.found);
    if arguments.json {
        say(&super::json(&findings));
    } else {
        tell(&findings);
    }
    Ok(if able { Exit::Done } else { Exit::Machine })
}

/// What there is on other hosts.
fn of_hosts(config: &Config, json: bool, environment: &Environment) -> Result<Exit, Trouble> {
    let Found { lines, able } = (hosts::behind(environment)?.look)(&config.hosts.address())?;
    if json {
        say(&serde_json::json!({ "able": able, "said": lines }).to_string());
    } else {
        for line in &lines {
            say(&plain(line));
        }
    }
    Ok(if able { Exit::Done } else { Exit::Machine })
}

fn tell(findings: &Findings) {
    say(&format!("warpsmith {}", findings.version));
    say(&format!("machine: {} ({})", plain(&findings.machine.name), findings.machine.arch));
    for fact in &findings.machine.facts {
        say(&format!("  {}: {}", fact.name, plain(&fact.value)));
    }
    for bandwidth in &findings.machine.bandwidths {
        let (kib, gb) = (bandwidth.working_set_bytes >> 10, bandwidth.bytes_per_second / 1e9);
        say(&format!("  copies {kib} KiB at {gb:.1} GB/s (measured, one core)"));
    }
    if let Some(peak) = findings.machine.peak_flops {
        say(&format!("  multiply-adds at {:.1} GFLOP/s (measured, one core)", peak / 1e9));
    }
    let sections = [
        ("compilers", &findings.compilers),
        ("profilers", &findings.profilers),
        ("confinement of candidates", &findings.confinement),
        ("model", &findings.model),
        ("Python, for problems in KernelBench's format", &findings.python),
        ("GPU, for problems and for kernels in CUDA", &findings.gpu),
        ("emulated processors, for tasks that name one", &findings.emulators),
        ("Vulkan on this processor, for kernels in HLSL", &findings.vulkan),
        ("AMD GPUs, for kernels in HIP, which are compiled and not run", &findings.hip),
    ];
    for (title, section) in sections {
        say(&format!("{title}:"));
        section.iter().for_each(tell_one);
    }
}

fn tell_one(finding: &Finding) {
    say(&format!("  {} {}: {}", if finding.found { "yes" } else { "no " }, finding.what, plain(&finding.detail)));
    if let Some(advice) = &finding.advice {
        say(&format!("      {advice}"));
    }
}

fn compiler(variable: &str, usual: &str, language: &str) -> Finding {
    let program = std::env::var(variable).ok().filter(|name| !name.is_empty()).unwrap_or_else(|| usual.to_owned());
    let advice = format!(
        "without it no candidate in {language} can be built; install one (Debian: apt install build-essential) or name it in {variable}"
    );
    match first_line(&program, &["--version"]) {
        Ok(version) => Finding { what: format!("{language} ({program})"), found: true, detail: version, advice: None },
        Err(why) => {
            Finding { what: format!("{language} ({program})"), found: false, detail: why, advice: Some(advice) }
        }
    }
}

fn profilers() -> Vec<Finding> {
    vec![perf(), valgrind()]
}

/// `perf` may be there and not be allowed to count.
fn perf() -> Finding {
    let what = "hardware counters (perf stat)".to_owned();
    let advice = "without it the Judge sees no hardware counters; install perf (Debian: apt install linux-perf) and allow it \
                  (sysctl kernel.perf_event_paranoid=2; in a container: --cap-add PERFMON); virtual machines often have none";
    match profiler::counters() {
        Ok(()) => Finding { what, found: true, detail: "they count".into(), advice: None },
        Err(why) => Finding { what, found: false, detail: why, advice: Some(advice.into()) },
    }
}

fn valgrind() -> Finding {
    let what = "simulated caches (valgrind --tool=cachegrind)".to_owned();
    let advice =
        "without it and without counters the Judge sees times and the roofline only (Debian: apt install valgrind)";
    match first_line("valgrind", &["--version"]) {
        Ok(version) => Finding { what, found: true, detail: version, advice: None },
        Err(why) => Finding { what, found: false, detail: why, advice: Some(advice.into()) },
    }
}

fn confinement(layers: &[Layer]) -> Vec<Finding> {
    let finding = |layer: &Layer| {
        Finding {
        what: layer.name.clone(),
        found: layer.in_force,
        detail: layer.why.clone(),
        advice: (!layer.in_force).then(|| "the other layers hold; run candidates of a model that you do not trust in a container or a virtual machine".to_owned()),
    }
    };
    layers.iter().map(finding).collect()
}

fn model(config: &Config, environment: &Environment) -> Vec<Finding> {
    let (found, detail) = match environment.key_for(&config.model) {
        Ok(Some(_)) => (true, "one is set".to_owned()),
        Ok(None) => (false, "none is set".to_owned()),
        Err(why) => (false, why.to_string()),
    };
    let advice =
        "without one, only an endpoint that asks for none, a recorded run, or a mailbox can answer; set OPENAI_API_KEY";
    let url = without_credentials(&environment.base_url_for(&config.model));
    let spec = &config.model.spec;
    let spec = if spec.is_empty() { "none: the recorded run of a task answers" } else { spec };
    let mut lines = vec![
        Finding { what: "key".into(), found, detail, advice: (!found).then(|| advice.into()) },
        Finding {
            what: "endpoint".into(),
            found: true,
            detail: if url.is_empty() { "OpenAI's own".into() } else { url },
            advice: None,
        },
        Finding {
            what: "model in the settings".into(),
            found: !config.model.spec.is_empty(),
            detail: spec.to_owned(),
            advice: None,
        },
    ];
    for (role, own) in config.model.roles.iter().filter(|(_, own)| own.has_own_endpoint()) {
        let (found, key) = match Environment::key_of(*role, own) {
            Ok(Some(_)) => (true, "a key of its own is set".to_owned()),
            Ok(None) => (true, "no key goes there".to_owned()),
            Err(why) => (false, why.to_string()),
        };
        let url = own.own_url().map_or_else(|| "that of all".into(), without_credentials);
        let what = format!("endpoint of the {}", role.name());
        lines.push(Finding { what, found, detail: format!("{url}; {key}"), advice: None });
    }
    lines
}

/// What a Python is asked: itself, and the torch that it would use.
const ASKED_OF_PYTHON: &str = "import sys, torch; print(sys.executable, sys.version.split()[0], 'with torch', \
                               torch.__version__, 'and a GPU' if torch.cuda.is_available() else 'on the processor')";

/// Which Python and torch problems would run in.
fn python(named: &str) -> Finding {
    let python = if named.is_empty() { "python3" } else { named };
    let advice = "without torch no problem can be run, tasks in C++ and CUDA can; install torch, or name another Python \
                  with --python or as workshop.python in warpsmith.toml";
    let what = format!("Python with torch ({})", plain(python));
    match last_words(python, &["-c", ASKED_OF_PYTHON]) {
        Ok(detail) => Finding { what, found: true, detail, advice: None },
        Err(why) => Finding { what, found: false, detail: why, advice: Some(advice.into()) },
    }
}

/// What a program prints, or the last line of its complaint.
fn last_words(program: &str, arguments: &[&str]) -> Result<String, String> {
    let text = answer_within(Command::new(program).args(arguments), PATIENCE)?;
    Ok(text.trim().lines().last().unwrap_or("says nothing").to_owned())
}

/// What the driver's management library says.
fn gpu() -> Finding {
    let what = "GPU (NVML)".to_owned();
    let advice = "without one, problems in KernelBench's format run with --device cpu, and kernels in CUDA not at all";
    match Gpu::at(0) {
        Ok(gpu) => Finding { what, found: true, detail: described(&gpu), advice: None },
        Err(why) => Finding { what, found: false, detail: why, advice: Some(advice.into()) },
    }
}

fn described(gpu: &Gpu) -> String {
    let facts = gpu.facts().into_iter().take(6).map(|fact| format!("{} {}", fact.name, fact.value));
    let Look { sm_mhz, celsius, slowed_by, processes, .. } = gpu.look();
    let now = [
        sm_mhz.map(|mhz| format!("now at {mhz} MHz")),
        celsius.map(|celsius| format!("{celsius} °C")),
        (!slowed_by.is_empty()).then(|| format!("held down by {}", slowed_by.join(" and "))),
        (!processes.is_empty()).then(|| format!("{} processes compute on it", processes.len())),
    ];
    let name = gpu.name().unwrap_or_else(|| "an NVIDIA GPU".to_owned());
    [name].into_iter().chain(facts).chain(now.into_iter().flatten()).collect::<Vec<_>>().join(", ")
}

fn nvcc() -> Finding {
    let what = "CUDA C++ (nvcc)".to_owned();
    let advice =
        "without it no kernel in CUDA can be built; install the CUDA toolkit, or name one in NVCC or CUDA_HOME";
    let version = cuda::find_nvcc().ok_or_else(|| "it is neither on the PATH nor where it is usually put".to_owned());
    match version.and_then(|program| Ok(format!("{} ({})", cuda::nvcc_version(&program)?, program.display()))) {
        Ok(version) => Finding { what, found: true, detail: version, advice: None },
        Err(why) => Finding { what, found: false, detail: why, advice: Some(advice.into()) },
    }
}

fn ncu() -> Finding {
    let what = "Nsight Compute (ncu)".to_owned();
    let advice = "without it kernels in CUDA, calls of CUDA graphs and `metrics sample` have no counters of the GPU (problems read \
                  theirs through torch's CUPTI); install it, and allow counters to all users \
                  (NVreg_RestrictProfilingToAdminUsers=0) where this program is not root";
    match first_line("ncu", &["--version"]) {
        Ok(version) => Finding { what, found: true, detail: version, advice: None },
        Err(why) => Finding { what, found: false, detail: why, advice: Some(advice.into()) },
    }
}

/// What runs kernels for an architecture that is not here.
fn emulator(arch: &str) -> Finding {
    let names = Processor::ALL.iter().filter(|one| one.arch() == arch).map(|one| one.name()).collect::<Vec<_>>();
    let what = format!("{} (qemu-{arch}, {arch}-linux-gnu-g++)", names.join(" and "));
    let advice = format!(
        "without them no task for one of these runs; install them (Debian: apt install qemu-user g++-{arch}-linux-gnu)"
    );
    match emulator_tools(arch) {
        Ok(detail) => Finding { what, found: true, detail, advice: None },
        Err(why) => Finding { what, found: false, detail: why, advice: Some(advice) },
    }
}

/// What compiles kernels for an AMD GPU that is not here.
fn hip(arch: Gfx) -> Finding {
    let what = format!("HIP for {arch} ({})", arch.full_name());
    match Clang::find(arch) {
        Ok(clang) => {
            let detail = format!("{} ({})", clang.version(), clang.program().display());
            Finding { what, found: true, detail, advice: None }
        }
        Err(why) => Finding { what, found: false, detail: why, advice: None },
    }
}

/// What compiles kernels in HLSL.
fn hlsl() -> Finding {
    let what = "HLSL".to_owned();
    match hlsl_version() {
        Ok(detail) => Finding { what, found: true, detail, advice: None },
        Err(why) => Finding { what, found: false, detail: why.to_string(), advice: None },
    }
}

/// What runs them.
fn vulkan(config: &Config) -> Finding {
    let what = "Vulkan driver".to_owned();
    match wiring::vulkan(config) {
        Ok(workshop) => {
            let detail = kernelbench::Workshop::machine(&workshop).name.clone();
            Finding { what, found: true, detail, advice: None }
        }
        Err(why) => Finding { what, found: false, detail: why.to_string(), advice: None },
    }
}

fn first_line(program: &str, arguments: &[&str]) -> Result<String, String> {
    let text = answer_within(Command::new(program).args(arguments), PATIENCE)?;
    text.lines().next().map(str::to_owned).ok_or_else(|| "says nothing".to_owned())
}
