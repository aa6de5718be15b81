//! A child process as its parent sees it: started, asked to call its kernel, timed, and blamed when it fails.
//!
//! It stands still whenever it is not asked anything. So what it has put out when it is stopped is all that it did in the
//! time that was measured, even if it said that it was done before it was.

use super::{
    segment::Segment,
    wire::{LONGEST, Layer, Ready, Report, Request, Setup},
};
use crate::{
    machine::cores::Cores,
    result::{
        error::{Attempt, Trouble, fault},
        failure::{Failure, Fault},
    },
    sandbox::{
        filter,
        process::{self, End, Process},
    },
    task::layout::Plan,
};
use rand::Rng;
use std::{
    ffi::OsString,
    fs::File,
    io::Read,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// What a child may print, in KiB.
const PRINT_KIB: u64 = 64;
/// How long loading may take, constructors included.
const LOADING: Duration = Duration::from_secs(10);
/// How long the parent waits without sleeping, where it has a core of its own.
const SPIN: Duration = Duration::from_millis(3);
/// Processor time that a child may use in its life, in seconds. Deadlines end it long before.
const CPU_SECONDS: u64 = 3600;

/// How children are started.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The program whose hidden sub-command a child is.
    pub(crate) program: PathBuf,
    /// The arguments that lead to it.
    pub(crate) arguments: Vec<OsString>,
    /// Memory that a kernel may have beyond its arguments, in MiB.
    pub(crate) memory_mib: u64,
    /// Where kernels run.
    pub(crate) cores: Cores,
}

impl Setup {
    /// What a child is told that is to load a kernel.
    pub(crate) fn of(launch: &Launch, plan: &Plan, slots: usize, segment_bytes: usize) -> Self {
        Self {
            parent: std::process::id(),
            segment_bytes,
            slot_bytes: plan.slot_bytes,
            slots,
            passed: plan.passed.clone(),
            memory_bytes: launch.memory_mib << 20,
            cpu_seconds: CPU_SECONDS,
            core: launch.cores.of_kernels(),
            load: true,
        }
    }
}

/// How long a request took, by two clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocked {
    /// The parent's clock, from before the child was let go until it had answered: the time that counts.
    pub(crate) outside: Duration,
    /// The child's own clock around its calls, in nanoseconds; not to be believed.
    pub(crate) inside_ns: u64,
}

/// A child that holds one kernel, and the memory it shares with us.
pub(crate) struct Worker {
    process: Process,
    control: OwnedFd,
    output: std::io::PipeReader,
    printed: Vec<u8>,
    pub(crate) segment: Segment,
    case: String,
    memory_mib: u64,
    address_space: u64,
    layers: Vec<Layer>,
    spin: Duration,
}

impl Worker {
    /// Starts a child for one case, with so many slots, and has it load a kernel.
    pub(crate) fn start(launch: &Launch, plan: &Plan, slots: usize, artifact: &Path) -> Attempt<Self> {
        let object = File::open(artifact).map_err(fault(format_args!("cannot read {}", artifact.display())))?;
        Self::spawn(launch, plan, slots, &object, true)
    }

    /// How a child of this program is confined here.
    pub(crate) fn probe(launch: &Launch) -> Result<Vec<Layer>, Fault> {
        let nothing = File::open("/dev/null").map_err(fault("cannot read /dev/null"))?;
        let plan = Plan { case: "probe".into(), arrays: vec![], passed: vec![], slot_bytes: 0 };
        match Self::spawn(launch, &plan, 1, &nothing, false) {
            Ok(worker) => Ok(worker.layers.clone()),
            Err(Trouble::Fault(fault)) => Err(fault),
            Err(Trouble::Failure(failure)) => Err(Fault(format!("the child process could not be confined: {failure}"))),
        }
    }

    /// How each layer of its confinement came out.
    pub(crate) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Has it call its kernel once on each of the first `count` slots.
    pub(crate) fn call(&mut self, count: usize, deadline: Duration) -> Attempt<Clocked> {
        let nonce = rand::rng().random();
        let request = Request { nonce, first: 0, count: count as u32 };
        process::send(&self.control, &request.encode()).map_err(fault("cannot reach the kernel's process"))?;
        let start = Instant::now();
        self.process.resume();
        let report = self.hear(start, deadline, &mut [0; 2 * Report::BYTES])?;
        let outside = start.elapsed();
        match report {
            Report::Done { nonce: answered, inside_ns } if answered == nonce => {
                self.stand_still()?;
                Ok(Clocked { outside, inside_ns })
            }
            other => Err(self.blame_report(&other)),
        }
    }

    fn spawn(launch: &Launch, plan: &Plan, slots: usize, object: &File, load: bool) -> Attempt<Self> {
        let segment = Segment::new(plan, slots, rand::rng().random()).map_err(fault("cannot share memory"))?;
        let (control, theirs) = process::socket_pair().map_err(fault("cannot make a socket pair"))?;
        let (output, process) = run(launch, [theirs.as_raw_fd(), segment.memory().as_raw_fd(), object.as_raw_fd()])?;
        drop(theirs);
        let setup = Setup { load, ..Setup::of(launch, plan, slots, segment.bytes()) };
        let mut worker = Self {
            process,
            control,
            output,
            printed: vec![],
            segment,
            case: plan.case.clone(),
            memory_mib: launch.memory_mib,
            address_space: u64::MAX >> 1,
            layers: vec![],
            spin: if launch.cores.several() { SPIN } else { Duration::ZERO },
        };
        worker.greet(&setup)?;
        Ok(worker)
    }

    fn greet(&mut self, setup: &Setup) -> Attempt<()> {
        let setup = serde_json::to_vec(setup).map_err(|e| Fault(e.to_string()))?;
        process::send(&self.control, &setup).map_err(fault("cannot reach the kernel's process"))?;
        match self.hear(Instant::now(), LOADING, &mut vec![0; LONGEST])? {
            Report::Ready(json) => {
                let ready: Ready = serde_json::from_slice(&json).map_err(|e| Fault(e.to_string()))?;
                (self.layers, self.address_space) = (ready.layers, ready.address_space);
                self.stand_still()
            }
            other => Err(self.blame_report(&other)),
        }
    }

    /// Stops it; from here on until the next request it does nothing.
    fn stand_still(&mut self) -> Attempt<()> {
        let ended = self.process.stop().map_err(fault("cannot stop the kernel's process"))?;
        self.drain()?;
        match ended {
            None => Ok(()),
            Some(End::Exited(0)) if self.layers.is_empty() => Ok(()),
            Some(_) => Err(self.blame_end()),
        }
    }

    /// Waits for its next report.
    fn hear(&mut self, start: Instant, deadline: Duration, message: &mut [u8]) -> Attempt<Report> {
        loop {
            match process::receive(&self.control, message).map_err(fault("cannot hear the kernel's process"))? {
                Some(0) => return Err(self.blame_end()),
                Some(length) => return Report::decode(&message[..length]).ok_or_else(|| self.meddled()),
                None => {}
            }
            let elapsed = start.elapsed();
            if elapsed > deadline {
                return Err(self.blame_hang(deadline));
            }
            if elapsed > self.spin {
                let rest = deadline.saturating_sub(elapsed);
                process::wait_for_either(&self.control, &self.output, rest).map_err(fault("cannot poll"))?;
                self.drain()?;
            }
            std::hint::spin_loop();
        }
    }

    /// Takes what it has printed.
    fn drain(&mut self) -> Attempt<()> {
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = self.output.read(&mut chunk) {
            self.printed.extend_from_slice(&chunk[..length]);
            if self.printed.len() as u64 > PRINT_KIB << 10 {
                let _ = self.process.end();
                return Err(Failure::Flood { case: self.case.clone(), limit_kib: PRINT_KIB }.into());
            }
        }
        Ok(())
    }
}

/// Starts the process, with its output in a pipe.
fn run(launch: &Launch, descriptors: [i32; 3]) -> Result<(std::io::PipeReader, Process), Fault> {
    let (output, print) = std::io::pipe().map_err(fault("cannot make a pipe"))?;
    let errors = print.try_clone().map_err(fault("cannot make a pipe"))?;
    process::do_not_block(&output);
    let mut command = Command::new(&launch.program);
    command.args(&launch.arguments).args(descriptors.map(|fd| fd.to_string()));
    command.env_clear().current_dir("/").stdin(Stdio::null()).stdout(print).stderr(errors);
    process::detach(&mut command, descriptors.to_vec());
    let child = command.spawn().map_err(fault(format_args!("cannot start {}", launch.program.display())))?;
    Ok((output, Process::of(&child)))
}

/// Whose doing its end was.
impl Worker {
    fn blame_report(&mut self, report: &Report) -> Trouble {
        let failure = match report {
            Report::Signal { signal, detail } => self.blame_signal(*signal, *detail),
            Report::NotLoaded(why) => Failure::Interface { log: format!("it cannot be loaded: {why}") },
            Report::Broken(why) => return Fault(format!("the kernel's process could not start: {why}")).into(),
            Report::Ready(_) | Report::Done { .. } => return self.meddled(),
        };
        let _ = self.process.end();
        failure.into()
    }

    fn blame_signal(&mut self, signal: i32, detail: u64) -> Failure {
        let space = self.process.address_space().unwrap_or(0);
        let _ = self.process.end();
        if let Err(Trouble::Failure(flood)) = self.drain() {
            return *flood;
        }
        match signal {
            libc::SIGSYS if filter::asks_for_memory(detail) => self.too_much_memory(),
            libc::SIGSYS => Failure::Forbidden { case: self.case.clone(), what: filter::describe(detail) },
            _ if self.ran_out_of_memory(signal, detail, space) => self.too_much_memory(),
            _ => self.crash(signal),
        }
    }

    /// An uncaught `std::bad_alloc`, or a null pointer used where most of the memory was taken.
    fn ran_out_of_memory(&self, signal: i32, address: u64, space: u64) -> bool {
        let taken = space.saturating_sub(self.address_space);
        let most = (self.memory_mib << 20) / 2;
        let text = String::from_utf8_lossy(&self.printed);
        match signal {
            libc::SIGABRT => text.contains("std::bad_alloc"),
            libc::SIGSEGV => taken > most && (address < 1 << 16 || taken > most / 8 * 15),
            _ => false,
        }
    }

    /// Its end of the line is closed: it has ended, or is about to.
    fn blame_end(&mut self) -> Trouble {
        let patience = Instant::now();
        while let Ok(None) = self.process.ended() {
            if patience.elapsed() > Duration::from_secs(1) {
                return self.meddled();
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        if let Err(trouble) = self.drain() {
            return trouble;
        }
        match self.process.end() {
            Ok(End::Exited(status)) => {
                Failure::Exit { case: self.case.clone(), status, stderr: self.last_words() }.into()
            }
            // Its own handler reports whatever can be caught: this one came when the handler could not run.
            Ok(End::Killed(libc::SIGSYS)) => {
                let what = "make a forbidden system call".to_owned();
                Failure::Forbidden { case: self.case.clone(), what }.into()
            }
            Ok(End::Killed(signal)) => self.crash(signal).into(),
            Err(e) => Fault(format!("cannot wait for the kernel's process: {e}")).into(),
        }
    }

    fn blame_hang(&mut self, deadline: Duration) -> Trouble {
        let _ = self.process.end();
        if let Err(trouble) = self.drain() {
            return trouble;
        }
        Failure::Hang { case: self.case.clone(), deadline_ms: deadline.as_millis() as u64 }.into()
    }

    fn meddled(&mut self) -> Trouble {
        let _ = self.process.end();
        let what = "meddle with the line between its process and the workshop".to_owned();
        Failure::Forbidden { case: self.case.clone(), what }.into()
    }

    fn too_much_memory(&self) -> Failure {
        Failure::Memory { case: self.case.clone(), limit_mib: self.memory_mib }
    }

    fn crash(&self, signal: i32) -> Failure {
        Failure::Crash { case: self.case.clone(), signal: process::name(signal), stderr: self.last_words() }
    }

    fn last_words(&self) -> String {
        let from = self.printed.len().saturating_sub(4096);
        String::from_utf8_lossy(&self.printed[from..]).trim_end().to_owned()
    }
}
