//! Scripts that print primitives: run by Python, without a network, without writing anything, for seconds (QiMeng-TensorOp §3.2).

use super::cache::private_folder;
use crate::{
    result::{
        error::{Attempt, fault},
        failure::{Failure, Fault},
    },
    sandbox::{
        confine::{Confinement, Files, Limits, User},
        entry::{Child, Program, Wrapped},
        process::{End, Process},
        start::{Sandbox, search_path, variable},
    },
    task::space::Bindings,
};
use std::{
    fs::{self, File},
    io::{Read, Seek},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

/// The file's name, as its author sees it in messages.
pub(crate) const SCRIPT: &str = "primitives.py";
/// How long it may run.
const DEADLINE: Duration = Duration::from_secs(10);
/// Its address space, in bytes.
const MEMORY: u64 = 512 << 20;
/// What it may print, in bytes.
const PRINTED: u64 = 4 << 20;
/// What of its error messages is kept, in bytes.
const MESSAGES: u64 = 8 << 10;
/// Runs the file with the parameters as global names, under its own name and with its own line numbers.
const START: &str = "import json, runpy, sys; runpy.run_path('primitives.py', json.loads(sys.argv[1]), '__main__')";
const READABLE: [&str; 4] = ["/usr", "/bin", "/etc/alternatives", "/etc/python3"];

/// What a script prints where its parameters have these values.
pub(crate) fn print(sandbox: &Sandbox, script: &str, bindings: &Bindings) -> Attempt<String> {
    let folder = private_folder(&std::env::temp_dir())?;
    fs::write(folder.path().join(SCRIPT), script).map_err(fault("cannot write a script"))?;
    let values = serde_json::to_string(bindings).map_err(|e| Fault::Machine(e.to_string()))?;
    let outputs = (tempfile::tempfile(), tempfile::tempfile());
    let (mut printed, mut messages) =
        (outputs.0.map_err(fault("cannot make a file"))?, outputs.1.map_err(fault("cannot make a file"))?);
    let mut command = command(sandbox, folder.path(), &values)?;
    let copies = (printed.try_clone(), messages.try_clone());
    command.stdin(Stdio::null());
    command.stdout(copies.0.map_err(fault("cannot make a file"))?);
    command.stderr(copies.1.map_err(fault("cannot make a file"))?);
    let ended = until_it_ends(&mut command)?;
    let length = printed.metadata().map_or(0, |about| about.len());
    let failed = |why: String| Failure::Build { log: format!("{SCRIPT}: {why}") };
    match ended {
        _ if length >= PRINTED => Err(failed(format!("it printed more than {} MiB", PRINTED >> 20)).into()),
        Some(End::Exited(0)) => Ok(text(&mut printed, PRINTED)?),
        Some(End::Exited(_)) => Err(failed(text(&mut messages, MESSAGES)?).into()),
        Some(End::Killed(signal)) => {
            Err(failed(format!("it was ended by signal {signal}: it may start no process and reach no network")).into())
        }
        None => Err(failed(format!("it did not end within {} s", DEADLINE.as_secs())).into()),
    }
}

fn command(sandbox: &Sandbox, folder: &Path, values: &str) -> Result<std::process::Command, Fault> {
    let limits = Limits {
        address_space: Some(MEMORY),
        // The deadline comes first, and says what it is.
        cpu_seconds: Some(DEADLINE.as_secs() + 2),
        file_bytes: PRINTED,
        processes: None,
        files: 64,
    };
    let (python, home) = python()?;
    let mut read: Vec<PathBuf> = READABLE.iter().map(PathBuf::from).collect();
    read.push(folder.to_owned());
    read.extend(home);
    let files = Some(Files { read, write: vec!["/dev/null".into()], devices: false });
    let parent = std::process::id().cast_signed();
    let confinement = Confinement { parent, user: User::Same, limits, files, shares_ipc: false };
    let line = [&python, "-I", "-S", "-B", "-c", START, values].map(str::to_owned).into();
    let child =
        Child::Program(Program { confinement, control: None, wraps: Some(Wrapped::Single), unstarted: None, line });
    let mut command = sandbox.command(&child, vec![])?;
    command.current_dir(folder).env("LC_ALL", "C.UTF-8").envs([variable("PATH", search_path())]);
    Ok(command)
}

/// The system's Python, or where it has none the first on the search path, with the folder that this one was installed in.
fn python() -> Result<(String, Option<PathBuf>), Fault> {
    let paths = search_path();
    let folders = ["/usr/bin".into(), "/bin".into()].into_iter().chain(std::env::split_paths(&paths));
    let found = folders.map(|folder| folder.join("python3")).find(|program| program.is_file()).ok_or_else(|| {
        let why = "there is no python3, which runs the scripts that print primitives: install one (Debian: apt install python3)";
        Fault::Absent(why.to_owned())
    })?;
    let real = found.canonicalize().map_err(fault("cannot find Python"))?;
    let home = real.ancestors().nth(2).filter(|_| !READABLE.iter().any(|folder| real.starts_with(folder)));
    Ok((found.display().to_string(), home.map(Path::to_owned)))
}

/// How it ended; none where its deadline ended it, with all that it started.
fn until_it_ends(command: &mut std::process::Command) -> Result<Option<End>, Fault> {
    let child = command.spawn().map_err(fault("cannot start Python"))?;
    Process::of(&child).end_within(DEADLINE).map_err(fault("cannot wait for Python"))
}

fn text(file: &mut File, most: u64) -> Result<String, Fault> {
    let mut bytes = vec![];
    file.rewind()
        .and_then(|()| file.take(most).read_to_end(&mut bytes))
        .map_err(fault("cannot read what a script said"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
