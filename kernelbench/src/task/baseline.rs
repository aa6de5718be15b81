//! Baselines of a task: other ways to compute the same, to time against, such as a call of a library.

use super::library::Forbidden;
use crate::result::failure::Fault;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name by which the reference itself is meant.
pub(crate) const REFERENCE: &str = "reference";

/// Variables that a library is steered by start like this: no other reaches a process before it is confined.
const STEERING: [&str; 7] = ["OPENBLAS_", "GOTO_", "OMP_", "MKL_", "BLIS_", "CUBLAS_", "CUDNN_"];

/// What candidates are timed against beside the reference, and what may stand for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baselines {
    /// All of them, in the task's order.
    pub kernels: Vec<BaselineKernel>,
    /// The name of the one that speedups are over; the reference where it is `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// The one that says what is right on large cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oracle: Option<Oracle>,
}

/// A kernel to time against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaselineKernel {
    /// What reports call it.
    pub name: String,
    /// Its source, which defines the task's entry point.
    pub source: String,
    /// Libraries that it is linked with, as a linker names them: `openblas`. No candidate may use them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub link: Vec<String>,
    /// Variables of its process, by which a library is steered.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// What else candidates may not use.
    #[serde(default, skip_serializing_if = "Forbidden::is_empty")]
    pub forbid: Forbidden,
}

/// A baseline that stands for the reference on large cases, once it agrees with it on all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oracle {
    /// Its name.
    pub baseline: String,
    /// The names of the cases that it answers for.
    pub cases: Vec<String>,
}

impl Baselines {
    /// Whether the reference stands alone.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// The baseline of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&BaselineKernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// The one that speedups are over; `None` for the reference.
    #[must_use]
    pub fn against(&self) -> Option<&BaselineKernel> {
        self.named(self.against.as_deref()?)
    }

    /// The one that says what is right on large cases, where there is one.
    #[must_use]
    pub fn oracle(&self) -> Option<&BaselineKernel> {
        self.named(&self.oracle.as_ref()?.baseline)
    }

    /// Whether the oracle answers for the case of this name.
    #[must_use]
    pub fn is_large(&self, case: &str) -> bool {
        self.oracle.as_ref().is_some_and(|oracle| oracle.cases.iter().any(|large| large == case))
    }

    /// What candidates may not use, library by library.
    #[must_use]
    pub fn forbidden(&self) -> Vec<Forbidden> {
        let of = |kernel: &BaselineKernel| {
            let link = kernel.link.iter().chain(&kernel.forbid.link).cloned().collect();
            Forbidden { link, ..kernel.forbid.clone() }
        };
        let all = self.kernels.iter().map(of).filter(|forbidden| !forbidden.is_empty());
        all.flat_map(|forbidden| [vec![forbidden.clone()], Forbidden::known(&forbidden.link)].concat()).collect()
    }
}

/// Whether a linker may be given this library: a plain name, and no option or path.
pub(crate) fn is_library(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
    name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(plain)
}

/// Whether a process may be started with this variable: one that steers a library, and never the loader or the program.
pub(crate) fn is_steering(name: &str, value: &str) -> bool {
    let plain = name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    let short = value.len() <= 128 && value.chars().all(|c| c.is_ascii_graphic() && c != '/');
    plain && short && STEERING.iter().any(|start| name.starts_with(start))
}

impl BaselineKernel {
    /// Whether everything that it hands to a linker and a process is harmless; a task from a run's folder has not been through
    /// the reader of task files.
    pub(crate) fn is_harmless(&self) -> bool {
        self.link.iter().all(|name| is_library(name))
            && self.environment.iter().all(|(name, value)| is_steering(name, value))
    }

    /// The fault of the task that this is no baseline, and why.
    pub(crate) fn unusable(&self, why: impl std::fmt::Display) -> Fault {
        Fault::Reference(format!("the baseline `{}` cannot be used: {why}", self.name))
    }

    /// What a compiler or a linker said of it comes to: a library that is not here, or a source that is wrong.
    pub(crate) fn unbuilt(&self, log: &str) -> Fault {
        let absent = self.link.iter().find(|name| lacks(log, name));
        let Some(name) = absent else { return self.unusable(format!("it does not build\n{log}")) };
        let own = &self.name;
        let package = if name == "cudnn" {
            "pip install nvidia-cudnn-cu13; unless it lies beside pip's nvcc, set CUDNN_PATH to its folder `cudnn`"
                .to_owned()
        } else if Forbidden::known(std::slice::from_ref(name)).is_empty() {
            format!("Debian: apt install lib{name}-dev")
        } else {
            format!(
                "install the whole CUDA toolkit, or of NVIDIA's packages lib{name}-dev of its version; beside an nvcc of pip's, \
                 pip install nvidia-{name}"
            )
        };
        Fault::Absent(format!("the baseline `{own}` needs the library {name}, which is not here ({package})"))
    }
}

/// Whether a log says that a library is not here, or a header that is called after it: `cublas_v2.h`.
fn lacks(log: &str, name: &str) -> bool {
    let header = |line: &str| {
        let missing = line.contains("No such file") || line.contains("cannot open source file");
        let named = |word: &str| word.starts_with(name) && word.contains(".h");
        missing && line.split(|c: char| c.is_whitespace() || "\"'<>:".contains(c)).any(named)
    };
    log.contains(&format!("cannot find -l{name}")) || log.lines().any(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_here_is_told_with_its_package_and_another_fault_with_the_log() {
        let kernel = |link: &str| BaselineKernel {
            name: "vendor".into(),
            source: String::new(),
            link: vec![link.into()],
            environment: BTreeMap::new(),
            forbid: Forbidden::default(),
        };
        let told = |link: &str, log: &str| kernel(link).unbuilt(log).to_string();
        let header = "baseline.cu:1:10: fatal error: cublas_v2.h: No such file or directory";
        let toolkit = "needs the library cublas, which is not here (install the whole CUDA toolkit";
        assert!(told("cublas", header).contains(toolkit), "{}", told("cublas", header));
        assert!(told("cublas", "ld: cannot find -lcublas: No such file").contains("pip install nvidia-cublas"));
        let of_pip = told("cudnn", "ld: cannot find -lcudnn: No such file");
        assert!(
            of_pip.contains("pip install nvidia-cudnn-cu13; unless it lies beside pip's nvcc, set CUDNN_PATH"),
            "{of_pip}"
        );
        assert!(told("openblas", "ld: cannot find -lopenblas").contains("(Debian: apt install libopenblas-dev)"));
        for log in ["fatal error: cblas.h: No such file or directory", "error: `cublas_v2.h' is odd"] {
            assert!(told("cublas", log).contains("it does not build\n"), "{log}");
        }
    }

    #[test]
    fn a_baseline_reaches_neither_the_linker_s_options_nor_the_loader_s_variables() {
        for name in ["openblas", "blis-mt", "stdc++fs", "mkl_rt"] {
            assert!(is_library(name), "{name}");
        }
        for name in ["", "-Wl,x", "/lib/x.so", "a/b", "a b", ":libx.so", "@file"] {
            assert!(!is_library(name), "{name}");
        }
        assert!(is_steering("OPENBLAS_CORETYPE", "SkylakeX") && is_steering("OMP_NUM_THREADS", "1"));
        for (name, value) in
            [("LD_PRELOAD", "x.so"), ("GLIBC_TUNABLES", "x"), ("OMP_X=1;LD", "x"), ("OMP_TOOL_LIBRARIES", "/tmp/x.so")]
        {
            assert!(!is_steering(name, value), "{name}");
        }
    }
}
