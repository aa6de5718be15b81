//! How is one case run without a parent to ask for it, so that a profiler can wrap it?
//!
//! The arguments lie in a folder; the hidden sub-command maps a private copy of them, loads the kernel and calls it so
//! many times. Under `perf` the process confines itself as any other child does. Valgrind would be confined with it, and
//! could not work; there it is the whole tool that is enclosed.

use crate::{
    backend::native::{child, segment::Segment, trial::Draw, wire::Setup, worker::Launch},
    build::cc,
    profile::cpu::{Run, Target},
    result::{error::fault, failure::Fault},
    sandbox::{confine::Limits, enclose::Enclosure},
    task::layout::Plan,
};
use rand::rngs::StdRng;
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What leads the hidden sub-command here.
const MARK: &str = "--once";
/// How long a run may compute, in seconds.
const CPU_SECONDS: u64 = 120;

/// One case's arguments in a folder, ready to be run by themselves.
pub(crate) struct Standalone {
    folder: tempfile::TempDir,
}

impl Standalone {
    /// Draws the inputs of one case and lays them in a folder.
    pub(crate) fn lay_out(launch: &Launch, plan: &Plan, rng: &mut StdRng) -> Result<Self, Fault> {
        let folder = cc::private_folder(&std::env::temp_dir())?;
        let mut segment = Segment::new(plan, 1, 0).map_err(fault("cannot share memory"))?;
        let draw = Draw::new(plan, rng);
        for (at, array) in plan.arrays.iter().enumerate() {
            if array.is_input() {
                draw.as_drawn().write(at, segment.array_mut(0, array));
            }
        }
        let setup = Setup::of(launch, plan, 1, segment.bytes());
        let setup = serde_json::to_vec(&setup).map_err(|e| Fault(e.to_string()))?;
        let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes);
        write("setup.json", &setup).map_err(fault("cannot write the profiled arguments"))?;
        write("segment", segment.all()).map_err(fault("cannot write the profiled arguments"))?;
        Ok(Self { folder })
    }

    /// The command of one run under a profiler.
    pub(crate) fn command(&self, launch: &Launch, run: &Run<'_>, object: &Path) -> Result<Command, String> {
        let [tool, options @ ..] = run.wrapper else { return Err("no profiler was named".to_owned()) };
        let confines_itself = run.target == Target::AsTimed && tool == "perf";
        let mut command = if confines_itself { Command::new(tool) } else { self.enclosed(launch, run, object, tool) };
        command.args(options).arg(&launch.program).args(&launch.arguments).arg(MARK);
        let mode = if confines_itself { "confined" } else { "enclosed" };
        command.arg(self.folder.path()).arg(object).arg(run.calls.to_string()).arg(mode);
        Ok(command)
    }

    fn enclosed(&self, launch: &Launch, run: &Run<'_>, object: &Path, tool: &OsString) -> Command {
        let limits = Limits {
            address_space: None,
            cpu_seconds: CPU_SECONDS,
            file_bytes: 256 << 20,
            processes: false,
            files: 256,
        };
        let own = [self.folder.path(), object, &launch.program, "/proc".as_ref(), "/usr".as_ref(), "/bin".as_ref()];
        let read = own.map(Path::to_owned).to_vec();
        let write = vec![run.folder.to_owned(), "/dev/null".into()];
        let mut command = Enclosure { read, write, nobody: false, limits }.command(launch, "env".as_ref());
        let mut place = OsString::from("TMPDIR=");
        place.push(run.folder);
        command.arg(place).arg(tool);
        command
    }
}

/// Where the arguments of this process ask for one case to be run by itself, runs it.
pub(crate) fn run_if_asked() -> Option<Result<(), String>> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let at = arguments.iter().position(|a| a == MARK)?;
    let [folder, object, calls, mode] = &arguments[at + 1..] else {
        return Some(Err("expected four arguments".into()));
    };
    let calls = calls.to_str().and_then(|c| c.parse().ok()).ok_or("expected a number of calls");
    Some(calls.map_err(str::to_owned).and_then(|calls| {
        let folder = PathBuf::from(folder);
        let setup = fs::read(folder.join("setup.json")).map_err(|e| e.to_string())?;
        let setup: Setup = serde_json::from_slice(&setup).map_err(|e| e.to_string())?;
        let segment = fs::File::open(folder.join("segment")).map_err(|e| e.to_string())?;
        let object = fs::File::open(object).map_err(|e| e.to_string())?;
        child::run_alone(setup, &segment, &object.into(), calls, mode == "confined")
    }))
}
