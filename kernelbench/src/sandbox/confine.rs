//! The confinement of a child process: namespaces, user, resource limits, Landlock, and death with its parent.
//!
//! Applied by the child to itself before any line of a candidate runs. A layer that this system does not offer is named
//! and passed over: the layers overlap, and a certificate says which were missing. The system-call filter is a layer of
//! its own (`filter`), for it comes last.

use super::layer::Layer;
use caps::CapSet;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};
use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        prctl,
        resource::{Resource, setrlimit},
        signal::Signal,
    },
    unistd::{Gid, Pid, Uid, geteuid, getppid, setgroups, setresgid, setresuid},
};
use serde::{Deserialize, Serialize};
use std::{os::fd::BorrowedFd, path::PathBuf};

/// The user and group that a child of root becomes where it needs none of its own: nobody.
const NOBODY: u32 = 65534;

/// Where the system's libraries are: what a kernel may read while it is loaded.
const LIBRARIES: [&str; 9] =
    ["/lib", "/lib64", "/lib32", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt", "/nix/store", "/etc/ld.so.cache"];

/// What a child process may reach and use up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// The parent's process id: where it differs, the parent is gone.
    pub(crate) parent: i32,
    /// Whose rights it has.
    pub(crate) user: User,
    /// What it may use up.
    pub(crate) limits: Limits,
    /// What it may read and write; everything that its user may, where Landlock is left out.
    pub(crate) files: Option<Files>,
    /// Whether it keeps the System V IPC of its parent: what a GPU's driver may need.
    pub(crate) shares_ipc: bool,
}

/// Whose rights a child has. Capabilities it never has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum User {
    /// The program's own user.
    Same,
    /// `nobody` where the program runs as root; else its own user.
    Nobody,
    /// A user that is this child's alone.
    Own(u32),
}

/// What a process may use up.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Address space, in bytes.
    pub(crate) address_space: Option<u64>,
    /// CPU time, in seconds.
    pub(crate) cpu_seconds: Option<u64>,
    /// The length of a file that it writes, in bytes.
    pub(crate) file_bytes: u64,
    /// Processes and threads of its user; `None` for as many as there may be.
    pub(crate) processes: Option<u64>,
    /// Open files.
    pub(crate) files: u64,
}

/// What a process may read and write, by Landlock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Files {
    /// What it may read and run, beside the system's libraries.
    pub(crate) read: Vec<PathBuf>,
    /// What it may write.
    pub(crate) write: Vec<PathBuf>,
    /// Whether it may use devices, as a GPU's driver does.
    pub(crate) devices: bool,
}

impl Confinement {
    /// Applies every layer to this process, and says how each came out. `object` is a file that it may read and run, too.
    pub(crate) fn apply(&self, object: Option<BorrowedFd<'_>>) -> Vec<Layer> {
        // Limits come after the change of user: who exceeds the limit of processes at that moment may not become another
        // program. The parent's death comes after it too, for a change of user clears that setting.
        vec![
            Layer::of("namespaces", "it has no network and shares no host name with others", self.namespaces()),
            Layer::of("unprivileged user", self.user.describe(), self.user.become_it()),
            Layer::of("resource limits", "memory, files and processes are limited", self.limits.apply()),
            Layer::of(
                "landlock",
                "it reads the system's files and its own, and writes into its own folder alone",
                self.files.as_ref().map_or_else(
                    || Err("what runs behind it does not start here".to_owned()),
                    |files| files.apply(object),
                ),
            ),
            Layer::of("parent's death", "it dies with the program that started it", die_with(self.parent)),
        ]
    }

    fn namespaces(&self) -> Result<(), String> {
        let ipc = if self.shares_ipc { CloneFlags::empty() } else { CloneFlags::CLONE_NEWIPC };
        let apart = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS | ipc;
        let as_root = unshare(apart);
        as_root
            .or_else(|_| unshare(apart | CloneFlags::CLONE_NEWUSER))
            .map_err(|e| format!("unshare with a user namespace: {e}"))
    }
}

impl User {
    fn describe(self) -> &'static str {
        match self {
            Self::Own(_) => "it is a user of its own, without privileges",
            _ if geteuid().is_root() => "it runs as nobody, without privileges",
            _ => "it runs as this user, without privileges",
        }
    }

    /// Gives up all privileges, and becomes this user where that is possible.
    fn become_it(self) -> Result<(), String> {
        let said = |what: &'static str| move |e: nix::Error| format!("{what}: {e}");
        prctl::set_no_new_privs().map_err(said("no_new_privs"))?;
        // Above what this kernel knows there is nothing to drop.
        for capability in caps::all() {
            let _ = caps::drop(None, CapSet::Bounding, capability);
        }
        let id = match self {
            Self::Own(user) => Some(user),
            Self::Nobody => geteuid().is_root().then_some(NOBODY),
            Self::Same => None,
        };
        if let Some(id) = id {
            let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
            setgroups(&[]).map_err(said("setgroups"))?;
            setresgid(group, group, group).map_err(said("setresgid"))?;
            setresuid(user, user, user).map_err(said("setresuid"))?;
        }
        for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
            caps::clear(None, set).map_err(|e| format!("capset: {e}"))?;
        }
        match self {
            Self::Same => Err("it has no capabilities, but runs as the program's own user".to_owned()),
            _ => Ok(()),
        }
    }
}

impl Limits {
    fn apply(&self) -> Result<(), String> {
        let limit =
            |resource: Resource, value: u64| setrlimit(resource, value, value).map_err(|e| format!("setrlimit: {e}"));
        let maybe = |resource, value: Option<u64>| value.map_or(Ok(()), |value| limit(resource, value));
        maybe(Resource::RLIMIT_AS, self.address_space)?;
        maybe(Resource::RLIMIT_CPU, self.cpu_seconds)?;
        maybe(Resource::RLIMIT_NPROC, self.processes)?;
        if self.processes == Some(0) {
            limit(Resource::RLIMIT_MEMLOCK, 0)?;
        }
        limit(Resource::RLIMIT_FSIZE, self.file_bytes)?;
        limit(Resource::RLIMIT_CORE, 0)?;
        limit(Resource::RLIMIT_NOFILE, self.files)
    }
}

impl Files {
    fn apply(&self, object: Option<BorrowedFd<'_>>) -> Result<(), String> {
        let abi = ABI::V6;
        let existing = |paths: &[PathBuf]| paths.iter().filter(|path| path.exists()).cloned().collect::<Vec<_>>();
        let restrict = || {
            let mut ruleset = Ruleset::default()
                .set_compatibility(CompatLevel::BestEffort)
                .handle_access(AccessFs::from_all(abi))?
                .handle_access(AccessNet::from_all(abi))?
                .scope(Scope::from_all(abi))?
                .create()?
                .add_rules(path_beneath_rules(LIBRARIES, AccessFs::from_read(abi)))?
                .add_rules(path_beneath_rules(existing(&self.read), AccessFs::from_read(abi)))?
                .add_rules(path_beneath_rules(existing(&self.write), AccessFs::from_all(abi)))?;
            if self.devices {
                let write = AccessFs::from_read(abi) | AccessFs::WriteFile;
                // The driver of a GPU names its threads, through the process's own folder.
                ruleset = ruleset
                    .add_rules(path_beneath_rules(["/proc/self"], write | AccessFs::Truncate))?
                    .add_rules(path_beneath_rules(["/dev"], write | AccessFs::IoctlDev))?;
            }
            if let Some(object) = object {
                ruleset = ruleset.add_rule(PathBeneath::new(object, AccessFs::ReadFile | AccessFs::Execute))?;
            }
            ruleset.restrict_self()
        };
        match restrict().map_err(|e: landlock::RulesetError| e.to_string())?.ruleset {
            RulesetStatus::NotEnforced => Err("this kernel has no landlock".to_owned()),
            _ => Ok(()),
        }
    }
}

fn die_with(parent: i32) -> Result<(), String> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| format!("parent death signal: {e}"))?;
    if getppid() != Pid::from_raw(parent) {
        std::process::exit(1);
    }
    Ok(())
}
