//! The system's compilers for C and C++, and the shared objects that they make.

use super::{
    cache::Cache,
    compiler::{self, Allowed, on_path},
    flags, hlsl,
    shaders::ShaderCompiler,
    unit,
};
use crate::{
    result::{
        error::Attempt,
        failure::{Failure, Fault},
    },
    sandbox::start::{Sandbox, search_path},
    task::{KernelContext, Language},
};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

pub(crate) use super::cache::private_folder;

/// What one compilation may take.
const ALLOWED: Allowed = Allowed { memory: 8 << 30, deadline: Duration::from_mins(1) };

/// The system's compilers and the builds they have made.
pub(crate) struct Compiler {
    sandbox: Arc<Sandbox>,
    cache: Cache,
    allowed: Allowed,
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
    /// The compilers of this machine, with a cache of builds in this folder, and with a deadline of its own where one is
    /// given.
    pub(crate) fn new(sandbox: Arc<Sandbox>, cache: PathBuf, machine: String, deadline: Option<Duration>) -> Self {
        let (cache, allowed) = (Cache::new(cache), ALLOWED.within(deadline));
        Self { sandbox, cache, allowed, machine, known: Mutex::default() }
    }

    /// How long one compilation may take.
    pub(crate) fn deadline(&self) -> Duration {
        self.allowed.deadline
    }

    /// Builds a source, or finds it built, and returns its shared object.
    pub(crate) fn build(&self, context: &KernelContext, source: &str) -> Attempt<PathBuf> {
        self.build_linked(context, source, &[])
    }

    /// The same, linked with libraries.
    pub(crate) fn build_linked(&self, context: &KernelContext, source: &str, link: &[String]) -> Attempt<PathBuf> {
        let recipe = self.recipe(context)?.linked(link);
        let [unit, caller] = [unit::candidate(context, source), unit::caller(context)];
        let shaders = recipe.shaders.as_ref().map_or(vec![], |by| by.arguments(""));
        let flags = [&recipe.flags[..], &recipe.libraries, &shaders].concat().join("\n");
        let parts = [&unit, &caller, &flags, &recipe.toolchain.version, &self.machine];
        self.cache
            .get_or_make(&parts.map(String::as_str), "so", |folder| self.compile(&recipe, context, source, folder))
    }

    /// Builds a source in a folder of the caller's, linked with libraries, whatever the cache holds.
    pub(crate) fn build_anew(
        &self,
        context: &KernelContext,
        source: &str,
        link: &[String],
        folder: &Path,
    ) -> Attempt<PathBuf> {
        self.compile(&self.recipe(context)?.linked(link), context, source, folder)
    }

    /// The command that builds, for people.
    pub(crate) fn command_line(&self, context: &KernelContext) -> Result<String, Fault> {
        let Recipe { toolchain, flags, .. } = self.recipe(context)?;
        Ok(format!("{} {} ({})", toolchain.program.to_string_lossy(), flags.join(" "), toolchain.version))
    }

    /// The compiler for this context, with its flags, ready to be run in a folder.
    pub(crate) fn command(&self, context: &KernelContext, folder: &Path) -> Result<Command, Fault> {
        self.command_of(&self.recipe(context)?, folder)
    }

    fn command_of(&self, recipe: &Recipe, folder: &Path) -> Result<Command, Fault> {
        let program = &recipe.toolchain.program;
        let homes: Vec<PathBuf> = home_of(program).into_iter().collect();
        let program = program.to_string_lossy();
        let mut command = compiler::command(&self.sandbox, &program, folder, &homes, self.allowed)?;
        command.args(&recipe.flags);
        Ok(command)
    }

    fn compile(&self, recipe: &Recipe, context: &KernelContext, source: &str, folder: &Path) -> Attempt<PathBuf> {
        let ending = if context.language == Language::C { "c" } else { "cpp" };
        let mut names = vec![format!("unit.{ending}"), format!("caller.{ending}")];
        let mut host = None;
        if let Some(by) = &recipe.shaders {
            let texts = hlsl::Texts::of(source)?;
            compiler::write(folder, hlsl::COMPILED, &self.shaders(by, &texts, folder)?)?;
            names.push(hlsl::COMPILED.to_owned());
            host = Some(texts.host);
        }
        compiler::write(folder, &names[0], &unit::candidate(context, host.as_deref().unwrap_or(source)))?;
        compiler::write(folder, &names[1], &unit::caller(context))?;
        let mut command = self.command_of(recipe, folder)?;
        command
            .args(["-shared", "-fPIC", "-Wl,-z,defs", "-Wl,-z,now", "-o", "kernel.so"])
            .args(&names)
            .args(&recipe.libraries)
            .arg("-lm");
        match compiler::run(&mut command, folder, self.allowed.deadline)? {
            None => Ok(folder.join("kernel.so")),
            Some(log) => Err(blame(&context.entry, log).into()),
        }
    }

    /// The unit of a kernel's shaders, compiled in a folder.
    fn shaders(&self, by: &ShaderCompiler, texts: &hlsl::Texts, folder: &Path) -> Attempt<String> {
        let entries = texts.entries();
        if entries.is_empty() {
            let why = "the device region holds no shader: a function `[numthreads(x, y, z)] void NAME(...)`";
            return Err(Failure::Interface { log: why.to_owned() }.into());
        }
        compiler::write(folder, hlsl::SHADERS, &texts.shaders)?;
        for entry in &entries {
            let (program, homes) = (by.program.to_string_lossy(), by.folders());
            let mut command = compiler::command(&self.sandbox, &program, folder, &homes, self.allowed)?;
            command.args(by.arguments(entry));
            if let Some(log) = compiler::run(&mut command, folder, self.allowed.deadline)? {
                return Err(Failure::Build { log }.into());
            }
        }
        hlsl::compiled(folder, &entries)
    }

    /// What compiles this context, and how.
    fn recipe(&self, context: &KernelContext) -> Result<Recipe, Fault> {
        let mut toolchain = self.toolchain(context.language)?;
        let shaders = (context.language == Language::Hlsl).then(ShaderCompiler::find).transpose()?;
        if let Some(by) = &shaders {
            toolchain.version.extend(["; ", &by.version]);
        }
        let standard = if context.language == Language::C { "-std=c11" } else { "-std=c++17" };
        // A task from a run's folder has not been through the reader of task files.
        if let Some(flag) = context.flags.iter().find(|flag| !flags::is_harmless(flag)) {
            return Err(Fault::Machine(format!(
                "compiler flag `{flag}` is not allowed in a task: {}",
                flags::EXPECTED
            )));
        }
        let mut flags = [&[standard.to_owned()], &context.flags[..]].concat();
        flags.retain(|f| toolchain.knows_native || f != "-march=native");
        Ok(Recipe { toolchain, flags, shaders, libraries: vec![] })
    }

    fn toolchain(&self, language: Language) -> Result<Toolchain, Fault> {
        let (variable, default) = match language {
            Language::C => ("CC", "gcc"),
            Language::Cpp | Language::Hlsl => ("CXX", "g++"),
            Language::Cuda | Language::Hip | Language::Python => {
                let why =
                    "the CPU backend builds C and C++ alone: a kernel context in CUDA, HIP or Python cannot be built";
                return Err(Fault::Machine(why.to_owned()));
            }
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
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
struct Recipe {
    toolchain: Toolchain,
    flags: Vec<String>,
    /// What compiles its shaders, where it has any.
    shaders: Option<ShaderCompiler>,
    libraries: Vec<String>,
}

impl Recipe {
    fn linked(self, link: &[String]) -> Self {
        Self { libraries: link.iter().map(|name| format!("-l{name}")).collect(), ..self }
    }
}

/// Where a compiler that is not the system's own lies with its headers: two folders up.
fn home_of(program: &OsString) -> Option<PathBuf> {
    on_path(program, &search_path())?.canonicalize().ok()?.parent()?.parent().map(Path::to_owned)
}

/// Whether the text does not compile, or is not what was asked for.
pub(crate) fn blame(entry: &str, log: String) -> Failure {
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
    command.env_clear().env("LC_ALL", "C");
    command.env("PATH", search_path());
    command
}

fn version(program: &OsString) -> Option<String> {
    let text = compiler::ask(bare(program).arg("--version"))?;
    Some(text.lines().next().unwrap_or_default().to_owned())
}

/// What the compiler of shaders says of itself.
///
/// # Errors
/// [`Fault::Absent`] where it is not there.
pub fn hlsl_version() -> Result<String, Fault> {
    ShaderCompiler::find().map(|found| format!("{} ({})", found.version, found.program.display()))
}

fn knows_native(program: &OsString) -> bool {
    compiler::ask(bare(program).args(["-march=native", "-x", "c", "-E", "/dev/null"])).is_some()
}

fn missing(program: &OsString, variable: &str) -> Fault {
    let program = program.to_string_lossy();
    Fault::Absent(format!(
        "there is no working compiler `{program}`: install one (Debian: apt install g++), or name another in {variable}"
    ))
}
