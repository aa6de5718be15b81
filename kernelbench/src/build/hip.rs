//! clang as a compiler of kernels in HIP, without `ROCm`: the assembly that it makes for an AMD GPU that is not here.
//!
//! The kernels are compiled, assembled and linked to a code object, the host's half is compiled for this machine, and nothing is
//! run. What candidates include is a header of ours over the compiler's built-ins.

use super::{
    cache::Cache,
    compiler::{self, Allowed, on_path},
    flags, unit,
};
use crate::{
    result::{
        error::{Attempt, fault},
        failure::{Failure, Fault},
    },
    sandbox::start::{Sandbox, search_path},
    task::{KernelContext, gfx::Gfx},
};
use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

/// What one step may take.
const ALLOWED: Allowed = Allowed { memory: 8 << 30, deadline: Duration::from_mins(2) };
/// Which package brings what is missing.
const NEEDED: &str = "install clang-19 and lld-19 (Debian: apt) for gfx90a and gfx942, clang 20 or newer for gfx950, or \
                          name one in WARPSMITH_HIPCC, such as the program zig of the wheel ziglang, which has all three";
/// The compilers that are looked for, the newest first.
const NAMES: [&str; 5] = ["clang++-22", "clang++-21", "clang++-20", "clang++-19", "clang++"];
/// What candidates include.
const HEADERS: [(&str, &str); 3] = [
    ("hip_runtime.h", include_str!("../../harness/hip/hip_runtime.h")),
    ("hip_fp16.h", include_str!("../../harness/hip/hip_fp16.h")),
    ("coordinates.h", include_str!("../../harness/hip/coordinates.h")),
];
/// The candidate's file.
const FILE: &str = "candidate.hip";
/// The assembly of its kernels.
const KERNELS: &str = "kernels.s";
/// Its half for the host, as LLVM represents it.
const HOST: &str = "host.ll";
/// The oldest clang whose code is looked at.
const OLDEST: u32 = 19;

/// A clang that makes code for AMD GPUs, and its linker.
#[derive(Clone, Debug)]
pub struct Clang {
    program: PathBuf,
    version: String,
    linker: PathBuf,
}

impl Clang {
    /// The one that `WARPSMITH_HIPCC` names, else the first of the usual names that knows this architecture.
    ///
    /// # Errors
    /// In a sentence: what is missing, and what brings it.
    pub fn find(arch: Gfx) -> Result<Self, String> {
        let named = std::env::var_os("WARPSMITH_HIPCC").filter(|value| !value.is_empty());
        let places: Vec<PathBuf> = match &named {
            Some(program) => vec![program.into()],
            None => NAMES.iter().filter_map(|name| on_path(name, &search_path())).collect(),
        };
        let mut unfit = None;
        for program in places {
            let program = program.canonicalize().unwrap_or(program);
            let Some(version) = version(&program) else { continue };
            match Self::fit(&program, &version, arch) {
                Ok(linker) => return Ok(Self { program, version, linker }),
                Err(why) => unfit = unfit.or(Some(format!("{version} {why}: {NEEDED}"))),
            }
        }
        Err(unfit.unwrap_or_else(|| match named {
            Some(named) => {
                format!("WARPSMITH_HIPCC names {}, which is no clang that runs: {NEEDED}", named.to_string_lossy())
            }
            None => format!("there is no clang, which compiles kernels in HIP: {NEEDED}"),
        }))
    }

    /// The linker of a compiler that makes code for this architecture; in words, why it is not taken.
    fn fit(program: &Path, version: &str, arch: Gfx) -> Result<PathBuf, String> {
        if major(version).is_none_or(|major| major < OLDEST) {
            return Err(format!("is older than {OLDEST}"));
        }
        if compiler::ask(asked(program).arg(format!("--offload-arch={arch}")).args(PROBE)).is_none() {
            return Err(format!("makes no code for {arch}"));
        }
        linker(program).ok_or_else(|| "is here without its lld".to_owned())
    }

    /// What it says of its version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Where it lies.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }
}

/// Asks a compiler whether it knows an architecture.
const PROBE: [&str; 8] =
    ["-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "-fsyntax-only", "-w", "/dev/null"];

fn asked(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C").env("PATH", search_path()).args(first(program));
    command
}

/// clang within zig is one of its commands, and in the wheel its headers lie beside it.
fn first(program: &Path) -> Vec<OsString> {
    if !is_zig(program) {
        return vec![];
    }
    let beside = program.parent().map(|folder| folder.join("lib")).filter(|lib| lib.join("include/stddef.h").is_file());
    let headers = beside.into_iter().flat_map(|lib| ["-resource-dir".into(), lib.into_os_string()]);
    std::iter::once("clang".into()).chain(headers).collect()
}

fn is_zig(program: &Path) -> bool {
    program.file_name() == Some(OsStr::new("zig"))
}

fn version(program: &Path) -> Option<String> {
    let text = compiler::ask(asked(program).arg("--version"))?;
    text.lines().find(|line| line.contains("clang version")).map(str::to_owned)
}

/// The first number of a version.
fn major(version: &str) -> Option<u32> {
    version.split_once("clang version ")?.1.split('.').next()?.parse().ok()
}

/// lld as it lies beside the compiler, else on the path.
fn linker(program: &Path) -> Option<PathBuf> {
    if is_zig(program) {
        return Some(program.to_owned());
    }
    let beside = program.parent().map(|folder| folder.join("ld.lld")).filter(|path| path.is_file());
    beside.or_else(|| NAMES.iter().find_map(|name| on_path(name.replace("clang++", "ld.lld"), &search_path())))
}

/// One command of a build.
#[derive(Debug)]
struct Step {
    program: PathBuf,
    arguments: Vec<OsString>,
}

/// clang for one architecture, and the assembly that it has made.
pub(crate) struct Hip {
    clang: Clang,
    arch: Gfx,
    sandbox: Arc<Sandbox>,
    cache: Cache,
    allowed: Allowed,
}

impl Hip {
    pub(crate) fn new(
        sandbox: Arc<Sandbox>,
        cache: PathBuf,
        arch: Gfx,
        deadline: Option<Duration>,
    ) -> Result<Self, Fault> {
        let clang = Clang::find(arch).map_err(Fault::Absent)?;
        Ok(Self { clang, arch, sandbox, cache: Cache::new(cache), allowed: ALLOWED.within(deadline) })
    }

    /// What the compiler says of its version.
    pub(crate) fn compiler(&self) -> &str {
        self.clang.version()
    }

    /// The command that compiles, for people.
    pub(crate) fn command_line(&self, context: &KernelContext) -> Result<String, Fault> {
        let flags = Self::flags(context)?.join(" ");
        Ok(format!("clang++ -x hip --offload-arch={} {flags} ({})", self.arch, self.clang.version))
    }

    /// Compiles both halves of a source, or finds them compiled, and returns the assembly of its kernels.
    pub(crate) fn build(&self, context: &KernelContext, source: &str) -> Attempt<PathBuf> {
        let text = unit::candidate(context, source);
        let recipe = self.recipe(&Self::flags(context)?);
        let told: Vec<String> = recipe.iter().map(|step| format!("{step:?}")).collect();
        let own = [text.as_str(), context.entry.as_str(), self.clang.version.as_str()];
        let headers = HEADERS.iter().flat_map(|(name, text)| [*name, *text]);
        let parts: Vec<&str> = own.into_iter().chain(headers).chain(told.iter().map(String::as_str)).collect();
        self.cache.get_or_make(&parts, "s", |folder| {
            lay(&text, folder)?;
            recipe.iter().try_for_each(|step| self.run(step, folder))?;
            defined(&context.entry, folder)?;
            Ok(folder.join(KERNELS))
        })
    }

    /// The commands that make a code object, and compile the host's half for this machine.
    fn recipe(&self, flags: &[String]) -> [Step; 5] {
        let clang = |arguments: &[&str], flags: &[String]| {
            let arguments = arguments.iter().map(OsString::from).chain(flags.iter().map(OsString::from));
            Step {
                program: self.clang.program.clone(),
                arguments: first(&self.clang.program).into_iter().chain(arguments).collect(),
            }
        };
        let host = format!("--target={}-unknown-linux-gnu", std::env::consts::ARCH);
        let (target, cpu) = (format!("--offload-arch={}", self.arch), format!("-mcpu={}", self.arch));
        let seen_by_host = |flag: &&String| ["-std", "-D", "-U"].iter().any(|start| flag.starts_with(start));
        let of_host: Vec<String> = flags.iter().filter(seen_by_host).cloned().collect();
        let half = |half: &[&str], flags: &[String]| {
            let both = ["-x", "hip", &host, &target, "-nogpuinc", "-nogpulib", "-fuse-cuid=none", "-Iinclude", "-S"];
            clang(&[&both, half, &[FILE]].concat(), flags)
        };
        let linker = &self.clang.linker;
        let link: &[&str] = if is_zig(linker) { &["ld.lld"] } else { &[] };
        let link = [link, &["-shared", "--no-undefined", "-o", "kernels.co", "kernels.o"]].concat();
        let device = "--target=amdgcn-amd-amdhsa";
        [
            half(&["--cuda-device-only", "-o", KERNELS], flags),
            half(&["--cuda-host-only", "-emit-llvm", "-o", HOST], &of_host),
            clang(&["-x", "ir", &host, "-w", "-c", "-o", "host.o", HOST], &[]),
            clang(&[device, &cpu, "-x", "assembler", "-c", "-o", "kernels.o", KERNELS], &[]),
            Step { program: linker.clone(), arguments: link.iter().map(OsString::from).collect() },
        ]
    }

    fn run(&self, step: &Step, folder: &Path) -> Attempt<()> {
        // zig lies in its own folder, a clang in one below it.
        let beside = step.program.parent();
        let home = if is_zig(&step.program) { beside } else { beside.and_then(Path::parent) };
        let homes: Vec<PathBuf> = home.map(Path::to_owned).into_iter().collect();
        let program = step.program.to_string_lossy();
        let mut command = compiler::command(&self.sandbox, &program, folder, &homes, self.allowed)?;
        match compiler::run(command.args(&step.arguments), folder, self.allowed.deadline)? {
            None => Ok(()),
            Some(log) => Err(blame(log).into()),
        }
    }

    /// The standard first, then the task's.
    fn flags(context: &KernelContext) -> Result<Vec<String>, Fault> {
        // A task from a run's folder has not been through the reader of task files.
        if let Some(flag) = context.flags.iter().find(|flag| !flags::is_harmless_in_hip(flag)) {
            return Err(Fault::Machine(format!("flag `{flag}` is not allowed in a task: {}", flags::EXPECTED)));
        }
        Ok(["-std=c++17".to_owned()].into_iter().chain(context.flags.iter().cloned()).collect())
    }
}

/// Lays the candidate's translation unit and our headers into a folder.
fn lay(text: &str, folder: &Path) -> Result<(), Fault> {
    compiler::write(folder, FILE, text)?;
    fs::create_dir_all(folder.join("include/hip")).map_err(fault("cannot write what is to be built"))?;
    HEADERS.iter().try_for_each(|(name, text)| compiler::write(folder, &format!("include/hip/{name}"), text))
}

/// Whether the text does not compile, or is in conflict with the declaration before it.
fn blame(log: String) -> Failure {
    let declared = log.lines().any(|line| line.starts_with("signature:"));
    if declared { Failure::Interface { log } } else { Failure::Build { log } }
}

/// Whether the host's half defines the entry: nothing links it with a caller. It is looked for where inline assembly cannot
/// write a definition.
fn defined(entry: &str, folder: &Path) -> Attempt<()> {
    let host = fs::read(folder.join(HOST)).map_err(fault("cannot read a build"))?;
    let begins = format!("{entry}(");
    let is_it = |line: &str| {
        line.strip_prefix("define ")
            .and_then(|line| line.split_once('@'))
            .is_some_and(|(_, at)| at.starts_with(&begins))
    };
    if String::from_utf8_lossy(&host).lines().any(is_it) {
        return Ok(());
    }
    Err(Failure::Interface { log: format!("the candidate does not define `{entry}` as it is declared") }.into())
}
