//! How is a plug-in for SGLang made, which pip installs?

use super::{
    Layout, library,
    swap::{Kernel, swap},
};
use crate::Error;

/// The package's modules, which are the same for every operator.
const MODULES: [(&str, &str); 9] = [
    ("__init__.py", include_str!("../../python/package/__init__.py")),
    ("__main__.py", include_str!("../../python/package/__main__.py")),
    ("chains.py", include_str!("../../python/package/chains.py")),
    ("compiled.py", include_str!("../../python/package/compiled.py")),
    ("functions.py", include_str!("../../python/package/functions.py")),
    ("guard.cpp", include_str!("../../python/package/guard.cpp")),
    ("guard.py", include_str!("../../python/package/guard.py")),
    ("library.py", include_str!("../../python/package/library.py")),
    ("swap.py", include_str!("../../python/package/swap.py")),
];

/// The plug-in of these kernels.
///
/// # Errors
///
/// If a library for one cannot be written.
pub fn plugin(kernels: &[Kernel]) -> Result<Layout, Error> {
    let package = package(kernels);
    let mut laid = Layout::default();
    for (name, text) in MODULES {
        laid.file(format!("{package}/{name}"), text);
    }
    let swap = serde_json::to_string_pretty(&swap(kernels)).unwrap_or_default();
    laid.file(format!("{package}/swap.json"), swap + "\n");
    for kernel in kernels {
        laid.file(format!("{package}/{}", kernel.source()), kernel.found.source.clone());
        if !kernel.is_run_time() {
            library::sources(kernel, &package, &mut laid)?;
        }
    }
    laid.file("pyproject.toml", project(&package, kernels));
    laid.file("setup.py", include_str!("../../python/setup.py"));
    laid.file("README.md", readme(&package, kernels));
    laid.next = vec![
        "python3 -m pip install --no-deps --no-build-isolation .   # in this folder; SGLang finds it by itself".into(),
        format!("WARPSMITH_SGLANG_COUNTERS=DIR with the server, then: python3 -m {package} status"),
    ];
    Ok(laid)
}

/// The package's name in Python.
#[must_use]
pub fn package(kernels: &[Kernel]) -> String {
    let mut operators: Vec<_> = kernels.iter().map(Kernel::operator).collect();
    operators.dedup();
    match operators[..] {
        [one] => format!("warpsmith_sglang_{one}"),
        _ => "warpsmith_sglang_kernels".to_owned(),
    }
}

fn project(package: &str, kernels: &[Kernel]) -> String {
    let about: Vec<_> = kernels.iter().map(|kernel| format!("{} ({})", kernel.operator(), kernel.dtype())).collect();
    format!(
        r#"[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
description = "Kernels made faster by warpsmith, in the place of SGLang's own: {about}."
requires-python = ">=3.10"

[project.entry-points."sglang.srt.plugins"]
{package} = "{package}:register"

[tool.setuptools]
packages = ["{package}"]

[tool.setuptools.package-data]
{package} = ["swap.json", "guard.cpp", "sources/**/*"]
"#,
        name = package.replace('_', "-"),
        about = about.join(", "),
    )
}

fn readme(package: &str, kernels: &[Kernel]) -> String {
    let lines: Vec<_> = kernels
        .iter()
        .map(|kernel| {
            let origin = kernel.found.origin();
            format!(
                "* `{}` in {}, in the place of `{}` of sglang {}: {}; {}",
                kernel.operator(),
                kernel.dtype(),
                origin.file,
                origin.version,
                kernel.found.summary(),
                kernel.found.gate()
            )
        })
        .collect();
    format!(
        "# {package}\n\nKernels that warpsmith made faster, as a plug-in for SGLang.\n\n{}\n\n\
         `python3 -m pip install --no-deps --no-build-isolation .` installs it; SGLang's servers load it by themselves. A \
         kernel serves the calls that it was certified for: `{package}/swap.json` says which. The original serves all \
         others, and all if the installed file is another than the one that was replaced.\n\n\
         * `WARPSMITH_SGLANG=off` leaves everything as it was; a list of operators with commas swaps only those.\n\
         * `WARPSMITH_SGLANG_SHAPES=constraints` lets a kernel serve every shape that the operator's constraints admit: for \
         tests, since nothing was certified for those.\n\
         * `WARPSMITH_SGLANG_COUNTERS=DIR` keeps how often each was used; `python3 -m {package} status` prints it.\n\
         * `WARPSMITH_SGLANG_CACHE=DIR` is where the guard is built, and libraries of operators that SGLang compiles ahead of time.\n\
         * `WARPSMITH_SGLANG_GUARD=python` leaves the guard in Python, which takes longer; so does a machine without a C++ compiler.\n",
        lines.join("\n")
    )
}
