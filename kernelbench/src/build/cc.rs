//! How does a source become a shared object?
//!
//! By the system's compiler in a private folder that holds the candidate's text and nothing else, without our environment,
//! under limits and a deadline. What was built once under the same text, flags and compiler is not built again.

use super::unit;
use crate::{
    backend::native::worker::Launch,
    build::flags,
    hash::Hash,
    result::{
        error::{Attempt, fault},
        failure::{Failure, Fault},
    },
    sandbox::{confine::Limits, enclose::Enclosure},
    task::{KernelContext, Language},
};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

/// How long one compilation may take.
const DEADLINE: Duration = Duration::from_mins(1);
/// What one file of it may hold, in bytes.
const LARGEST_FILE: u64 = 256 << 20;
/// Its address space, in bytes.
const MEMORY: u64 = 8 << 30;
/// Lines of the compiler's messages that are kept.
const LOG_LINES: usize = 150;

/// What a compiler reads beside the system's libraries.
pub(crate) const READABLE: [&str; 5] = ["/usr", "/bin", "/sbin", "/etc/alternatives", "/proc/cpuinfo"];

/// The system's compilers and the builds they have made.
#[derive(Debug)]
pub(crate) struct Compiler {
    launch: Launch,
    cache: PathBuf,
    machine: String,
    known: Mutex<BTreeMap<&'static str, Toolchain>>,
}

/// One compiler, as found on this machine.
#[derive(Clone, Debug)]
struct Toolchain {
    program: OsString,
    version: String,
    knows_native: bool,
}

impl Compiler {
    /// The compilers of this machine, with a cache of builds in this folder.
    pub(crate) fn new(launch: Launch, cache: PathBuf, machine: String) -> Self {
        Self { launch, cache, machine, known: Mutex::default() }
    }

    /// Builds a source, or finds it built, and returns its shared object.
    pub(crate) fn build(&self, context: &KernelContext, source: &str) -> Attempt<PathBuf> {
        let recipe = self.recipe(context)?;
        let key = self.key(context, source, &recipe);
        let object = self.cache.join(format!("{key}.so"));
        if object.is_file() {
            return Ok(object);
        }
        fs::create_dir_all(&self.cache).map_err(fault(format_args!("cannot make {}", self.cache.display())))?;
        let folder = private_folder(&self.cache)?;
        let built = compile(&recipe, context, source, folder.path())?;
        fs::rename(&built, &object).map_err(fault(format_args!("cannot write {}", object.display())))?;
        Ok(object)
    }

    /// Builds a source in a folder of the caller's, whatever the cache holds.
    pub(crate) fn build_anew(&self, context: &KernelContext, source: &str, folder: &Path) -> Attempt<PathBuf> {
        compile(&self.recipe(context)?, context, source, folder)
    }

    /// The command that builds, for people.
    pub(crate) fn command_line(&self, context: &KernelContext) -> Result<String, Fault> {
        let recipe = self.recipe(context)?;
        let program = recipe.toolchain.program.to_string_lossy();
        Ok(format!("{program} {} ({})", recipe.flags.join(" "), recipe.toolchain.version))
    }

    /// What compiles this context, and how.
    pub(crate) fn recipe(&self, context: &KernelContext) -> Result<Recipe, Fault> {
        let toolchain = self.toolchain(context.language)?;
        let standard = match context.language {
            Language::C => "-std=c11",
            Language::Cpp => "-std=c++17",
            Language::Cuda | Language::Python => return Err(no_compiler()),
        };
        // A task from a run's folder has not been through the reader of task files.
        if let Some(flag) = context.flags.iter().find(|flag| !flags::is_harmless(flag)) {
            return Err(Fault(format!("compiler flag `{flag}` is not allowed in a task: {}", flags::EXPECTED)));
        }
        let mut flags = [&[standard.to_owned()], &context.flags[..]].concat();
        flags.retain(|f| toolchain.knows_native || f != "-march=native");
        Ok(Recipe { launch: self.launch.clone(), toolchain, flags })
    }

    fn key(&self, context: &KernelContext, source: &str, recipe: &Recipe) -> Hash {
        let unit = unit::candidate(context, source);
        let parts = [&unit, &unit::caller(context), &recipe.flags.join("\n"), &recipe.toolchain.version, &self.machine];
        Hash::of(parts.map(|part| format!("{}\n{part}\n", part.len())).concat().as_bytes())
    }

    fn toolchain(&self, language: Language) -> Result<Toolchain, Fault> {
        let (variable, default) = match language {
            Language::C => ("CC", "gcc"),
            Language::Cpp => ("CXX", "g++"),
            Language::Cuda | Language::Python => return Err(no_compiler()),
        };
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(toolchain) = known.get(default) {
            return Ok(toolchain.clone());
        }
        let program = std::env::var_os(variable).filter(|v| !v.is_empty()).unwrap_or_else(|| default.into());
        let version = version(&program).ok_or_else(|| missing(&program, variable))?;
        let toolchain = Toolchain { knows_native: knows_native(&program), program, version };
        known.insert(default, toolchain.clone());
        Ok(toolchain)
    }
}

/// A compiler and the flags for one context.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    launch: Launch,
    toolchain: Toolchain,
    pub(crate) flags: Vec<String>,
}

impl Recipe {
    /// The compiler, ready to be run in a folder: it reads the system's files and that folder, and writes there alone.
    pub(crate) fn command(&self, folder: &Path) -> Command {
        let program = &self.toolchain.program;
        let mut read: Vec<PathBuf> = READABLE.iter().map(PathBuf::from).collect();
        read.extend(home_of(program));
        let limits = Limits {
            address_space: Some(MEMORY),
            cpu_seconds: DEADLINE.as_secs(),
            file_bytes: LARGEST_FILE,
            processes: true,
            files: 256,
        };
        let write = vec![folder.to_owned(), "/dev/null".into()];
        let mut command = Enclosure { read, write, nobody: false, limits }.command(&self.launch, program);
        command.current_dir(folder).env("TMPDIR", folder).args(&self.flags);
        command
    }
}

/// Where a compiler that is not the system's own lies with its headers: two folders up.
fn home_of(program: &OsString) -> Option<PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&search).map(|folder| folder.join(program)).filter(|path| path.is_file());
    places.next()?.canonicalize().ok()?.parent()?.parent().map(Path::to_owned)
}

/// A folder that goes away with its handle, readable by this user alone.
pub(crate) fn private_folder(parent: &Path) -> Result<tempfile::TempDir, Fault> {
    tempfile::Builder::new().prefix("build-").tempdir_in(parent).map_err(fault("cannot make a folder to build in"))
}

fn compile(recipe: &Recipe, context: &KernelContext, source: &str, folder: &Path) -> Attempt<PathBuf> {
    let ending = unit::ending(context.language);
    let names = [format!("unit.{ending}"), format!("caller.{ending}")];
    let texts = [unit::candidate(context, source), unit::caller(context)];
    for (name, text) in names.iter().zip(&texts) {
        fs::write(folder.join(name), text).map_err(fault("cannot write the source to be built"))?;
    }
    let mut command = recipe.command(folder);
    command.args(["-shared", "-fPIC", "-Wl,-z,defs", "-Wl,-z,now", "-o", "kernel.so"]).args(&names).arg("-lm");
    let log = run(&mut command, folder)?;
    match log {
        None => Ok(folder.join("kernel.so")),
        Some(log) => Err(blame(&context.entry, log).into()),
    }
}

/// Runs a compiler to its end; its messages where it failed.
pub(crate) fn run(command: &mut Command, folder: &Path) -> Attempt<Option<String>> {
    let path = folder.join("log");
    let log = File::create(&path).map_err(fault("cannot write the compiler's log"))?;
    let copy = log.try_clone().map_err(fault("cannot write the compiler's log"))?;
    command.stdin(Stdio::null()).stdout(copy).stderr(log);
    let mut child = command.spawn().map_err(fault("cannot start the compiler"))?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(fault("cannot wait for the compiler"))? {
            break Some(status);
        }
        if start.elapsed() > DEADLINE {
            crate::sandbox::process::Process::of(&child).end().map_err(fault("cannot end the compiler"))?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    if status.is_some_and(|s| s.success()) {
        return Ok(None);
    }
    let mut text = last_lines(&path);
    if status.is_none() {
        text += "\nthe compiler did not end within its deadline";
    }
    Ok(Some(text))
}

fn last_lines(path: &Path) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let mut bytes = vec![];
    if let Ok(mut file) = File::open(path) {
        let length = file.metadata().map_or(0, |m| m.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(64 << 10)));
        let _ = file.take(64 << 10).read_to_end(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

/// Whether the text does not compile, or is not what was asked for.
fn blame(entry: &str, log: String) -> Failure {
    let names_entry = |line: &str| line.contains(entry);
    let differs = |line: &str| {
        ["conflicting declaration", "conflicting types for", "ambiguating new declaration"]
            .iter()
            .any(|m| line.contains(m))
    };
    let missing = |line: &str| line.contains("undefined reference");
    if log.lines().any(|line| names_entry(line) && (differs(line) || missing(line))) {
        Failure::Interface { log }
    } else {
        Failure::Build { log }
    }
}

fn bare(program: &OsString) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C").process_group(0);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()));
    command
}

fn version(program: &OsString) -> Option<String> {
    let output = bare(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
}

fn knows_native(program: &OsString) -> bool {
    let mut command = bare(program);
    command.args(["-march=native", "-x", "c", "-E", "/dev/null"]).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

fn missing(program: &OsString, variable: &str) -> Fault {
    let program = program.to_string_lossy();
    Fault(format!(
        "there is no working compiler `{program}`: install one (Debian: apt install g++), or name another in {variable}"
    ))
}

fn no_compiler() -> Fault {
    Fault("this workshop builds C and C++ alone: a kernel context in CUDA or Python cannot be built".to_owned())
}
