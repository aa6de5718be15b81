//! A child process that leads its own group: stopped, resumed, ended and reaped.
#![expect(unsafe_code, reason = "prepares a process between fork and exec")]

use nix::{
    errno::Errno,
    sys::{
        prctl,
        signal::{Signal, kill, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};
use std::{
    collections::BTreeSet,
    io,
    os::{fd::RawFd, unix::process::CommandExt},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// The groups of processes that this program has started and not reaped yet, and whether it is ending.
struct Groups {
    ids: BTreeSet<Pid>,
    ending: bool,
}

static GROUPS: Mutex<Groups> = Mutex::new(Groups { ids: BTreeSet::new(), ending: false });

fn groups() -> MutexGuard<'static, Groups> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends every group of processes that was started here, and each that is started from here on: for a program that is about
/// to end. A child dies with it anyway, and what the child started, such as a compiler's parts, would not.
pub fn end_all() {
    let mut groups = groups();
    groups.ending = true;
    for id in &groups.ids {
        let _ = killpg(*id, Signal::SIGKILL);
    }
}

/// A child process that leads its own group. Killed with all of it, and reaped, when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    id: Pid,
    ended: Option<End>,
    reaped: bool,
}

impl Process {
    /// Takes over a child that was started as the leader of its own process group.
    pub(crate) fn of(child: &std::process::Child) -> Self {
        Self::forked(child.id().cast_signed())
    }

    /// Takes over a child that another child of this program forked in its name (`CLONE_PARENT`), and that leads its group.
    pub(crate) fn forked(id: i32) -> Self {
        let id = Pid::from_raw(id);
        let mut groups = groups();
        groups.ids.insert(id);
        if groups.ending {
            let _ = killpg(id, Signal::SIGKILL);
        }
        Self { id, ended: None, reaped: false }
    }

    /// Its number.
    pub(crate) fn id(&self) -> i32 {
        self.id.as_raw()
    }

    /// Stops it (SIGSTOP), and returns once it is stopped; how it ended, if it has.
    pub(crate) fn stop(&mut self) -> io::Result<Option<End>> {
        self.signal(Signal::SIGSTOP);
        self.wait(WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED)
    }

    /// Resumes it (SIGCONT).
    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// How it ended, if it has. It is not reaped: its number, and its group's, stay its own.
    pub(crate) fn ended(&mut self) -> io::Result<Option<End>> {
        self.wait(WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG)
    }

    /// Waits until it ends, and at its deadline ends it with its whole group: how it ended by itself, `None` where it did not.
    pub(crate) fn end_within(&mut self, deadline: Duration) -> io::Result<Option<End>> {
        let start = Instant::now();
        let ended = loop {
            let ended = self.ended()?;
            if ended.is_some() || start.elapsed() > deadline {
                break ended;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        self.end()?;
        Ok(ended)
    }

    /// Ends it and its whole group, and says how it ended: perhaps before this.
    pub(crate) fn end(&mut self) -> io::Result<End> {
        if !self.reaped {
            // Whoever is gone already has nothing left to end.
            let _ = killpg(self.id, Signal::SIGKILL);
            self.signal(Signal::SIGKILL);
            self.wait(WaitPidFlag::WEXITED)?;
            // From here on its number may become another's.
            groups().ids.remove(&self.id);
            retry(|| waitid(Id::Pid(self.id), WaitPidFlag::WEXITED))?;
            self.reaped = true;
        }
        self.ended.ok_or_else(|| io::Error::other("waited for a process in vain"))
    }

    /// Its address space in bytes; `None` once it is gone.
    pub(crate) fn address_space(&self) -> Option<u64> {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.id)).ok()?;
        statm.split(' ').next()?.parse::<u64>().ok().map(|pages| pages * 4096)
    }

    fn signal(&self, signal: Signal) {
        if !self.reaped {
            let _ = kill(self.id, signal);
        }
    }

    /// Waits for a change of its state, and leaves it to be reaped.
    fn wait(&mut self, changes: WaitPidFlag) -> io::Result<Option<End>> {
        if self.ended.is_none() {
            let status = retry(|| waitid(Id::Pid(self.id), changes | WaitPidFlag::WNOWAIT))?;
            self.ended = match status {
                WaitStatus::Exited(_, status) => Some(End::Exited(status)),
                WaitStatus::Signaled(_, signal, _) => Some(End::Killed(signal as i32)),
                _ => None,
            };
        }
        Ok(self.ended)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// A call that a signal may interrupt.
fn retry<T>(mut call: impl FnMut() -> nix::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Sends a signal to one process, or to the group of a negative number.
pub(crate) fn signal(id: i32, signal: Signal) {
    // Whoever is gone needs no signal.
    let _ = kill(Pid::from_raw(id), signal);
}

/// Keeps this process's memory and files closed to other processes of the same user.
pub(crate) fn close_own_memory() {
    let _ = prctl::set_dumpable(false);
}

/// A signal's name, with what it means.
pub(crate) fn name(signal: i32) -> String {
    let meaning = match Signal::try_from(signal) {
        Ok(Signal::SIGSEGV) => "invalid memory reference",
        Ok(Signal::SIGBUS) => "bad memory access",
        Ok(Signal::SIGILL) => "illegal instruction",
        Ok(Signal::SIGFPE) => "arithmetic error, such as a division by zero",
        Ok(Signal::SIGABRT) => "abort",
        Ok(Signal::SIGTRAP) => "trap",
        Ok(other @ (Signal::SIGKILL | Signal::SIGTERM | Signal::SIGSYS)) => return other.as_str().to_owned(),
        _ => return format!("signal {signal}"),
    };
    format!("{} ({meaning})", Signal::try_from(signal).map_or("", Signal::as_str))
}

/// Prepares a command's process, between fork and exec: a session and a group of its own, its parent's death is its own,
/// and these descriptors stay open.
pub(crate) fn detach(command: &mut Command, keep: Vec<RawFd>) {
    let prepare = move || {
        nix::unistd::setsid()?;
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        for fd in &keep {
            // SAFETY: the parent keeps these open until the child has started.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(*fd) };
            nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))?;
        }
        Ok(())
    };
    // SAFETY: plain system calls; the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// Closes all descriptors from 3 on but these: a child that has just begun uses no other.
pub(crate) fn close_all_but<const N: usize>(mut keep: [RawFd; N]) {
    keep.sort_unstable();
    let mut from = 3;
    for fd in keep.into_iter().chain([i32::MAX]) {
        if from < fd {
            // SAFETY: descriptors that nobody in this process uses.
            unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) };
        }
        from = fd.saturating_add(1);
    }
}

/// Bytes of this process's address space in use now.
pub(crate) fn own_address_space() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').next().and_then(|p| p.parse().ok()).unwrap_or(1 << 20);
    pages * 4096
}
