//! The libraries that a generated operator is measured against, as far as this machine has them: `OpenBLAS`, cuBLAS, cuDNN.

use kernelbench::cuda;
use std::{fs, path::Path};

/// Where a linker finds a library by itself, by architecture.
const FOLDERS: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/riscv64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
];

/// `OpenBLAS` on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenBlas {
    /// The kernels of this processor's widest vectors, as `OPENBLAS_CORETYPE` names them: those that it chooses by itself
    /// may be narrower.
    pub core: Option<&'static str>,
}

impl OpenBlas {
    /// What is here; `None` where a linker does not find it.
    #[must_use]
    pub fn here() -> Option<Self> {
        let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        is_installed("openblas").then(|| Self { core: core(&flags) })
    }
}

fn is_installed(name: &str) -> bool {
    FOLDERS.iter().any(|folder| Path::new(folder).join(format!("lib{name}.so")).exists())
}

/// Whether cuDNN is here for linking; its headers are not needed.
#[must_use]
pub fn has_cudnn() -> bool {
    cuda::has_library("cudnn") || is_installed("cudnn")
}

/// Whether the CUDA toolkit of this machine has cuBLAS for building.
#[must_use]
pub fn has_cublas() -> bool {
    let program = cuda::find_nvcc().and_then(|nvcc| nvcc.canonicalize().ok());
    let Some(toolkit) = program.as_deref().and_then(Path::parent).and_then(Path::parent) else { return false };
    let folders = [toolkit.join("include"), toolkit.join("targets/x86_64-linux/include"), "/usr/include".into()];
    folders.iter().any(|folder| folder.join("cublas_v2.h").is_file())
}

/// The core type of the widest vectors that `/proc/cpuinfo` has.
fn core(cpuinfo: &str) -> Option<&'static str> {
    let flags: Vec<&str> = cpuinfo.lines().find(|line| line.starts_with("flags"))?.split_whitespace().collect();
    let has = |wanted: &[&str]| wanted.iter().all(|flag| flags.contains(flag));
    if has(&["avx512f", "avx512dq", "avx512bw", "avx512vl"]) {
        return Some("SkylakeX");
    }
    has(&["avx2", "fma"]).then_some("Haswell")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_vectors_name_the_core_type() {
        let flags = |text: &str| core(&format!("model name\t: x\nflags\t\t: fpu {text}\n"));
        assert_eq!(flags("avx2 fma avx512f avx512dq avx512bw avx512vl"), Some("SkylakeX"));
        assert_eq!(flags("avx2 fma avx512f"), Some("Haswell"));
        assert_eq!((flags("sse2"), core("Features : asimd")), (None, None));
    }
}
