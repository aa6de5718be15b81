//! Running a compiler: confined, in a private folder that holds what it is to build and nothing else, without our
//! environment, under limits and a deadline.

use crate::{
    machine::cores,
    result::{
        error::{Attempt, fault},
        failure::Fault,
    },
    sandbox::{
        confine::{Confinement, Files, Limits, User},
        entry::{Child, Program},
        process::Process,
        start::{Sandbox, search_path, variable},
    },
};
use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// What one file of a build may hold, in bytes.
const LARGEST_FILE: u64 = 256 << 20;
/// What is said of a compiler that hangs.
pub(crate) const NOT_IN_TIME: &str = "the compiler did not end within its deadline";
/// Lines of a compiler's messages that are kept.
const LOG_LINES: usize = 150;
/// What a compiler reads beside the system's libraries.
const READABLE: [&str; 5] = ["/usr", "/bin", "/sbin", "/etc/alternatives", "/proc/cpuinfo"];

/// What a compiler may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// Its address space, in bytes.
    pub(crate) memory: u64,
    /// How long it may take, and compute.
    pub(crate) deadline: Duration,
}

impl Allowed {
    /// The same with this deadline, where there is one.
    pub(crate) fn within(self, deadline: Option<Duration>) -> Self {
        Self { deadline: deadline.unwrap_or(self.deadline), ..self }
    }
}

/// A compiler, ready to be run in a folder: it reads the system's files, those of its `homes` and of that folder, and writes
/// there alone.
pub(crate) fn command(
    sandbox: &Sandbox,
    program: &str,
    folder: &Path,
    homes: &[PathBuf],
    allowed: Allowed,
) -> Result<Command, Fault> {
    let mut read: Vec<PathBuf> = READABLE.iter().map(PathBuf::from).collect();
    read.extend_from_slice(homes);
    let limits = Limits {
        address_space: Some(allowed.memory),
        cpu_seconds: Some(allowed.deadline.as_secs().max(1)),
        file_bytes: LARGEST_FILE,
        processes: None,
        files: 256,
    };
    let files = Some(Files { read, write: vec![folder.to_owned(), "/dev/null".into()], devices: false });
    let parent = std::process::id().cast_signed();
    let confinement = Confinement { parent, user: User::Same, limits, files, shares_ipc: false };
    let line = vec![program.to_owned()];
    let mut command = sandbox
        .command(&Child::Program(Program { confinement, control: None, wraps: None, unstarted: None, line }), vec![])?;
    command.current_dir(folder).env("LC_ALL", "C").envs([variable("PATH", search_path()), variable("TMPDIR", folder)]);
    Ok(command)
}

/// Runs a compiler to its end; its messages where it failed. At its deadline it is ended, with all that it started.
pub(crate) fn run(command: &mut Command, folder: &Path, deadline: Duration) -> Attempt<Option<String>> {
    let path = folder.join("log");
    let log = File::create(&path).map_err(fault("cannot write the compiler's log"))?;
    let copy = log.try_clone().map_err(fault("cannot write the compiler's log"))?;
    let child = command.stdin(Stdio::null()).stdout(copy).stderr(log).spawn();
    let child = child.map_err(fault("cannot start the compiler"))?;
    // Many may compile on all cores while a GPU is timed, whose launches wait for none of them.
    cores::give_way(child.id());
    let mut process = Process::of(&child);
    let ended = process.end_within(deadline).map_err(fault("cannot wait for the compiler"))?;
    if ended == Some(crate::sandbox::process::End::Exited(0)) {
        return Ok(None);
    }
    let mut text = last_lines(&path);
    if ended.is_none() {
        let seconds = deadline.as_secs_f64();
        text = format!("{NOT_IN_TIME} of {seconds} s, and was ended\n{text}");
    }
    Ok(Some(text))
}

/// Where the first program of this name lies on a search path; an absolute path is its own.
pub fn on_path(name: impl AsRef<Path>, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join(&name)).find(|place| place.is_file())
}

/// How long a compiler may take to say something of itself.
const ASKED: Duration = Duration::from_secs(20);

/// What a compiler prints when it is asked about itself; `None` where it fails, or does not end in time.
pub(crate) fn ask(command: &mut Command) -> Option<String> {
    answer_within(command, ASKED).ok()
}

/// What a program prints that ends well and in time: as much as a program says of itself. Where it does not end in time, it
/// is ended with all that it started.
///
/// # Errors
/// In words: that it cannot be started, hangs, or the last line of its complaint.
pub fn answer_within(command: &mut Command, limit: Duration) -> Result<String, String> {
    let file = || tempfile::tempfile().map_err(|e| format!("has nowhere to answer to: {e}"));
    let copy = |file: &File| file.try_clone().map_err(|e| format!("has nowhere to answer to: {e}"));
    let (printed, errors) = (file()?, file()?);
    command.stdin(Stdio::null()).stdout(copy(&printed)?).stderr(copy(&errors)?).process_group(0);
    let mut process = Process::of(&command.spawn().map_err(|e| format!("cannot be started: {e}"))?);
    let (start, lost) = (Instant::now(), |e: std::io::Error| format!("was waited for in vain: {e}"));
    while process.ended().map_err(lost)?.is_none() && start.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(2));
    }
    let in_time = process.ended().map_err(lost)?.is_some();
    match process.end().map_err(lost)? {
        _ if !in_time => Err(format!("did not answer within {} s, and was ended", limit.as_secs_f64())),
        crate::sandbox::process::End::Exited(0) => Ok(said(printed)),
        _ => Err(said(errors).trim().lines().last().unwrap_or("says nothing").to_owned()),
    }
}

fn said(mut file: File) -> String {
    let mut bytes = vec![];
    let _ = file.rewind().and_then(|()| file.take(64 << 10).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Writes a file that is to be built.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Result<(), Fault> {
    fs::write(folder.join(name), text).map_err(fault("cannot write what is to be built"))
}

fn last_lines(path: &Path) -> String {
    let mut bytes = vec![];
    if let Ok(mut file) = File::open(path) {
        let length = file.metadata().map_or(0, |m| m.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(64 << 10)));
        let _ = file.take(64 << 10).read_to_end(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_compiler_that_hangs_when_asked_is_ended_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let id = folder.path().join("id");
        let start = Instant::now();
        let script = format!("sleep 300 & echo $! > {}; wait", id.display());
        let why = answer_within(&mut shell(&script), Duration::from_millis(500)).unwrap_err();
        assert!(start.elapsed() < Duration::from_mins(1) && why.contains("within 0.5 s"), "{why}");
        assert!(is_gone(&id), "what it started still runs");
    }

    #[test]
    fn a_compiler_that_hangs_while_it_builds_is_ended_with_all_that_it_started_and_that_is_said_first() {
        let folder = tempfile::tempdir().unwrap();
        let id = folder.path().join("id");
        let script = format!("echo warned; sleep 300 & echo $! > {}; wait", id.display());
        let mut command = shell(&script);
        let ran = run(command.process_group(0), folder.path(), Duration::from_millis(500));
        let log = ran.map_err(|_| "the machine").unwrap().unwrap();
        assert!(log.starts_with("the compiler did not end within its deadline of 0.5 s") && log.contains("warned"));
        assert!(is_gone(&id), "what it started still runs");
    }

    /// Whether the process whose number stands in this file soon ends.
    fn is_gone(id: &Path) -> bool {
        let child: i32 = fs::read_to_string(id).unwrap().trim().parse().unwrap();
        (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !crate::sandbox::tree::runs(child)
        })
    }

    #[test]
    fn a_compiler_s_answer_is_read_and_its_failure_is_none() {
        assert_eq!(ask(&mut shell("echo 1.2.3")).as_deref(), Some("1.2.3\n"));
        assert_eq!(ask(&mut shell("echo 1.2.3; exit 1")), None);
    }
}
