//! One case run without a parent that asks for it, so that a profiler can wrap it.
//!
//! The arguments lie in a folder; a child maps a private copy of them, loads the kernel and calls it so many times. Under
//! `perf` the process confines itself as any other child does. Valgrind would be confined with it, and could not work; there
//! it is the whole tool that is confined.

use super::{
    Cpu,
    child::{Host, Once},
    contents::Contents,
    pair::confinement,
    segment::Segment,
};
use crate::{
    build::cc,
    profile::cpu::{Run, Target},
    result::{error::fault, failure::Fault},
    sandbox::{
        confine::{Confinement, Files, Limits, User},
        entry::{Child, Program, Wrapped},
        kernel_child::CallLayout,
        start::{give, is_root, search_path, variable},
        tree::own_user,
    },
    task::layout::Layout,
};
use rand::rngs::StdRng;
use std::{
    ffi::OsString,
    fs::{self, File},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::Command,
};

/// How long a run under a tool may compute, in seconds.
const CPU_SECONDS: u64 = 120;

/// One case's arguments in a folder, ready to be run by themselves.
pub(super) struct Standalone {
    folder: tempfile::TempDir,
    host: Host,
    layout: CallLayout,
    /// This program, open: a user of the run's own may not find the way to it.
    program: File,
    /// The user that runs under a tool, where we can give it one of its own.
    user: Option<u32>,
}

impl Standalone {
    /// Draws the inputs of one case and lays them in a folder.
    pub(super) fn lay_out(cpu: &Cpu, layout: &Layout, rng: &mut StdRng) -> Result<Self, Fault> {
        let folder = cc::private_folder(&std::env::temp_dir())?;
        let mut segment = Segment::new(layout.slot_bytes, 1, 0).map_err(fault("cannot share memory"))?;
        let mut contents = Contents::default();
        contents.draw(layout, rng);
        for (at, array) in layout.arrays.iter().enumerate().filter(|(_, array)| array.is_input()) {
            segment.array_mut(0, array).copy_from_slice(contents.of(at));
        }
        let place = folder.path().join("segment");
        fs::write(place, segment.all()).map_err(fault("cannot write the profiled arguments"))?;
        let (segment_bytes, memory_bytes) = (segment.bytes(), cpu.options.memory_mib << 20);
        let host = Host { segment_bytes, memory_bytes, core: cpu.cores.of_kernels() };
        let layout = CallLayout { arguments: layout.passed.clone(), slot_bytes: layout.slot_bytes, slots: 1 };
        let program = File::open(&cpu.sandbox.program).map_err(fault("cannot read this program"))?;
        Ok(Self { folder, host, layout, program, user: is_root().then(own_user) })
    }

    /// The command of one run under a profiler.
    pub(super) fn command(&self, cpu: &Cpu, run: &Run<'_>, object: &Path) -> Result<Command, Fault> {
        let [tool, options @ ..] = run.wrapper else { return Err(Fault::Machine("no profiler was named".to_owned())) };
        let confines_itself = run.target == Target::AsTimed && tool == "perf";
        let once = Child::CpuOnce(Once {
            confinement: confines_itself.then(confinement),
            segment: self.folder.path().join("segment"),
            object: if confines_itself { object.to_owned() } else { self.object_copied(object)? },
            host: self.host.clone(),
            layout: self.layout.clone(),
            calls: run.calls,
        });
        let mut command = if confines_itself { Command::new(tool) } else { self.confined(cpu, run, tool)? };
        let line = cpu.sandbox.line(&once)?;
        let program = if confines_itself { line[0].clone() } else { self.program().into() };
        command.args(options).arg(program).args(&line[1..]);
        Ok(command)
    }

    fn program(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.program.as_raw_fd()).into()
    }

    /// A copy where its user finds it.
    fn object_copied(&self, object: &Path) -> Result<PathBuf, Fault> {
        let copy = self.folder.path().join("kernel.so");
        fs::copy(object, &copy).map_err(fault(format_args!("cannot copy {}", object.display())))?;
        Ok(copy)
    }

    fn confined(&self, cpu: &Cpu, run: &Run<'_>, tool: &OsString) -> Result<Command, Fault> {
        let limits = Limits {
            address_space: None,
            cpu_seconds: Some(CPU_SECONDS),
            file_bytes: 256 << 20,
            processes: Some(0),
            files: 256,
        };
        let own = [self.folder.path(), &self.program(), "/proc".as_ref(), "/usr".as_ref(), "/bin".as_ref()];
        let read: Vec<PathBuf> = own.map(Path::to_owned).to_vec();
        let write = vec![run.folder.to_owned(), "/dev/null".into()];
        let files = Some(Files { read, write, devices: false });
        let parent = std::process::id().cast_signed();
        let user = self.user.map_or(User::Same, User::Own);
        for folder in [self.folder.path(), run.folder].into_iter().filter(|_| self.user.is_some()) {
            give(folder, None, self.user.unwrap_or_default()).map_err(fault("cannot give a folder away"))?;
        }
        let confinement = Confinement { parent, user, limits, files, shares_ipc: false };
        let line = vec![tool.to_string_lossy().into_owned()];
        let mut command = cpu.sandbox.command(
            &Child::Program(Program {
                confinement,
                control: None,
                wraps: Some(Wrapped::Single),
                unstarted: None,
                line,
            }),
            vec![self.program.as_raw_fd()],
        )?;
        command.envs([variable("PATH", search_path()), variable("TMPDIR", run.folder)]);
        Ok(command)
    }
}
