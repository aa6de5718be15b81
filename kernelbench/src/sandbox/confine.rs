//! What may the child's process reach?
//!
//! Applied by the child to itself before any line of a candidate's runs. Each layer that this system does not offer is
//! named and passed over: the layers overlap, and a certificate says which were missing.
#![expect(unsafe_code, reason = "makes system calls")]

use super::{
    enclose::Enclosure,
    filter::{self, Phase},
};
use crate::backend::native::wire::{Layer, Setup};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};
use serde::{Deserialize, Serialize};
use std::{io, os::fd::BorrowedFd, path::PathBuf};

/// The user and group that a child of root becomes: nobody.
const NOBODY: libc::uid_t = 65534;

/// What a kernel may read while it is loaded: the system's libraries.
const LIBRARIES: &[&str] =
    &["/lib", "/lib64", "/lib32", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt", "/nix/store", "/etc/ld.so.cache"];

/// Applies every layer up to the loading of the kernel, and says how each came out.
pub(crate) fn confine(setup: &Setup, address_space: u64, control: i32, artifact: BorrowedFd<'_>) -> Vec<Layer> {
    let bounds = Limits {
        address_space: Some(address_space.saturating_add(setup.memory_bytes)),
        cpu_seconds: setup.cpu_seconds,
        file_bytes: 0,
        processes: false,
        files: 64,
    };
    // SAFETY: a plain system call.
    let root = unsafe { libc::geteuid() } == 0;
    let who = if root { "it runs as nobody, without privileges" } else { "it runs as this user, without privileges" };
    vec![
        layer("resource limits", "memory, processor time, files and processes are limited", limits(&bounds)),
        layer("namespaces", "it has no network and shares no memory or host name with others", namespaces()),
        layer("unprivileged user", who, drop_privileges()),
        layer(
            "landlock",
            "it reads the system's libraries alone, and writes nowhere",
            landlock(&[], &[], Some(artifact)),
        ),
        layer("parent's death", "it dies with the program that started it", die_with(setup.parent)),
        layer(
            "system call filter",
            "it can start nothing, open nothing, send nothing",
            seccomp(Phase::Loading, control, setup),
        ),
    ]
}

/// The last layer, once the kernel is loaded: from here on it opens no file at all.
pub(crate) fn lock(control: i32, setup: &Setup) -> Layer {
    layer("system call filter after loading", "it cannot even read a file", seccomp(Phase::Running, control, setup))
}

/// Applies to this process what fits a tool that it is about to become. Layers that this system lacks are passed over.
pub(crate) fn enclose(enclosure: &Enclosure) {
    // SAFETY: a plain system call.
    let parent = unsafe { libc::getppid() };
    let _ = namespaces();
    if enclosure.nobody {
        let _ = drop_privileges();
    }
    // After the change of user: who exceeds the limit of processes at that moment may not become another program.
    let _ = limits(&enclosure.limits);
    let _ = landlock(&enclosure.read, &enclosure.write, None);
    let _ = die_with(parent.cast_unsigned());
}

fn layer(name: &str, does: &str, came_out: Result<(), String>) -> Layer {
    let in_force = came_out.is_ok();
    Layer { name: name.to_owned(), in_force, why: came_out.err().unwrap_or_else(|| does.to_owned()) }
}

/// What a process may use up.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Address space, in bytes.
    pub(crate) address_space: Option<u64>,
    /// Processor time, in seconds.
    pub(crate) cpu_seconds: u64,
    /// The length of a file that it writes, in bytes.
    pub(crate) file_bytes: u64,
    /// Whether it may start processes and threads.
    pub(crate) processes: bool,
    /// Open files.
    pub(crate) files: u64,
}

fn limits(limits: &Limits) -> Result<(), String> {
    if let Some(bytes) = limits.address_space {
        limit(libc::RLIMIT_AS, bytes)?;
    }
    if !limits.processes {
        limit(libc::RLIMIT_NPROC, 0)?;
        limit(libc::RLIMIT_MEMLOCK, 0)?;
    }
    limit(libc::RLIMIT_CPU, limits.cpu_seconds)?;
    limit(libc::RLIMIT_FSIZE, limits.file_bytes)?;
    limit(libc::RLIMIT_CORE, 0)?;
    limit(libc::RLIMIT_NOFILE, limits.files)
}

#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

fn limit(resource: Resource, value: u64) -> Result<(), String> {
    let limit = libc::rlimit { rlim_cur: value as libc::rlim_t, rlim_max: value as libc::rlim_t };
    // SAFETY: reads one struct of ours.
    check(unsafe { libc::setrlimit(resource, &raw const limit) }, "setrlimit")
}

fn namespaces() -> Result<(), String> {
    let apart = libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    // SAFETY: concerns this single-threaded process alone.
    let as_root = check(unsafe { libc::unshare(apart) }, "unshare");
    // SAFETY: as above.
    as_root.or_else(|_| check(unsafe { libc::unshare(apart | libc::CLONE_NEWUSER) }, "unshare with a user namespace"))
}

fn drop_privileges() -> Result<(), String> {
    // SAFETY: plain system calls that concern this process alone; the two structs live through the call that reads them.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")?;
        for capability in 0..64 {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
        if libc::geteuid() == 0 {
            check(libc::setgroups(0, std::ptr::null()), "setgroups")?;
            check(libc::setresgid(NOBODY, NOBODY, NOBODY), "setresgid")?;
            check(libc::setresuid(NOBODY, NOBODY, NOBODY), "setresuid")?;
        }
        let (header, none) = ([0x2008_0522_u32, 0], [0_u32; 6]);
        check(libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) as libc::c_int, "capset")
    }
}

fn landlock(read: &[PathBuf], write: &[PathBuf], artifact: Option<BorrowedFd<'_>>) -> Result<(), String> {
    let abi = ABI::V6;
    let restrict = || {
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(abi))?
            .handle_access(AccessNet::from_all(abi))?
            .scope(Scope::from_all(abi))?
            .create()?
            .add_rules(path_beneath_rules(LIBRARIES, AccessFs::from_read(abi)))?
            .add_rules(path_beneath_rules(read, AccessFs::from_read(abi)))?
            .add_rules(path_beneath_rules(write, AccessFs::from_all(abi)))?;
        if let Some(artifact) = artifact {
            ruleset = ruleset.add_rule(PathBeneath::new(artifact, AccessFs::ReadFile | AccessFs::Execute))?;
        }
        ruleset.restrict_self()
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
        if libc::getppid().cast_unsigned() != parent {
            libc::_exit(1);
        }
    }
    Ok(())
}

fn seccomp(phase: Phase, control: i32, setup: &Setup) -> Result<(), String> {
    let mut programs = vec![filter::filter(phase, control, setup.memory_bytes)?];
    if phase == Phase::Loading {
        programs.insert(0, filter::keep_signals_open()?);
    }
    programs.iter().try_for_each(|program| seccompiler::apply_filter(program).map_err(|e| e.to_string()))
}

fn check(status: libc::c_int, what: &str) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("{what}: {}", io::Error::last_os_error())) }
}
