//! Where are the programs beside this one, and how is work handed over to them?
//!
//! `warpsmith-metrics` reads and writes tables of profiles, `warpsmith-hosts` speaks to other hosts, `warpsmith-mcp` to agents.
//! Each is a program of its own for the sake of what it is built with, which working on a kernel on one machine never needs.

use crate::{
    exit::{Exit, Trouble},
    key::Environment,
};
use std::{
    env,
    ffi::{OsStr, OsString},
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A program beside this one.
#[derive(Debug)]
struct Program {
    name: &'static str,
    package: &'static str,
    /// Where it lies in a checkout.
    folder: &'static str,
}

const METRICS: Program =
    Program { name: "warpsmith-metrics", package: "warpsmith-selection", folder: "metrics/selection" };
const MCP: Program = Program { name: "warpsmith-mcp", package: "warpsmith-mcp", folder: "mcp" };
const HOSTS: Program = Program { name: "warpsmith-hosts", package: "warpsmith-hosts", folder: "hosts" };

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
        match METRICS.at_hand() {
            Some(path) => Ok(Self { path }),
            None if build => METRICS.built(),
            None => Err(METRICS.missing(", and --build builds it there and goes on")),
        }
    }

    /// `warpsmith-hosts`: beside this program, or in PATH.
    ///
    /// # Errors
    ///
    /// Where it is nowhere: how to get it.
    pub fn hosts() -> Result<Self, Trouble> {
        HOSTS.at_hand().map(|path| Self { path }).ok_or_else(|| HOSTS.missing(""))
    }

    /// `warpsmith-mcp`: beside this program, or in PATH.
    ///
    /// # Errors
    ///
    /// Where it is nowhere: how to get it.
    pub fn mcp() -> Result<Self, Trouble> {
        MCP.at_hand().map(|path| Self { path }).ok_or_else(|| MCP.missing(""))
    }

    /// Becomes this program, which is to start the one that this is, with the key that it took out of its environment. Comes
    /// back only where that fails.
    #[must_use]
    pub fn serve(&self, arguments: &[OsString], environment: &Environment) -> Trouble {
        let mut command = Command::new(&self.path);
        let named = |word: &OsString| word.to_string_lossy().starts_with("--program");
        if let Some(own) = env::current_exe().ok().filter(|_| !arguments.iter().any(named)) {
            command.arg("--program").arg(own);
        }
        environment.give_back(command.args(arguments));
        self.trouble(&command.exec())
    }

    /// Becomes this program, with all the words that this one was started with, and the key that it took out of its
    /// environment. Comes back only where that fails.
    #[must_use]
    pub fn take_over(&self, environment: &Environment) -> Trouble {
        let mut command = Command::new(&self.path);
        environment.give_back(command.args(env::args_os().skip(1)));
        self.trouble(&command.exec())
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

impl Program {
    /// Where it is: beside this program, or in PATH.
    fn at_hand(&self) -> Option<PathBuf> {
        let beside = env::current_exe().ok().and_then(|own| own.parent().map(Path::to_owned));
        let path = env::var_os("PATH").unwrap_or_default();
        self.find(beside.into_iter().chain(env::split_paths(&path)))
    }

    /// In the first of these folders that has it.
    fn find(&self, folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
        folders.map(|folder| folder.join(self.name)).find(|path| path.is_file())
    }

    fn missing(&self, or: &str) -> Trouble {
        let Self { name, folder, .. } = self;
        Trouble::machine(format!(
            "this needs {name}, which is neither beside this program nor in PATH: in a checkout, \
             `cargo install --locked --path {folder}` installs it{or}"
        ))
    }

    /// The checkout that this path lies in.
    fn checkout<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        path.ancestors().find(|root| root.join(self.folder).join("Cargo.toml").is_file())
    }

    /// Builds it with cargo, which tells its progress itself.
    fn built(&self) -> Result<Companion, Trouble> {
        let places = [env::current_exe(), env::current_dir()];
        let root = places.iter().flatten().find_map(|place| self.checkout(place)).ok_or_else(|| {
            Trouble::usage("--build: neither this program nor the working directory lies in a checkout of warpsmith")
        })?;
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
        let cargo = env::var_os("CARGO").unwrap_or_else(|| OsStr::new("cargo").to_owned());
        let mut command = Command::new(cargo);
        let words = ["build", "--release", "--locked", "-p", self.package, "--target-dir"];
        let status = command.args(words).arg(&target).current_dir(root).stdout(Stdio::null()).status();
        let status = status.map_err(|e| Trouble::machine(format!("--build: cannot start cargo: {e}")))?;
        let path = target.join("release").join(self.name);
        if status.success() && path.is_file() {
            return Ok(Companion { path });
        }
        let exit = Exit::Machine;
        Err(Trouble { exit, message: format!("--build: {} could not be built; cargo says why", self.name) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_that_has_it_counts_and_a_folder_of_its_name_does_not() {
        let [none, folder, first, second] = [(); 4].map(|()| tempfile::tempdir().unwrap());
        std::fs::create_dir(folder.path().join(METRICS.name)).unwrap();
        for place in [&first, &second] {
            std::fs::write(place.path().join(METRICS.name), "").unwrap();
        }
        let found = METRICS.find([&none, &folder, &first, &second].map(|place| place.path().to_owned()).into_iter());
        assert_eq!(found, Some(first.path().join(METRICS.name)));
        assert_eq!(METRICS.find([none.path().to_owned()].into_iter()), None);
    }

    #[test]
    fn a_checkout_is_found_from_deep_inside_it_and_not_from_outside() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(METRICS.checkout(&root.join("target/debug/deps/warpsmith")), Some(root));
        assert_eq!(METRICS.checkout(Path::new("/usr/bin")), None);
    }
}
