//! The hidden sub-command: which child a process of this program is to become.
#![expect(unsafe_code, reason = "takes over descriptors")]

use super::{confine::Confinement, filter::tool, socket};
use crate::backend::{cuda::child as cuda, native::child as native};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    fs::File,
    io::Write,
    os::{
        fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::Command,
};

/// A child process: the argument of the hidden sub-command says it, as JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Child {
    /// A kernel on the CPU, called as often as its parent asks.
    CpuKernel(native::Setup),
    /// A kernel on the CPU, called a few times for a profiler.
    CpuOnce(native::Once),
    /// A kernel on an NVIDIA GPU, called as often as its parent asks.
    CudaKernel(cuda::Setup),
    /// A kernel on an NVIDIA GPU, called once for a profiler.
    CudaOnce(cuda::Once),
    /// Another program: a compiler, a Python, a profiler.
    Program(Program),
}

/// Somebody's code that a program runs beside its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wrapped {
    /// What starts no thread, as its tool does not: a kernel under a profiler, a script.
    Single,
    /// What an emulator runs, which has threads of its own.
    Emulated,
}

/// Another program, confined.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    /// How.
    pub(crate) confinement: Confinement,
    /// The line to its parent, on which it is first said how the confinement came out; none where nobody listens.
    pub(crate) control: Option<RawFd>,
    /// Whose code it runs beside its own, where it does: then it starts no process and reaches none.
    #[serde(default)]
    pub(crate) wraps: Option<Wrapped>,
    /// Closed once it runs; where it could not be started, it is first said here why.
    #[serde(default)]
    pub(crate) unstarted: Option<RawFd>,
    /// Its command line; what follows this child's own argument is appended.
    pub(crate) line: Vec<String>,
}

/// Becomes the child that the arguments ask for, and ends the process.
///
/// This is what the hidden sub-command calls, first thing in `main` and before any thread is started.
pub fn child_main() -> ! {
    let mut arguments = std::env::args_os().skip_while(|argument| !argument.as_encoded_bytes().starts_with(b"{"));
    let asked = arguments.next().unwrap_or_default();
    let ran = match serde_json::from_slice::<Child>(asked.as_encoded_bytes()) {
        Ok(Child::CpuKernel(setup)) => native::serve(setup),
        Ok(Child::CpuOnce(once)) => native::run_once(once),
        Ok(Child::CudaKernel(setup)) => cuda::serve(&setup),
        Ok(Child::CudaOnce(once)) => cuda::run_once(&once),
        Ok(Child::Program(program)) => program.become_it(arguments),
        Err(e) => Err(format!("this sub-command is for the program's own children: {e}")),
    };
    if let Err(why) = &ran {
        let _ = writeln!(std::io::stderr(), "{why}");
    }
    std::process::exit(if ran.is_ok() { 0 } else { 127 })
}

fn say(fd: RawFd, why: &str) {
    // SAFETY: the parent left it open for us, and nothing else in this process owns it.
    let _ = File::from(unsafe { OwnedFd::from_raw_fd(fd) }).write_all(why.as_bytes());
}

fn close_at_exec(fd: RawFd) {
    // SAFETY: the parent left it open for us.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let _ = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC));
}

impl Program {
    fn become_it(self, more: impl Iterator<Item = OsString>) -> Result<(), String> {
        let layers = self.confinement.apply(None);
        if let Some(control) = self.control {
            let said = serde_json::to_vec(&layers).unwrap_or_default();
            let _ = socket::send(&control, &said, &[]);
        }
        let [program, arguments @ ..] = &self.line[..] else { return Err("expected a program to start".to_owned()) };
        if let Some(wrapped) = self.wraps {
            tool::apply(wrapped)?;
        }
        if let Some(fd) = self.unstarted {
            close_at_exec(fd);
        }
        let error = Command::new(program).args(arguments).args(more).exec();
        let why = format!("cannot start {program}: {error}");
        if let Some(fd) = self.unstarted {
            say(fd, &why);
        }
        Err(why)
    }
}
