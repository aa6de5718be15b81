//! How does a folder, or a problem's file, become a [`Task`]?
//!
//! A kernel context is a folder with a `task.toml` and a reference beside it. Both are untrusted: whatever stands in them,
//! the answer is a task or a [`TaskError`] that says where, what was expected and what to do.

pub(crate) mod arguments;
pub(crate) mod baselines;
pub(crate) mod cases;
pub(crate) mod error;
pub(crate) mod family;
pub(crate) mod file;
pub(crate) mod include;
pub(crate) mod problem;
pub(crate) mod reference;
pub(crate) mod tuning;

pub use cases::args_are_valid;
pub use error::TaskError;
pub use family::family;
pub(crate) use include::stays;
pub use problem::problem;
pub use tuning::parameters;

use crate::{
    build::flags,
    task::{Case, Dtype, KernelContext, Language, Size, Source, Task, Tolerance, gfx::Gfx, processor::Processor},
};
use baselines::Wanted;
use error::Document;
use file::{Backend, TaskFile};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use toml::Spanned;

/// The file that makes a folder a task.
const TASK_FILE: &str = "task.toml";
/// The only version of the format there is.
const SCHEMA: i64 = 1;
/// What a task file or a reference may weigh, in bytes.
const LARGEST_FILE: u64 = 1 << 20;

/// Reads the task in this folder, in this `task.toml`, or in this problem's `.py` file.
///
/// # Errors
/// Anything that is not a whole and consistent task, with the place where it is not.
pub fn task(path: &Path) -> Result<Task, TaskError> {
    if path.extension().is_some_and(|extension| extension == "py") {
        return problem(path);
    }
    let path = task_file(path)?;
    let text = reference::read_text(&path).map_err(|why| TaskError::of_file(&path, why.0, why.1))?;
    let document = Document { path: &path, text: &text };
    let file: TaskFile = toml::from_str(&text).map_err(|error| document.not_toml(&error))?;
    assemble(&document, file)
}

/// The recorded run that comes with a task: the folder `recorded` beside its `task.toml`, if there is one.
#[must_use]
pub fn recorded_run(path: &Path) -> Option<PathBuf> {
    let folder = if path.is_dir() { path } else { path.parent()? };
    Some(folder.join("recorded")).filter(|recorded| recorded.is_dir())
}

fn task_file(path: &Path) -> Result<PathBuf, TaskError> {
    let error = |what: &str, help: &str| Err(TaskError::of_file(path, what, help));
    if path.is_dir() {
        let file = path.join(TASK_FILE);
        return if file.exists() { Ok(file) } else { error("there is no task.toml in this folder", HELP_FOLDER) };
    }
    if !path.exists() {
        return error("there is no such file or folder", HELP_FOLDER);
    }
    if path.extension().is_none_or(|extension| extension != "toml") {
        return error("this is no task", HELP_FOLDER);
    }
    Ok(path.to_owned())
}

const HELP_FOLDER: &str =
    "expected a folder that holds a task.toml and a reference; examples/silu_and_mul is one to copy";

fn assemble(document: &Document<'_>, file: TaskFile) -> Result<Task, TaskError> {
    check_heading(document, &file)?;
    let arguments = arguments::check(document, &file.argument)?;
    known_in(document, *file.language.get_ref(), &file.argument)?;
    let [cases, final_cases, sanitizer_cases] = cases::check(document, &file, &arguments)?;
    let timed = cases::timed(document, file.timing.as_ref(), &cases)?;
    let (tolerance, tolerance_why) = tolerance(document, &file.tolerance)?;
    let language = *file.language.get_ref();
    let entry = file.entry.get_ref();
    let binding = binding(document, file.binding.as_ref(), language, entry)?;
    let written = match &binding {
        Some(_) => reference::text(document, &file.reference)?,
        None => reference::beside(document, &file.reference, entry)?,
    };
    let processor = processor(document, file.processor.as_ref(), language)?;
    let arch = arch(document, file.arch.as_ref(), language)?;
    let tuning = tuning::space(document, file.tuning)?;
    let timed_against = !file.baseline.is_empty() || file.oracle.is_some();
    if let Some(name) = file.processor.as_ref().filter(|_| timed_against || !file.returns.is_nothing()) {
        let help = "take [[baseline]], [oracle] and returns away, or the processor";
        return document.error(name, "a task for an emulated processor has no baselines and returns nothing", help);
    }
    if timed_against && arch.is_some() {
        let help = "take [[baseline]] and [oracle] away: kernels in HIP are compiled, not run";
        return document.error(&file.language, "a task in \"hip\" is timed against nothing", help);
    }
    if let Some(name) = file.processor.as_ref().filter(|_| !tuning.grid.is_empty()) {
        let help = "take [tuning] away, or the processor: a generated operator has parameters of its own, which begin at their first values";
        return document.error(name, "an emulated processor ranks no configurations, for nothing is timed there", help);
    }
    let wanted = Wanted { entry, cases: [&cases, &final_cases] };
    let baselines = baselines::baselines(document, file.baseline, (file.timing.as_ref(), file.oracle), &wanted)?;
    let (reference, initial) = reference::bound(document, &file.reference, written, &tuning)?;
    let context = KernelContext {
        language,
        flags: flags(document, file.flags.as_deref(), language)?,
        reference,
        initial,
        include: file
            .include
            .as_ref()
            .map_or(Ok(BTreeMap::new()), |name| include::headers(document, name, language))?,
        origin: file.origin.map(Box::new),
        baselines,
        binding,
        tuning,
        returns: file.returns,
        operations: operations(document, file.operations.as_ref(), &cases)?,
        processor,
        arch,
        entry: file.entry.into_inner(),
        arguments,
    };
    Ok(Task {
        name: file.name.into_inner(),
        summary: file.summary.get_ref().trim().to_owned(),
        source: Source::Context(context),
        tolerance,
        tolerance_why,
        cases,
        final_cases,
        sanitizer_cases,
        valid_args: file.valid_args.map(Spanned::into_inner),
        timed,
    })
}

/// How many operations a call takes; for every case that has a value.
fn operations(
    document: &Document<'_>,
    text: Option<&Spanned<String>>,
    cases: &[Case],
) -> Result<Option<Size>, TaskError> {
    let Some(text) = text else { return Ok(None) };
    let size = Size(text.get_ref().clone());
    match cases.iter().find_map(|case| size.elements(&case.scalars).err()) {
        Some(why) => document.error(text, why.to_string(), "expected an expression such as 2 * m * n * k"),
        None => Ok(Some(size)),
    }
}

/// The processor that is emulated.
fn processor(
    document: &Document<'_>,
    name: Option<&Spanned<String>>,
    language: Language,
) -> Result<Option<Processor>, TaskError> {
    let Some(name) = name else { return Ok(None) };
    if !matches!(language, Language::C | Language::Cpp) {
        let help = "take the key away: only kernels in \"c11\" and \"c++17\" run on an emulated processor";
        return document.error(name, "a task in this language has no processor", help);
    }
    match name.get_ref().parse() {
        Ok(processor) => Ok(Some(processor)),
        Err(why) => document.error(name, why, "name one of these, or take the key away for this machine's processor"),
    }
}

/// Refuses what a language has no type for.
fn known_in(document: &Document<'_>, language: Language, arguments: &[file::ArgumentFile]) -> Result<(), TaskError> {
    let unknown = |argument: &&file::ArgumentFile| {
        let known = [Dtype::F32, Dtype::F16, Dtype::I32].contains(&argument.dtype);
        language == Language::Hlsl && argument.size.is_some() && !known
    };
    match arguments.iter().find(unknown) {
        None => Ok(()),
        Some(argument) => {
            let help = "an array in \"hlsl\" is of f32, f16 or i32";
            document.error(&argument.name, "this array's type is none of the language's", help)
        }
    }
}

/// The AMD GPU that a task in HIP is compiled for.
fn arch(document: &Document<'_>, name: Option<&Spanned<String>>, language: Language) -> Result<Option<Gfx>, TaskError> {
    match name {
        None => Ok((language == Language::Hip).then(Gfx::default)),
        Some(name) if language != Language::Hip => {
            let help = "take the key away: only kernels in \"hip\" are compiled for a GPU that is not here";
            document.error(name, "a task in this language has no arch", help)
        }
        Some(name) => match name.get_ref().parse() {
            Ok(arch) => Ok(Some(arch)),
            Err(why) => document.error(name, why, "name one of these, or take the key away for gfx90a"),
        },
    }
}

fn check_heading(document: &Document<'_>, file: &TaskFile) -> Result<(), TaskError> {
    if *file.schema.get_ref() != SCHEMA {
        return document.error(&file.schema, "this version of the format is unknown", "expected schema = 1");
    }
    if !is_plain_name(file.name.get_ref()) {
        let help = "expected up to 64 letters, digits, `_`, `-` and `.`, with a letter or digit first: folders are named after it";
        return document.error(&file.name, "this cannot be a task's name", help);
    }
    if file.summary.get_ref().trim().is_empty() {
        let help = "say in a sentence or two what the kernel computes: the model reads it";
        return document.error(&file.summary, "the summary is empty", help);
    }
    check_backend(document, file)?;
    arguments::check_identifier(document, &file.entry, "the entry point")
}

fn check_backend(document: &Document<'_>, file: &TaskFile) -> Result<(), TaskError> {
    let runs_on = match file.language.get_ref() {
        Language::Cuda => Backend::Cuda,
        Language::Hip => Backend::Hip,
        Language::Hlsl => Backend::Vulkan,
        Language::C | Language::Cpp => Backend::Cpu,
        Language::Python => {
            let help = "a kernel context is written in \"c11\", \"c++17\", \"cuda\", \"hip\" or \"hlsl\"; a problem in Python is a file of its own";
            return document.error(&file.language, "a task folder cannot be in Python", help);
        }
    };
    match &file.backend {
        Some(backend) if *backend.get_ref() != runs_on => {
            let help = "expected backend = \"cuda\" with language = \"cuda\", \"hip\" with \"hip\", \"vulkan\" with \"hlsl\", and \"cpu\" with any other";
            document.error(backend, "this backend does not run this language", help)
        }
        _ => Ok(()),
    }
}

fn is_plain_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(plain)
}

/// Above this a tolerance carries its reason (Hawkeye, G.3).
const PLAIN_TOLERANCE: f64 = 0.01;

/// When an output is right, and why so much may be apart where that is not plain.
fn tolerance(document: &Document<'_>, file: &file::ToleranceFile) -> Result<(Tolerance, String), TaskError> {
    for bound in [&file.atol, &file.rtol] {
        if !(bound.get_ref().is_finite() && *bound.get_ref() >= 0.0) {
            let help = "expected a number of 0 or more, such as 1e-5";
            return document.error(bound, "this cannot bound a difference", help);
        }
    }
    let why = file.why.as_ref().map(|why| why.get_ref().trim().to_owned()).unwrap_or_default();
    let wide = [&file.atol, &file.rtol].into_iter().find(|bound| *bound.get_ref() > PLAIN_TOLERANCE);
    if let Some(bound) = wide.filter(|_| why.is_empty()) {
        let help = "say beside it, in `why`, which error it is for: why = \"outputs are in bfloat16, a step of which is 2^-8\"";
        return document.error(bound, "a tolerance above 0.01 needs its reason", help);
    }
    let share = file.share.as_ref().map_or(1.0, |share| *share.get_ref());
    match &file.share {
        Some(at) if !(share > 0.0 && share <= 1.0) => {
            document.error(at, "this is no share", "expected more than 0 and at most 1, where 1 means every element")
        }
        _ => Ok((Tolerance { atol: *file.atol.get_ref(), rtol: *file.rtol.get_ref(), share }, why)),
    }
}

fn flags(
    document: &Document<'_>,
    flags: Option<&[Spanned<String>]>,
    language: Language,
) -> Result<Vec<String>, TaskError> {
    let cuda = language == Language::Cuda;
    let (usual, harmless): (&[&str], fn(&str) -> bool) = match language {
        Language::Cuda => (&flags::CUDA_DEFAULT, flags::is_harmless_in_cuda),
        Language::Hip => (&flags::HIP_DEFAULT, flags::is_harmless_in_hip),
        Language::C | Language::Cpp | Language::Hlsl | Language::Python => (&flags::DEFAULT, flags::is_harmless),
    };
    let Some(flags) = flags else { return Ok(usual.iter().map(ToString::to_string).collect()) };
    for flag in flags {
        if !harmless(flag.get_ref()) {
            let help = if cuda { flags::CUDA_EXPECTED } else { flags::EXPECTED };
            return document.error(flag, "this flag is not allowed", help);
        }
    }
    Ok(flags.iter().map(|flag| flag.get_ref().clone()).collect())
}

/// The text that defines the entry in the candidate's place.
fn binding(
    document: &Document<'_>,
    name: Option<&Spanned<String>>,
    language: Language,
    entry: &str,
) -> Result<Option<String>, TaskError> {
    match name {
        Some(name) if language != Language::Cuda => {
            let help = "take the key away: a candidate in this language defines the entry point itself";
            document.error(name, "only a task in \"cuda\" can have a binding", help)
        }
        Some(name) => reference::beside(document, name, entry).map(Some),
        None => Ok(None),
    }
}
