//! A child with one kernel's launcher, as its parent sees it: started, asked, and blamed when it fails.

use super::{
    child::{self, SERVE, Setup},
    driver::HANDLE,
};
use crate::{
    backend::torch::python::{SYSTEM, give, own_user},
    result::{
        error::{Attempt, Trouble, fault},
        failure::{Failure, Fault},
    },
    sandbox::{
        driver_filter,
        launch::{self, Launch},
        peer::{Cover, Peer, Trust, Went},
        process,
        spawn::Nursery,
    },
    task::layout::Plan,
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// How long a process may take to make its context.
const START: Duration = Duration::from_mins(1);
/// How long loading may take, constructors included, and small requests.
const LOADING: Duration = Duration::from_secs(20);
/// Variables of ours that a child keeps: which GPU, and where libraries are.
const KEPT: [&str; 3] = ["LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "PATH"];

/// How children are started.
#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) program: PathBuf,
    pub(crate) program_args: Vec<OsString>,
    pub(crate) nursery: Nursery,
    /// Which GPU.
    pub(crate) ordinal: u32,
    /// Memory that a kernel may take beyond its arguments, in MiB.
    pub(crate) memory_mib: u64,
    /// Whether landlock is left out: a driver was seen not to start behind it.
    pub(crate) open_files: AtomicBool,
}

/// What came of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    /// By our clock.
    pub(crate) outside: Duration,
    /// By events in its process, in nanoseconds; of a stranger not to be believed.
    pub(crate) inside_ns: u64,
}

/// A child that holds one kernel's launcher, or none yet.
pub(crate) struct Runner {
    pub(crate) peer: Peer,
    folder: tempfile::TempDir,
    case: String,
    memory_mib: u64,
    /// What a call takes, in nanoseconds, by case and bytes of a slot, where that was found out: it is the reference's alone.
    pub(crate) call_ns: HashMap<(String, usize), u64>,
}

impl Launcher {
    /// Starts a child that has opened this arena, with nothing loaded yet. Where the driver does not start behind landlock,
    /// it is left out from then on, and the layers say so.
    pub(crate) fn start(&self, arena: [u8; HANDLE]) -> Result<Runner, Fault> {
        match self.try_start(arena) {
            Err(Trouble::Failure(_)) if !self.open_files.swap(true, Ordering::Relaxed) => self.try_start(arena),
            started => started,
        }
        .map_err(|trouble| match trouble {
            Trouble::Fault(fault) => fault,
            Trouble::Failure(failure) => {
                let more = match &*failure {
                    Failure::Exit { stderr, .. } | Failure::Crash { stderr, .. } => format!(": {stderr}"),
                    _ => String::new(),
                };
                Fault(format!("a process cannot use the GPU: {failure}{more}"))
            }
        })
    }

    fn try_start(&self, arena: [u8; HANDLE]) -> Attempt<Runner> {
        let folder = private_folder()?;
        let user = launch::is_root().then(own_user);
        if let Some(user) = user {
            give(folder.path(), user).map_err(fault("cannot give a folder away"))?;
        }
        let (control, theirs) = process::socket_pair().map_err(fault("cannot make a socket pair"))?;
        let launch = self.confinement(user, folder.path(), launch::number(&theirs), vec![]);
        let json = serde_json::to_string(&launch).map_err(|e| Fault(e.to_string()))?;
        let mut command = Command::new(&self.program);
        command.args(&self.program_args).arg(SERVE).arg(json);
        let output = dress(&mut command, folder.path())?;
        process::detach(&mut command, vec![launch::number(&theirs)]);
        let child = self.nursery.spawn(command)?;
        drop(theirs);
        let mut peer = Peer::new(&child, control, output, Trust::Stranger, user);
        peer.memory_mib = self.memory_mib;
        let setup = Setup { ordinal: self.ordinal, arena: arena.to_vec() };
        peer.greet(&json!(setup), START)?;
        Ok(Runner { peer, folder, case: String::new(), memory_mib: self.memory_mib, call_ns: HashMap::new() })
    }

    /// What a process of this kind may reach.
    pub(crate) fn confinement(&self, user: Option<u32>, folder: &Path, control: i32, command: Vec<String>) -> Launch {
        let mut readable: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
        let libraries = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        readable.extend(std::env::split_paths(&libraries).filter(|path| path.is_absolute()));
        Launch {
            parent: std::process::id(),
            user,
            control,
            readable,
            writable: vec![folder.to_owned()],
            landlock: !self.open_files.load(Ordering::Relaxed),
            command,
            memory_bytes: None,
        }
    }
}

/// A folder that goes away with its handle, which other users may pass through.
pub(crate) fn private_folder() -> Result<tempfile::TempDir, Fault> {
    let folder = tempfile::Builder::new().prefix("kernel-").tempdir().map_err(fault("cannot make a folder"))?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).map_err(fault("cannot open a folder"))?;
    Ok(folder)
}

/// Gives a command a clean environment, its folder, and a pipe for what it prints.
pub(crate) fn dress(command: &mut Command, folder: &Path) -> Result<std::io::PipeReader, Fault> {
    let (output, print) = std::io::pipe().map_err(fault("cannot make a pipe"))?;
    let errors = print.try_clone().map_err(fault("cannot make a pipe"))?;
    command.env_clear().current_dir(folder).stdin(Stdio::null()).stdout(print).stderr(errors);
    for name in KEPT {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID").env("CUDA_MODULE_LOADING", "EAGER").env("CUDA_CACHE_DISABLE", "1");
    command.env("HOME", folder).env("TMPDIR", folder);
    Ok(output)
}

impl Runner {
    /// Its folder, which it may write into.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Has it load a shared object.
    pub(crate) fn load(&mut self, object: &Path) -> Attempt<()> {
        let copy = self.folder().join("kernel.so");
        fs::copy(object, &copy).map_err(fault(format_args!("cannot copy {}", object.display())))?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).map_err(fault("cannot open a build"))?;
        "while it was loaded".clone_into(&mut self.case);
        let said = self.ask(json!({"do": "load", "object": copy}), LOADING)?;
        let (name, does) = ("system call filter", "it can start no process and open no network connection");
        let why = said["filter"].as_str();
        let layer = json!({"name": name, "in_force": why.is_none(), "why": why.unwrap_or(does)});
        self.peer.layers.extend(serde_json::from_value::<crate::backend::native::Layer>(layer));
        match said["missing"].as_str() {
            Some(why) => Err(Failure::Interface { log: format!("it cannot be loaded: {why}") }.into()),
            None => Ok(()),
        }
    }

    /// Says which case is called next, in so many slots.
    pub(crate) fn case(&mut self, plan: &Plan, slots: usize) -> Attempt<()> {
        self.case.clone_from(&plan.case);
        let case = child::Case { passed: plan.passed.clone(), slot_bytes: plan.slot_bytes, slots };
        let said = self.ask(json!({"do": "case", "case": case}), LOADING)?;
        match said["broken"].as_str() {
            Some(why) => Err(Fault(format!("a child did not understand its case: {why}")).into()),
            None => Ok(()),
        }
    }

    /// Says on how many slots it calls its launcher from here on, once on each; and whether it is to record these calls and
    /// to replay them as a whole. Whether it does.
    pub(crate) fn count(&mut self, count: usize, record: bool) -> Attempt<bool> {
        let said = self.ask(json!({"do": "count", "count": count, "record": record}), LOADING)?;
        match said.get("cuda") {
            Some(error) => Err(self.blame_cuda(error)),
            None => Ok(said["recorded"] == true),
        }
    }

    /// Has it make its calls.
    pub(crate) fn call(&mut self, deadline: Duration, cover: &mut impl Cover) -> Attempt<Ran> {
        match self.peer.go(deadline, cover).map_err(renamed)? {
            Went::Done { outside, inside_ns, .. } => Ok(Ran { outside, inside_ns }),
            Went::Raised(said) => Err(self.blame_cuda(&said["cuda"])),
        }
    }

    /// Looks who else is there.
    pub(crate) fn be_alone(&mut self) -> Attempt<()> {
        self.peer.be_alone()
    }

    fn ask(&mut self, message: Value, deadline: Duration) -> Attempt<Value> {
        self.peer.case.clone_from(&self.case);
        self.peer.ask(message, deadline).map(|reply| reply.said).map_err(renamed)
    }

    /// An error that the driver or the runtime told.
    fn blame_cuda(&self, error: &Value) -> Trouble {
        let word = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        if error["code"] == json!(2) {
            return self.too_much_memory();
        }
        let signal = format!("CUDA error: {} ({})", word("text"), word("name"));
        Failure::Crash { case: self.case.clone(), signal, stderr: String::new() }.into()
    }

    /// The failure of a kernel that takes more memory than it may.
    pub(crate) fn too_much_memory(&self) -> Trouble {
        Failure::Memory { case: self.case.clone(), limit_mib: self.memory_mib }.into()
    }
}

/// An end whose cause stands on standard error, by its right name.
fn renamed(trouble: Trouble) -> Trouble {
    let Trouble::Failure(failure) = trouble else { return trouble };
    match *failure {
        Failure::Exit { case, status, stderr } => match driver_filter::told(&stderr) {
            Some(what) => Failure::Forbidden { case, what },
            None => Failure::Exit { case, status, stderr },
        },
        // Refused while signals were held back: nobody could say which call it was.
        Failure::Crash { case, signal, .. } if signal == process::name(libc::SIGSYS) => {
            Failure::Forbidden { case, what: "make a forbidden system call".to_owned() }
        }
        other => other,
    }
    .into()
}
