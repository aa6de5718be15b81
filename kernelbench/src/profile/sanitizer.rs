//! The address and the undefined-behaviour sanitizer of the CPU: does a candidate touch memory that is not its own, or rely
//! on what the language leaves undefined?
//!
//! A further build of the candidate reads its arguments from a file and is called on every shape in one process, from the
//! smallest to the largest and on the smallest again. What that process says of the machine is not believed: where something
//! goes amiss, an empty program is built or run in the same way, and if that works, it was the candidate.

use crate::{
    build::{
        cc::{self, Compiler},
        compiler, unit,
    },
    result::{
        certificate::Check,
        error::{Attempt, EvalError, fault},
        failure::{Failure, Fault},
    },
    sandbox::{
        confine::{Confinement, Files, Limits, User},
        entry::{Child, Program},
        process::{End, Process},
        socket::do_not_block,
        start::{Sandbox, search_path, variable},
    },
    task::{
        Case, KernelContext, Language,
        layout::{KernelArg, Layout},
    },
};
use arrays::fill;
use rand::{Rng, rngs::StdRng};
use std::{
    fs::File,
    io::{Read, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long a run may take for each call.
const DEADLINE: Duration = Duration::from_mins(1);
/// What a case's arrays may take, in bytes: instrumented code is slow.
pub(crate) const LARGEST_CASE: u64 = 64 << 20;
/// What is kept of what it prints, in bytes.
const KEPT: usize = 16 << 10;

/// Instruments every access; keeps the optimizer from leaving out what is to be found. What a task wants to be warned of was
/// said when the candidate was built.
const FLAGS: [&str; 6] =
    ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-Wno-error", "-fno-omit-frame-pointer", "-O1"];
/// How many of them an honest candidate always builds with: assembly may need every register, or the task's optimization.
const NEEDED: usize = 4;
/// What they are called.
const TOOL: &str = "address and undefined-behaviour sanitizer";

/// What a sanitized build may be refused for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsanitized {
    /// A candidate that does not build with sanitizers is refused, where the compiler has them.
    Refused,
    /// It passes, and the certificate says that nobody looked.
    Told,
}

/// Runs a candidate on these cases; a finding is a failure.
pub(crate) fn sanitize(
    (compilers, sandbox): (&Compiler, &Sandbox),
    context: &KernelContext,
    source: &str,
    cases: &[&Case],
    unsanitized: Unsanitized,
    rng: &mut StdRng,
) -> Attempt<Check> {
    let row = |outcome| Ok(Check::Sanitizer { tool: TOOL.to_owned(), outcome });
    let folder = cc::private_folder(&std::env::temp_dir())?;
    let units = units(context, source);
    let built = match build(compilers, context, &units, &FLAGS, folder.path())? {
        Err(_) => build(compilers, context, &units, &FLAGS[..NEEDED], folder.path())?,
        built => built,
    };
    let program = match built {
        Ok(program) => program,
        Err(why) => {
            let works = unsanitized == Unsanitized::Refused && works((compilers, sandbox), context)?;
            let finding = format!("it does not build with sanitizers: {why}");
            return if works {
                Err(found(TOOL, finding))
            } else {
                row(Err(format!("it cannot be built with them here: {why}")))
            };
        }
    };
    let sanitized = Sanitized { sandbox, program };
    let codes = Codes::draw(rng);
    let (ended, text) = sanitized.run(context, cases, codes, rng)?;
    match ended {
        Some(End::Exited(code)) if code == i32::from(codes.returned) => {
            row(Ok(format!("{} shapes in turn, and the smallest again", cases.len())))
        }
        None => {
            Err(Failure::Hang { case: TOOL.to_owned(), deadline_ms: deadline(cases.len()).as_millis() as u64 }.into())
        }
        Some(end) if said(&text).is_some() => Err(found(tool(&text), finding(&text, end))),
        Some(end) if works((compilers, sandbox), context)? => Err(found(tool(&text), finding(&text, end))),
        Some(_) => row(Err(format!("sanitized programs do not run here: {}", text.lines().next().unwrap_or_default()))),
    }
}

fn found(tool: &str, finding: String) -> EvalError {
    Failure::Sanitizer { tool: tool.to_owned(), finding }.into()
}

fn deadline(cases: usize) -> Duration {
    DEADLINE * u32::try_from(cases + 1).unwrap_or(u32::MAX)
}

/// Whether programs can be built with sanitizers here, and run: an empty one is.
fn works((compilers, sandbox): (&Compiler, &Sandbox), context: &KernelContext) -> Attempt<bool> {
    let folder = cc::private_folder(&std::env::temp_dir())?;
    let units = [(format!("main.{}", context.language.ending()), "int main(void) { return 7; }\n".to_owned())];
    let Ok(program) = build(compilers, context, &units, &FLAGS, folder.path())? else { return Ok(false) };
    let nothing = File::open("/dev/null").map_err(fault("cannot read /dev/null"))?;
    let (ended, _) = Sanitized { sandbox, program }.to_end(nothing, DEADLINE)?;
    Ok(ended == Some(End::Exited(7)))
}

/// The sanitized build of one candidate.
struct Sanitized<'a> {
    sandbox: &'a Sandbox,
    program: PathBuf,
}

fn units(context: &KernelContext, source: &str) -> [(String, String); 3] {
    let ending = context.language.ending();
    [
        (format!("unit.{ending}"), unit::candidate(context, source)),
        (format!("caller.{ending}"), unit::caller(context)),
        (format!("main.{ending}"), main(context)),
    ]
}

/// Builds in a folder of the caller's; in words why that is not possible here.
fn build(
    compilers: &Compiler,
    context: &KernelContext,
    units: &[(String, String)],
    flags: &[&str],
    folder: &Path,
) -> Attempt<Result<PathBuf, String>> {
    let mut command = compilers.command(context, folder)?;
    command.args(flags).args(["-o", "sanitized"]);
    for (name, text) in units {
        compiler::write(folder, name, text)?;
        command.arg(name);
    }
    let log = compiler::run(command.arg("-lm"), folder, compilers.deadline())?;
    Ok(match log {
        None => Ok(folder.join("sanitized")),
        Some(log) => Err(log.lines().last().unwrap_or("the compiler has no sanitizers").to_owned()),
    })
}

impl Sanitized<'_> {
    /// Has it called on all cases, the smallest first and once more.
    fn run(
        &self,
        context: &KernelContext,
        cases: &[&Case],
        codes: Codes,
        rng: &mut StdRng,
    ) -> Result<(Option<End>, String), Fault> {
        let layouts = cases.iter().map(|case| Layout::of(context, case)).collect::<Result<Vec<_>, _>>();
        let mut layouts = layouts.map_err(Fault::Machine)?;
        layouts.sort_by_key(Layout::array_bytes);
        layouts.extend(layouts.first().cloned());
        let inputs = arguments(&layouts, codes, rng).map_err(fault("cannot write the sanitizer's inputs"))?;
        self.to_end(inputs, deadline(cases.len()))
    }

    /// Runs it on these inputs; how it ended in time, and the beginning of what it said.
    fn to_end(&self, inputs: File, deadline: Duration) -> Result<(Option<End>, String), Fault> {
        let object = File::open(&self.program).map_err(fault("cannot read the sanitized program"))?;
        let limits = Limits {
            address_space: None,
            cpu_seconds: Some(deadline.as_secs()),
            file_bytes: 0,
            processes: Some(0),
            files: 64,
        };
        let files = Some(Files { read: vec![self.program.clone(), "/proc".into()], write: vec![], devices: false });
        let parent = std::process::id().cast_signed();
        let confinement = Confinement { parent, user: User::Nobody, limits, files, shares_ipc: false };
        let line = vec![format!("/proc/self/fd/{}", object.as_raw_fd())];
        let (mut unstarted, theirs) = std::io::pipe().map_err(fault("cannot make a pipe"))?;
        let child = Child::Program(Program {
            confinement,
            control: None,
            wraps: None,
            unstarted: Some(theirs.as_raw_fd()),
            line,
        });
        let mut command = self.sandbox.command(&child, vec![object.as_raw_fd(), theirs.as_raw_fd()])?;
        let (mut output, print) = std::io::pipe().map_err(fault("cannot make a pipe"))?;
        command.current_dir("/").stdin(inputs).stdout(std::process::Stdio::null()).stderr(print);
        command.envs([
            variable("PATH", search_path()),
            variable("LC_ALL", "C"),
            variable("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=0:allocator_may_return_null=0:color=never"),
        ]);
        let child = command.spawn().map_err(fault("cannot start the sanitized program"))?;
        drop((command, theirs));
        let mut process = Process::of(&child);
        do_not_block(&output);
        let (start, mut text) = (Instant::now(), vec![]);
        loop {
            let ended = process.ended().map_err(fault("cannot wait for the sanitized program"))?;
            take(&mut output, &mut text);
            if ended.is_some() || start.elapsed() > deadline {
                let mut why = vec![];
                do_not_block(&unstarted);
                take(&mut unstarted, &mut why);
                if !why.is_empty() {
                    return Err(Fault::Machine(String::from_utf8_lossy(&why).into_owned()));
                }
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

/// A file of the exit codes and all calls, each behind a byte, and of their arguments: for each its length in bytes and its
/// content. Outputs are filled with a pattern.
fn arguments(layouts: &[Layout], codes: Codes, rng: &mut StdRng) -> std::io::Result<File> {
    use std::io::{Seek, SeekFrom};
    let mut file = tempfile::tempfile()?;
    file.write_all(&[codes.returned, codes.not_called])?;
    for layout in layouts {
        file.write_all(&[1])?;
        call(&mut file, layout, rng)?;
    }
    file.write_all(&[0])?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

fn call(file: &mut File, layout: &Layout, rng: &mut StdRng) -> std::io::Result<()> {
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
    Ok(())
}

/// Reads the arguments of each call, each into memory of exactly its length, and calls.
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
         \x20   unsigned char more = 1;\n\
         \x20   for (take(&more, 1); more; take(&more, 1)) {{\n\
         \x20       void *arguments[{count}] = {{0}};\n\
         \x20       for (int i = 0; i < {arguments}; ++i) {{\n\
         \x20           uint64_t bytes;\n\
         \x20           take(&bytes, sizeof bytes);\n\
         \x20           if (posix_memalign(&arguments[i], 64, bytes)) _exit(codes[1]);\n\
         \x20           take(arguments[i], bytes);\n\
         \x20       }}\n\
         \x20       warpsmith_call(arguments, 0);\n\
         \x20       for (int i = 0; i < {arguments}; ++i) free(arguments[i]);\n\
         \x20   }}\n\
         \x20   return codes[0];\n\
         }}\n",
        arguments = context.arguments.len()
    )
}

fn tool(text: &str) -> &'static str {
    if text.contains("AddressSanitizer") { "address" } else { "undefined-behaviour" }
}

fn said(text: &str) -> Option<&str> {
    text.lines().find(|line| line.contains("ERROR:") || line.contains("runtime error:"))
}

/// The line that says what was found, and where in the candidate.
fn finding(text: &str, end: End) -> String {
    let said = said(text);
    let place = text.lines().find(|line| line.contains(unit::CANDIDATE) && !line.contains("runtime error:"));
    let said = said.map_or_else(|| format!("it ended with {end:?}"), |line| line.trim_start_matches('=').to_owned());
    [Some(said.as_str()), place].into_iter().flatten().map(str::trim).collect::<Vec<_>>().join("; ")
}
