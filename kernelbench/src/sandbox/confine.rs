//! The confinement of a child process: namespaces, user, resource limits, Landlock, and death with its parent.
//!
//! Applied by the child to itself before any line of a candidate runs. A layer that this system does not offer is named
//! and passed over: the layers overlap, and a certificate says which were missing. The system-call filter is a layer of
//! its own (`filter`), for it comes last.

use super::layer::Layer;
use caps::CapSet;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
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
use serde::{Deserialize, Serialize, Serializer};
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

/// What a layer does, for a process to do to itself: here, or in a process of the zygote's, which is told so as JSON
/// (`harness/confine.py`).
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    /// Leaves the namespaces of these flags, in the first of these ways that is allowed.
    Unshare(Vec<i32>),
    /// Gives up all privileges, and becomes a user.
    Become { user: Option<u32>, short_of: Option<&'static str> },
    /// Resources of setrlimit(2), and their limits.
    #[serde(serialize_with = "by_number")]
    Limit(Vec<(Resource, u64)>),
    /// Reaches these files alone.
    Landlock(Rules),
    /// Nothing, for this reason.
    Fail(&'static str),
    /// Dies with this parent.
    DieWith(i32),
}

/// One layer as another process applies it to itself.
#[derive(Debug, Serialize)]
pub(crate) struct Planned {
    name: &'static str,
    does: &'static str,
    step: Step,
}

impl Confinement {
    /// Applies every layer to this process, and says how each came out. `object` is a file that it may read and run, too.
    pub(crate) fn apply(&self, object: Option<BorrowedFd<'_>>) -> Vec<Layer> {
        let applied = |planned: Planned| Layer::of(planned.name, planned.does, planned.step.take(object));
        self.plan().into_iter().map(applied).collect()
    }

    /// Every layer, in order.
    pub(crate) fn plan(&self) -> Vec<Planned> {
        // Limits come after the change of user: who exceeds the limit of processes at that moment may not become another
        // program. The parent's death comes after it too, for a change of user clears that setting.
        let planned = |name, does, step| Planned { name, does, step };
        vec![
            planned("namespaces", "it has no network and shares no host name with others", self.namespaces()),
            planned("unprivileged user", self.user.describe(), self.user.become_it()),
            planned("resource limits", "memory, files and processes are limited", Step::Limit(self.limits.rows())),
            planned(
                "landlock",
                "it reads the system's files and its own, and writes into its own folder alone",
                self.files.as_ref().map_or(Step::Fail("what runs behind it does not start here"), |files| {
                    Step::Landlock(files.rules())
                }),
            ),
            planned("parent's death", "it dies with the program that started it", Step::DieWith(self.parent)),
        ]
    }

    fn namespaces(&self) -> Step {
        let ipc = if self.shares_ipc { CloneFlags::empty() } else { CloneFlags::CLONE_NEWIPC };
        let apart = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS | ipc;
        Step::Unshare([apart, apart | CloneFlags::CLONE_NEWUSER].iter().map(CloneFlags::bits).collect())
    }
}

impl Step {
    fn take(self, object: Option<BorrowedFd<'_>>) -> Result<(), String> {
        match self {
            Self::Unshare(ways) => leave(&ways),
            Self::Become { user, short_of } => become_user(user, short_of),
            Self::Limit(rows) => limit(&rows),
            Self::Landlock(rules) => rules.apply(object),
            Self::Fail(why) => Err(why.to_owned()),
            Self::DieWith(parent) => die_with(parent),
        }
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
    fn become_it(self) -> Step {
        let user = match self {
            Self::Own(user) => Some(user),
            Self::Nobody => geteuid().is_root().then_some(NOBODY),
            Self::Same => None,
        };
        let own = "it has no capabilities, but runs as the program's own user";
        Step::Become { user, short_of: (self == Self::Same).then_some(own) }
    }
}

impl Limits {
    /// Resources of setrlimit(2), and their limits.
    fn rows(&self) -> Vec<(Resource, u64)> {
        let no_process = (self.processes == Some(0)).then_some(0);
        let rows = [
            (Resource::RLIMIT_AS, self.address_space),
            (Resource::RLIMIT_CPU, self.cpu_seconds),
            (Resource::RLIMIT_NPROC, self.processes),
            (Resource::RLIMIT_MEMLOCK, no_process),
            (Resource::RLIMIT_FSIZE, Some(self.file_bytes)),
            (Resource::RLIMIT_CORE, Some(0)),
            (Resource::RLIMIT_NOFILE, Some(self.files)),
        ];
        rows.into_iter().filter_map(|(resource, limit)| Some((resource, limit?))).collect()
    }
}

/// What Landlock lets through: rights as numbers of the kernel's, so that whoever has no library for it can ask for them.
#[derive(Debug, Serialize)]
struct Rules {
    /// All rights to files, to the network, and of scope that each version of Landlock knows, from the first on.
    fs: Vec<u64>,
    net: Vec<u64>,
    scope: Vec<u64>,
    /// Those that a file can have, which is no folder.
    of_a_file: u64,
    /// Rights, and the paths under which they are given. What is not there is left out.
    paths: Vec<(u64, Vec<PathBuf>)>,
}

/// The versions of Landlock that are known here.
const VERSIONS: [ABI; 6] = [ABI::V1, ABI::V2, ABI::V3, ABI::V4, ABI::V5, ABI::V6];

impl Files {
    fn rules(&self) -> Rules {
        let abi = VERSIONS[VERSIONS.len() - 1];
        let (read, all) = (AccessFs::from_read(abi), AccessFs::from_all(abi));
        let write = read | AccessFs::WriteFile;
        let device = |path: &str, rights: BitFlags<AccessFs>| (rights.bits(), vec![path.into()]);
        // The driver of a GPU names its threads, through the process's own folder.
        let devices = [device("/proc/self", write | AccessFs::Truncate), device("/dev", write | AccessFs::IoctlDev)];
        let libraries = LIBRARIES.iter().map(PathBuf::from).collect();
        let files = [(read.bits(), libraries), (read.bits(), self.read.clone()), (all.bits(), self.write.clone())];
        Rules {
            fs: VERSIONS.iter().map(|abi| AccessFs::from_all(*abi).bits()).collect(),
            net: VERSIONS.iter().map(|abi| AccessNet::from_all(*abi).bits()).collect(),
            scope: VERSIONS.iter().map(|abi| Scope::from_all(*abi).bits()).collect(),
            of_a_file: AccessFs::from_file(abi).bits(),
            paths: files.into_iter().chain(devices.into_iter().filter(|_| self.devices)).collect(),
        }
    }
}

impl Rules {
    fn apply(&self, object: Option<BorrowedFd<'_>>) -> Result<(), String> {
        let abi = VERSIONS[VERSIONS.len() - 1];
        let restrict = || {
            let mut ruleset = Ruleset::default()
                .set_compatibility(CompatLevel::BestEffort)
                .handle_access(AccessFs::from_all(abi))?
                .handle_access(AccessNet::from_all(abi))?
                .scope(Scope::from_all(abi))?
                .create()?;
            for (rights, paths) in &self.paths {
                let there = paths.iter().filter(|path| path.exists());
                ruleset = ruleset.add_rules(path_beneath_rules(there, BitFlags::from_bits_truncate(*rights)))?;
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

/// The first of these ways that this system allows.
fn leave(ways: &[i32]) -> Result<(), String> {
    let mut last = Ok(());
    for way in ways {
        last = unshare(CloneFlags::from_bits_retain(*way));
        if last.is_ok() {
            break;
        }
    }
    last.map_err(|e| format!("unshare with a user namespace: {e}"))
}

fn become_user(user: Option<u32>, short_of: Option<&str>) -> Result<(), String> {
    let said = |what: &'static str| move |e: nix::Error| format!("{what}: {e}");
    prctl::set_no_new_privs().map_err(said("no_new_privs"))?;
    // Above what this kernel knows there is nothing to drop.
    for capability in caps::all() {
        let _ = caps::drop(None, CapSet::Bounding, capability);
    }
    if let Some(id) = user {
        let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
        setgroups(&[]).map_err(said("setgroups"))?;
        setresgid(group, group, group).map_err(said("setresgid"))?;
        setresuid(user, user, user).map_err(said("setresuid"))?;
    }
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set).map_err(|e| format!("capset: {e}"))?;
    }
    short_of.map_or(Ok(()), |why| Err(why.to_owned()))
}

fn limit(rows: &[(Resource, u64)]) -> Result<(), String> {
    let limit = |(resource, value): &(Resource, u64)| setrlimit(*resource, *value, *value);
    rows.iter().try_for_each(limit).map_err(|e| format!("setrlimit: {e}"))
}

/// As setrlimit(2) numbers them.
fn by_number<S: Serializer>(rows: &[(Resource, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(rows.iter().map(|(resource, value)| (*resource as u32, value)))
}

fn die_with(parent: i32) -> Result<(), String> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| format!("parent death signal: {e}"))?;
    if getppid() != Pid::from_raw(parent) {
        std::process::exit(1);
    }
    Ok(())
}
