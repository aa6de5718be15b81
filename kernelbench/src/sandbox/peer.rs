//! A child process as the program sees it: started, asked, timed, and blamed when it fails.
//!
//! A candidate's process is stopped whenever it is not asked anything. So what it has put out when it is stopped is all
//! that it did in the time that was measured, even if it said that it was done before it was.

mod aside;
pub(crate) use aside::Aside;

use super::{
    filter,
    kernel_child::{DONE, LONGEST, Numbered, Ready},
    layer::Layer,
    process::{self, End, Process},
    signals::{Report, SIGNAL},
    socket,
    start::Started,
    tree::{self, ProcessTree},
};
use crate::result::{
    error::{Attempt, EvalError, fault},
    failure::{Failure, Fault},
};
use rand::Rng;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs::File,
    io::Read,
    os::{fd::OwnedFd, unix::fs::FileExt},
    time::{Duration, Instant},
};

/// How long the program waits without sleeping for an answer.
const SPIN: Duration = Duration::from_millis(3);
/// The same while something is timed, where a core is left for it.
const SPIN_TIMED: Duration = Duration::from_millis(500);
/// How often the memory of a process is looked at that has not answered.
const LOOK: Duration = Duration::from_millis(100);
/// How long a process may take to be gone whose end of the line is closed.
const ENDING: Duration = Duration::from_secs(5);

/// Whose code it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The harness's own: it is left running.
    Harness,
    /// A candidate's: it is stopped unless asked.
    Candidate,
}

/// Work of ours on a GPU around a timed request: behind what comes before it, a process is resumed and launches; what comes
/// after it runs once the GPU is done with the process.
pub(crate) trait LatencyHider {
    /// Looks at the work before; done again and again until the process has answered.
    fn look(&mut self) -> Attempt<()> {
        Ok(())
    }

    /// When the work before ended, where it has, and where there is any.
    fn ended(&mut self) -> Attempt<Option<Instant>> {
        Ok(None)
    }

    /// Enqueues the work after, and waits for it: when it was done, where there is any.
    fn stamp(&mut self) -> Attempt<Option<Instant>> {
        Ok(None)
    }
}

/// None.
impl LatencyHider for () {}

/// None, or some.
impl<H: LatencyHider> LatencyHider for Option<H> {
    fn look(&mut self) -> Attempt<()> {
        self.as_mut().map_or(Ok(()), H::look)
    }

    fn ended(&mut self) -> Attempt<Option<Instant>> {
        self.as_mut().map_or(Ok(None), H::ended)
    }

    fn stamp(&mut self) -> Attempt<Option<Instant>> {
        self.as_mut().map_or(Ok(None), H::stamp)
    }
}

/// The longest that a hider hides: what one lasts that is longer counts.
const LONGEST_HIDDEN: Duration = Duration::from_millis(1);

/// What a request took: elapsed from max(release, end of the work before). A process that answered before that end has not
/// waited for the GPU: it is timed from its release.
fn elapsed(release: Instant, hidden_until: Option<Instant>, done: Instant) -> Duration {
    let from = hidden_until.filter(|ended| (release..done).contains(ended)).unwrap_or(release);
    done.saturating_duration_since(from.min(release + LONGEST_HIDDEN))
}

/// An answer to "go".
pub(crate) enum Went<A> {
    /// It has made its calls.
    Done {
        /// By our clock.
        outside: Duration,
        /// By its own, in nanoseconds.
        inside_ns: u64,
        /// Where the outputs begin, for those who say it.
        addresses: Vec<u64>,
    },
    /// It has not, and says why.
    Said(A),
}

/// What a process may take and print.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// Memory of the host beside what it held when it was ready, in MiB; 0 for no limit of ours.
    pub(crate) memory_mib: u64,
    /// Text, in KiB.
    pub(crate) print_kib: u64,
    /// Whether it may start processes of its own, which are then looked for.
    pub(crate) processes: bool,
}

/// A child process.
pub(crate) struct Peer {
    process: Process,
    tree: ProcessTree,
    control: OwnedFd,
    output: std::io::PipeReader,
    printed: Vec<u8>,
    packet: Vec<u8>,
    trust: Trust,
    /// What it works on, for failures.
    pub(crate) case: String,
    allowed: Allowed,
    /// What it held when it was ready, in MiB.
    own_mib: u64,
    address_space: Option<u64>,
    /// Whether it was ready once: what it does to its line from then on is its own doing, and no word about the machine.
    greeted: bool,
    /// Where its arguments begin, as it said before anybody's code was in it.
    arguments: Option<u64>,
    /// The address whose use ended it.
    touched: Option<u64>,
    pub(crate) layers: Vec<Layer>,
    /// What it computes on, as it said.
    pub(crate) device: String,
    /// Whether it, and all that it started, was ended.
    ended: bool,
}

impl Peer {
    /// A process that was just started.
    pub(crate) fn new(started: Started, trust: Trust, allowed: Allowed) -> Self {
        let Started { process, control, output, user } = started;
        socket::do_not_block(&output);
        Self {
            tree: ProcessTree::of(process.id(), user),
            process,
            control,
            output,
            printed: vec![],
            packet: vec![0; LONGEST],
            trust,
            case: String::new(),
            allowed,
            own_mib: 0,
            address_space: None,
            greeted: false,
            arguments: None,
            touched: None,
            layers: vec![],
            device: String::new(),
            ended: false,
        }
    }

    /// Hears how it is confined, sends its setup, and waits until it has imported what it needs before it uses a device.
    pub(crate) fn greet_first(&mut self, setup: &impl Serialize, deadline: Duration) -> Attempt<()> {
        let start = Instant::now();
        self.introduce(setup, start, deadline)?;
        let length = self.hear(start, deadline, spin(SPIN), &mut ())?;
        self.read::<serde::de::IgnoredAny>(length).map(drop)
    }

    /// Has it use its device, and waits until it is ready.
    pub(crate) fn greet_again(&mut self, deadline: Duration) -> Attempt<()> {
        self.send(&true, &[])?;
        self.hear_ready(Instant::now(), deadline)
    }

    /// Hears how it is confined, sends its setup, and waits until it is ready.
    pub(crate) fn greet(&mut self, setup: &impl Serialize, deadline: Duration) -> Attempt<()> {
        let start = Instant::now();
        self.introduce(setup, start, deadline)?;
        self.hear_ready(start, deadline)
    }

    fn introduce(&mut self, setup: &impl Serialize, start: Instant, deadline: Duration) -> Attempt<()> {
        if self.trust == Trust::Candidate {
            let length = self.hear(start, deadline, spin(SPIN), &mut ())?;
            self.layers = self.read(length)?;
        }
        self.send(setup, &[])
    }

    fn hear_ready(&mut self, start: Instant, deadline: Duration) -> Attempt<()> {
        let length = self.hear(start, deadline, spin(SPIN), &mut ())?;
        let ready: Ready = self.read(length)?;
        (self.address_space, self.arguments, self.device) = (ready.address_space, ready.arguments, ready.ready);
        self.own_mib = tree::held_mib(self.id()).unwrap_or(0);
        self.greeted = true;
        self.stop()
    }

    /// Asks for something, with files that it may use from then on, and waits for the answer.
    pub(crate) fn ask<A: DeserializeOwned>(
        &mut self,
        message: &impl Serialize,
        files: &[&OwnedFd],
        deadline: Duration,
    ) -> Attempt<A> {
        self.ask_timed(message, files, deadline, &mut ()).map(|(said, _)| said)
    }

    /// The same, timed as `go` is.
    pub(crate) fn ask_timed<A: DeserializeOwned>(
        &mut self,
        body: &impl Serialize,
        files: &[&OwnedFd],
        deadline: Duration,
        hider: &mut impl LatencyHider,
    ) -> Attempt<(A, Duration)> {
        let nonce = rand::rng().random::<u64>() >> 12;
        self.send(&Numbered { nonce, body }, files)?;
        let (length, outside) = self.answered(deadline, spin(SPIN), hider)?;
        Ok((self.said(length, nonce)?, outside))
    }

    /// Has it do what it is prepared for, and times that.
    pub(crate) fn go<A: DeserializeOwned>(
        &mut self,
        deadline: Duration,
        hider: &mut impl LatencyHider,
    ) -> Attempt<Went<A>> {
        let nonce = rand::rng().random::<u64>() >> 12;
        let spin = spin(SPIN_TIMED);
        let sent = socket::send(&self.control, &nonce.to_le_bytes(), &[]);
        sent.map_err(|error| self.unreachable(&error))?;
        let (length, outside) = self.answered(deadline, spin, hider)?;
        if self.packet[0] != DONE || length < 17 {
            return self.said(length, nonce).map(Went::Said);
        }
        let mut numbers = self.packet[1..length]
            .chunks_exact(8)
            .map(|chunk| chunk.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)));
        if numbers.next() != Some(nonce) {
            return Err(self.tampered());
        }
        let inside_ns = numbers.next().unwrap_or(0);
        let addresses = numbers.collect();
        Ok(Went::Done { outside, inside_ns, addresses })
    }

    /// Resumes it until it has answered: how long its answer is in bytes, and the time it took.
    fn answered(
        &mut self,
        deadline: Duration,
        spin: Duration,
        hider: &mut impl LatencyHider,
    ) -> Attempt<(usize, Duration)> {
        self.answered_after(Duration::ZERO, deadline, spin, hider)
    }

    /// The same where so much of its deadline is spent.
    fn answered_after(
        &mut self,
        spent: Duration,
        deadline: Duration,
        spin: Duration,
        hider: &mut impl LatencyHider,
    ) -> Attempt<(usize, Duration)> {
        let release = Instant::now();
        if self.trust == Trust::Candidate {
            self.process.resume();
        }
        let length = self.hear(release.checked_sub(spent).unwrap_or(release), deadline, spin, hider)?;
        let answered = Instant::now();
        let done = hider.stamp()?.unwrap_or(answered);
        self.stop()?;
        Ok((length, elapsed(release, hider.ended()?, done)))
    }

    /// The answer in words that was heard last, if it answers what was asked.
    fn said<A: DeserializeOwned>(&mut self, length: usize, nonce: u64) -> Attempt<A> {
        let said: Numbered<A> = self.read(length)?;
        if said.nonce == nonce { Ok(said.body) } else { Err(self.tampered()) }
    }

    fn read<A: DeserializeOwned>(&mut self, length: usize) -> Attempt<A> {
        serde_json::from_slice(&self.packet[..length]).map_err(|error| match self.trust {
            Trust::Candidate => self.tampered(),
            Trust::Harness => Fault::Machine(format!("the harness's answer cannot be read: {error}")).into(),
        })
    }

    /// Reads bytes of its memory while it is stopped.
    pub(crate) fn read_memory(&self, address: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        File::open(format!("/proc/{}/mem", self.tree.leader))?.read_exact_at(buffer, address)
    }

    /// Its number.
    pub(crate) fn id(&self) -> i32 {
        self.tree.leader
    }

    /// How far from the start of its arguments it touched what it is not to touch, where that ended it.
    pub(crate) fn touched(&self) -> Option<usize> {
        usize::try_from(self.touched?.checked_sub(self.arguments?)?).ok()
    }

    /// Pages of its address space, and those of its memory that no file backs; `None` once it is gone.
    pub(crate) fn pages(&self) -> Option<[u64; 2]> {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.id())).ok()?;
        let pages: Vec<u64> = statm.split(' ').map_while(|field| field.parse().ok()).take(3).collect();
        let [all, resident, shared] = pages[..] else { return None };
        Some([all, resident.saturating_sub(shared)])
    }

    /// What lies where in its address space; nothing where that cannot be asked.
    pub(crate) fn mappings(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/maps", self.id())).unwrap_or_default()
    }

    /// Whether it has not ended.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.process.ended(), Ok(None))
    }

    /// The user that is its own, where it has one.
    pub(crate) fn user(&self) -> Option<u32> {
        self.tree.user
    }

    /// Whether it runs the harness's own code, and is left running.
    pub(crate) fn is_trusted(&self) -> bool {
        self.trust == Trust::Harness
    }

    /// What it may take, in MiB.
    pub(crate) fn memory_mib(&self) -> u64 {
        self.allowed.memory_mib
    }

    /// A failure for having tried something.
    pub(crate) fn forbidden(&self, what: &str) -> EvalError {
        Failure::Forbidden { case: self.case.clone(), what: what.to_owned() }.into()
    }

    /// A failure for having said what no child of ours says. It is ended.
    pub(crate) fn tampered(&mut self) -> EvalError {
        self.end();
        self.forbidden("tamper with the line between its process and the workshop")
    }

    fn send(&mut self, message: &impl Serialize, files: &[&OwnedFd]) -> Attempt<()> {
        let text = serde_json::to_vec(message).map_err(|e| Fault::Machine(e.to_string()))?;
        if text.len() > LONGEST {
            let length = text.len();
            let why = format!("a message to a child has {length} bytes, the limit is {LONGEST}");
            return Err(Fault::Machine(why).into());
        }
        socket::send(&self.control, &text, files).map_err(|error| self.unreachable(&error))
    }

    /// Its line takes no message, or gives none.
    fn unreachable(&mut self, error: &std::io::Error) -> EvalError {
        if self.greeted && self.trust == Trust::Candidate {
            // It stands still: what has closed its line does not end by itself.
            return if self.is_alive() { self.tampered() } else { self.blame_end() };
        }
        Fault::Machine(format!("cannot reach a child process: {error}")).into()
    }

    /// Stops it; from here on until the next request it does nothing.
    fn stop(&mut self) -> Attempt<()> {
        self.drain()?;
        if self.trust == Trust::Harness {
            return Ok(());
        }
        if self.process.stop().map_err(fault("cannot stop a child process"))?.is_some() {
            return Err(self.blame_end());
        }
        Ok(())
    }

    /// Looks who else runs in its name, once it is stopped.
    pub(crate) fn be_alone(&mut self) -> Attempt<()> {
        if self.tree.is_alone() {
            return Ok(());
        }
        self.end();
        Err(self.forbidden("leave another process running"))
    }

    /// Waits for a message, without sleeping at first, and says how long it is.
    fn hear(
        &mut self,
        start: Instant,
        deadline: Duration,
        spin: Duration,
        hider: &mut impl LatencyHider,
    ) -> Attempt<usize> {
        let mut looked = start;
        loop {
            let heard = socket::receive(&self.control, &mut self.packet);
            match heard.map_err(|error| self.unreachable(&error))? {
                Some(0) => return Err(self.blame_end()),
                Some(length) if self.packet[0] == SIGNAL => return Err(self.blame_report(length)),
                Some(length) => return Ok(length),
                None => {
                    if let Err(trouble) = hider.look() {
                        self.end();
                        return Err(trouble);
                    }
                }
            }
            let elapsed = start.elapsed();
            if elapsed > deadline {
                return Err(self.blame_hang(deadline));
            }
            if elapsed > spin {
                let rest = deadline.saturating_sub(elapsed).min(LOOK);
                socket::wait_for_either(&self.control, &self.output, rest).map_err(fault("cannot poll"))?;
                self.drain()?;
                if looked.elapsed() >= LOOK {
                    looked = Instant::now();
                    self.stay_within_memory()?;
                }
            }
            std::hint::spin_loop();
        }
    }

    /// Has what it printed so far count for nobody: another's turn begins.
    pub(crate) fn forget_printed(&mut self) {
        self.printed.clear();
    }

    /// Takes what it has printed.
    fn drain(&mut self) -> Attempt<()> {
        let mut chunk = [0; 4096];
        let limit_kib = self.allowed.print_kib;
        while let Ok(length @ 1..) = self.output.read(&mut chunk) {
            self.printed.extend_from_slice(&chunk[..length]);
            if self.printed.len() as u64 > limit_kib << 10 {
                self.end();
                return Err(Failure::Flood { case: self.case.clone(), limit_kib }.into());
            }
        }
        Ok(())
    }

    /// Ends it where it holds more of the host's memory than it may, and its address space is not limited.
    fn stay_within_memory(&mut self) -> Attempt<()> {
        let most = self.own_mib + self.allowed.memory_mib;
        let limited = self.allowed.memory_mib > 0 && self.address_space.is_none();
        if !limited || tree::held_mib(self.id()).is_none_or(|held| held <= most) {
            return Ok(());
        }
        self.end();
        Err(self.too_much_memory())
    }

    /// Ends it, and all that it started.
    pub(crate) fn end(&mut self) {
        // Once: its user may have another process by now.
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let _ = self.process.end();
        if self.trust == Trust::Candidate && self.allowed.processes {
            self.tree.end();
        }
    }
}

/// Whose doing its end was.
impl Peer {
    /// Its own handler reported a signal; it waits to be ended.
    fn blame_report(&mut self, length: usize) -> EvalError {
        let Some(Report { signal, detail }) = Report::read(&self.packet[..length]) else { return self.tampered() };
        let space = self.process.address_space().unwrap_or(0);
        self.touched = (signal == libc::SIGSEGV).then_some(detail);
        self.end();
        if let Err(flood) = self.drain() {
            return flood;
        }
        match signal {
            libc::SIGSYS if filter::asks_for_memory(detail) => self.too_much_memory(),
            libc::SIGSYS => self.forbidden(&filter::describe(detail)),
            _ if self.ran_out_of_memory(signal, detail, space) => self.too_much_memory(),
            _ => self.crash(signal),
        }
    }

    /// An uncaught `std::bad_alloc`, or a null pointer used where most of the memory was taken.
    fn ran_out_of_memory(&self, signal: i32, address: u64, space: u64) -> bool {
        let Some(at_first) = self.address_space else { return false };
        let (taken, most) = (space.saturating_sub(at_first), (self.allowed.memory_mib << 20) / 2);
        let text = String::from_utf8_lossy(&self.printed);
        match signal {
            libc::SIGABRT => text.contains("std::bad_alloc") || text.contains("memory allocation of"),
            libc::SIGSEGV => taken > most && (address < 1 << 16 || taken > most / 8 * 15),
            _ => false,
        }
    }

    /// Its end of the line is closed: it has ended, or is about to.
    fn blame_end(&mut self) -> EvalError {
        let patience = Instant::now();
        while let Ok(None) = self.process.ended() {
            if patience.elapsed() > ENDING {
                return self.tampered();
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        if let Err(trouble) = self.drain() {
            return trouble;
        }
        let ended = self.process.end();
        self.end();
        match ended {
            Ok(End::Exited(status)) => {
                Failure::Exit { case: self.case.clone(), status, stderr: self.last_words() }.into()
            }
            // Its own handler reports whatever can be caught: this one came while signals were held back.
            Ok(End::Killed(libc::SIGSYS)) => self.forbidden("make a forbidden system call"),
            Ok(End::Killed(signal)) => self.crash(signal),
            Err(e) => Fault::Machine(format!("cannot wait for a child process: {e}")).into(),
        }
    }

    fn blame_hang(&mut self, deadline: Duration) -> EvalError {
        self.end();
        if let Err(trouble) = self.drain() {
            return trouble;
        }
        Failure::Hang { case: self.case.clone(), deadline_ms: deadline.as_millis() as u64 }.into()
    }

    /// The failure of a kernel that takes more memory than it may.
    pub(crate) fn too_much_memory(&self) -> EvalError {
        Failure::Memory { case: self.case.clone(), limit_mib: self.allowed.memory_mib }.into()
    }

    fn crash(&self, signal: i32) -> EvalError {
        let stderr = self.last_words();
        Failure::Crash { case: self.case.clone(), signal: process::name(signal), stderr }.into()
    }

    /// What it printed last.
    pub(crate) fn last_words(&self) -> String {
        let from = self.printed.len().saturating_sub(4096);
        String::from_utf8_lossy(&self.printed[from..]).trim_end().to_owned()
    }
}

/// How long to wait without sleeping: not at all on a single core, and no longer than usual where no core is to spare.
fn spin(wanted: Duration) -> Duration {
    match std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
        1 => Duration::ZERO,
        2 | 3 => wanted.min(SPIN),
        _ => wanted,
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_timed_from_the_end_of_the_work_before_it_unless_it_did_not_wait_for_that() {
        let release = Instant::now();
        let at = |us| release + Duration::from_micros(us);
        let took = |hidden: Option<u64>, done| elapsed(release, hidden.map(at), at(done)).as_micros();
        assert_eq!(took(Some(600), 1800), 1200);
        assert_eq!(took(None, 1800), 1800);
        assert_eq!(took(Some(600), 500), 500);
        assert_eq!(took(Some(600), 600), 600);
        assert_eq!(took(Some(1700), 1800), 800);
        let long_ago = release.checked_sub(Duration::from_secs(1));
        assert_eq!(elapsed(release, long_ago, at(1800)).as_micros(), 1800);
    }
}
