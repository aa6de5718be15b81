//! Which headers does an operator's file need, as the real preprocessor says?

use super::{operator::Level, tree::Tree};
use kernelbench::Hash;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Where a header comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// SGLang's own.
    Own,
    /// tvm-ffi's.
    TvmFfi,
    /// Of a folder that the user named, or of flashinfer.
    Vendored,
    /// Ours, in the place of torch's.
    StandIn,
}

/// A folder that is searched for headers.
#[derive(Clone, Debug)]
pub struct Root {
    /// Whose headers it holds.
    pub kind: Kind,
    /// Where it is.
    pub folder: PathBuf,
}

/// A header that goes into the task.
#[derive(Clone, Debug)]
pub struct Header {
    /// Where it comes from.
    pub kind: Kind,
    /// Its text.
    pub text: String,
    /// Its SHA-256.
    pub hash: Hash,
}

impl Header {
    fn new(kind: Kind, text: String) -> Self {
        Self { kind, hash: Hash::of(text.as_bytes()), text }
    }
}

/// Headers of ours in the place of torch's, by path.
pub const STAND_IN: [(&str, &str); 9] = [
    ("ATen/Tensor.h", include_str!("../standin/ATen/Tensor.h")),
    ("ATen/cuda/CUDAContext.h", include_str!("../standin/ATen/cuda/CUDAContext.h")),
    ("Python.h", include_str!("../standin/Python.h")),
    ("c10/cuda/CUDAGuard.h", include_str!("../standin/c10/cuda/CUDAGuard.h")),
    ("c10/cuda/CUDAStream.h", include_str!("../standin/c10/cuda/CUDAStream.h")),
    ("torch/all.h", include_str!("../standin/torch/all.h")),
    ("torch/extension.h", include_str!("../standin/torch/extension.h")),
    ("torch/library.h", include_str!("../standin/torch/library.h")),
    ("warpsmith/tensor.h", include_str!("../standin/warpsmith/tensor.h")),
];

/// A header that the toolkit alone has, and that nvcc itself includes.
const OF_TOOLKIT: &str = "crt/host_config.h";

/// The folders in which an operator's headers are looked for, in the order in which they are searched. The last one is made
/// here, in a folder of the caller's.
///
/// # Errors
/// Where the folder cannot be written.
pub fn roots(tree: &Tree, level: Level, named: &[PathBuf], python: &str, scratch: &Path) -> Result<Vec<Root>, String> {
    let mut roots = Vec::new();
    let mut add = |kind, folder: PathBuf| {
        if folder.is_dir() {
            roots.push(Root { kind, folder: folder.canonicalize().unwrap_or(folder) });
        }
    };
    if let Some(sources) = if level == Level::J { &tree.jit } else { &tree.aot } {
        add(Kind::Own, sources.join("include"));
        add(Kind::Own, sources.join("csrc"));
    }
    for folder in named {
        add(Kind::Vendored, folder.clone());
    }
    if level == Level::J {
        let beside = tree.site().join("tvm_ffi");
        let ffi = if beside.is_dir() { Some(beside) } else { super::tree::package(python, "tvm_ffi") };
        if let Some(ffi) = ffi {
            add(Kind::TvmFfi, ffi.join("include"));
        }
    } else {
        for part in ["include", "csrc"] {
            add(Kind::Vendored, tree.site().join("flashinfer/data").join(part));
        }
        for (path, text) in STAND_IN {
            let file = scratch.join(path);
            let made = fs::create_dir_all(file.parent().unwrap_or(scratch)).and_then(|()| fs::write(&file, text));
            made.map_err(|e| format!("cannot write {}: {e}", file.display()))?;
        }
        add(Kind::StandIn, scratch.to_owned());
    }
    Ok(roots)
}

/// The headers of a file and of the binding behind it, by their path in the folder of includes. System headers and the CUDA
/// toolkit's stay where they are.
///
/// # Errors
/// A sentence that names a header that is missing, two that share a path, or one that cannot be laid beside the file.
pub fn headers(
    nvcc: &Path,
    file: &Path,
    binding: &str,
    flags: &[String],
    roots: &[Root],
    scratch: &Path,
) -> Result<BTreeMap<String, Header>, String> {
    let unit = scratch.join("unit.cu");
    let prelude = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n#include <cuda_runtime.h>\n";
    let text = format!("{prelude}#include \"{}\"\n{binding}", file.display());
    fs::write(&unit, text).map_err(|e| format!("cannot write {}: {e}", unit.display()))?;
    let listed = |which: &str| {
        let mut command = Command::new(nvcc);
        command.arg(which).args(flags).arg("-gencode=arch=compute_90a,code=sm_90a").current_dir(scratch);
        command.args(roots.iter().map(|root| format!("-I{}", root.folder.display()))).arg(&unit);
        let told = command.output().map_err(|e| format!("{} cannot be started: {e}", nvcc.display()))?;
        let rule = String::from_utf8_lossy(&told.stdout);
        if told.status.success() { Ok(paths(&rule)) } else { Err(missing(&String::from_utf8_lossy(&told.stderr))) }
    };
    // The shorter list leaves out the system's headers, but also what a header includes that says it is one of them.
    let (all, without_system) = (listed("-M")?, listed("-MM")?);
    let (mut headers, elsewhere) = partition(&all, file, &unit, roots)?;
    stays(&elsewhere, &without_system)?;
    if roots.iter().any(|root| root.kind == Kind::StandIn) {
        // All of ours: gcc takes files of the same text for one file, and then names one of them alone.
        headers.extend(STAND_IN.map(|(path, text)| (path.to_owned(), Header::new(Kind::StandIn, text.to_owned()))));
    }
    Ok(headers)
}

/// The files of a rule for make. A blank in a path has a backslash before it.
fn paths(rule: &str) -> Vec<PathBuf> {
    let after = rule.split_once(" :").or_else(|| rule.split_once(':')).map_or(rule, |(_, after)| after);
    let (mut words, mut word) = (vec![], String::new());
    let mut rest = after.chars().peekable();
    while let Some(c) = rest.next() {
        match rest.peek() {
            Some(next) if c == '\\' && [' ', '\t', '#'].contains(next) => word.extend(rest.next()),
            Some('\n' | '\r') if c == '\\' => {}
            _ if c.is_whitespace() => words.push(std::mem::take(&mut word)),
            _ => word.push(c),
        }
    }
    words.push(word);
    words.into_iter().filter(|word| !word.is_empty()).map(PathBuf::from).collect()
}

/// The headers that lie in these folders, and the paths of those that lie elsewhere.
fn partition(
    paths: &[PathBuf],
    file: &Path,
    unit: &Path,
    roots: &[Root],
) -> Result<(BTreeMap<String, Header>, Vec<PathBuf>), String> {
    let beside = Root { kind: Kind::Own, folder: real(file.parent().unwrap_or(file)) };
    let (file, unit) = (real(file), real(unit));
    let mut headers: BTreeMap<String, Header> = BTreeMap::new();
    let mut elsewhere = vec![];
    for path in paths.iter().map(|path| real(path)).filter(|path| *path != file && *path != unit) {
        // A file beside the source is included by its name alone; the innermost folder that holds a header names it.
        let holds = |root: &&Root| path.starts_with(&root.folder);
        let depth = |root: &&Root| root.folder.components().count();
        let Some(root) = roots.iter().chain([&beside]).filter(holds).max_by_key(depth) else {
            elsewhere.push(path);
            continue;
        };
        let inside = path.strip_prefix(&root.folder).unwrap_or(&path).display().to_string();
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let header = Header::new(root.kind, text);
        if headers.get(&inside).is_some_and(|other| other.hash != header.hash) {
            return Err(format!(
                "two different headers are called {inside}, and both would be needed: this file cannot be taken out"
            ));
        }
        headers.insert(inside, header);
    }
    Ok((headers, elsewhere))
}

/// Whether what lies elsewhere is the system's or the toolkit's, which every machine that builds the task has.
fn stays(elsewhere: &[PathBuf], without_system: &[PathBuf]) -> Result<(), String> {
    let without_system: BTreeSet<PathBuf> = without_system.iter().map(|path| real(path)).collect();
    let toolkit =
        without_system.iter().find(|path| path.ends_with(OF_TOOLKIT)).and_then(|path| path.ancestors().nth(2));
    let ours = |path: &&PathBuf| toolkit.is_none_or(|toolkit| !path.starts_with(toolkit));
    match elsewhere.iter().filter(|path| without_system.contains(*path)).find(ours) {
        None => Ok(()),
        Some(path) => Err(format!(
            "the header {} is needed, and lies neither in a folder of headers nor in the CUDA toolkit's or the system's: the task would not have it; give the folder that holds it with --headers",
            path.display()
        )),
    }
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// What the preprocessor did not find, in a sentence.
fn missing(told: &str) -> String {
    let line = told.lines().find(|line| line.contains("No such file") || line.contains("cannot open source file"));
    let quoted = |line: &str| match line.split_once("cannot open source file \"") {
        Some((_, rest)) => rest.split('"').next().map(str::to_owned),
        None => line.split("error: ").nth(1).and_then(|rest| rest.split(':').next()).map(str::to_owned),
    };
    match line.and_then(quoted) {
        Some(header) => {
            let hint = match header.as_str() {
                name if name.starts_with("tvm/") || name.starts_with("dlpack/") => {
                    "it is of tvm-ffi: install apache-tvm-ffi beside sglang, or give its include folder with --headers"
                }
                "pytorch_extension_utils.h" => {
                    "it is of flashinfer: give the csrc folder of the flashinfer that sgl-kernel's CMakeLists.txt names with --headers"
                }
                _ => "give the folder that holds it with --headers",
            };
            format!("the header {header} is missing; {hint}")
        }
        None => format!("the file cannot be preprocessed:\n{}", told.trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_for_make_names_its_files() {
        let rule = "unit.o : unit.cu \\\n  /a/b.h /c/d.cuh \\\n  /e.h\n";
        assert_eq!(paths(rule), ["unit.cu", "/a/b.h", "/c/d.cuh", "/e.h"].map(PathBuf::from));
    }

    #[test]
    fn a_blank_in_a_path_ends_no_file_name() {
        let rule = "unit.o : a\\ b/unit.cu \\\n    /c\\ d/e\\ .h \\\r\n    /f\\#1/$g/h\\i.h\n";
        assert_eq!(paths(rule), ["a b/unit.cu", "/c d/e .h", "/f#1/$g/h\\i.h"].map(PathBuf::from));
    }

    #[test]
    fn a_header_from_elsewhere_is_named_unless_it_is_the_systems_or_the_toolkits() {
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
        let elsewhere = paths(&["/no/system/stdio.h", "/no/cuda/include/cuda_bf16.h", "/no/named/own.h"]);
        let toolkit = ["/no/cuda/include/crt/host_config.h", "/no/cuda/include/cuda_bf16.h"];
        assert_eq!(stays(&elsewhere, &paths(&toolkit)), Ok(()));
        let said = stays(&elsewhere, &paths(&[&toolkit[..], &["/no/named/own.h"]].concat())).unwrap_err();
        assert!(said.contains("/no/named/own.h is needed") && said.contains("--headers"), "{said}");
    }

    #[test]
    fn a_missing_header_is_named_with_what_to_do() {
        let said = missing("x.cuh:9:10: fatal error: tvm/ffi/any.h: No such file or directory\n");
        assert!(said.starts_with("the header tvm/ffi/any.h is missing; it is of tvm-ffi"), "{said}");
        assert!(
            missing("x.cu(3): catastrophic error: cannot open source file \"a.h\"").contains("a.h is missing; give")
        );
    }
}
