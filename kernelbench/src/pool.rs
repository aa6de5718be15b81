//! The pool: of each architecture the certified kernels that others may learn from (Hawkeye §2.4).
//!
//! Plain files, `POOL/sm_90/gemm_bf16.cu` beside `gemm_bf16.toml`: the kernel, and what it is, how fast, and what its
//! certificate rests on. One for each workload and precision; a faster one takes its place.

use crate::{Argument, ArgumentKind, Dtype, Hash, Language, Precision, Source, Task, feature::Features};
use metrics::{Arch, Speedup};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The only version of the format there is.
const SCHEMA: u32 = 1;
/// The largest kernel that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// What is known of a kernel in the pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// The version of the format.
    pub schema: u32,
    /// What it computes, in a word: `gemm`.
    pub workload: String,
    /// Of which numbers: `bf16`.
    pub precision: String,
    /// The task that it was certified on.
    pub task: String,
    /// That task as JSON, by hash: times of two tasks do not compare.
    pub definition: Hash,
    /// The kinds of operator that the task names.
    pub operators: Vec<String>,
    /// The rows whose marks its source has.
    pub rows: Vec<u8>,
    /// The speedup of its certificate, and the interval.
    pub speedup: [f64; 3],
    /// What that is over.
    pub over: String,
    /// The machine that certified it.
    pub machine: String,
    /// Its source, by hash.
    pub kernel: Hash,
    /// What its certificate rests on.
    pub evidence: Hash,
    /// What its run taught, as a model put it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reflections: Vec<Reflection>,
}

/// What a model said that a run taught, for models of later runs (Hawkeye, Figs. 47-48). Nothing of it was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reflection {
    /// What to do or to leave.
    pub insight: String,
    /// The rounds that it rests on, and what they measured.
    pub evidence: String,
    /// When it is of use.
    pub applies: String,
}

/// A kernel in the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Pooled {
    /// What is known of it.
    pub about: About,
    /// Its architecture.
    pub arch: Arch,
    /// Its language.
    pub language: Language,
    /// Its source.
    pub source: String,
}

/// Why a kernel does not come into the pool, or the pool cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// It is refused; why.
    #[error("not admitted: {0}")]
    Refused(String),
    /// A file is not as it should be.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// All kernels of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    kernels: Vec<Pooled>,
}

impl About {
    /// What names it among the kernels of its architecture: `gemm_bf16`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}_{}", self.workload, self.precision)
    }

    /// What is known of a kernel that was certified with this speedup.
    #[must_use]
    pub fn of(task: &Task, definition: Hash, features: &Features, source: &str, speedup: &Speedup) -> Self {
        Self {
            schema: SCHEMA,
            workload: task.name.clone(),
            precision: precision(task).to_owned(),
            task: task.name.clone(),
            definition,
            operators: features.operators_of(task).into_iter().map(str::to_owned).collect(),
            rows: features.rows_in(source),
            speedup: [speedup.ratio, speedup.interval.low, speedup.interval.high],
            over: "the reference".to_owned(),
            machine: String::new(),
            kernel: Hash::of(source.as_bytes()),
            evidence: Hash::of(&[]),
            reflections: vec![],
        }
    }
}

/// The narrowest floating numbers that a task takes in.
#[must_use]
pub fn precision(task: &Task) -> &'static str {
    match &task.source {
        Source::Problem(problem) if problem.signature.draws_e4m3() => "e4m3",
        Source::Problem(problem) => match problem.precision {
            Precision::Fp32 => "f32",
            Precision::Fp16 => "f16",
            Precision::Bf16 => "bf16",
        },
        Source::Context(context) => {
            let taken = |dtype: Dtype| {
                let many = |argument: &&Argument| argument.kind != ArgumentKind::Scalar;
                context.arguments.iter().filter(many).any(|argument| argument.dtype == dtype)
            };
            let known = [
                (Dtype::E4m3, "e4m3"),
                (Dtype::Bf16, "bf16"),
                (Dtype::F16, "f16"),
                (Dtype::F32, "f32"),
                (Dtype::F64, "f64"),
            ];
            known.into_iter().find(|(dtype, _)| taken(*dtype)).map_or("whole", |(_, name)| name)
        }
    }
}

impl Pool {
    /// The pool in this folder; empty where there is none yet.
    ///
    /// # Errors
    /// The first file that is missing, damaged or another's, and what was expected.
    pub fn read(folder: &Path) -> Result<Self, PoolError> {
        let mut kernels = vec![];
        for within in listed(folder)? {
            let Some(arch) = name_of(&within).parse::<Arch>().ok().filter(|_| within.is_dir()) else { continue };
            let about = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "toml");
            for path in listed(&within)?.into_iter().filter(about) {
                kernels.push(pooled(&path, &arch)?);
            }
        }
        Ok(Self { kernels })
    }

    /// Its kernels, by architecture and name.
    #[must_use]
    pub fn kernels(&self) -> &[Pooled] {
        &self.kernels
    }

    /// The kernels of this architecture and language that are of use for a task, the nearest first: each operator that both
    /// name counts two, each row that a profile-free reading of the task calls for one, the same precision one. Not the
    /// task's own.
    #[must_use]
    pub fn near(&self, features: &Features, task: &Task, arch: &Arch) -> Vec<&Pooled> {
        let operators = features.operators_of(task);
        let column = features.of_arch(arch);
        let called: Vec<u8> = column.map_or(vec![], |column| {
            features.choose(column, task, None, usize::MAX).iter().map(|choice| choice.cell.row).collect()
        });
        let weight = |about: &About| {
            let shared = about.operators.iter().filter(|name| operators.contains(&name.as_str())).count();
            let rows = about.rows.iter().filter(|row| called.contains(row)).count();
            (2 * shared + rows, usize::from(about.precision == precision(task)))
        };
        let here = |kernel: &&Pooled| kernel.arch == *arch && kernel.language == task.language();
        let others = self.kernels.iter().filter(here).filter(|kernel| kernel.about.task != task.name);
        let mut near: Vec<_> = others.map(|kernel| (weight(&kernel.about), kernel)).collect();
        near.retain(|((use_of, _), _)| *use_of > 0);
        near.sort_by_key(|((use_of, same), _)| std::cmp::Reverse(use_of + same));
        near.into_iter().map(|(_, kernel)| kernel).collect()
    }

    /// Whether this kernel may come in, beside what is there.
    ///
    /// # Errors
    /// [`PoolError::Refused`], in a sentence, where it is not faster than its reference, another task has its name, or what
    /// is there is at least as fast.
    pub fn admits(&self, new: &Pooled) -> Result<(), PoolError> {
        let refused = |why: String| Err(PoolError::Refused(why));
        let [ratio, low, high] = new.about.speedup;
        if low <= 1.0 {
            return refused(format!("it is not faster than {}: {ratio:.2}x [{low:.2}, {high:.2}]", new.about.over));
        }
        let same = |kernel: &&Pooled| kernel.arch == new.arch && kernel.about.name() == new.about.name();
        let Some(old) = self.kernels.iter().find(same) else { return Ok(()) };
        if old.about.definition != new.about.definition || old.about.over != new.about.over {
            return refused(format!(
                "{} of {} was certified on another task or beside another baseline: give a name of its own by --as",
                old.about.name(),
                old.arch
            ));
        }
        if ratio <= old.about.speedup[0] {
            return refused(format!("{ratio:.2}x is not faster than the {:.2}x that is there", old.about.speedup[0]));
        }
        Ok(())
    }

    /// Puts a kernel into the pool in this folder, in the place of a slower one.
    ///
    /// # Errors
    /// As for [`Pool::admits`], or where the files cannot be written.
    pub fn admit(folder: &Path, new: &Pooled) -> Result<PathBuf, PoolError> {
        Self::read(folder)?.admits(new)?;
        let name = new.about.name();
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)) {
            return Err(PoolError::Refused(format!(
                "{name:?} is no name for a file: give one of letters and digits by --as"
            )));
        }
        let within = folder.join(new.arch.to_string());
        let kernel = within.join(format!("{name}.{}", new.language.ending()));
        fs::create_dir_all(&within).map_err(|e| unusable(&within, &e))?;
        // The description last: without one, a kernel is not there.
        put(&kernel, &new.source)?;
        describe(&within, &new.about)?;
        Ok(kernel)
    }

    /// The kernel that this run brought in: of this architecture, task, source and certificate. None where there is none.
    #[must_use]
    pub fn brought_in(&self, arch: &Arch, by: &About) -> Option<&Pooled> {
        let same =
            |one: &About| (&one.definition, &one.kernel, &one.evidence) == (&by.definition, &by.kernel, &by.evidence);
        self.kernels.iter().find(|one| one.arch == *arch && same(&one.about))
    }

    /// Puts what a run taught beside the kernel that it brought in, in the place of what stood there. Where that is written.
    ///
    /// # Errors
    /// [`PoolError::Refused`] where that kernel is not there any more, or where the pool cannot be read or written.
    pub fn reflect(folder: &Path, of: &Pooled, reflections: Vec<Reflection>) -> Result<PathBuf, PoolError> {
        // Read anew: a faster kernel may have come while a model was asked.
        let pool = Self::read(folder)?;
        let kernel = pool.brought_in(&of.arch, &of.about).ok_or_else(|| {
            PoolError::Refused(format!("{} of {} is another kernel by now", of.about.name(), of.arch))
        })?;
        describe(&folder.join(kernel.arch.to_string()), &About { reflections, ..kernel.about.clone() })
    }
}

/// Writes what is known of a kernel, into its architecture's folder.
fn describe(within: &Path, about: &About) -> Result<PathBuf, PoolError> {
    let path = within.join(format!("{}.toml", about.name()));
    let text = toml::to_string(about).map_err(|e| wrong(&path, e.to_string()))?;
    put(&path, &text)?;
    Ok(path)
}

/// Whole or not at all.
fn put(path: &Path, text: &str) -> Result<(), PoolError> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    fs::write(&part, text).and_then(|()| fs::rename(&part, path)).map_err(|e| unusable(path, &e))
}

fn wrong(path: &Path, why: impl Into<String>) -> PoolError {
    PoolError::File { path: path.to_owned(), why: why.into() }
}

fn unusable(path: &Path, error: &io::Error) -> PoolError {
    wrong(path, error.to_string())
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What lies in a folder, in the order of names; nothing where there is no such folder.
fn listed(folder: &Path) -> Result<Vec<PathBuf>, PoolError> {
    let found = match fs::read_dir(folder) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(unusable(folder, &error)),
    };
    let mut paths: Vec<PathBuf> = found.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

fn pooled(path: &Path, arch: &Arch) -> Result<Pooled, PoolError> {
    let about: About = toml::from_str(&read(path)?).map_err(|e| wrong(path, e.to_string().trim_end()))?;
    if about.schema != SCHEMA {
        return Err(wrong(path, format!("expected schema = {SCHEMA}")));
    }
    if name_of(path) != format!("{}.toml", about.name()) {
        return Err(wrong(path, format!("it is about {}, and lies under another name", about.name())));
    }
    let languages = [Language::Cuda, Language::Hip, Language::Hlsl, Language::Cpp, Language::C, Language::Python];
    let kernel = |language: &Language| path.with_extension(language.ending());
    let Some(language) = languages.into_iter().find(|language| kernel(language).is_file()) else {
        return Err(wrong(path, "there is no kernel of this name beside it"));
    };
    let source = read(&kernel(&language))?;
    if Hash::of(source.as_bytes()) != about.kernel {
        return Err(wrong(&kernel(&language), "it is not the kernel that was certified: its hash is another"));
    }
    Ok(Pooled { about, arch: arch.clone(), language, source })
}

fn read(path: &Path) -> Result<String, PoolError> {
    match fs::metadata(path) {
        Ok(about) if about.len() > LARGEST => Err(wrong(path, "it is larger than 1 MiB")),
        Ok(_) => fs::read_to_string(path).map_err(|e| unusable(path, &e)),
        Err(error) => Err(unusable(path, &error)),
    }
}

#[cfg(test)]
mod tests;
