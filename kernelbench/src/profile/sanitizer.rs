//! The address and the undefined-behaviour sanitizer of the CPU: does a candidate touch memory that is not its own, or rely
//! on what the language leaves undefined?
//!
//! A further build of the candidate reads its arguments from a file and is called once.

use crate::{
    build::{
        cc::{self, Compiler},
        compiler, unit,
    },
    result::{
        certificate::Check,
        error::{Attempt, fault},
        failure::{Failure, Fault},
    },
    sandbox::{
        confine::{Confinement, Files, Limits, User},
        entry::{Child, NOT_STARTED, Program},
        process::{End, Process},
        socket::do_not_block,
        start::{Sandbox, search_path, variable},
    },
    task::{
        Case, KernelContext, Language,
        fill::fill,
        layout::{KernelArg, Layout},
    },
};
use rand::{Rng, rngs::StdRng};
use std::{
    fs::File,
    io::{Read, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long one run may take.
const DEADLINE: Duration = Duration::from_mins(1);
/// What a case's arrays may take, in bytes: instrumented code is slow.
pub(crate) const LARGEST_CASE: u64 = 64 << 20;
/// What is kept of what it prints, in bytes.
const KEPT: usize = 16 << 10;

/// Instruments every access; keeps the optimizer from leaving out what is to be found. What a task wants to be warned of was
/// said when the candidate was built.
const FLAGS: [&str; 6] =
    ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g", "-O1", "-Wno-error"];

/// Runs a candidate once on each of these cases; a finding is a failure.
pub(crate) fn sanitize(
    (compilers, sandbox): (&Compiler, &Sandbox),
    context: &KernelContext,
    source: &str,
    cases: &[&Case],
    rng: &mut StdRng,
) -> Attempt<Check> {
    let tool = "address and undefined-behaviour sanitizer".to_owned();
    let folder = cc::private_folder(&std::env::temp_dir())?;
    let program = match build(compilers, context, source, folder.path())? {
        Ok(program) => program,
        Err(why) => {
            return Ok(Check::Sanitizer { tool, outcome: Err(format!("it cannot be built with them here: {why}")) });
        }
    };
    let sanitized = Sanitized { sandbox, context, program };
    cases.iter().try_for_each(|case| sanitized.run(case, rng))?;
    Ok(Check::Sanitizer { tool, outcome: Ok(format!("one call on each of {} shapes", cases.len())) })
}

/// The sanitized build of one candidate.
struct Sanitized<'a> {
    sandbox: &'a Sandbox,
    context: &'a KernelContext,
    program: PathBuf,
}

/// Builds in a folder of the caller's; in words why that is not possible here.
fn build(
    compilers: &Compiler,
    context: &KernelContext,
    source: &str,
    folder: &Path,
) -> Attempt<Result<PathBuf, String>> {
    let ending = unit::ending(context.language);
    let units = [
        (format!("unit.{ending}"), unit::candidate(context, source)),
        (format!("caller.{ending}"), unit::caller(context)),
        (format!("main.{ending}"), main(context)),
    ];
    let mut command = compilers.command(context, folder)?;
    command.args(FLAGS).args(["-o", "sanitized"]);
    for (name, text) in &units {
        compiler::write(folder, name, text)?;
        command.arg(name);
    }
    let log = compiler::run(command.arg("-lm"), folder, cc::ALLOWED.deadline)?;
    Ok(match log {
        None => Ok(folder.join("sanitized")),
        Some(log) => Err(log.lines().last().unwrap_or("the compiler has no sanitizers").to_owned()),
    })
}

impl Sanitized<'_> {
    /// Runs one case; a finding is a failure.
    fn run(&self, case: &Case, rng: &mut StdRng) -> Attempt<()> {
        let layout = Layout::of(self.context, case).map_err(Fault::Machine)?;
        let codes = Codes::draw(rng);
        let inputs = arguments(&layout, codes, rng).map_err(fault("cannot write the sanitizer's inputs"))?;
        let (ended, text) = self.to_end(inputs)?;
        match ended {
            Some(End::Exited(code)) if code == i32::from(codes.returned) => Ok(()),
            Some(End::Exited(code)) if code == i32::from(codes.not_called) || text.starts_with(NOT_STARTED) => {
                Err(Fault::Machine(format!("the sanitized program could not run: {text}")).into())
            }
            Some(end) => Err(Failure::Sanitizer { tool: tool(&text), finding: finding(&text, end) }.into()),
            None => Err(Failure::Hang { case: case.name.clone(), deadline_ms: DEADLINE.as_millis() as u64 }.into()),
        }
    }

    /// Runs it on these inputs; how it ended in time, and the beginning of what it said.
    fn to_end(&self, inputs: File) -> Result<(Option<End>, String), Fault> {
        let object = File::open(&self.program).map_err(fault("cannot read the sanitized program"))?;
        let limits = Limits {
            address_space: None,
            cpu_seconds: Some(DEADLINE.as_secs()),
            file_bytes: 0,
            processes: Some(0),
            files: 64,
        };
        let files = Some(Files { read: vec![self.program.clone(), "/proc".into()], write: vec![], devices: false });
        let parent = std::process::id().cast_signed();
        let confinement = Confinement { parent, user: User::Nobody, limits, files, shares_ipc: false };
        let line = vec![format!("/proc/self/fd/{}", object.as_raw_fd())];
        let child = Child::Program(Program { confinement, control: None, line });
        let mut command = self.sandbox.command(&child, vec![object.as_raw_fd()])?;
        let (mut output, print) = std::io::pipe().map_err(fault("cannot make a pipe"))?;
        command.current_dir("/").stdin(inputs).stdout(std::process::Stdio::null()).stderr(print);
        command.envs([
            variable("PATH", search_path()),
            variable("LC_ALL", "C"),
            variable("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=0:allocator_may_return_null=0:color=never"),
        ]);
        let child = command.spawn().map_err(fault("cannot start the sanitized program"))?;
        drop(command);
        let mut process = Process::of(&child);
        do_not_block(&output);
        let (start, mut text) = (Instant::now(), vec![]);
        loop {
            let ended = process.ended().map_err(fault("cannot wait for the sanitized program"))?;
            take(&mut output, &mut text);
            if ended.is_some() || start.elapsed() > DEADLINE {
                return Ok((ended, String::from_utf8_lossy(&text).into_owned()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Takes what there is to be read, and keeps the beginning.
fn take(output: &mut impl Read, text: &mut Vec<u8>) {
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = output.read(&mut chunk) {
        text.extend_from_slice(&chunk[..length.min(KEPT.saturating_sub(text.len()))]);
    }
}

/// Exit codes that mean something this once: a kernel that ends its process does not know them.
#[derive(Clone, Copy)]
struct Codes {
    /// The kernel has returned.
    returned: u8,
    /// The kernel could not be called.
    not_called: u8,
}

impl Codes {
    /// From 2 to 88: neither what sanitizers exit with, nor what a shell or an impatient author would.
    fn draw(rng: &mut StdRng) -> Self {
        let returned = rng.random_range(2..45);
        Self { returned, not_called: returned + rng.random_range(1..45) }
    }
}

/// A file of the exit codes and all arguments: for each its length in bytes and its content. Outputs are filled with a
/// pattern.
fn arguments(layout: &Layout, codes: Codes, rng: &mut StdRng) -> std::io::Result<File> {
    use std::io::{Seek, SeekFrom};
    let mut file = tempfile::tempfile()?;
    file.write_all(&[codes.returned, codes.not_called])?;
    let mut arrays = layout.arrays.iter();
    for passed in &layout.passed {
        let content = match (passed, arrays.as_slice().first()) {
            (KernelArg::Scalar(bits), _) => bits.to_ne_bytes().to_vec(),
            (KernelArg::Array(_), Some(array)) => {
                arrays.next();
                let mut bytes = vec![0xa5; array.bytes];
                if array.is_input() {
                    fill(&mut bytes, array.dtype, array.fill, rng);
                }
                bytes
            }
            (KernelArg::Array(_), None) => vec![],
        };
        file.write_all(&(content.len() as u64).to_ne_bytes())?;
        file.write_all(&content)?;
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// Reads the arguments, each into memory of exactly its length, and calls once.
fn main(context: &KernelContext) -> String {
    let linkage = if context.language == Language::Cpp { "extern \"C\" " } else { "" };
    let noexcept = if context.language == Language::Cpp { " noexcept" } else { "" };
    let count = context.arguments.len().max(1);
    format!(
        "#include <stdint.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
         {linkage}int warpsmith_call(void *const *arguments, void *stream){noexcept};\n\
         static unsigned char codes[2] = {{99, 99}};\n\
         static void take(void *to, uint64_t bytes) {{\n\
         \x20   for (char *at = (char *)to; bytes > 0;) {{\n\
         \x20       ssize_t got = read(0, at, bytes);\n\
         \x20       if (got <= 0) _exit(codes[1]);\n\
         \x20       at += got;\n\
         \x20       bytes -= (uint64_t)got;\n\
         \x20   }}\n\
         }}\n\
         int main(void) {{\n\
         \x20   take(codes, sizeof codes);\n\
         \x20   void *arguments[{count}] = {{0}};\n\
         \x20   for (int i = 0; i < {arguments}; ++i) {{\n\
         \x20       uint64_t bytes;\n\
         \x20       take(&bytes, sizeof bytes);\n\
         \x20       if (posix_memalign(&arguments[i], 64, bytes)) _exit(codes[1]);\n\
         \x20       take(arguments[i], bytes);\n\
         \x20   }}\n\
         \x20   warpsmith_call(arguments, 0);\n\
         \x20   return codes[0];\n\
         }}\n",
        arguments = context.arguments.len()
    )
}

fn tool(text: &str) -> String {
    let address = text.contains("AddressSanitizer");
    if address { "address" } else { "undefined-behaviour" }.to_owned()
}

/// The line that says what was found, and where in the candidate.
fn finding(text: &str, end: End) -> String {
    let said = text.lines().find(|line| line.contains("ERROR:") || line.contains("runtime error:"));
    let place = text.lines().find(|line| line.contains(unit::CANDIDATE) && !line.contains("runtime error:"));
    let said = said.map_or_else(|| format!("it ended with {end:?}"), |line| line.trim_start_matches('=').to_owned());
    [Some(said.as_str()), place].into_iter().flatten().map(str::trim).collect::<Vec<_>>().join("; ")
}
