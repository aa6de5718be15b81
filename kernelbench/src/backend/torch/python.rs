//! The Python that has torch: what it is, and how processes of it are started.

use super::{
    contract::SEED,
    harness::Harness,
    options::Options,
    verifier::Verifier,
    wire::{Ask, Setup},
    zygote::{Fork, Zygote},
};
use crate::{
    machine::gpu,
    profile::tool::DRIVER_LIMITS,
    result::{
        error::{Attempt, EvalError, fault},
        failure::{Failure, Fault},
    },
    sandbox::{
        confine::{Confinement, Files, Limits, User},
        entry::{Child, Program},
        peer::{Allowed, Peer, Trust},
        pool::{Starting, Turn},
        start::{Dress, Sandbox, Started, give, is_root, kept, variable},
        tree::own_user,
    },
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

/// What both sides may read beside Python's own folders.
const SYSTEM: [&str; 11] =
    ["/bin", "/sbin", "/usr", "/lib", "/lib64", "/lib32", "/etc", "/opt", "/proc", "/sys", "/nix/store"];
/// Variables of ours that a Python process keeps: where compilers and libraries are, and nothing else.
const KEPT: [&str; 9] =
    ["PATH", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "LANG", "CC", "CXX", "CUDAHOSTCXX", "TORCH_CUDA_ARCH_LIST"];
/// Where compilers keep what they built, by the variable that says so, in a process's folder.
const CACHES: [(&str, &str); 4] = [
    ("TORCH_EXTENSIONS_DIR", "extensions"),
    ("TRITON_CACHE_DIR", "triton"),
    ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
    ("CUDA_CACHE_PATH", "cuda"),
];
/// How long a process may take to import torch and find its device, and to be stopped meanwhile.
const START: Duration = Duration::from_mins(5);
/// What a process may print, in KiB.
const PRINT_KIB: u64 = 1024;
/// What a process of the harness's own may take.
const OF_HARNESS: Allowed = Allowed { memory_mib: 0, print_kib: PRINT_KIB, processes: true };
/// Address space that torch takes on a CPU before a candidate takes any, in MiB.
const OF_TORCH_MIB: u64 = 16 * 1024;

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
    /// The version of nvcc, where there is one.
    #[serde(default)]
    pub nvcc: Option<String>,
    /// The version of Triton, where there is one.
    #[serde(default)]
    pub triton: Option<String>,
    /// The architecture that extensions are built for where a candidate names none, such as `sm_90a`.
    #[serde(default)]
    pub extensions_for: Option<String>,
    /// Folders that Python imports from.
    #[serde(default)]
    pub folders: Vec<PathBuf>,
}

/// How Python processes are started.
pub(crate) struct Python {
    pub(crate) executable: PathBuf,
    /// As the user names it: `cpu`, `cuda:1`.
    pub(crate) device: String,
    /// What shows processes that GPU and no other.
    shown: Option<String>,
    threads: u32,
    tf32: bool,
    memory_mib: u64,
    own_user: bool,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) harness: Harness,
    /// The folder that the folders of candidates' processes lie in.
    pub(crate) folder_of_candidates: PathBuf,
    /// Folders that it imports from.
    folders: Vec<PathBuf>,
    zygote: Zygote,
}

impl Python {
    /// Asks Python, without torch, which folders it imports from. The harness is written into `folder`.
    pub(crate) fn new(options: &Options, folder: &Path) -> Result<Self, Fault> {
        Ok(Self {
            executable: options.python.clone(),
            device: options.device.clone(),
            shown: gpu::ordinal(&options.device).map(gpu::alone),
            threads: options.threads,
            tf32: options.tf32,
            memory_mib: options.memory_mib,
            own_user: options.own_user,
            sandbox: Arc::new(Sandbox::new(options.program.clone(), options.program_args.clone())),
            harness: Harness::write(folder)?,
            folder_of_candidates: folder_of_candidates(folder)?,
            folders: folders(&options.python)?,
            zygote: Zygote::default(),
        })
    }

    /// What processes call the device: of GPUs they see this one alone, so that no other does a part of a candidate's work.
    pub(crate) fn own_device(&self) -> &str {
        if self.shown.is_some() { "cuda:0" } else { &self.device }
    }

    /// Whether candidates run on the CPU.
    pub(crate) fn is_on_cpu(&self) -> bool {
        self.device == "cpu"
    }

    /// Asks a verifier what there is.
    pub(crate) fn facts(&self, verifier: Attempt<&mut Verifier>) -> Result<Facts, Fault> {
        let facts = verifier.and_then(|verifier| verifier.ask::<Facts>(&Ask::Facts)).map_err(|error| {
            let why = match error {
                EvalError::Candidate(failure) => match *failure {
                    Failure::Exit { stderr, .. } | Failure::Crash { stderr, .. } => last_line(&stderr).to_owned(),
                    other => other.to_string(),
                },
                EvalError::Infra(fault) => fault.to_string(),
            };
            Fault::Absent(format!("{} cannot use torch on {}: {why}", self.executable.display(), self.device))
        })?;
        Ok(Facts { folders: self.folders.clone(), ..facts })
    }

    /// Starts a trusted side. Where `starting` is given, it may be stopped meanwhile.
    pub(crate) fn verifier(&self, starting: Option<&Starting>) -> Attempt<Verifier> {
        self.warm_up(starting);
        let (folder, turn) = (Path::new("/tmp"), starting.map(Starting::turn).transpose()?);
        let script = self.harness.verifier();
        let forked = self.forked(&script, folder, None, None);
        let started = forked.map_or_else(|| self.start_trusted(&script, folder), Ok)?;
        Ok(Verifier(self.greeted(Peer::new(started, Trust::Harness, OF_HARNESS), starting, turn)?))
    }

    /// Has the zygote import torch, where it has not yet and that works here.
    fn warm_up(&self, starting: Option<&Starting>) {
        self.zygote.warm_up(starting.is_some(), || {
            let turn = starting.map(Starting::turn).transpose()?;
            let started = self.start_trusted(&self.harness.zygote(), Path::new("/tmp"))?;
            self.greeted(Peer::new(started, Trust::Harness, OF_HARNESS), starting, turn)
        });
    }

    /// A fork of the zygote that runs a script in a folder, as a user; `None` where it cannot be had.
    pub(crate) fn forked(
        &self,
        script: &Path,
        folder: &Path,
        user: Option<u32>,
        confinement: Option<&Confinement>,
    ) -> Option<Started> {
        let named = |(name, value): (String, OsString)| Some((name, value.into_string().ok()?));
        let environment = self.environment(folder).into_iter().map(named).collect::<Option<_>>()?;
        let fork = Fork { script, folder, environment, confinement: confinement.map(Confinement::plan) };
        let started = self.zygote.fork(&fork, user)?;
        self.sandbox.spawner.count(started.process.id());
        Some(started)
    }

    /// Starts a script of the harness's, unconfined.
    fn start_trusted(&self, script: &Path, folder: &Path) -> Result<Started, Fault> {
        let command = |control: i32| {
            let mut command = Command::new(&self.executable);
            command.args(["-I", "-B"]).arg(script).arg(control.to_string());
            command
        };
        let dress = Dress { environment: self.environment(folder), folder: Some(folder), ..Dress::default() };
        self.sandbox.start_trusted(command, &dress)
    }

    /// Starts an untrusted side, confined to its folder. Where `starting` is given, it may be stopped meanwhile. Where a fork
    /// ends before it is ready, it is started as a program of its own; where a driver does not start behind Landlock then,
    /// that is left out from then on, and the layers say so.
    pub(crate) fn runner(&self, folder: &Path, user: Option<u32>, starting: Option<&Starting>) -> Attempt<Peer> {
        let ended = |started: &Attempt<Peer>| matches!(started, Err(EvalError::Candidate(failure)) if matches!(**failure, Failure::Exit { .. }));
        self.warm_up(starting);
        let mut started = self.try_runner(folder, user, starting, true);
        if ended(&started) && !self.is_on_cpu() {
            started = self.try_runner(folder, user, starting, false);
            if ended(&started) && self.sandbox.disable_landlock() {
                started = self.try_runner(folder, user, starting, false);
            }
        }
        started
    }

    fn try_runner(
        &self,
        folder: &Path,
        user: Option<u32>,
        starting: Option<&Starting>,
        may_fork: bool,
    ) -> Attempt<Peer> {
        let turn = starting.map(Starting::turn).transpose()?;
        if let Some(user) = user {
            give(folder, None, user).map_err(fault(format_args!("cannot give {} away", folder.display())))?;
        }
        let address_space = self.is_on_cpu().then_some((self.memory_mib + OF_TORCH_MIB) << 20);
        let files = Files { read: self.readable(), write: vec![folder.to_owned()], devices: true };
        let confinement = Confinement {
            parent: std::process::id().cast_signed(),
            user: user.map_or(User::Same, User::Own),
            limits: Limits { address_space, ..DRIVER_LIMITS },
            files: self.sandbox.has_landlock().then_some(files),
            shares_ipc: true,
        };
        let script = self.harness.candidate();
        let forked = may_fork.then(|| self.forked(&script, folder, user, Some(&confinement)));
        let started = forked.flatten().map_or_else(|| self.start_confined(&script, folder, user, confinement), Ok)?;
        let allowed = Allowed { memory_mib: self.memory_mib, print_kib: PRINT_KIB, processes: true };
        self.greeted(Peer::new(started, Trust::Candidate, allowed), starting, turn)
    }

    /// Starts a script of the harness's, confined.
    fn start_confined(
        &self,
        script: &Path,
        folder: &Path,
        user: Option<u32>,
        confinement: Confinement,
    ) -> Result<Started, Fault> {
        let child = |control: i32| {
            let line = self.script(script, &control.to_string());
            Child::Program(Program { confinement, control: Some(control), wraps: None, unstarted: None, line })
        };
        let dress = Dress { environment: self.environment(folder), folder: Some(folder), user, ..Dress::default() };
        self.sandbox.start(child, &dress)
    }

    /// A process once it is ready. Its turn to import ends when it has imported.
    fn greeted(&self, mut peer: Peer, starting: Option<&Starting>, turn: Option<Turn<'_>>) -> Attempt<Peer> {
        let (id, runs_on) = (peer.id(), peer.is_trusted());
        let Some(starting) = starting else {
            peer.greet_first(&self.setup(), START)?;
            peer.greet_again(START)?;
            return Ok(peer);
        };
        let start = Instant::now();
        starting.while_importing(id, true, || peer.greet_first(&self.setup(), START))?;
        drop(turn);
        let imported = start.elapsed();
        let _turn = loop {
            starting.wait_for_noise()?;
            let turn = starting.context_turn();
            if !starting.is_quiet() {
                break turn;
            }
        };
        let turn = start.elapsed();
        starting.while_starting(id, runs_on, || peer.greet_again(START))?;
        tracing::debug!(?imported, ?turn, ready = ?start.elapsed(), runs_on, "a process with torch is ready");
        Ok(peer)
    }

    /// Whether each process has a user that is nobody else's.
    pub(crate) fn has_users(&self) -> bool {
        is_root() && self.own_user
    }

    /// A user that is nobody else's, where processes are to have one.
    pub(crate) fn new_user(&self) -> Option<u32> {
        self.has_users().then(own_user)
    }

    /// What a process is told first.
    pub(crate) fn setup(&self) -> Setup {
        Setup { device: self.own_device().to_owned(), threads: self.threads, tf32: self.tf32, seed: SEED }
    }

    /// The command line of a script.
    pub(crate) fn script(&self, script: &Path, argument: &str) -> Vec<String> {
        let [python, script] = [&self.executable, &script.to_owned()].map(|path| path.display().to_string());
        vec![python, "-I".into(), "-B".into(), script, argument.into()]
    }

    /// What an untrusted process may read beside its own folder.
    pub(crate) fn readable(&self) -> Vec<PathBuf> {
        let homes = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os).map(PathBuf::from);
        let own = [self.harness.folder().to_owned()];
        SYSTEM.iter().map(PathBuf::from).chain(self.folders.iter().cloned()).chain(own).chain(homes).collect()
    }

    /// The environment of a process in its folder.
    pub(crate) fn environment(&self, folder: &Path) -> Vec<(String, OsString)> {
        let mut environment = kept(&KEPT);
        environment.extend(caches(folder).into_iter().map(|(name, value)| (name, value.into())));
        let threads = self.threads.to_string();
        environment.extend([
            variable("HOME", folder),
            variable("TMPDIR", folder.join("tmp")),
            variable("OMP_NUM_THREADS", &threads),
            variable("MKL_NUM_THREADS", &threads),
            variable("TORCHINDUCTOR_COMPILE_THREADS", "1"),
            variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
            variable("CUDA_VISIBLE_DEVICES", self.shown.as_deref().unwrap_or_default()),
            // Memory that was freed is kept, so that a call's time is not that of fresh pages in one process and not in
            // another.
            variable("MALLOC_MMAP_THRESHOLD_", "33554432"),
            variable("MALLOC_TRIM_THRESHOLD_", "17179869184"),
            variable("USER", "candidate"),
            variable("LOGNAME", "candidate"),
        ]);
        environment
    }
}

/// Where compilers keep what they built, in a process's folder.
pub(crate) fn caches(folder: &Path) -> Vec<(String, String)> {
    CACHES.iter().map(|(name, under)| ((*name).to_owned(), folder.join(under).display().to_string())).collect()
}

/// Folders that a Python imports from.
fn folders(executable: &Path) -> Result<Vec<PathBuf>, Fault> {
    let asked = "import json, sys; print(json.dumps(sorted({sys.prefix, sys.base_prefix, *filter(None, sys.path)})))";
    let output = Command::new(executable).args(["-I", "-B", "-c", asked]).output();
    let output = output.map_err(|e| Fault::Absent(format!("cannot start {}: {e}", executable.display())))?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let errors = String::from_utf8_lossy(&output.stderr);
        Fault::Absent(format!("{} is no Python: {}", executable.display(), last_line(&errors)))
    })
}

/// The folder that the folders of candidates lie in. Others may pass through it and not look.
fn folder_of_candidates(folder: &Path) -> Result<PathBuf, Fault> {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("candidates");
    let made = std::fs::create_dir(&path)
        .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o711)));
    made.map(|()| path.clone()).map_err(fault(format_args!("cannot make {}", path.display())))
}

fn last_line(text: &str) -> &str {
    text.trim().lines().last().unwrap_or("it said nothing")
}
