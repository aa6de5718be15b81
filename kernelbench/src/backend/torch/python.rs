//! Which Python, which torch, which device?

use super::{harness::Harness, verifier::ask};
use crate::{
    result::{
        error::{Attempt, Trouble, fault},
        failure::{Failure, Fault},
    },
    sandbox::{
        launch::{self, ARGUMENT, Launch},
        peer::{Peer, Trust},
        process,
        spawn::Nursery,
        tree::Company,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

/// What both sides may read beside Python's own folders.
pub(crate) const SYSTEM: [&str; 11] =
    ["/bin", "/sbin", "/usr", "/lib", "/lib64", "/lib32", "/etc", "/opt", "/proc", "/sys", "/nix/store"];
/// Variables of ours that a Python process keeps: where compilers and libraries are, and nothing else.
const KEPT: [&str; 10] = [
    "PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "LANG",
    "CC",
    "CXX",
    "CUDAHOSTCXX",
    "TORCH_CUDA_ARCH_LIST",
];

/// What was asked of Python once, at the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// The version of Python.
    pub python: String,
    /// The version of torch.
    pub torch: String,
    /// The version of CUDA that torch was built for, if any.
    pub cuda: Option<String>,
    /// The device's name.
    pub device: String,
    /// The device's compute capability, such as `9.0`.
    pub capability: Option<String>,
    /// Bytes of the device's memory.
    pub memory_bytes: u64,
    /// Multiprocessors of the device.
    pub multiprocessors: Option<u32>,
    /// Bytes of the device's second-level cache.
    pub l2_bytes: Option<u64>,
    /// Bytes a second that copying within the device's memory reads and writes, the best of several sizes.
    pub copy_bytes_per_second: Option<f64>,
    /// Folders that Python imports from.
    pub folders: Vec<PathBuf>,
}

/// How Python processes are started.
#[derive(Debug)]
pub(crate) struct Python {
    pub(crate) executable: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) program_args: Vec<std::ffi::OsString>,
    pub(crate) device: String,
    pub(crate) threads: u32,
    pub(crate) tf32: bool,
    pub(crate) memory_mib: u64,
    pub(crate) own_user: bool,
    /// Nsight Compute's program, where it is not `ncu` as the path finds it.
    pub(crate) ncu: Option<PathBuf>,
    /// Whether landlock is left out: a driver was seen not to start behind it.
    pub(crate) open_files: AtomicBool,
    pub(crate) nursery: Nursery,
    /// Folders that it imports from.
    pub(crate) folders: Vec<PathBuf>,
}

impl Python {
    /// Asks Python, without torch, which folders it imports from.
    pub(crate) fn folders(executable: &Path) -> Result<Vec<PathBuf>, Fault> {
        let asked =
            "import json, sys; print(json.dumps(sorted({sys.prefix, sys.base_prefix, *filter(None, sys.path)})))";
        let output = Command::new(executable).args(["-I", "-B", "-c", asked]).output();
        let output = output.map_err(fault(format_args!("cannot start {}", executable.display())))?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            let errors = String::from_utf8_lossy(&output.stderr);
            Fault(format!("{} is no Python: {}", executable.display(), last_line(&errors)))
        })
    }

    /// Asks a judge what there is.
    pub(crate) fn facts(&self, judge: Attempt<&mut Peer>) -> Result<Facts, Fault> {
        let said = judge.and_then(|judge| ask(judge, json!({"do": "facts"}))).map_err(|trouble| {
            let why = match trouble {
                Trouble::Failure(failure) => match *failure {
                    Failure::Exit { stderr, .. } | Failure::Crash { stderr, .. } => last_line(&stderr).to_owned(),
                    other => other.to_string(),
                },
                Trouble::Fault(fault) => fault.0,
            };
            Fault(format!("{} cannot use torch on {}: {why}", self.executable.display(), self.device))
        })?;
        let mut facts: Facts =
            serde_json::from_value(said).map_err(|e| Fault(format!("Python's facts are none: {e}")))?;
        facts.folders.clone_from(&self.folders);
        Ok(facts)
    }

    /// Starts a trusted side.
    pub(crate) fn judge(&self, harness: &Harness) -> Attempt<Peer> {
        let (control, theirs) = process::socket_pair().map_err(fault("cannot make a socket pair"))?;
        let mut command = Command::new(&self.executable);
        command.args(["-I", "-B"]).arg(harness.reference()).arg(launch::number(&theirs).to_string());
        let keep = vec![launch::number(&theirs)];
        Ok(self.start(command, control, keep, Trust::Judge, None, Path::new("/tmp"))?)
    }

    /// Starts an untrusted side, confined to its folder.
    pub(crate) fn runner(&self, harness: &Harness, folder: &Path) -> Attempt<Peer> {
        let (control, theirs) = process::socket_pair().map_err(fault("cannot make a socket pair"))?;
        let user = self.a_user();
        if let Some(user) = user {
            give(folder, user).map_err(fault(format_args!("cannot give {} away", folder.display())))?;
        }
        let script = harness.candidate().display().to_string();
        let on_cpu = self.device == "cpu";
        let launch = Launch {
            parent: std::process::id(),
            user,
            control: launch::number(&theirs),
            readable: readable(&self.folders, harness),
            writable: vec![folder.to_owned()],
            landlock: !self.open_files.load(Ordering::Relaxed),
            command: self.script(&script, &launch::number(&theirs).to_string()),
            memory_bytes: on_cpu.then_some((self.memory_mib + 16 * 1024) << 20),
        };
        let command = self.confined(&launch)?;
        let keep = vec![launch::number(&theirs)];
        let mut peer = self.start(command, control, keep, Trust::Stranger, user, folder)?;
        peer.memory_mib = self.memory_mib;
        Ok(peer)
    }

    /// Whether each process has a user that is nobody else's.
    pub(crate) fn has_users(&self) -> bool {
        launch::is_root() && self.own_user
    }

    /// A user that is nobody else's, where processes are to have one.
    pub(crate) fn a_user(&self) -> Option<u32> {
        self.has_users().then(own_user)
    }

    /// What a process is told first.
    pub(crate) fn setup(&self) -> Value {
        json!({"device": self.device, "threads": self.threads, "tf32": self.tf32, "seed": crate::backend::torch::SEED})
    }

    pub(crate) fn script(&self, script: &str, argument: &str) -> Vec<String> {
        vec![self.executable.display().to_string(), "-I".into(), "-B".into(), script.into(), argument.into()]
    }

    pub(crate) fn confined(&self, launch: &Launch) -> Result<Command, Fault> {
        let mut command = Command::new(&self.program);
        let json = serde_json::to_string(launch).map_err(|e| Fault(e.to_string()))?;
        command.args(&self.program_args).arg(ARGUMENT).arg(json);
        Ok(command)
    }

    pub(crate) fn dress(
        &self,
        command: &mut Command,
        folder: &Path,
        print: std::io::PipeWriter,
        errors: std::io::PipeWriter,
    ) {
        command.env_clear().current_dir(folder).stdin(Stdio::null()).stdout(print).stderr(errors);
        for name in KEPT {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        self.environment(command, folder);
    }

    fn start(
        &self,
        mut command: Command,
        control: OwnedFd,
        keep: Vec<i32>,
        trust: Trust,
        user: Option<u32>,
        folder: &Path,
    ) -> Result<Peer, Fault> {
        let (output, print) = std::io::pipe().map_err(fault("cannot make a pipe"))?;
        let errors = print.try_clone().map_err(fault("cannot make a pipe"))?;
        self.dress(&mut command, folder, print, errors);
        process::detach(&mut command, keep);
        let child = self.nursery.spawn(command)?;
        Ok(Peer::new(&child, control, output, trust, user))
    }

    fn environment(&self, command: &mut Command, folder: &Path) {
        for (name, under) in [
            ("HOME", ""),
            ("TMPDIR", "tmp"),
            ("TORCH_EXTENSIONS_DIR", "extensions"),
            ("TRITON_CACHE_DIR", "triton"),
            ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
            ("CUDA_CACHE_PATH", "cuda"),
        ] {
            command.env(name, folder.join(under));
        }
        let threads = self.threads.to_string();
        command.env("OMP_NUM_THREADS", &threads).env("MKL_NUM_THREADS", &threads);
        command.env("TORCHINDUCTOR_COMPILE_THREADS", "1").env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
        // Memory that was freed is kept, so that a call's time is not that of fresh pages in one process and not in another.
        command.env("MALLOC_MMAP_THRESHOLD_", "33554432").env("MALLOC_TRIM_THRESHOLD_", "17179869184");
        command.env("USER", "candidate").env("LOGNAME", "candidate");
    }
}

fn last_line(text: &str) -> &str {
    text.trim().lines().last().unwrap_or("it said nothing")
}

/// What an untrusted process may read beside its own folder.
pub(crate) fn readable(folders: &[PathBuf], harness: &Harness) -> Vec<PathBuf> {
    let mut readable: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    readable.extend(folders.iter().cloned());
    readable.push(harness.folder().to_owned());
    readable.extend(["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os).map(PathBuf::from));
    readable
}

/// A user that is nobody else's.
pub(crate) fn own_user() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let free = |user: &u32| Company::of(0, Some(*user)).others().is_empty();
    let users = (0..1000).map(|step| 100_000 + (std::process::id() % 1000) * 1000 + (next + step) % 1000);
    users.into_iter().find(free).unwrap_or(65534)
}

/// Gives a folder that nobody has written into yet to a user.
pub(crate) fn give(folder: &Path, user: u32) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give(&entry.path(), user)?;
        } else {
            std::os::unix::fs::lchown(entry.path(), Some(user), Some(user))?;
        }
    }
    std::os::unix::fs::chown(folder, Some(user), Some(user))
}

/// Whether a reply says that something was raised, out of memory or not.
pub(crate) fn raised(said: &Value) -> Option<(String, String, bool)> {
    let raised = said.get("raised")?;
    let text = |name: &str| raised[name].as_str().unwrap_or_default().to_owned();
    Some((text("error"), text("traceback"), raised["memory"].as_bool().unwrap_or(false)))
}
