//! nvcc, and the shared objects that it makes of kernels in CUDA.

mod cutlass;
mod libraries;

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
    task::{KernelContext, library, load},
};
use metrics::Arch;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

pub(crate) use cutlass::Cutlass;
pub(crate) use libraries::Libraries;
pub use libraries::is_here;

/// What one compilation may take.
const ALLOWED: Allowed = Allowed { memory: 16 << 30, deadline: Duration::from_mins(4) };
/// Takes nvcc's steps for the host and for the device side by side; the harness for problems uses the same.
pub(crate) const HALVES: &str = include_str!("../../harness/nvcc_halves.sh");
/// For the host's compiler: what is static in an inline function or a template is an object's own, whatever others a process
/// has loaded.
const HOST: &str = "-Xcompiler=-fPIC,-fno-gnu-unique";
/// For a text that names nothing of C++'s library: without the special functions that <cmath> brings along since C++17, whose
/// header takes a third of the time that a plain kernel's compilation takes. Where a header wants them all the same, nothing is
/// built, and nvcc does it alone, with them.
const WITHOUT_SPECIAL_FUNCTIONS: &str = "-D_GLIBCXX_BITS_SPECFUN_H=1";
/// What such a text does not hold: names of the library, and of the macros by which it says what it has.
const OF_THE_LIBRARY: [&str; 5] = ["std::", "namespace std", "__cpp_lib", "_GLIBCXX", "_STL_"];
/// The candidate's file.
const FILE: &str = "candidate.cu";
/// Ours.
const CALLER: &str = "caller.cpp";
/// The folder of the task's headers, beside the candidate.
const INCLUDE: &str = "include";

/// The CUDA compiler of this machine, for one architecture.
pub(crate) struct Nvcc {
    program: PathBuf,
    version: String,
    arch: Arch,
    /// What candidates may include beside the toolkit's headers.
    cutlass: Option<Cutlass>,
    sandbox: Arc<Sandbox>,
    cache: Cache,
    allowed: Allowed,
}

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
    let text = compiler::ask(Command::new(program).arg("--version").env_clear().env("PATH", search_path()));
    let text = text.ok_or_else(|| format!("{} cannot be started, or fails or hangs when asked", program.display()))?;
    let line = text.lines().find(|line| line.contains("release")).or(text.lines().next());
    line.map(str::to_owned).ok_or_else(|| format!("{} says nothing of its version", program.display()))
}

impl Nvcc {
    /// nvcc for a GPU of this architecture, with a cache of builds in this folder, and with a deadline of its own where one is
    /// given.
    pub(crate) fn new(
        sandbox: Arc<Sandbox>,
        cache: PathBuf,
        arch: Arch,
        deadline: Option<Duration>,
    ) -> Result<Self, Fault> {
        let program = find().ok_or_else(|| {
            let why = "there is no nvcc, which builds kernels in CUDA: install the CUDA toolkit, or name one in NVCC or \
                       CUDA_HOME";
            Fault::Absent(why.to_owned())
        })?;
        let program = program.canonicalize().unwrap_or(program);
        let version = version(&program).map_err(Fault::Absent)?;
        let (cache, allowed, cutlass) = (Cache::new(cache), ALLOWED.within(deadline), Cutlass::named()?);
        Ok(Self { program, version, arch, cutlass, sandbox, cache, allowed })
    }

    /// What it says of its version.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// CUTLASS's headers, where candidates may include them.
    pub(crate) fn cutlass(&self) -> Option<&Cutlass> {
        self.cutlass.as_ref()
    }

    /// Builds a source, or finds it built, and returns its shared object. What may not use a library is looked at before it is
    /// linked.
    pub(crate) fn build(&self, context: &KernelContext, source: &str, libraries: &Libraries<'_>) -> Attempt<PathBuf> {
        let flags = Self::flags(context)?;
        let texts = [unit::candidate(context, source), unit::caller(context), flags.join("\n")];
        let headers = context.include.iter().flat_map(|(path, text)| [path, text]);
        let about = libraries.told();
        let cutlass = self.cutlass.as_ref().map(Cutlass::told);
        let parts = texts.iter().chain(headers).chain(&about).chain(&cutlass).map(String::as_str);
        let parts: Vec<&str> = parts.chain([HOST]).collect();
        self.cached(&parts, "so", |folder| self.build_in_halves(context, source, libraries, folder))
    }

    /// As `build_anew`, with the steps of nvcc that need not wait for one another side by side. Where that comes to nothing,
    /// nvcc does it alone, and says why not if it cannot either.
    fn build_in_halves(
        &self,
        context: &KernelContext,
        source: &str,
        libraries: &Libraries<'_>,
        folder: &Path,
    ) -> Attempt<PathBuf> {
        lay(context, source, folder)?;
        compiler::write(folder, "halves.sh", HALVES)?;
        let mut shell = self.confined(folder, "sh")?;
        shell.arg("halves.sh").arg(&self.program);
        if !names_the_library(source) {
            shell.arg(WITHOUT_SPECIAL_FUNCTIONS);
        }
        self.compiling(&mut shell, &Self::flags(context)?);
        if compiler::run(&mut shell, folder, self.allowed.deadline)?.is_some() {
            return self.build_anew(context, source, libraries, folder);
        }
        self.link(context, libraries, folder)
    }

    /// Builds a source in a folder of the caller's, whatever the cache holds.
    pub(crate) fn build_anew(
        &self,
        context: &KernelContext,
        source: &str,
        libraries: &Libraries<'_>,
        folder: &Path,
    ) -> Attempt<PathBuf> {
        lay(context, source, folder)?;
        let mut command = self.command(folder)?;
        self.compiling(&mut command, &Self::flags(context)?);
        if let Some(log) = compiler::run(&mut command, folder, self.allowed.deadline)? {
            return Err(blame(&context.entry, log).into());
        }
        self.link(context, libraries, folder)
    }

    /// The arguments that make an object of the candidate's text, for this architecture and no other.
    fn compiling(&self, command: &mut Command, flags: &[String]) {
        command.arg("--threads=2").arg(self.gencode()).args(flags);
        if let Some(cutlass) = &self.cutlass {
            command.arg("--expt-relaxed-constexpr").arg("-I").arg(&cutlass.include);
        }
        command.args(["-c", HOST, "-o", "candidate.o", FILE]);
    }

    fn gencode(&self) -> String {
        let (compute, sm) = (self.arch.virtual_target(), self.arch.target());
        format!("-gencode=arch={compute},code={sm}")
    }

    /// CUDA's runtime, linked into every object, looks the driver's functions up itself: what a candidate calls is seen before.
    fn link(&self, context: &KernelContext, libraries: &Libraries<'_>, folder: &Path) -> Attempt<PathBuf> {
        if !libraries.forbidden.is_empty() {
            let object = fs::read(folder.join("candidate.o")).map_err(fault("cannot read a build"))?;
            library::refuse(libraries.forbidden, |library| library.in_object(&object))?;
        }
        let caller = self.caller(context)?;
        fs::copy(&caller, folder.join("caller.o")).map_err(fault("cannot write what is to be built"))?;
        match compiler::run(&mut self.linker(libraries, folder)?, folder, self.allowed.deadline)? {
            None => Ok(folder.join("kernel.so")),
            Some(log) => Err(blame(&context.entry, log).into()),
        }
    }

    /// What calls the entry, compiled once for all candidates of a task.
    fn caller(&self, context: &KernelContext) -> Attempt<PathBuf> {
        let text = unit::caller(context);
        self.cached(&[&text], "o", |folder| {
            compiler::write(folder, CALLER, &text)?;
            let mut command = self.confined(folder, "g++")?;
            command.args(["-O2", "-fPIC", "-c", "-o", "caller.o", CALLER]);
            match compiler::run(&mut command, folder, self.allowed.deadline)? {
                None => Ok(folder.join("caller.o")),
                Some(log) => Err(Fault::Machine(format!("the call of the entry does not compile here:\n{log}")).into()),
            }
        })
    }

    /// The host's own linker, which is quicker than nvcc's steps around it; nvcc where the runtime's library is not found.
    fn linker(&self, libraries: &Libraries<'_>, folder: &Path) -> Result<Command, Fault> {
        let places = self.library_folders();
        let runtime = places.iter().map(|place| place.join("libcudart_static.a")).find(|library| library.is_file());
        let mut command = match &runtime {
            Some(_) => self.confined(folder, "g++")?,
            None => self.command(folder)?,
        };
        let own = if runtime.is_some() { ["-Wl,-zdefs", "-Wl,-znow"] } else { ["-Xlinker=-zdefs", "-Xlinker=-znow"] };
        command.arg("-shared").args(own).args(["-o", "kernel.so", "candidate.o", "caller.o"]);
        if let Some(library) = runtime {
            command.arg(library).args(["-ldl", "-lrt", "-lpthread"]);
        }
        command.args(libraries.arguments(&places));
        Ok(command)
    }

    /// Where its toolkit's libraries lie, and cuDNN's.
    pub(crate) fn library_folders(&self) -> Vec<PathBuf> {
        libraries::folders(self.home())
    }

    /// Builds the trusted side's kernels, or finds them built, and returns their image. Of the sources, each with its name,
    /// `verifier.cu` is compiled, and it may include the others.
    pub(crate) fn image(&self, sources: &[(&str, &str)]) -> Attempt<Vec<u8>> {
        let texts: Vec<&str> = sources.iter().map(|(_, text)| *text).collect();
        let built = self.cached(&texts, "cubin", |folder| {
            for (name, text) in sources {
                compiler::write(folder, name, text)?;
            }
            let mut command = self.command(folder)?;
            command.arg(self.gencode()).args(["-std=c++17", "-O3", "-cubin", "-o", "verifier.cubin", "verifier.cu"]);
            match compiler::run(&mut command, folder, self.allowed.deadline)? {
                None => Ok(folder.join("verifier.cubin")),
                Some(log) => {
                    let why = format!("the workshop's own kernels do not build with this nvcc:\n{log}");
                    Err(Fault::Machine(why).into())
                }
            }
        })?;
        Ok(fs::read(&built).map_err(fault(format_args!("cannot read {}", built.display())))?)
    }

    /// The command that builds, for people.
    pub(crate) fn command_line(&self, context: &KernelContext) -> Result<String, Fault> {
        let flags = Self::flags(context)?.join(" ");
        Ok(format!("nvcc -arch={} {flags} -shared ({})", self.arch.target(), self.version))
    }

    fn flags(context: &KernelContext) -> Result<Vec<String>, Fault> {
        // A task from a run's folder has not been through the reader of task files.
        if let Some(flag) = context.flags.iter().find(|flag| !flags::is_harmless_in_cuda(flag)) {
            return Err(Fault::Machine(format!("flag `{flag}` is not allowed in a task: {}", flags::CUDA_EXPECTED)));
        }
        let mut flags = context.flags.clone();
        if !flags.iter().any(|flag| flag.starts_with("-std=")) {
            flags.insert(0, "-std=c++17".to_owned());
        }
        if !context.include.is_empty() {
            flags.push(format!("-I{INCLUDE}"));
        }
        Ok(flags)
    }

    fn cached(&self, texts: &[&str], ending: &str, make: impl FnOnce(&Path) -> Attempt<PathBuf>) -> Attempt<PathBuf> {
        let sm = self.arch.target();
        let parts: Vec<&str> = texts.iter().copied().chain([self.version.as_str(), &sm]).collect();
        self.cache.get_or_make(&parts, ending, make)
    }

    /// nvcc, ready to be run in a folder.
    fn command(&self, folder: &Path) -> Result<Command, Fault> {
        self.confined(folder, &self.program.to_string_lossy())
    }

    /// A tool that reads the system's files, the toolkit's, its libraries' and those of a folder, and writes there alone.
    fn confined(&self, folder: &Path, tool: &str) -> Result<Command, Fault> {
        let headers = self.cutlass.as_ref().map(|cutlass| cutlass.include.clone());
        let homes: Vec<PathBuf> =
            self.home().map(Path::to_owned).into_iter().chain(self.library_folders()).chain(headers).collect();
        compiler::command(&self.sandbox, tool, folder, &homes, self.allowed)
    }

    /// Its toolkit's folder.
    fn home(&self) -> Option<&Path> {
        self.program.parent()?.parent()
    }
}

/// Whether a text may mean C++'s library.
fn names_the_library(source: &str) -> bool {
    OF_THE_LIBRARY.iter().any(|name| source.contains(name))
}

/// Lays the candidate's translation unit and the task's headers into a folder.
fn lay(context: &KernelContext, source: &str, folder: &Path) -> Result<(), Fault> {
    const WRITING: &str = "cannot write what is to be built";
    compiler::write(folder, FILE, &unit::candidate(context, source))?;
    for (path, text) in &context.include {
        if !load::stays(path) {
            let why = format!("`{path}` is no path of a header: expected one inside the task's folder");
            return Err(Fault::Machine(why));
        }
        let file = folder.join(INCLUDE).join(path);
        fs::create_dir_all(file.parent().unwrap_or(folder)).map_err(fault(WRITING))?;
        fs::write(file, text).map_err(fault(WRITING))?;
    }
    Ok(())
}

/// Whether the text does not compile, or is not what was asked for: another signature, or not what the binding needs.
fn blame(entry: &str, log: String) -> Failure {
    let first = log.lines().find(|line| line.contains("error: ") || line.contains(" error "));
    let bound = first.is_some_and(|line| line.starts_with(unit::BINDING));
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
    fn a_candidate_that_lacks_what_the_binding_needs_has_another_interface() {
        let interface = |log: &str| matches!(blame("go", log.to_owned()), Failure::Interface { .. });
        assert!(interface("binding.cu(3): error: name \"K\" is undefined\n"));
        assert!(!interface(
            "candidate.cu(9): error: expected a \";\"\nbinding.cu(3): error: name \"K\" is undefined\n"
        ));
        assert!(!interface("candidate.cu(9): warning: x\ncandidate.cu(10): error: y\n"));
        assert!(interface("ld: candidate.o: undefined reference to `go'\n"));
    }

    /// A program with nvcc's name that says these steps, and what the script makes of it.
    fn halves(steps: &str) -> Option<i32> {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("steps"), steps).expect("a file");
        fs::write(folder.path().join("halves.sh"), HALVES).expect("a file");
        let mut command = Command::new("sh");
        command.args(["halves.sh", "sh", "-c", "cat steps", "nvcc"]).current_dir(folder.path());
        command.status().expect("a shell").code()
    }

    const STEPS: &str = r#"#$ _SPACE_= 
#$ TOP=/cuda/bin/..
#$ PATH=/usr/bin:/bin
#$ INCLUDES="-I/cuda/include"  
#$ true -E -x c++ "candidate.cu" -o "candidate.cpp4.ii" 
#$ true -D__CUDA_ARCH__=900 -E -x c++ "candidate.cu" -o "candidate.cpp1.ii" 
#$ true cudafe++ --gen_c_file_name "candidate.cudafe1.cpp" --gen_module_id_file --module_id_file_name "candidate.module_id" 
#$ true cicc --c++17 --module_id_file_name "candidate.module_id" "candidate.cpp1.ii" -o "candidate.ptx"
#$ true ptxas -arch=sm_90a -m64  "candidate.ptx"  -o "candidate.cubin"  > /tmp/one_stdout 2>/tmp/one_stderr
#$ true fatbinary --create="candidate.fatbin" -64 --embedded-fatbin="candidate.fatbin.c" 
#$ rm candidate.fatbin
#$ true -D__CUDA_ARCH__=900 -c -x c++ -fPIC -m64 "candidate.cudafe1.cpp" -o "candidate.o" 
"#;

    #[test]
    fn the_steps_that_are_known_are_taken_and_others_are_left_to_nvcc() {
        assert_eq!(halves(STEPS), Some(0));
        assert_eq!(halves(""), Some(99));
        assert_eq!(halves(&STEPS.replace("#$ true ptxas", "#$ true nvlink\n#$ true ptxas")), Some(99));
        assert_eq!(halves(&STEPS.replace("--gen_module_id_file ", "")), Some(99));
        assert_eq!(halves(&STEPS.replace("/usr/bin:", "$(rm -r x):/usr/bin:")), Some(99));
        assert_eq!(halves(&STEPS.replace("true cicc", "false cicc")), Some(99), "a step failed");
    }

    const KERNEL: &str = "#include <cuda_fp16.h>\nnamespace { __global__ void k(float *y) { *y = expf(*y) + fmaxf(*y, 1); } }\n\
                          extern \"C\" void go(float *y) { k<<<1, 1>>>(y); }\n";

    /// The object that is made of a text in a folder, by what starts nvcc with these arguments; none where it fails.
    fn object(folder: &Path, starts: &[&str], more: &[&str], text: &str) -> Option<Vec<u8>> {
        fs::write(folder.join("candidate.cu"), text).ok()?;
        fs::write(folder.join("halves.sh"), HALVES).ok()?;
        let mut command = Command::new("env");
        command.args(starts).arg(find()?).args(["--threads=2", "-gencode=arch=compute_90a,code=sm_90a", "-std=c++17"]);
        command.args(more).args(["-c", "-Xcompiler=-fPIC", "-o", "candidate.o", "candidate.cu"]).current_dir(folder);
        command.status().ok().filter(std::process::ExitStatus::success)?;
        fs::read(folder.join("candidate.o")).ok()
    }

    #[test]
    #[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
    fn the_steps_of_nvcc_are_known_and_give_an_object() {
        let folder = tempfile::tempdir().expect("a folder");
        let object = object(folder.path(), &["sh", "halves.sh"], &[], KERNEL).expect("an object");
        let holds = |what: &[u8]| object.windows(what.len()).any(|part| part == what);
        assert!(holds(b"go\0") && holds(b"__cudaRegisterFatBinary") && holds(b".nv_fatbin"));
    }

    #[test]
    fn a_text_that_names_the_library_or_asks_what_it_has_compiles_with_all_of_it() {
        assert!(!names_the_library(KERNEL) && !names_the_library("#include <stdint.h>\nstruct standard {};\n"));
        for text in
            ["std::beta(x, y)", "using namespace std;", "#ifdef __cpp_lib_math_special_functions", "_STL_ALGOBASE_H"]
        {
            assert!(names_the_library(text), "{text}");
        }
    }

    #[test]
    #[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
    fn without_the_special_functions_an_object_is_the_same_or_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        // An object names intermediate files, which have the same names each time where they are kept.
        let with = object(folder.path(), &[], &["--keep"], KERNEL).expect("an object");
        assert!(object(folder.path(), &[], &["--keep", WITHOUT_SPECIAL_FUNCTIONS], KERNEL) == Some(with));
        let text = "#include <cmath>\nextern \"C\" double go(double x) { return std::beta(x, 2.0); }\n";
        assert!(object(folder.path(), &[], &[], text).is_some());
        assert!(object(folder.path(), &[], &[WITHOUT_SPECIAL_FUNCTIONS], text).is_none());
    }
}
