//! How does a source in CUDA become a shared object?
//!
//! By nvcc in a private folder, confined as the system's compiler is for C++: it gets the candidate's text after a
//! declaration of the entry, and beside it a file of ours that calls the entry. What was built once under the same text,
//! flags, compiler and architecture is not built again.

use super::{cuda_unit, halves};
use crate::{
    backend::native::worker::Launch,
    build::{
        cc::{self, READABLE, private_folder},
        flags,
    },
    hash::Hash,
    result::{
        error::{Attempt, fault},
        failure::{Failure, Fault},
    },
    sandbox::{confine::Limits, enclose::Enclosure},
    task::KernelContext,
};
use std::{
    collections::HashMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, PoisonError},
};

/// How long one compilation may take, in seconds of the processor's.
const SECONDS: u64 = 240;
/// What one file of it may hold, in bytes.
const LARGEST_FILE: u64 = 256 << 20;
/// Its address space, in bytes.
const MEMORY: u64 = 16 << 30;
/// What a fault says that no file can be written.
const WRITING: &str = "cannot write what is to be built";

/// The CUDA compiler of this machine, for one architecture.
#[derive(Clone, Debug)]
pub(crate) struct Nvcc {
    program: PathBuf,
    version: String,
    arch: String,
    launch: Launch,
    cache: PathBuf,
    /// By flags, the script of nvcc's steps in a folder, where they are known.
    scripts: Arc<Mutex<HashMap<Vec<String>, Option<String>>>>,
}

/// What stands for the folder in such a script.
const FOLDER: &str = "@folder@";

/// Where nvcc is: what `NVCC` names, else in `CUDA_HOME` or `CUDA_PATH`, else on the `PATH`, else where its installer puts
/// it.
#[must_use]
pub fn find() -> Option<PathBuf> {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(named) = given("NVCC") {
        return Some(named);
    }
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(given).map(|home| home.join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = homes.chain(std::env::split_paths(&path)).chain(["/usr/local/cuda/bin".into()]);
    folders.map(|folder| folder.join("nvcc")).find(|program| program.is_file())
}

/// What nvcc says of its version: `release 13.0, V13.0.88`.
///
/// # Errors
/// In words, where it cannot be started.
pub fn version(program: &Path) -> Result<String, String> {
    let output = Command::new(program).arg("--version").env_clear().env("PATH", path()).output();
    let output = output.map_err(|e| format!("{} cannot be started: {e}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("release")).or(text.lines().next());
    line.map(str::to_owned).ok_or_else(|| format!("{} says nothing of its version", program.display()))
}

fn path() -> std::ffi::OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}

impl Nvcc {
    /// nvcc for a GPU of this compute capability, with a cache of builds in this folder.
    pub(crate) fn new(launch: Launch, cache: PathBuf, capability: &str) -> Result<Self, Fault> {
        let program = find().ok_or_else(|| {
            Fault(
                "there is no nvcc, which builds kernels in CUDA: install the CUDA toolkit, or name one in NVCC or \
                 CUDA_HOME"
                    .to_owned(),
            )
        })?;
        let program = program.canonicalize().unwrap_or(program);
        let version = version(&program).map_err(Fault)?;
        Ok(Self { program, version, arch: architecture(capability), launch, cache, scripts: Arc::default() })
    }

    /// What it says of its version.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Builds a source, or finds it built, and returns its shared object.
    pub(crate) fn build(&self, context: &KernelContext, source: &str) -> Attempt<PathBuf> {
        let flags = Self::flags(context)?;
        let texts = [cuda_unit::candidate(context, source), cuda_unit::caller(context), flags.join("\n")];
        let headers = context.include.iter().flat_map(|(path, text)| [path, text]);
        let parts: Vec<&str> = texts.iter().chain(headers).map(String::as_str).collect();
        self.cached(&parts, "so", |folder| self.compile_side_by_side(context, source, folder))
    }

    /// As `compile`, with the steps of nvcc that need not wait for one another side by side. Where that comes to nothing, nvcc
    /// does it alone, and says why not if it cannot either.
    fn compile_side_by_side(&self, context: &KernelContext, source: &str, folder: &Path) -> Attempt<PathBuf> {
        cuda_unit::lay(context, source, folder)?;
        let Some(script) = self.script(Self::flags(context)?, folder)? else {
            return self.compile(context, source, folder);
        };
        fs::write(folder.join("build.sh"), script).map_err(fault(WRITING))?;
        let mut shell = self.enclosed(folder, "sh".as_ref());
        if cc::run(shell.arg("build.sh"), folder)?.is_some() {
            return self.compile(context, source, folder);
        }
        self.link(context, folder)
    }

    /// The steps of nvcc for these flags, as a script for this folder.
    fn script(&self, flags: Vec<String>, folder: &Path) -> Attempt<Option<String>> {
        let here = folder.display().to_string();
        let scripts = || self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = scripts().get(&flags).cloned();
        let script = known.map_or_else(|| self.told(&flags, folder), Ok)?;
        scripts().insert(flags, script.clone());
        Ok(script.map(|script| script.replace(FOLDER, &here)))
    }

    /// The same, as nvcc tells them, with a word in the folder's place.
    fn told(&self, flags: &[String], folder: &Path) -> Attempt<Option<String>> {
        let mut command = self.compiler(folder, flags);
        let refused = cc::run(command.args(["--dryrun", "--keep"]), folder)?;
        let told = fs::read_to_string(folder.join("log")).unwrap_or_default();
        let script = refused.is_none().then(|| halves::script(&told)).flatten();
        Ok(script.map(|script| script.replace(&folder.display().to_string(), FOLDER)))
    }

    /// Builds a source in a folder of the caller's, whatever the cache holds.
    pub(crate) fn compile(&self, context: &KernelContext, source: &str, folder: &Path) -> Attempt<PathBuf> {
        cuda_unit::lay(context, source, folder)?;
        if let Some(log) = cc::run(&mut self.compiler(folder, &Self::flags(context)?), folder)? {
            return Err(blame(&context.entry, log).into());
        }
        self.link(context, folder)
    }

    /// nvcc, with what makes an object of the candidate's text.
    fn compiler(&self, folder: &Path, flags: &[String]) -> Command {
        let mut command = self.command(folder);
        command.args(flags).args(["-c", "-Xcompiler=-fPIC", "-o", "candidate.o", cuda_unit::FILE]);
        command
    }

    fn link(&self, context: &KernelContext, folder: &Path) -> Attempt<PathBuf> {
        let caller = self.caller(context)?;
        fs::copy(&caller, folder.join("caller.o")).map_err(fault(WRITING))?;
        match cc::run(&mut self.linker(folder), folder)? {
            None => Ok(folder.join("kernel.so")),
            Some(log) => Err(blame(&context.entry, log).into()),
        }
    }

    /// What calls the entry, compiled once for all candidates of a task.
    fn caller(&self, context: &KernelContext) -> Attempt<PathBuf> {
        let text = cuda_unit::caller(context);
        self.cached(&[&text], "o", |folder| {
            fs::write(folder.join(cuda_unit::CALLER), &text).map_err(fault(WRITING))?;
            let mut command = self.enclosed(folder, "g++".as_ref());
            command.args(["-O2", "-fPIC", "-c", "-o", "caller.o", cuda_unit::CALLER]);
            match cc::run(&mut command, folder)? {
                None => Ok(folder.join("caller.o")),
                Some(log) => Err(Fault(format!("the call of the entry does not compile here:\n{log}")).into()),
            }
        })
    }

    /// The host's own linker, which is quicker than nvcc's steps around it; nvcc where the runtime's library is not found.
    fn linker(&self, folder: &Path) -> Command {
        let libraries = self.home().into_iter().flat_map(|home| [home.join("lib64"), home.join("lib")]);
        let runtime = libraries.map(|folder| folder.join("libcudart_static.a")).find(|library| library.is_file());
        let mut command = match &runtime {
            Some(_) => self.enclosed(folder, "g++".as_ref()),
            None => self.command(folder),
        };
        let own = if runtime.is_some() { ["-Wl,-zdefs", "-Wl,-znow"] } else { ["-Xlinker=-zdefs", "-Xlinker=-znow"] };
        command.arg("-shared").args(own).args(["-o", "kernel.so", "candidate.o", "caller.o"]);
        if let Some(library) = runtime {
            command.arg(library).args(["-ldl", "-lrt", "-lpthread"]);
        }
        command
    }

    /// Builds the trusted side's kernels, or finds them built, and returns their image.
    pub(crate) fn image(&self, source: &str) -> Attempt<Vec<u8>> {
        let built = self.cached(&[source], "cubin", |folder| {
            fs::write(folder.join("judge.cu"), source).map_err(fault("cannot write the judge's kernels"))?;
            let mut command = self.command(folder);
            command.args(["-std=c++17", "-O3", "-cubin", "-o", "judge.cubin", "judge.cu"]);
            match cc::run(&mut command, folder)? {
                None => Ok(folder.join("judge.cubin")),
                Some(log) => {
                    Err(Fault(format!("the workshop's own kernels do not build with this nvcc:\n{log}")).into())
                }
            }
        })?;
        Ok(fs::read(&built).map_err(fault(format_args!("cannot read {}", built.display())))?)
    }

    /// The command that builds, for people.
    pub(crate) fn command_line(&self, context: &KernelContext) -> Result<String, Fault> {
        let flags = Self::flags(context)?.join(" ");
        Ok(format!("nvcc -arch=sm_{} {flags} -shared ({})", self.arch, self.version))
    }

    fn flags(context: &KernelContext) -> Result<Vec<String>, Fault> {
        // A task from a run's folder has not been through the reader of task files.
        if let Some(flag) = context.flags.iter().find(|flag| !flags::is_harmless_in_cuda(flag)) {
            return Err(Fault(format!("flag `{flag}` is not allowed in a task: {}", flags::CUDA_EXPECTED)));
        }
        let mut flags = context.flags.clone();
        if !flags.iter().any(|flag| flag.starts_with("-std=")) {
            flags.insert(0, "-std=c++17".to_owned());
        }
        if !context.include.is_empty() {
            flags.push(format!("-I{}", cuda_unit::INCLUDE));
        }
        Ok(flags)
    }

    fn cached(
        &self,
        texts: &[&str],
        ending: &str,
        compile: impl FnOnce(&Path) -> Attempt<PathBuf>,
    ) -> Attempt<PathBuf> {
        let parts = texts.iter().copied().chain([self.version.as_str(), self.arch.as_str()]);
        let key =
            Hash::of(parts.map(|part| format!("{}\n{part}\n", part.len())).collect::<Vec<_>>().concat().as_bytes());
        let kept = self.cache.join(format!("{key}.{ending}"));
        if kept.is_file() {
            return Ok(kept);
        }
        fs::create_dir_all(&self.cache).map_err(fault(format_args!("cannot make {}", self.cache.display())))?;
        let folder = private_folder(&self.cache)?;
        let built = compile(folder.path())?;
        fs::rename(&built, &kept).map_err(fault(format_args!("cannot write {}", kept.display())))?;
        Ok(kept)
    }

    /// nvcc for this architecture and no other, ready to be run in a folder.
    fn command(&self, folder: &Path) -> Command {
        let mut command = self.enclosed(folder, self.program.as_os_str());
        command.arg("--threads=2").arg(format!("-gencode=arch=compute_{0},code=sm_{0}", self.arch));
        command
    }

    /// A tool that reads the system's files, the toolkit's and those of a folder, and writes there alone.
    fn enclosed(&self, folder: &Path, tool: &OsStr) -> Command {
        let mut read: Vec<PathBuf> = READABLE.iter().map(PathBuf::from).collect();
        read.extend(self.home().map(Path::to_owned));
        let limits = Limits {
            address_space: Some(MEMORY),
            cpu_seconds: SECONDS,
            file_bytes: LARGEST_FILE,
            processes: true,
            files: 256,
        };
        let write = vec![folder.to_owned(), "/dev/null".into()];
        let mut command = Enclosure { read, write, nobody: false, limits }.command(&self.launch, tool);
        command.current_dir(folder).env("TMPDIR", folder);
        command
    }

    /// Its toolkit's folder.
    fn home(&self) -> Option<&Path> {
        self.program.parent()?.parent()
    }
}

/// The architecture that is compiled for, such as `90a`: from 9.0 on with what only that very one has.
fn architecture(capability: &str) -> String {
    let own = capability.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 9);
    capability.replace('.', "") + if own { "a" } else { "" }
}

/// Whether the text does not compile, or is not what was asked for: another signature, or not what the binding needs.
fn blame(entry: &str, log: String) -> Failure {
    let first = log.lines().find(|line| line.contains("error: ") || line.contains(" error "));
    let bound = first.is_some_and(|line| line.starts_with(cuda_unit::BINDING));
    let other = |line: &str| {
        let said = ["incompatible with previous", "undefined reference", "has \"C\" linkage", "undefined symbol"];
        line.contains(entry) && said.iter().any(|said| line.contains(said))
    };
    if bound || log.lines().any(other) { Failure::Interface { log } } else { Failure::Build { log } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_hopper_on_the_architecture_s_own_instructions_are_allowed() {
        assert_eq!((architecture("9.0"), architecture("8.9")), ("90a".to_owned(), "89".to_owned()));
        assert_eq!(architecture("10.0"), "100a");
    }

    #[test]
    fn a_candidate_that_lacks_what_the_binding_needs_has_another_interface() {
        let interface = |log: &str| matches!(blame("go", log.to_owned()), Failure::Interface { .. });
        assert!(interface("binding.cu(3): error: name \"K\" is undefined\n"));
        assert!(!interface(
            "candidate.cu(9): error: expected a \";\"\nbinding.cu(3): error: name \"K\" is undefined\n"
        ));
        assert!(!interface("candidate.cu(9): warning: x\ncandidate.cu(10): error: y\n"));
        assert!(interface("ld: candidate.o: undefined reference to `go'\n"));
    }
}
