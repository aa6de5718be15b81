//! How does a profiler's process come to its end, whatever it wraps?
#![expect(unsafe_code, reason = "begins, waits for and ends a whole process group")]

use std::{
    fs::File,
    io::{ErrorKind, Read},
    mem::MaybeUninit,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// What is kept of each of a process's outputs, in bytes.
const KEPT: u64 = 4 << 20;

/// A process that leads its own group, which ends with this.
struct Group {
    leader: Child,
    id: libc::pid_t,
}

impl Group {
    fn of(leader: Child) -> Self {
        let id = leader.id().cast_signed();
        Self { leader, id }
    }

    /// Whether its leader has ended; it stays unreaped, so that its id stays its own.
    fn has_ended(&self) -> bool {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: our own child, and a struct of ours that the kernel fills where there is something to say.
        unsafe {
            libc::waitid(libc::P_PID, self.id.cast_unsigned(), info.as_mut_ptr(), options) != 0
                || info.assume_init().si_pid() != 0
        }
    }

    /// Ends whatever is left of it, and says how its leader ended.
    fn end(&mut self) -> std::io::Result<ExitStatus> {
        // SAFETY: the leader is not reaped before this, so the group's id is still its own; signals touch no memory.
        unsafe { libc::kill(-self.id, libc::SIGKILL) };
        self.leader.wait()
    }
}

/// Has a command's process lead a group of its own, which one that leads a session does already.
fn lead(command: &mut Command) {
    let prepare = || match (nix::unistd::getpid(), nix::unistd::getpgrp()) {
        (own, group) if own == group => Ok(()),
        (own, _) => nix::unistd::setpgid(own, own).map_err(Into::into),
    };
    // SAFETY: plain system calls; the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// Runs a command in its own environment and not in ours, until it ends or its time is up; its standard output, or in words what went
/// wrong. Its whole process group is gone afterwards.
pub(super) fn to_end(mut command: Command, end: Instant) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let own = command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
    let own: Vec<_> = own.collect();
    command.env_clear().env("LC_ALL", "C").env("PATH", std::env::var_os("PATH").unwrap_or_default()).envs(own);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    lead(&mut command);
    let mut group = Group::of(command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("{program} is not installed"),
        _ => format!("{program} cannot be started: {error}"),
    })?);
    let (out, err) = (kept(group.leader.stdout.take()), kept(group.leader.stderr.take()));
    while !group.has_ended() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
    let in_time = group.has_ended();
    let status = group.end().map_err(|error| format!("{program} was waited for in vain: {error}"))?;
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    match status {
        _ if !in_time => Err(format!("{program} did not end in time")),
        status if status.success() => Ok(out),
        status if status.signal() == Some(libc::SIGSYS) => {
            Err(format!("{program} was ended: what it wraps tried what a kernel has no business to do"))
        }
        status => Err(format!("{program} ended with {status}{}", first_line(&err))),
    }
}

/// The text of an output file, as much as is kept; empty where there is none.
pub(super) fn read(path: &Path) -> String {
    let mut bytes = vec![];
    let _ = File::open(path).and_then(|file| file.take(KEPT).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads to the end, so that the process never waits for a reader, and keeps the beginning.
fn kept(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = vec![];
        if let Some(mut pipe) = pipe {
            let _ = pipe.by_ref().take(KEPT).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let line: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
    if line.is_empty() { line } else { format!(": {line}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, milliseconds: u64) -> Result<String, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        to_end(command, Instant::now() + Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_wrapped_process_that_hangs_is_ended_with_all_that_it_started() {
        let started = Instant::now();
        assert_eq!(shell("sleep 600 & sleep 600", 100), Err("sh did not end in time".to_owned()));
        assert!(started.elapsed() < Duration::from_mins(1));
    }

    #[test]
    fn a_process_that_leaves_a_child_behind_is_not_waited_for() {
        assert_eq!(shell("sleep 600 & echo done", 60_000), Ok("done\n".to_owned()));
    }

    #[test]
    fn the_first_words_of_a_failure_are_kept() {
        assert_eq!(
            shell("echo one >&2; echo two >&2; exit 3", 60_000).unwrap_err(),
            "sh ended with exit status: 3: one"
        );
        let absent = to_end(Command::new("no-such-profiler"), Instant::now());
        assert_eq!(absent.unwrap_err(), "no-such-profiler is not installed");
    }

    #[test]
    fn a_process_that_prints_without_end_is_not_kept_whole() {
        let printed = shell("yes | head -c 20000000", 60_000).unwrap();
        assert_eq!(printed.len() as u64, KEPT);
    }

    #[test]
    fn our_environment_stays_with_us() {
        assert_eq!(shell("echo \"$HOME$USER$CARGO_MANIFEST_DIR\"", 60_000), Ok("\n".to_owned()));
    }
}
