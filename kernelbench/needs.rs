// What tests need and this machine may lack, as `cfg` flags: `has_torch`, `has_nvcc`, `has_cublas`, `has_gpu`, `has_avx512`, `has_emulators`, `has_hip`, `has_gfx950`, `has_vulkan`, `has_kernels`. A test that needs one says
// `ignored` where it is missing. Nothing else depends on them.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

fn say_what_is_there() {
    for name in ["WARPSMITH_KERNELS", "WARPSMITH_PYTHON", "WARPSMITH_HIPCC", "NVCC", "CUDA_HOME", "CUDA_PATH", "PATH"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let nvcc = nvcc();
    let has_cublas = nvcc.as_deref().is_some_and(has_cublas);
    let hip = hip();
    let torch = python_with_torch();
    // The folder that Hugging Face's `kernels` and what it needs were installed into.
    let kernels = env::var("WARPSMITH_KERNELS").unwrap_or_default();
    println!("cargo::rustc-env=WARPSMITH_KERNELS={kernels}");
    println!("cargo::rustc-env=PYTHON_WITH_TORCH={}", torch.as_deref().unwrap_or("python3"));
    let all = [
        ("has_torch", torch.is_some()),
        ("has_nvcc", nvcc.is_some()),
        ("has_cublas", has_cublas),
        ("has_gpu", has_gpu()),
        ("has_avx512", has_avx512()),
        ("has_emulators", has_emulators()),
        ("has_vulkan", has_vulkan()),
        ("has_kernels", Path::new(&kernels).join("kernels").is_dir()),
        ("has_hip", hip.is_some()),
        ("has_gfx950", hip.is_some_and(|version| version >= 20)),
    ];
    for (flag, found) in all {
        println!("cargo::rustc-check-cfg=cfg({flag})");
        if found {
            println!("cargo::rustc-cfg={flag}");
        }
    }
}

/// The Python that `WARPSMITH_PYTHON` names, or else the first of the usual ones, that has torch. Tests have it as
/// `env!("PYTHON_WITH_TORCH")`, which is `python3` where there is none.
fn python_with_torch() -> Option<String> {
    let named = env::var("WARPSMITH_PYTHON").ok();
    let choices = named.map_or(vec!["/usr/bin/python3".to_owned(), "python3".to_owned()], |named| vec![named]);
    let script = "import importlib.util, sys\nprint('\\n'.join(sys.path))\nsys.exit(importlib.util.find_spec('torch') is None)";
    choices.into_iter().find(|python| {
        let Ok(output) = Command::new(python).args(["-I", "-c", script]).output() else { return false };
        // Where torch is installed later, its folder's neighbours change.
        for folder in String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.ends_with("-packages")) {
            watch(Path::new(folder));
        }
        output.status.success()
    })
}

/// An nvcc: what `NVCC` names, else in `CUDA_HOME` or `CUDA_PATH`, else on the path, else the usual place.
fn nvcc() -> Option<PathBuf> {
    let named = env::var_os("NVCC").filter(|value| !value.is_empty()).map(PathBuf::from);
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(|home| Path::new(&home).join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = homes.chain(env::split_paths(&path)).chain([PathBuf::from("/usr/local/cuda/bin")]);
    named.into_iter().chain(folders.map(|folder| folder.join("nvcc"))).find(|program| program.is_file())
}

/// Whether this nvcc's toolkit has cuBLAS, with its headers.
fn has_cublas(nvcc: &Path) -> bool {
    let real = nvcc.canonicalize().unwrap_or_else(|_| nvcc.to_owned());
    let Some(home) = real.parent().and_then(Path::parent) else { return false };
    let libraries = ["lib64", "lib"].into_iter().filter_map(|name| home.join(name).read_dir().ok()).flatten().flatten();
    let is_it = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("libcublas.so");
    home.join("include/cublas_v2.h").is_file() && libraries.into_iter().any(is_it)
}

/// Whether there are cross compilers for both architectures that are emulated, and a QEMU for both that takes our plugin.
fn has_emulators() -> bool {
    let tools = ["aarch64", "riscv64"].map(|arch| [format!("qemu-{arch}"), format!("{arch}-linux-gnu-g++")]);
    let here = |tool: &String| on_path(tool).is_some();
    let asked = Command::new("qemu-riscv64").arg("--version").output();
    let version = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let is_known = ["6.", "7.", "8."].iter().any(|major| version.contains(&format!(" version {major}")));
    is_known && tools.iter().flatten().all(here)
}

/// The version of the clang that compiles kernels in HIP, as the program looks for it: what `WARPSMITH_HIPCC` names, else the
/// newest on the path; none without its lld.
fn hip() -> Option<u32> {
    const SUFFIXES: [&str; 5] = ["-22", "-21", "-20", "-19", ""];
    let named = env::var_os("WARPSMITH_HIPCC").filter(|value| !value.is_empty()).map(PathBuf::from);
    let newest = || SUFFIXES.iter().filter_map(|suffix| on_path(&format!("clang++{suffix}"))).collect();
    let programs: Vec<PathBuf> = named.map_or_else(newest, |program| vec![program]);
    let version = |program: &PathBuf| {
        let program = program.canonicalize().unwrap_or_else(|_| program.clone());
        let mut command = Command::new(&program);
        if program.ends_with("zig") {
            command.arg("clang");
        } else if !program.with_file_name("ld.lld").is_file() {
            SUFFIXES.iter().find_map(|suffix| on_path(&format!("ld.lld{suffix}")))?;
        }
        let text = String::from_utf8(command.arg("--version").output().ok()?.stdout).ok()?;
        text.split_once("clang version ")?.1.split('.').next()?.parse().ok()
    };
    programs.iter().filter_map(version).find(|version| *version >= 19)
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Whether there is a compiler of HLSL, and a Vulkan driver for this processor.
fn has_vulkan() -> bool {
    let compiles = on_path("glslangValidator").is_some();
    let drivers = Path::new("/usr/share/vulkan/icd.d").read_dir().into_iter().flatten().flatten();
    compiles && drivers.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("lvp_icd"))
}

fn has_avx512() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" avx512f"))
}

fn has_gpu() -> bool {
    Path::new("/dev/nvidiactl").exists()
}

fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}
