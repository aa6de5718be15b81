//! Where is `warpsmith-metrics`, the program that reads and writes tables of profiles, and how is work handed over to it?
//!
//! It is a program of its own for the sake of polars, which takes longer to build than everything else together and which
//! working on a kernel never needs.

use crate::exit::{Exit, Trouble};
use std::{
    env,
    ffi::{OsStr, OsString},
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const PROGRAM: &str = "warpsmith-metrics";
const PACKAGE: &str = "warpsmith-selection";
/// Where it lies in a checkout.
const MANIFEST: &str = "metrics/selection/Cargo.toml";

/// A program that was found.
#[derive(Clone, Debug)]
pub struct Companion {
    path: PathBuf,
}

impl Companion {
    /// `warpsmith-metrics`: beside this program, or in PATH; where it is in neither and `build` says so, built in the checkout
    /// that this program or the working directory lies in.
    ///
    /// # Errors
    ///
    /// Where it is nowhere: how to get it. Where it cannot be built.
    pub fn metrics(build: bool) -> Result<Self, Trouble> {
        let beside = env::current_exe().ok().and_then(|own| own.parent().map(Path::to_owned));
        let path = env::var_os("PATH").unwrap_or_default();
        match find(beside.into_iter().chain(env::split_paths(&path))) {
            Some(path) => Ok(Self { path }),
            None if build => built(),
            None => Err(Trouble::machine(format!(
                "this needs {PROGRAM}, which is neither beside this program nor in PATH: in a checkout, \
                 `cargo install --locked --path metrics/selection` installs it, and --build builds it there and goes on"
            ))),
        }
    }

    /// Becomes this program. Comes back only where that fails.
    #[must_use]
    pub fn replace(&self, command: &str, arguments: &[OsString]) -> Trouble {
        self.trouble(&Command::new(&self.path).arg(command).args(arguments).exec())
    }

    /// Has it write a file from what it is given.
    ///
    /// # Errors
    ///
    /// Where it cannot be started, or says that it could not.
    pub fn write(&self, command: &str, out: &Path, input: &[u8]) -> Result<(), Trouble> {
        let mut program = Command::new(&self.path);
        program.arg(command).arg("--out").arg(out).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = program.spawn().map_err(|e| self.trouble(&e))?;
        // Where it ends before it has read all, its own words say why.
        let told = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input));
        let ended = child.wait_with_output().map_err(|e| self.trouble(&e))?;
        if !ended.status.success() {
            return Err(Trouble::record(String::from_utf8_lossy(&ended.stderr).trim().to_owned()));
        }
        told.map_err(|e| self.trouble(&e))
    }

    fn trouble(&self, error: &std::io::Error) -> Trouble {
        Trouble::machine(format!("{}: {error}", self.path.display()))
    }
}

/// The first of these folders that has it.
fn find(folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    folders.map(|folder| folder.join(PROGRAM)).find(|path| path.is_file())
}

/// The checkout that this path lies in.
fn checkout(path: &Path) -> Option<&Path> {
    path.ancestors().find(|folder| folder.join(MANIFEST).is_file())
}

/// Builds it with cargo, which tells its progress itself.
fn built() -> Result<Companion, Trouble> {
    let places = [env::current_exe(), env::current_dir()];
    let root = places.iter().flatten().find_map(|place| checkout(place)).ok_or_else(|| {
        Trouble::usage("--build: neither this program nor the working directory lies in a checkout of warpsmith")
    })?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsStr::new("cargo").to_owned());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--locked", "-p", PACKAGE, "--target-dir"]).arg(&target).current_dir(root);
    let status = command.stdout(Stdio::null()).status();
    let status = status.map_err(|e| Trouble::machine(format!("--build: cannot start cargo: {e}")))?;
    let path = target.join("release").join(PROGRAM);
    if status.success() && path.is_file() {
        return Ok(Companion { path });
    }
    let exit = Exit::Machine;
    Err(Trouble { exit, message: format!("--build: {PROGRAM} could not be built; cargo says why") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_that_has_it_counts_and_a_folder_of_its_name_does_not() {
        let [none, folder, first, second] = [(); 4].map(|()| tempfile::tempdir().unwrap());
        std::fs::create_dir(folder.path().join(PROGRAM)).unwrap();
        for place in [&first, &second] {
            std::fs::write(place.path().join(PROGRAM), "").unwrap();
        }
        let found = find([&none, &folder, &first, &second].map(|place| place.path().to_owned()).into_iter());
        assert_eq!(found, Some(first.path().join(PROGRAM)));
        assert_eq!(find([none.path().to_owned()].into_iter()), None);
    }

    #[test]
    fn a_checkout_is_found_from_deep_inside_it_and_not_from_outside() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(checkout(&root.join("target/debug/deps/warpsmith")), Some(root));
        assert_eq!(checkout(Path::new("/usr/bin")), None);
    }
}
