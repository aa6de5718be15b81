//! Stopping, resuming and burying a child process and all that it started.
#![expect(unsafe_code, reason = "signals and waits for processes")]

use std::{io, mem::MaybeUninit, os::fd::AsRawFd};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// A child process that leads its own group. Killed and reaped when dropped.
pub(crate) struct Process {
    id: libc::pid_t,
    ended: Option<End>,
}

impl Process {
    /// Takes over a child that was started as the leader of its own process group.
    pub(crate) fn of(child: &std::process::Child) -> Self {
        Self { id: child.id().cast_signed(), ended: None }
    }

    /// Stops it, and returns once it stands still; how it ended, if it has.
    pub(crate) fn stop(&mut self) -> io::Result<Option<End>> {
        self.signal(libc::SIGSTOP);
        self.wait(libc::WSTOPPED | libc::WEXITED)
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> io::Result<Option<End>> {
        self.wait(libc::WEXITED | libc::WNOHANG)
    }

    /// Ends it and its whole group, and says how it ended: perhaps before this.
    pub(crate) fn end(&mut self) -> io::Result<End> {
        if self.ended.is_none() {
            // SAFETY: the process has not been reaped, so its id is still its own; it leads its group.
            unsafe { libc::kill(-self.id, libc::SIGKILL) };
            self.signal(libc::SIGKILL);
        }
        self.wait(libc::WEXITED)?.ok_or_else(|| io::Error::other("waited for a process in vain"))
    }

    /// Its address space in bytes; `None` once it is gone.
    pub(crate) fn address_space(&self) -> Option<u64> {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.id)).ok()?;
        statm.split(' ').next()?.parse::<u64>().ok().map(|pages| pages * 4096)
    }

    fn signal(&self, signal: i32) {
        if self.ended.is_none() {
            // SAFETY: as in `end`.
            unsafe { libc::kill(self.id, signal) };
        }
    }

    fn wait(&mut self, options: i32) -> io::Result<Option<End>> {
        while self.ended.is_none() {
            let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
            // SAFETY: our own child, and a struct of ours that the kernel fills.
            let status = unsafe { libc::waitid(libc::P_PID, self.id as libc::id_t, info.as_mut_ptr(), options) };
            if status == 0 {
                // SAFETY: zeroed before, and filled by the kernel where there was something to say.
                self.ended = unsafe { end(&info.assume_init()) };
                break;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok(self.ended)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// # Safety
/// The struct must be what `waitid` filled.
unsafe fn end(info: &libc::siginfo_t) -> Option<End> {
    // SAFETY: the caller's.
    let status = unsafe { info.si_status() };
    match info.si_code {
        libc::CLD_EXITED => Some(End::Exited(status)),
        libc::CLD_KILLED | libc::CLD_DUMPED => Some(End::Killed(status)),
        _ => None,
    }
}

/// Keeps this process's memory and files closed to other processes of the same user.
pub(crate) fn close_own_memory() {
    // SAFETY: concerns this process alone.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
}

/// A signal's name.
pub(crate) fn name(signal: i32) -> String {
    let known = match signal {
        libc::SIGSEGV => "SIGSEGV (invalid memory reference)",
        libc::SIGBUS => "SIGBUS (bad memory access)",
        libc::SIGILL => "SIGILL (illegal instruction)",
        libc::SIGFPE => "SIGFPE (arithmetic error, such as a division by zero)",
        libc::SIGABRT => "SIGABRT (abort)",
        libc::SIGTRAP => "SIGTRAP (trap)",
        libc::SIGKILL => "SIGKILL",
        libc::SIGTERM => "SIGTERM",
        _ => return format!("signal {signal}"),
    };
    known.to_owned()
}

/// Takes a message from a socket without waiting; `None` where there is none yet, an empty one where the other end is gone.
pub(crate) fn receive(socket: &impl AsRawFd, message: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: writes into a slice.
    let length =
        unsafe { libc::recv(socket.as_raw_fd(), message.as_mut_ptr().cast(), message.len(), libc::MSG_DONTWAIT) };
    if length >= 0 {
        return Ok(Some(length as usize));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => Ok(None),
        Some(libc::ECONNRESET) => Ok(Some(0)),
        _ => Err(error),
    }
}

/// Sends a message on a socket.
pub(crate) fn send(socket: &impl AsRawFd, message: &[u8]) -> io::Result<()> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: reads a slice.
    let length = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), flags) };
    if length == message.len().cast_signed() { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A pair of connected sockets that keep the bounds of messages.
pub(crate) fn socket_pair() -> io::Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd)> {
    use std::os::fd::{FromRawFd, OwnedFd};
    let mut pair = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: two fresh descriptors, which the result owns.
    unsafe {
        if libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(pair[0]), OwnedFd::from_raw_fd(pair[1])))
    }
}

/// Waits until one of two descriptors can be read or is closed, at most this long.
pub(crate) fn wait_for_either(one: &impl AsRawFd, two: &impl AsRawFd, timeout: std::time::Duration) -> io::Result<()> {
    let entry = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut entries = [entry(one.as_raw_fd()), entry(two.as_raw_fd())];
    let milliseconds = i32::try_from(timeout.as_millis() + 1).unwrap_or(i32::MAX);
    // SAFETY: an array of ours.
    let status = unsafe { libc::poll(entries.as_mut_ptr(), 2, milliseconds) };
    let error = io::Error::last_os_error();
    if status < 0 && error.kind() != io::ErrorKind::Interrupted { Err(error) } else { Ok(()) }
}

/// The clock that all processes of this machine share, in nanoseconds: the one that `Instant` reads.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Makes reading from a descriptor return at once where there is nothing.
pub(crate) fn do_not_block(fd: &impl AsRawFd) {
    // SAFETY: a descriptor of ours.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
}

/// Prepares a command's process, between fork and exec: a session and a group of its own, its parent's death is its own,
/// and these descriptors stay open.
pub(crate) fn detach(command: &mut std::process::Command, keep: Vec<i32>) {
    use std::os::unix::process::CommandExt;
    let prepare = move || {
        // SAFETY: system calls that are safe after a fork.
        unsafe {
            libc::setsid();
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            for fd in &keep {
                libc::fcntl(*fd, libc::F_SETFD, 0);
            }
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}
