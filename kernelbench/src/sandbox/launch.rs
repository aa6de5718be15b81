//! How is a Python process started, and what may it reach?
//!
//! A candidate's process starts as this program, confines itself, and becomes Python by `exec`. A layer that this system
//! does not offer is named and passed over: the layers overlap, and a certificate says which were missing.
#![expect(unsafe_code, reason = "makes system calls")]

use crate::{backend::native::Layer, sandbox::process};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    Scope, path_beneath_rules,
};
use serde::{Deserialize, Serialize};
use std::{
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::Command,
};

/// The argument that leads a hidden sub-command here.
pub(crate) const ARGUMENT: &str = "python-launch";

/// What a confined Python process is given.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// The program's process id: where it differs, the program is gone.
    pub(crate) parent: u32,
    /// The user to become, where the program runs as root.
    pub(crate) user: Option<u32>,
    /// The descriptor of the control socket.
    pub(crate) control: i32,
    /// What may be read.
    pub(crate) readable: Vec<PathBuf>,
    /// What may be written.
    pub(crate) writable: Vec<PathBuf>,
    /// Whether landlock is tried at all.
    pub(crate) landlock: bool,
    /// The command line.
    pub(crate) command: Vec<String>,
    /// Address space in bytes; unlimited where it is `None`, for CUDA reserves more than there is.
    pub(crate) memory_bytes: Option<u64>,
}

/// Confines this process and turns it into Python. Never returns.
pub(crate) fn main(json: &str) -> ! {
    let Ok(launch) = serde_json::from_str::<Launch>(json) else { std::process::exit(2) };
    let layers = confine(&launch);
    // SAFETY: the descriptor was left open for this process, which is about to be replaced.
    let control = unsafe { OwnedFd::from_raw_fd(launch.control) };
    let said = serde_json::to_vec(&layers).unwrap_or_default();
    let _ = process::send(&control, &said);
    std::mem::forget(control);
    let error = Command::new(&launch.command[0]).args(&launch.command[1..]).exec();
    let _ =
        io::Write::write_all(&mut io::stderr(), format!("cannot start {}: {error}\n", launch.command[0]).as_bytes());
    std::process::exit(127)
}

/// Applies every layer, and says how each came out.
pub(crate) fn confine(launch: &Launch) -> Vec<Layer> {
    vec![
        layer("resource limits", "files, processes and memory are limited", limits(launch)),
        layer("namespaces", "it has no network", namespaces()),
        layer("unprivileged user", "it is a user of its own, without privileges", drop_privileges(launch.user)),
        layer("landlock", "it reads the system and Python, and writes into its own folder alone", landlock(launch)),
        layer("parent's death", "it dies with the program that started it", die_with(launch.parent)),
    ]
}

fn layer(name: &str, does: &str, came_out: Result<(), String>) -> Layer {
    let in_force = came_out.is_ok();
    Layer { name: name.to_owned(), in_force, why: came_out.err().unwrap_or_else(|| does.to_owned()) }
}

fn limits(launch: &Launch) -> Result<(), String> {
    if let Some(bytes) = launch.memory_bytes {
        limit(libc::RLIMIT_AS, bytes)?;
    }
    limit(libc::RLIMIT_CORE, 0)?;
    limit(libc::RLIMIT_FSIZE, 4 << 30)?;
    limit(libc::RLIMIT_NPROC, 1024)?;
    limit(libc::RLIMIT_NOFILE, 4096)
}

fn limit(resource: libc::__rlimit_resource_t, value: u64) -> Result<(), String> {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: reads one struct of ours.
    check(unsafe { libc::setrlimit(resource, &raw const limit) }, "setrlimit")
}

fn namespaces() -> Result<(), String> {
    // SAFETY: concerns this single-threaded process alone.
    let as_root = check(unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWUTS) }, "unshare");
    let apart = libc::CLONE_NEWNET | libc::CLONE_NEWUTS | libc::CLONE_NEWUSER;
    // SAFETY: as above.
    as_root.or_else(|_| check(unsafe { libc::unshare(apart) }, "unshare with a user namespace"))
}

fn drop_privileges(user: Option<u32>) -> Result<(), String> {
    // SAFETY: plain system calls that concern this process alone; the structs live through the call that reads them.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")?;
        for capability in 0..64 {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
        if let Some(user) = user {
            check(libc::setgroups(0, std::ptr::null()), "setgroups")?;
            check(libc::setresgid(user, user, user), "setresgid")?;
            check(libc::setresuid(user, user, user), "setresuid")?;
        }
        let (header, none) = ([0x2008_0522_u32, 0], [0_u32; 6]);
        check(libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) as libc::c_int, "capset")?;
        user.map(|_| ()).ok_or_else(|| "it has no capabilities, but runs as the program's own user".to_owned())
    }
}

fn landlock(launch: &Launch) -> Result<(), String> {
    if !launch.landlock {
        return Err("what runs behind it does not start here".to_owned());
    }
    let abi = ABI::V6;
    let existing = |paths: &[PathBuf]| paths.iter().filter(|path| path.exists()).cloned().collect::<Vec<_>>();
    let named = AccessFs::from_read(abi) | AccessFs::WriteFile | AccessFs::Truncate;
    let restrict = || {
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(abi))?
            .handle_access(AccessNet::from_all(abi))?
            .scope(Scope::from_all(abi))?
            .create()?
            .add_rules(path_beneath_rules(existing(&launch.readable), AccessFs::from_read(abi)))?
            .add_rules(path_beneath_rules(existing(&launch.writable), AccessFs::from_all(abi)))?
            // The driver of a GPU names its threads, through the process's own folder.
            .add_rules(path_beneath_rules(["/proc/self"], named))?
            .add_rules(path_beneath_rules(
                ["/dev"],
                AccessFs::from_read(abi) | AccessFs::WriteFile | AccessFs::IoctlDev,
            ))?
            .restrict_self()
    };
    match restrict().map_err(|e: landlock::RulesetError| e.to_string())?.ruleset {
        RulesetStatus::NotEnforced => Err("this kernel has no landlock".to_owned()),
        _ => Ok(()),
    }
}

fn die_with(parent: u32) -> Result<(), String> {
    // SAFETY: plain system calls. A change of user clears the setting, so it comes after that.
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0), "parent death signal")?;
        if libc::getppid() as u32 != parent {
            libc::_exit(1);
        }
    }
    Ok(())
}

fn check(status: libc::c_int, what: &str) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("{what}: {}", io::Error::last_os_error())) }
}

/// Sends a message on a socket, and at most four files with it.
pub(crate) fn send_with(socket: &impl AsRawFd, message: &[u8], files: &[&OwnedFd]) -> io::Result<()> {
    let numbers: Vec<i32> = files.iter().take(4).map(|file| number(*file)).collect();
    let bytes = size_of_val(numbers.as_slice()) as libc::c_uint;
    let mut control = [0_u64; 8];
    let mut part = libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    // SAFETY: what the header points to lives through the call, and the control buffer holds one header and four numbers.
    let length = unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
        if !numbers.is_empty() {
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(bytes) as _;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            ((*first).cmsg_level, (*first).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
            (*first).cmsg_len = libc::CMSG_LEN(bytes) as _;
            std::ptr::copy_nonoverlapping(numbers.as_ptr().cast(), libc::CMSG_DATA(first), bytes as usize);
        }
        libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    };
    if length == message.len().cast_signed() { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A memory file of no length yet, which can be sealed.
pub(crate) fn memory_file() -> io::Result<OwnedFd> {
    // SAFETY: a fresh descriptor, which the result owns.
    unsafe {
        let fd = libc::memfd_create(c"warpsmith".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Makes a named pipe that its owner alone may open.
pub(crate) fn fifo(path: &std::path::Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    // SAFETY: reads a string of ours.
    if unsafe { libc::mkfifo(path.as_ptr(), 0o600) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether this program runs as root.
pub(crate) fn is_root() -> bool {
    // SAFETY: asks alone.
    unsafe { libc::geteuid() == 0 }
}

/// Sends a signal to one process.
pub(crate) fn signal(process: i32, signal: i32) {
    // SAFETY: the caller has just seen that process run as a candidate's own user.
    unsafe { libc::kill(process, signal) };
}

/// A descriptor's number.
pub(crate) fn number(fd: &impl AsRawFd) -> i32 {
    fd.as_raw_fd()
}
