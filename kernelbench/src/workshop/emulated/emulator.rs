//! The tools of an emulated processor: its cross compiler, QEMU in user mode, and a plugin that counts instructions.

use crate::{
    build::{
        cache::Cache,
        cc,
        compiler::{self, Allowed},
        flags, unit,
    },
    result::{
        error::{Attempt, fault},
        failure::{Failure, Fault},
    },
    sandbox::{
        confine::{Confinement, Files, Limits, User},
        entry::{Child, Program, Wrapped},
        process::{self, End, Process},
        start::{Sandbox, is_root, open_folder, search_path, variable},
        tree::{ProcessTree, own_user},
    },
    task::{
        KernelContext, Language,
        layout::{KernelArg, Layout, PAGE},
        processor::Processor,
    },
};
use std::{
    fs::{self, File},
    io::{Read, Seek, Write},
    os::unix::fs::lchown,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

/// What one compilation may take.
const COMPILING: Allowed = Allowed { memory: 8 << 30, deadline: Duration::from_mins(1) };
/// Address space of the emulator beside the arguments, in bytes.
const MEMORY: u64 = 4 << 30;
/// What of a program's messages is kept, in bytes.
const MESSAGES: u64 = 8 << 10;
/// Arguments of a call, at most: as many as the host's first page holds.
const MOST_ARGUMENTS: usize = 128;
/// Threads of the emulator, where its user is its own.
const MOST_THREADS: u64 = 16;
const HOST: &str = include_str!("host.c");
const COUNT: &str = include_str!("count.c");

/// What emulates a processor.
pub(super) struct Emulator {
    processor: Processor,
    sandbox: Arc<Sandbox>,
    cache: Cache,
    allowed: Allowed,
    deadline: Duration,
    qemu: String,
    version: String,
}

/// What a run left.
pub(super) struct Ran {
    /// The slots, one behind the other.
    pub(super) memory: Vec<u8>,
    /// Instructions that were executed, with those that start and end the program.
    pub(super) instructions: u64,
}

impl Processor {
    /// What QEMU calls it, and the compilers' flags.
    pub(super) fn emulated(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::A72 => ("cortex-a72", &["-mcpu=cortex-a72"]),
            Self::A76 => ("cortex-a76", &["-mcpu=cortex-a76"]),
            Self::C908 => ("rv64,v=true,vext_spec=v1.0,vlen=128", &["-march=rv64gcv", "-mabi=lp64d"]),
            Self::K1 => ("rv64,v=true,vext_spec=v1.0,vlen=256", &["-march=rv64gcv", "-mabi=lp64d"]),
        }
    }
}

impl Emulator {
    /// The tools on this machine.
    pub(super) fn new(
        processor: Processor,
        sandbox: Arc<Sandbox>,
        cache: PathBuf,
        (building, deadline): (Option<Duration>, Duration),
    ) -> Result<Self, Fault> {
        let qemu = format!("qemu-{}", processor.arch());
        let version = qemu_version(processor.arch()).map_err(Fault::Absent)?;
        Ok(Self {
            processor,
            sandbox,
            cache: Cache::new(cache),
            allowed: COMPILING.within(building),
            deadline,
            qemu,
            version,
        })
    }

    /// The compiler with its flags, and the emulator, in a line.
    pub(super) fn describe(&self, context: &KernelContext) -> Result<String, Fault> {
        let (flags, program) = (self.flags(context)?.join(" "), self.compiler(context.language)?);
        let compiler = compiler_version(&program)?;
        Ok(format!("{program} {flags} ({compiler}), run by {} ({})", self.qemu, self.version))
    }

    fn compiler(&self, language: Language) -> Result<String, Fault> {
        let program = match language {
            Language::C => "gcc",
            Language::Cpp => "g++",
            Language::Cuda | Language::Hip | Language::Hlsl | Language::Python => {
                let why = "an emulated processor runs kernels in C and C++ alone";
                return Err(Fault::Machine(why.to_owned()));
            }
        };
        Ok(format!("{}-linux-gnu-{program}", self.processor.arch()))
    }

    fn flags(&self, context: &KernelContext) -> Result<Vec<String>, Fault> {
        if let Some(flag) = context.flags.iter().find(|flag| !flags::is_harmless(flag)) {
            return Err(Fault::Machine(format!(
                "compiler flag `{flag}` is not allowed in a task: {}",
                flags::EXPECTED
            )));
        }
        let standard = if context.language == Language::C { "-std=c11" } else { "-std=c++17" };
        let own = self.processor.emulated().1.iter().map(ToString::to_string);
        let given = context.flags.iter().filter(|flag| *flag != "-march=native").cloned();
        Ok([standard.to_owned()].into_iter().chain(given).chain(own).collect())
    }

    /// Builds a source with the program that calls it, or finds it built.
    pub(super) fn build(&self, context: &KernelContext, source: &str) -> Attempt<PathBuf> {
        let (program, flags) = (self.compiler(context.language)?, self.flags(context)?);
        let [unit, caller] = [unit::candidate(context, source), unit::caller(context)];
        let version = compiler_version(&program)?;
        let parts = [unit.as_str(), &caller, HOST, &flags.join("\n"), &program, &version];
        self.cache.get_or_make(&parts, "emulated", |folder| {
            let ending = context.language.ending();
            let names = [format!("unit.{ending}"), format!("caller.{ending}")];
            compiler::write(folder, &names[0], &unit)?;
            compiler::write(folder, &names[1], &caller)?;
            compiler::write(folder, "host.c", HOST)?;
            let host = format!("{}-linux-gnu-gcc", self.processor.arch());
            let mut compile = self.command(&host, folder)?;
            compile.args(["-std=c11", "-O2", "-c", "-o", "host.o", "host.c"]);
            if let Some(log) = compiler::run(&mut compile, folder, self.allowed.deadline)? {
                return Err(
                    Fault::Machine(format!("{host} does not build the program that calls a kernel: {log}")).into()
                );
            }
            let mut compile = self.command(&program, folder)?;
            compile.args(&flags).args(["-static", "-o", "kernel"]).args(&names).args(["host.o", "-lm"]);
            match compiler::run(&mut compile, folder, self.allowed.deadline)? {
                None => Ok(folder.join("kernel")),
                Some(log) => Err(cc::blame(&context.entry, log).into()),
            }
        })
    }

    fn command(&self, program: &str, folder: &Path) -> Result<std::process::Command, Fault> {
        compiler_version(program)?;
        compiler::command(&self.sandbox, program, folder, &[], self.allowed)
    }

    /// The plugin, built for this machine.
    fn plugin(&self) -> Attempt<PathBuf> {
        self.cache.get_or_make(&[COUNT, std::env::consts::ARCH], "so", |folder| {
            compiler::write(folder, "count.c", COUNT)?;
            let mut compile = self.command("gcc", folder)?;
            compile.args(["-std=c11", "-O2", "-shared", "-fPIC", "-o", "count.so", "count.c"]);
            match compiler::run(&mut compile, folder, self.allowed.deadline)? {
                None => Ok(folder.join("count.so")),
                Some(log) => Err(Fault::Machine(format!("gcc does not build QEMU's plugin: {log}")).into()),
            }
        })
    }

    /// Runs a build, which calls its kernel once on each of the first `calls` slots of `memory`.
    pub(super) fn run(&self, built: &Path, layout: &Layout, memory: &[u8], calls: u32) -> Attempt<Ran> {
        let (folder, plugin, user) = (open_folder("emulated-")?, self.plugin()?, is_root().then(own_user));
        let [messages, left, count] = Written::ALL.map(|name| Written::new(folder.path(), name, user));
        let (mut messages, mut left, mut count) = (messages?, left?, count?);
        let at = |name: &str| folder.path().join(name);
        let write = || -> std::io::Result<()> {
            fs::copy(built, at("kernel"))?;
            fs::copy(plugin, at("count.so"))?;
            let mut file = File::create(at("arguments"))?;
            file.write_all(&head(layout, memory.len() / layout.slot_bytes.max(1)))?;
            file.write_all(memory)
        };
        write().map_err(fault("cannot write what is to be emulated"))?;
        let mut command = self.emulation(folder.path(), user, memory.len() as u64, calls)?;
        let copies = [messages.0.try_clone(), messages.0.try_clone()];
        let [out, err] = copies.map(|copy| copy.map_err(fault("cannot make a file")));
        command.stdin(Stdio::null()).stdout(out?).stderr(err?);
        let child = command.spawn().map_err(fault(format_args!("cannot start {}", self.qemu)))?;
        let mut process = Process::of(&child);
        let ended = process.end_within(self.deadline).map_err(fault("cannot wait for an emulator"));
        ProcessTree::of(process.id(), user).end();
        let case = layout.case.clone();
        let mut said = || String::from_utf8_lossy(&messages.start(MESSAGES)).into_owned();
        match ended? {
            Some(End::Exited(0)) => {}
            Some(End::Exited(status)) => return Err(Failure::Exit { case, status, stderr: said() }.into()),
            Some(End::Killed(libc::SIGSYS)) => {
                let what = "start a process, become another program, reach one, or open a connection".to_owned();
                return Err(Failure::Forbidden { case, what }.into());
            }
            Some(End::Killed(signal)) => {
                return Err(Failure::Crash { case, signal: process::name(signal), stderr: said() }.into());
            }
            None => return Err(Failure::Hang { case, deadline_ms: self.deadline.as_millis() as u64 }.into()),
        }
        let left = Some(left.start(memory.len() as u64 + 1)).filter(|left| left.len() == memory.len());
        let count = String::from_utf8_lossy(&count.start(32)).trim().parse().ok();
        match (left, count) {
            (Some(memory), Some(instructions)) => Ok(Ran { memory, instructions }),
            // It ended well and has not come to its end: a kernel called `exit`.
            (None, _) => Err(Failure::Exit { case, status: 0, stderr: said() }.into()),
            (_, None) => Err(Fault::Machine(format!(
                "{} counted nothing: it takes plugins of version 1 (QEMU 6 to 8), and is {}",
                self.qemu, self.version
            ))
            .into()),
        }
    }

    /// The emulator's command in a folder, of which it writes three files alone.
    fn emulation(
        &self,
        folder: &Path,
        user: Option<u32>,
        bytes: u64,
        calls: u32,
    ) -> Result<std::process::Command, Fault> {
        let limits = Limits {
            address_space: Some(MEMORY + 4 * bytes),
            cpu_seconds: Some(self.deadline.as_secs() + 2),
            file_bytes: bytes + (1 << 20),
            processes: user.map(|_| MOST_THREADS),
            files: 64,
        };
        let read = ["/usr", "/bin", "/proc/self", "/proc/sys/vm"].iter().map(PathBuf::from);
        let read = read.chain([folder.to_owned()]).collect();
        let write = Written::ALL.iter().map(|name| folder.join(name)).chain(["/dev/null".into()]).collect();
        let files = Some(Files { read, write, devices: false });
        let parent = std::process::id().cast_signed();
        let user = user.map_or(User::Same, User::Own);
        let confinement = Confinement { parent, user, limits, files, shares_ipc: false };
        let plugin = "./count.so,to=count";
        let calls = calls.to_string();
        let line = [
            &self.qemu,
            "-cpu",
            self.processor.emulated().0,
            "-plugin",
            plugin,
            "./kernel",
            "arguments",
            "left",
            &calls,
        ];
        let line = line.map(str::to_owned).into();
        let wraps = Some(Wrapped::Emulated);
        let child = Child::Program(Program { confinement, control: None, wraps, unstarted: None, line });
        let mut command = self.sandbox.command(&child, vec![])?;
        command
            .current_dir(folder)
            .env("LC_ALL", "C")
            .envs([variable("PATH", search_path()), variable("TMPDIR", folder)]);
        Ok(command)
    }
}

/// What the emulator of an architecture is, where it is one that takes our plugin.
pub(super) fn qemu_version(arch: &str) -> Result<String, String> {
    let qemu = format!("qemu-{arch}");
    let version = compiler::ask(std::process::Command::new(&qemu).arg("--version")).ok_or_else(|| {
        let what = "runs for a processor that is not here: install it (Debian: apt install qemu-user)";
        format!("there is no `{qemu}`, which {what}")
    })?;
    let version = version.lines().next().unwrap_or_default().to_owned();
    let number = version.split_once(" version ").and_then(|(_, rest)| rest.split('.').next()?.parse::<u32>().ok());
    match number {
        Some(6..=8) => Ok(version),
        _ => Err(format!("{version}: its plugins are of another kind; expected QEMU 6 to 8 (Debian 12 has 7.2)")),
    }
}

/// What a compiler says that it is.
pub(super) fn compiler_version(program: &str) -> Result<String, Fault> {
    let said = compiler::ask(std::process::Command::new(program).arg("--version"));
    said.map(|text| text.lines().next().unwrap_or_default().to_owned()).ok_or_else(|| {
        let cross = program.split_once("-linux-gnu-").map(|(arch, tool)| format!("{tool}-{arch}-linux-gnu"));
        let debian = cross.unwrap_or_else(|| program.to_owned());
        Fault::Absent(format!("there is no working compiler `{program}`: install it (Debian: apt install {debian})"))
    })
}

/// The first page of the arguments' file.
fn head(layout: &Layout, slots: usize) -> Vec<u8> {
    let mut words = vec![layout.passed.len() as u64, layout.slot_bytes as u64, slots as u64];
    for argument in layout.passed.iter().take(MOST_ARGUMENTS) {
        words.extend(match argument {
            KernelArg::Array(offset) => [1, *offset as u64],
            KernelArg::Scalar(bits) => [0, *bits],
        });
    }
    let mut head: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    head.resize(PAGE, 0);
    head
}

/// A file that an emulated program writes, open since before it ran: its name may be another's by now.
struct Written(File);

impl Written {
    /// All that it may write.
    const ALL: [&str; 3] = ["messages", "left", "count"];

    fn new(folder: &Path, name: &str, user: Option<u32>) -> Result<Self, Fault> {
        let path = folder.join(name);
        let made = File::options().read(true).write(true).create_new(true).open(&path).and_then(|file| {
            user.map_or(Ok(()), |user| lchown(&path, Some(user), Some(user)))?;
            Ok(Self(file))
        });
        made.map_err(fault("cannot make a file"))
    }

    /// Its first bytes, at most so many.
    fn start(&mut self, most: u64) -> Vec<u8> {
        let mut bytes = vec![];
        let _ = self.0.rewind().and_then(|()| (&self.0).take(most).read_to_end(&mut bytes));
        bytes
    }
}
