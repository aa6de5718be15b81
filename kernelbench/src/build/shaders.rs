//! What compiles shaders here: Microsoft's DXC where it is found, else Khronos's glslang.

use super::{
    compiler::{self, on_path},
    hlsl::{SHADERS, code},
};
use crate::{result::failure::Fault, sandbox::start::search_path};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

const DXC: &str = "dxc";
const GLSLANG: &str = "glslangValidator";
/// What names the first where it is not on the `PATH`.
const NAMES_DXC: &str = "WARPSMITH_DXC";

/// What compiles shaders here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShaderCompiler {
    pub(crate) program: PathBuf,
    /// What it says of itself.
    pub(crate) version: String,
    is_dxc: bool,
}

impl ShaderCompiler {
    /// The one that `WARPSMITH_DXC` names, else `dxc` where it is on the `PATH`, else glslang.
    ///
    /// # Errors
    /// [`Fault::Absent`] where there is none, or the one that is named does not run.
    pub(crate) fn find() -> Result<Self, Fault> {
        let named = std::env::var_os(NAMES_DXC).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self::among(named, &search_path())
    }

    fn among(named: Option<PathBuf>, path: &OsString) -> Result<Self, Fault> {
        let asked = |program: &Path| {
            compiler::ask(Command::new(program).arg("--version").env_clear().env("LC_ALL", "C").env("PATH", path))
        };
        let dxc = |program: PathBuf| {
            let version = asked(&program)?.lines().next().filter(|line| !line.is_empty())?.to_owned();
            Some(Self { program, version, is_dxc: true })
        };
        if let Some(named) = named {
            let why = format!("{NAMES_DXC} names {}, which is no dxc that runs", named.display());
            // It runs in another folder.
            return named.canonicalize().ok().and_then(dxc).ok_or(Fault::Absent(why));
        }
        if let Some(found) = on_path(DXC, path).and_then(dxc) {
            return Ok(found);
        }
        let glslang = |program: PathBuf| {
            let said = asked(&program)?;
            let version = said.lines().find(|line| line.contains("Glslang Version"))?.to_owned();
            Some(Self { program, version, is_dxc: false })
        };
        let missing = format!(
            "there is no working {GLSLANG} or {DXC}, which compile HLSL: install one (Debian: apt install glslang-tools), or name a \
             {DXC} in {NAMES_DXC}"
        );
        on_path(GLSLANG, path).and_then(glslang).ok_or(Fault::Absent(missing))
    }

    /// The folders that it needs beside the system's: where it lies, and its library.
    pub(super) fn folders(&self) -> Vec<PathBuf> {
        let program = self.program.canonicalize().unwrap_or_else(|_| self.program.clone());
        let own = program.parent().map(Path::to_owned);
        let library = own.as_deref().and_then(Path::parent).map(|above| above.join("lib")).filter(|lib| lib.is_dir());
        own.into_iter().chain(library).collect()
    }

    /// What it is called with for one shader, and where it leaves the code. Half precision is 16 bits, and not a hint.
    pub(super) fn arguments(&self, entry: &str) -> Vec<String> {
        let code = code(entry);
        let arguments: &[&str] = if self.is_dxc {
            let target = "-fspv-target-env=vulkan1.1";
            &["-spirv", target, "-T", "cs_6_2", "-enable-16bit-types", "-E", entry, "-Fo", &code, SHADERS]
        } else {
            let half = "--hlsl-enable-16bit-types";
            &["-D", "-S", "comp", "-V", "--target-env", "vulkan1.1", half, "-e", entry, "-o", &code, SHADERS]
        };
        arguments.iter().map(|&argument| argument.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    /// A program that says this of itself.
    fn program(folder: &Path, name: &str, version: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\necho '{version}'\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn shaders_are_compiled_by_dxc_where_it_is_found_and_else_by_glslang() {
        let [one, both, other] = [0; 3].map(|_| tempfile::tempdir().unwrap());
        let found = |named: Option<&Path>, folder: &Path| {
            let path = std::env::join_paths([folder, Path::new("/bin"), Path::new("/usr/bin")]).unwrap();
            ShaderCompiler::among(named.map(Path::to_owned), &path).map(|found| (found.version, found.is_dxc))
        };
        program(one.path(), GLSLANG, "Glslang Version: 11:0");
        program(both.path(), GLSLANG, "Glslang Version: 11:0");
        program(both.path(), DXC, "libdxcompiler.so: 1.7");
        let own = program(other.path(), "own", "1.8 of ours");
        let told = |version: &str, is_dxc| (version.to_owned(), is_dxc);
        assert_eq!(found(None, one.path()).unwrap(), told("Glslang Version: 11:0", false));
        assert_eq!(found(None, both.path()).unwrap(), told("libdxcompiler.so: 1.7", true));
        assert_eq!(found(Some(&own), both.path()).unwrap(), told("1.8 of ours", true));
        fs::create_dir(other.path().join("bin")).unwrap();
        fs::create_dir(other.path().join("lib")).unwrap();
        let below = program(&other.path().join("bin"), DXC, "1.8");
        let folders = ShaderCompiler { program: below, version: String::new(), is_dxc: true }.folders();
        let real = other.path().canonicalize().unwrap();
        assert_eq!(folders, [real.join("bin"), real.join("lib")], "and not all that lies beside them");
        let why = found(Some(Path::new("/nowhere/dxc")), both.path()).unwrap_err().to_string();
        assert!(why.contains("WARPSMITH_DXC names /nowhere/dxc"), "{why}");
    }
}
