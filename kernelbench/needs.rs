// What tests need and this machine may lack, as `cfg` flags: `has_torch`, `has_nvcc`, `has_gpu`. A test that needs one says
// `ignored` where it is missing. Nothing else depends on them.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

fn say_what_is_there() {
    for name in ["WARPSMITH_PYTHON", "NVCC", "CUDA_HOME", "CUDA_PATH", "PATH"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    for (flag, found) in [("has_torch", has_torch()), ("has_nvcc", has_nvcc()), ("has_gpu", has_gpu())] {
        println!("cargo::rustc-check-cfg=cfg({flag})");
        if found {
            println!("cargo::rustc-cfg={flag}");
        }
    }
}

/// Whether the Python that `WARPSMITH_PYTHON` names, or else the first of the usual ones, has torch.
fn has_torch() -> bool {
    let named = env::var("WARPSMITH_PYTHON").ok();
    let choices = named.map_or(vec!["/usr/bin/python3".to_owned(), "python3".to_owned()], |named| vec![named]);
    let script = "import importlib.util, sys\nprint('\\n'.join(sys.path))\nsys.exit(importlib.util.find_spec('torch') is None)";
    choices.iter().any(|python| {
        let Ok(output) = Command::new(python).args(["-I", "-c", script]).output() else { return false };
        // Where torch is installed later, its folder's neighbours change.
        for folder in String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.ends_with("-packages")) {
            watch(Path::new(folder));
        }
        output.status.success()
    })
}

/// Whether there is an nvcc: what `NVCC` names, else in `CUDA_HOME` or `CUDA_PATH`, else on the path, else the usual place.
fn has_nvcc() -> bool {
    let named = env::var_os("NVCC").filter(|value| !value.is_empty()).map(PathBuf::from);
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(|home| Path::new(&home).join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = homes.chain(env::split_paths(&path)).chain([PathBuf::from("/usr/local/cuda/bin")]);
    named.into_iter().chain(folders.map(|folder| folder.join("nvcc"))).any(|program| program.is_file())
}

fn has_gpu() -> bool {
    Path::new("/dev/nvidiactl").exists()
}

fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}
