//! clang as a compiler of kernels in HIP, without `ROCm`: the assembly that it makes for an AMD GPU that is not here.
//!
//! The kernels are compiled, assembled and linked to a code object, the host's half is compiled for this machine, and nothing is
//! run. What candidates include is a header of ours over the compiler's built-ins.

use super::{
    cache::Cache,
    compiler::{self, Allowed},
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
const HEADERS: [(&str, &str); 2] = [
    ("hip_runtime.h", include_str!("../../harness/hip/hip_runtime.h")),
    ("hip_fp16.h", include_str!("../../harness/hip/hip_fp16.h")),
];
/// The candidate's file.
const FILE: &str = "candidate.hip";

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
            None => NAMES.iter().filter_map(|name| on_path(name)).collect(),
        };
        let mut older = None;
        for program in places {
            let program = program.canonicalize().unwrap_or(program);
            let Some(version) = version(&program) else { continue };
            if compiler::ask(asked(&program).arg(format!("--offload-arch={arch}")).args(PROBE)).is_none() {
                older.get_or_insert(version);
                continue;
            }
            let linker = linker(&program).ok_or_else(|| format!("{version} is here without its lld: {NEEDED}"))?;
            return Ok(Self { program, version, linker });
        }
        Err(match (older, named) {
            (Some(version), _) => format!("{version} makes no code for {arch}: {NEEDED}"),
            (None, Some(named)) => {
                format!("WARPSMITH_HIPCC names {}, which is no clang that runs: {NEEDED}", named.to_string_lossy())
            }
            (None, None) => format!("there is no clang, which compiles kernels in HIP: {NEEDED}"),
        })
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

/// clang within zig is one of its commands, and its headers lie elsewhere.
fn first(program: &Path) -> Vec<OsString> {
    match program.parent() {
        Some(folder) if is_zig(program) => {
            vec!["clang".into(), "-resource-dir".into(), folder.join("lib").into_os_string()]
        }
        _ => vec![],
    }
}

fn is_zig(program: &Path) -> bool {
    program.file_name() == Some(OsStr::new("zig"))
}

fn version(program: &Path) -> Option<String> {
    let text = compiler::ask(asked(program).arg("--version"))?;
    text.lines().find(|line| line.contains("clang version")).map(str::to_owned)
}

/// lld as it lies beside the compiler, else on the path.
fn linker(program: &Path) -> Option<PathBuf> {
    if is_zig(program) {
        return Some(program.to_owned());
    }
    let beside = program.parent().map(|folder| folder.join("ld.lld")).filter(|path| path.is_file());
    beside.or_else(|| NAMES.iter().find_map(|name| on_path(&name.replace("clang++", "ld.lld"))))
}

fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path()).map(|folder| folder.join(name)).find(|path| path.is_file())
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

    /// The command that compiles, for people.
    pub(crate) fn command_line(&self, context: &KernelContext) -> Result<String, Fault> {
        let flags = Self::flags(context)?.join(" ");
        Ok(format!("clang++ -x hip --offload-arch={} {flags} ({})", self.arch, self.clang.version))
    }

    /// Compiles both halves of a source, or finds them compiled, and returns the assembly of its kernels.
    pub(crate) fn build(&self, context: &KernelContext, source: &str) -> Attempt<PathBuf> {
        let (text, flags) = (unit::candidate(context, source), Self::flags(context)?);
        let headers = HEADERS.map(|(_, text)| text);
        let own = [&text, &flags.join("\n"), self.arch.name(), self.clang.version.as_str()];
        let parts: Vec<&str> = own.into_iter().chain(headers).collect();
        self.cache.get_or_make(&parts, "s", |folder| {
            lay(&text, folder)?;
            let both = ["-nogpuinc", "-nogpulib", "-fuse-cuid=none", "-Iinclude", "-S"];
            let host = format!("--target={}-unknown-linux-gnu", std::env::consts::ARCH);
            let target = format!("--offload-arch={}", self.arch);
            let seen_by_host = |flag: &&String| ["-std", "-D", "-U"].iter().any(|start| flag.starts_with(start));
            let of_host: Vec<String> = flags.iter().filter(seen_by_host).cloned().collect();
            let halves = [("--cuda-device-only", "kernels.s", &flags), ("--cuda-host-only", "host.s", &of_host)];
            for (half, output, flags) in halves {
                let mut command = self.command(&self.clang.program, first(&self.clang.program), folder)?;
                command.args(["-x", "hip", &host, &target, half]).args(both).args(flags).args(["-o", output, FILE]);
                self.run(&mut command, folder)?;
            }
            defined(&context.entry, folder)?;
            let mut command = self.command(&self.clang.program, first(&self.clang.program), folder)?;
            command.args(["--target=amdgcn-amd-amdhsa", &format!("-mcpu={}", self.arch)]);
            self.run(command.args(["-x", "assembler", "-c", "-o", "kernels.o", "kernels.s"]), folder)?;
            let linker = &self.clang.linker;
            let command = if is_zig(linker) { vec!["ld.lld".into()] } else { vec![] };
            let mut command = self.command(linker, command, folder)?;
            command.args(["-shared", "--no-undefined", "-o", "kernels.co", "kernels.o"]);
            self.run(&mut command, folder)?;
            Ok(folder.join("kernels.s"))
        })
    }

    fn run(&self, command: &mut Command, folder: &Path) -> Attempt<()> {
        match compiler::run(command, folder, self.allowed.deadline)? {
            None => Ok(()),
            Some(log) => Err(blame(log).into()),
        }
    }

    fn command(&self, program: &Path, arguments: Vec<OsString>, folder: &Path) -> Result<Command, Fault> {
        // zig lies in its own folder, a clang in one below it.
        let beside = program.parent();
        let home = if is_zig(program) { beside } else { beside.and_then(Path::parent) };
        let mut command = compiler::command(&self.sandbox, &program.to_string_lossy(), folder, home, self.allowed)?;
        command.args(arguments);
        Ok(command)
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

/// Whether the host's half defines the entry: nothing links it with a caller.
fn defined(entry: &str, folder: &Path) -> Attempt<()> {
    let host = fs::read(folder.join("host.s")).map_err(fault("cannot read a build"))?;
    let host = String::from_utf8_lossy(&host);
    let label = format!("{entry}:");
    if host.lines().any(|line| line.starts_with(&label)) {
        return Ok(());
    }
    Err(Failure::Interface { log: format!("the candidate does not define `{entry}` as it is declared") }.into())
}
