//! A Python process as the program sees it: started, asked, timed, and blamed when it fails.
//!
//! A candidate's process stands still whenever it is not asked anything. So what it has put out when it is stopped is all
//! that it did in the time that was measured, even if it said that it was done before it was.

use super::{
    launch,
    tree::{self, Company},
};
use crate::{
    backend::native::Layer,
    result::{
        error::{Attempt, Trouble, fault},
        failure::{Failure, Fault},
    },
    sandbox::process::{self, End, Process},
};
use rand::Rng;
use serde_json::{Value, json};
use std::{
    fs::File,
    io::Read,
    os::{fd::OwnedFd, unix::fs::FileExt},
    time::{Duration, Instant},
};

/// The longest message, in bytes.
const LONGEST: usize = 160 << 10;
/// What a process may print, in KiB.
const PRINT_KIB: u64 = 1024;
/// How long the program waits without sleeping.
const SPIN: Duration = Duration::from_millis(2);
/// The same while something is timed, where a core is left for it.
const SPIN_TIMED: Duration = Duration::from_millis(500);
/// How often it is looked how much memory a process holds that has not answered.
const LOOK: Duration = Duration::from_millis(100);
/// The first byte of an answer to "go"; an answer in words begins otherwise.
const WENT: u8 = 0;

/// Whose code it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The harness's own: it is left running.
    Judge,
    /// A stranger's: it stands still unless asked.
    Stranger,
}

/// Work on the GPU behind which a process is let go: it is woken and launches meanwhile, and is timed from its end.
pub(crate) trait Cover {
    /// Looks at it; done again and again until the process has answered.
    fn look(&mut self) -> Attempt<()> {
        Ok(())
    }

    /// When it ended, where it has, and where there is any.
    fn ended(&mut self) -> Attempt<Option<Instant>>;
}

/// None.
impl Cover for () {
    fn ended(&mut self) -> Attempt<Option<Instant>> {
        Ok(None)
    }
}

/// The longest that a cover hides: what one lasts that is longer counts.
const COVER: Duration = Duration::from_millis(1);

/// What it took: from the end of the cover; from before the process was let go where that ended before, or not yet when it
/// answered, for then it has not waited for the GPU.
fn took(let_go: Instant, covered: Option<Instant>, answered: Instant) -> Duration {
    let from = covered.filter(|ended| (let_go..answered).contains(ended)).unwrap_or(let_go);
    answered.saturating_duration_since(from.min(let_go + COVER))
}

/// A reply and when it came.
pub(crate) struct Reply {
    /// What was said.
    pub(crate) said: Value,
    /// By our clock: from before the process was let go, or from the end of what covered that, until it had answered.
    pub(crate) outside: Duration,
}

/// An answer to "go".
pub(crate) enum Went {
    /// It has made its calls.
    Done {
        /// By our clock: from the end of what covered its being let go, or else from before that, until it had answered.
        outside: Duration,
        /// By its own, in nanoseconds.
        inside_ns: u64,
        /// Where the outputs begin.
        addresses: Vec<u64>,
    },
    /// It raised something.
    Raised(Value),
}

/// A Python process.
pub(crate) struct Peer {
    process: Process,
    company: Company,
    control: OwnedFd,
    output: std::io::PipeReader,
    printed: Vec<u8>,
    packet: Vec<u8>,
    trust: Trust,
    /// What it works on, for failures.
    pub(crate) case: String,
    pub(crate) memory_mib: u64,
    /// What it held when it was ready, in MiB.
    own_mib: u64,
    pub(crate) layers: Vec<Layer>,
}

impl Peer {
    pub(crate) fn new(
        child: &std::process::Child,
        control: OwnedFd,
        output: std::io::PipeReader,
        trust: Trust,
        user: Option<u32>,
    ) -> Self {
        process::do_not_block(&output);
        let company = Company::of(child.id().cast_signed(), user);
        let process = Process::of(child);
        let case = crate::backend::torch::CASE.to_owned();
        Self {
            process,
            company,
            control,
            output,
            printed: vec![],
            packet: vec![0; LONGEST],
            trust,
            case,
            memory_mib: 0,
            own_mib: 0,
            layers: vec![],
        }
    }

    /// Sends its setup, and waits until it is ready.
    pub(crate) fn greet(&mut self, setup: &Value, deadline: Duration) -> Attempt<()> {
        let start = Instant::now();
        if self.trust == Trust::Stranger {
            let length = self.hear(start, deadline, SPIN, &mut ())?;
            self.layers = serde_json::from_slice(&self.packet[..length]).map_err(|e| Fault(e.to_string()))?;
        }
        self.send(setup, &[])?;
        let length = self.hear(start, deadline, SPIN, &mut ())?;
        let ready: Value = serde_json::from_slice(&self.packet[..length]).map_err(|e| Fault(e.to_string()))?;
        if ready.get("ready").is_none() {
            return Err(self.meddled());
        }
        self.own_mib = tree::held_mib(self.id()).unwrap_or(0);
        self.stand_still()
    }

    /// Asks for something and waits for the answer.
    pub(crate) fn ask(&mut self, message: Value, deadline: Duration) -> Attempt<Reply> {
        self.ask_with(message, &[], deadline)
    }

    /// The same, with files that it may use from then on.
    pub(crate) fn ask_with(&mut self, message: Value, files: &[&OwnedFd], deadline: Duration) -> Attempt<Reply> {
        self.ask_timed(message, files, deadline, &mut ())
    }

    /// The same, timed as `go` is.
    pub(crate) fn ask_timed(
        &mut self,
        mut message: Value,
        files: &[&OwnedFd],
        deadline: Duration,
        cover: &mut impl Cover,
    ) -> Attempt<Reply> {
        let nonce = rand::rng().random::<u64>() >> 12;
        message["nonce"] = json!(nonce);
        self.send(&message, files)?;
        let (length, outside) = self.answered(deadline, SPIN, cover)?;
        tracing::trace!(to = self.id(), asked = %message["do"], ?outside);
        Ok(Reply { said: self.said(length, nonce)?, outside })
    }

    /// Has it do what it is prepared for, and times that, from the end of what covers its being let go. One that has answered
    /// by then has not waited for the GPU: it is timed from before it was let go.
    pub(crate) fn go(&mut self, deadline: Duration, cover: &mut impl Cover) -> Attempt<Went> {
        let nonce = rand::rng().random::<u64>() >> 12;
        let spin = if spare_cores() { SPIN_TIMED } else { SPIN };
        process::send(&self.control, &nonce.to_le_bytes()).map_err(fault("cannot reach the Python process"))?;
        let (length, outside) = self.answered(deadline, spin, cover)?;
        if self.packet[0] != WENT || length < 17 {
            return Ok(Went::Raised(self.said(length, nonce)?));
        }
        let mut numbers = self.packet[1..length]
            .chunks_exact(8)
            .map(|chunk| chunk.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)));
        if numbers.next() != Some(nonce) {
            return Err(self.meddled());
        }
        let inside_ns = numbers.next().unwrap_or(0);
        let addresses = numbers.collect();
        Ok(Went::Done { outside, inside_ns, addresses })
    }

    /// Lets it go until it has answered: how long its answer is in bytes, and the time it took.
    fn answered(&mut self, deadline: Duration, spin: Duration, cover: &mut impl Cover) -> Attempt<(usize, Duration)> {
        let let_go = Instant::now();
        if self.trust == Trust::Stranger {
            self.process.resume();
        }
        let length = self.hear(let_go, deadline, spin, cover)?;
        let answered = Instant::now();
        self.stand_still()?;
        Ok((length, took(let_go, cover.ended()?, answered)))
    }

    /// The answer in words that was heard last, if it answers what was asked.
    fn said(&mut self, length: usize, nonce: u64) -> Attempt<Value> {
        let said: Value = serde_json::from_slice(&self.packet[..length]).map_err(|_| self.meddled())?;
        if said["nonce"] == json!(nonce) { Ok(said) } else { Err(self.meddled()) }
    }

    /// Reads bytes of its memory while it stands still.
    pub(crate) fn read_memory(&self, address: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        File::open(format!("/proc/{}/mem", self.company.leader))?.read_exact_at(buffer, address)
    }

    /// Its number.
    pub(crate) fn id(&self) -> i32 {
        self.company.leader
    }

    /// Whether it has not ended.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.process.ended(), Ok(None))
    }

    /// All that run in its name.
    pub(crate) fn company(&self) -> Company {
        self.company.clone()
    }

    /// What it printed last.
    pub(crate) fn last_words(&mut self) -> String {
        let _ = self.drain();
        let from = self.printed.len().saturating_sub(4096);
        String::from_utf8_lossy(&self.printed[from..]).trim_end().to_owned()
    }

    /// A failure for having tried something.
    pub(crate) fn forbidden(&self, what: &str) -> Trouble {
        Failure::Forbidden { case: self.case.clone(), what: what.to_owned() }.into()
    }

    fn send(&self, message: &Value, files: &[&OwnedFd]) -> Result<(), Fault> {
        let text = message.to_string();
        if text.len() > LONGEST {
            return Err(Fault(format!("a message to the harness has {} bytes, the limit is {LONGEST}", text.len())));
        }
        launch::send_with(&self.control, text.as_bytes(), files).map_err(fault("cannot reach the Python process"))
    }

    /// Stops it.
    fn stand_still(&mut self) -> Attempt<()> {
        self.drain()?;
        if self.trust == Trust::Judge {
            return Ok(());
        }
        if self.process.stop().map_err(fault("cannot stop the candidate's process"))?.is_some() {
            return Err(self.blame_end());
        }
        Ok(())
    }

    /// Looks who else is there, once it stands still.
    pub(crate) fn be_alone(&mut self) -> Attempt<()> {
        if self.company.is_alone() {
            return Ok(());
        }
        self.end();
        Err(self.forbidden("leave another process running"))
    }

    /// Waits for a message, without sleeping at first, and says how long it is.
    fn hear(&mut self, start: Instant, deadline: Duration, spin: Duration, cover: &mut impl Cover) -> Attempt<usize> {
        let mut looked = start;
        loop {
            match process::receive(&self.control, &mut self.packet).map_err(fault("cannot hear the Python process"))? {
                Some(0) => return Err(self.blame_end()),
                Some(length) => return Ok(length),
                None => {
                    if let Err(trouble) = cover.look() {
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
                process::wait_for_either(&self.control, &self.output, rest).map_err(fault("cannot poll"))?;
                self.drain()?;
                if looked.elapsed() >= LOOK {
                    looked = Instant::now();
                    self.stay_within_memory()?;
                }
            }
            std::hint::spin_loop();
        }
    }

    fn drain(&mut self) -> Attempt<()> {
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = self.output.read(&mut chunk) {
            self.printed.extend_from_slice(&chunk[..length]);
            if self.printed.len() as u64 > PRINT_KIB << 10 {
                self.end();
                return Err(Failure::Flood { case: self.case.clone(), limit_kib: PRINT_KIB }.into());
            }
        }
        Ok(())
    }

    /// Ends it where it holds more of the host's memory than it may: on a GPU nothing else limits that.
    fn stay_within_memory(&mut self) -> Attempt<()> {
        let most = self.own_mib + self.memory_mib;
        if self.memory_mib == 0 || tree::held_mib(self.id()).is_none_or(|held| held <= most) {
            return Ok(());
        }
        self.end();
        Err(Failure::Memory { case: self.case.clone(), limit_mib: self.memory_mib }.into())
    }

    fn end(&mut self) {
        let _ = self.process.end();
        if self.trust == Trust::Stranger {
            self.company.end();
        }
    }

    fn blame_end(&mut self) -> Trouble {
        let patience = Instant::now();
        while let Ok(None) = self.process.ended() {
            if patience.elapsed() > Duration::from_secs(5) {
                return self.meddled();
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let stderr = self.last_words();
        let case = self.case.clone();
        let ended = self.process.end();
        self.end();
        match ended {
            Ok(End::Exited(status)) => Failure::Exit { case, status, stderr }.into(),
            Ok(End::Killed(signal)) => Failure::Crash { case, signal: process::name(signal), stderr }.into(),
            Err(e) => Fault(format!("cannot wait for the Python process: {e}")).into(),
        }
    }

    fn blame_hang(&mut self, deadline: Duration) -> Trouble {
        self.end();
        Failure::Hang { case: self.case.clone(), deadline_ms: deadline.as_millis() as u64 }.into()
    }

    fn meddled(&mut self) -> Trouble {
        self.end();
        self.forbidden("meddle with the line between its process and the workshop")
    }
}

/// Whether this program can wait on a core of its own, however others use the machine.
fn spare_cores() -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| cores.get() >= 4)
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
    fn a_request_is_timed_from_the_end_of_its_cover_unless_it_did_not_wait_for_that() {
        let let_go = Instant::now();
        let at = |us| let_go + Duration::from_micros(us);
        let took = |covered: Option<u64>, answered| {
            crate::sandbox::peer::took(let_go, covered.map(at), at(answered)).as_micros()
        };
        assert_eq!(took(Some(600), 1800), 1200);
        assert_eq!(took(None, 1800), 1800);
        assert_eq!(took(Some(600), 500), 500);
        assert_eq!(took(Some(600), 600), 600);
        assert_eq!(took(Some(1700), 1800), 800);
        let long_ago = let_go.checked_sub(Duration::from_secs(1));
        assert_eq!(crate::sandbox::peer::took(let_go, long_ago, at(1800)).as_micros(), 1800);
    }
}
