//! A confined Python process with one module, a reference or a candidate: what it is asked to do, and what its answers mean.

use super::{
    contract::{CASE, ENTRY},
    headers::{Extension, Headers},
    places::Places,
    python::Python,
    values::{Input, Output},
    wire::{Arena, Ask, Construct, Counted, Counters, Done, Loaded, Module, Raised, Ran, Row, Said, Traced, Trimmed},
};
use crate::{
    measure::reading::Reading,
    result::{
        error::{Attempt, EvalError, fault},
        failure::{Failure, Fault},
    },
    sandbox::{
        peer::{Aside, LatencyHider, Peer, Went},
        pool::Starting,
    },
};
use serde::de::DeserializeOwned;
use std::{
    fs::{self, File},
    io::Write,
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt, lchown},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// What a problem computes in: both sides alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arithmetic {
    /// The element type that floating point is cast to.
    pub(crate) dtype: &'static str,
    /// Whether cuDNN's convolutions may round to TF32.
    pub(crate) tf32: bool,
}

/// How long a constructor may take, and small requests.
const PATIENCE: Duration = Duration::from_mins(2);
/// The longest table of counters, in bytes: of a call of a few hundred launches, each with some forty metrics.
const LONGEST_TABLE: usize = 4 << 20;
/// Lines of a build's log that are kept.
const LOG_LINES: usize = 150;
/// A module's file in the folder of its process.
const MODULE: &str = "module.py";
/// Folders of a process that are there from the start: for temporary files, and for what compilers keep.
const FOLDERS: [&str; 5] = ["tmp", "extensions", TRITON, INDUCTOR, "cuda"];
const TRITON: &str = "triton";
const INDUCTOR: &str = "inductor";
/// The stage that memory requests are blamed on.
const RELEASE: &str = "release of its outputs";

/// Calls that were made.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    /// What they took.
    pub(crate) reading: Reading,
    /// Where each slot's output lies.
    pub(crate) outputs: Vec<Output>,
}

/// What a process loads, and how its model is made.
#[derive(Clone, Debug)]
pub(crate) struct Role {
    /// The module's text.
    pub(crate) source: String,
    /// What the module is called.
    pub(crate) name: &'static str,
    /// The class that it must define.
    pub(crate) entry: &'static str,
    /// Which headers its extensions are to be built with.
    pub(crate) headers: Headers,
    /// The mode in which torch compiles the model, where it does.
    pub(crate) compile: Option<&'static str>,
    /// The most calls of a request.
    pub(crate) most_calls: usize,
}

impl Role {
    /// A candidate.
    pub(crate) fn candidate(source: &str, headers: Headers) -> Self {
        let (name, entry) = ("candidate", ENTRY);
        Self { source: source.to_owned(), name, entry, headers, compile: None, most_calls: usize::MAX }
    }

    /// The problem's reference.
    pub(crate) fn reference(source: &str) -> Self {
        Self { name: "reference", entry: "Model", ..Self::candidate(source, Headers::Stock) }
    }
}

/// A process that runs the reference's or a candidate's module.
pub(crate) struct Runner {
    pub(crate) peer: Peer,
    folder: tempfile::TempDir,
    pub(crate) role: Option<Role>,
    /// How its extensions were built, as its process says.
    pub(crate) extensions: Vec<Extension>,
    /// Where its inputs lie, as it was told last.
    inputs: Vec<Input>,
    places: Places,
    /// Whether it has made a model: from then on it may hold the device's memory.
    pub(crate) has_run: bool,
    /// Whether the model that it made last was called: its kernels are compiled by then.
    pub(crate) has_called: bool,
    /// Bytes of the device that torch had in it at most until it last gave some back, as it says.
    pub(crate) most_bytes: u64,
    /// How often the device had no memory for it, as it says.
    pub(crate) refused: u64,
    /// Whether it failed in a way that leaves it of no use.
    broken: bool,
}

impl Runner {
    /// Starts one in a folder of its own, with nobody's code in it. Where `starting` is given, it may be stopped meanwhile.
    pub(crate) fn start(python: &Python, starting: Option<&Starting>) -> Attempt<Self> {
        let folder = tempfile::tempdir_in(&python.folder_of_candidates).map_err(fault("cannot make a folder"))?;
        for part in FOLDERS {
            fs::create_dir(folder.path().join(part)).map_err(fault("cannot make a folder"))?;
        }
        let peer = python.runner(folder.path(), python.new_user(), starting).map_err(not_started)?;
        Ok(Self {
            peer,
            folder,
            role: None,
            extensions: vec![],
            inputs: vec![],
            places: Places::default(),
            has_run: false,
            has_called: false,
            most_bytes: 0,
            refused: 0,
            broken: false,
        })
    }

    /// Starts another process in the same folder, with what the one before built there, and loads the same module.
    pub(crate) fn restart(&mut self, python: &Python, deadline: Duration) -> Attempt<()> {
        self.peer.end();
        self.begin_again(python, (self.peer.user(), None), deadline)
    }

    /// The same for one that slept: as another user, for its own may be somebody else's by now, and where nobody times.
    pub(crate) fn wake(&mut self, python: &Python, starting: &Starting, deadline: Duration) -> Attempt<()> {
        self.begin_again(python, (python.new_user(), Some(starting)), deadline)
    }

    fn begin_again(
        &mut self,
        python: &Python,
        (user, starting): (Option<u32>, Option<&Starting>),
        deadline: Duration,
    ) -> Attempt<()> {
        self.peer = python.runner(self.folder.path(), user, starting).map_err(not_started)?;
        (self.inputs, self.places) = (vec![], Places::default());
        (self.has_run, self.broken) = (false, false);
        match self.role.take() {
            Some(role) => self.load(role, deadline),
            None => Ok(()),
        }
    }

    /// Ends its process, and keeps what was built in its folder until it is started again.
    pub(crate) fn sleep(&mut self) {
        self.peer.end();
        self.has_run = false;
    }

    /// Whether a compiler left something in its folder that another process there need not compile again.
    pub(crate) fn has_compiled(&self) -> bool {
        let holds = |part: &str| fs::read_dir(self.folder().join(part)).is_ok_and(|mut held| held.next().is_some());
        !self.extensions.is_empty() || [TRITON, INDUCTOR].into_iter().any(holds)
    }

    /// Whether it can do no more work: it has ended, or its device refuses it.
    pub(crate) fn is_broken(&mut self) -> bool {
        self.broken || !self.peer.is_alive()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its module's file.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join(MODULE)
    }

    /// Loads a module, which builds what it builds, and looks for its entry.
    pub(crate) fn load(&mut self, role: Role, deadline: Duration) -> Attempt<()> {
        self.write(&role.source).map_err(fault("cannot write the module down"))?;
        let module = self.module(&role);
        self.role = Some(role);
        let loaded: Loaded = self.ask(&Ask::Load(module), "import", deadline)?;
        self.extensions = loaded.extensions;
        self.peer.be_alone()?;
        match loaded.missing {
            Some(log) => Err(Failure::Interface { log }.into()),
            None => Ok(()),
        }
    }

    /// As the harness reads it.
    pub(crate) fn module(&self, role: &Role) -> Module {
        let (name, entry, headers) = (role.name.into(), role.entry.into(), role.headers.word().into());
        Module { path: self.file(), name, entry, headers }
    }

    /// Writes the module's text into its folder, where code of its own may have run: nothing that lies there is followed.
    fn write(&self, source: &str) -> std::io::Result<()> {
        let path = self.file();
        if fs::symlink_metadata(&path).is_ok() {
            fs::remove_file(&path)?;
        }
        File::create_new(&path)?.write_all(source.as_bytes())?;
        let owner = fs::metadata(self.folder())?;
        lchown(&path, Some(owner.uid()), Some(owner.gid()))
    }

    /// Makes the model anew, with the contract's seed.
    pub(crate) fn construct(&mut self, init: &Input, arithmetic: Arithmetic) -> Attempt<()> {
        (self.has_run, self.has_called) = (true, false);
        let construct = self.how_to_construct(init, arithmetic);
        self.ask::<Done>(&Ask::Construct(construct), "constructor", PATIENCE)?;
        self.peer.be_alone()
    }

    /// How its model is made.
    pub(crate) fn how_to_construct(&self, init: &Input, Arithmetic { dtype, tf32 }: Arithmetic) -> Construct {
        let compile = self.role.as_ref().and_then(|role| role.compile);
        Construct { init: init.clone(), dtype: dtype.to_owned(), compile: compile.map(str::to_owned), tf32 }
    }

    /// Opens the arena.
    pub(crate) fn map_inputs(&mut self, arena: &Arena, file: &OwnedFd) -> Attempt<()> {
        self.inputs = vec![];
        let ask = Ask::MapInputs { arena: arena.clone() };
        self.ask_with::<Done>(&ask, &[file], "mapping of the inputs", PATIENCE).map(|_| ())
    }

    /// Says where the inputs of each slot lie, where it does not know; whether it had to be told.
    pub(crate) fn set_inputs(&mut self, inputs: &[Input]) -> Attempt<bool> {
        if self.inputs == inputs {
            return Ok(false);
        }
        let ask = Ask::SetInputs { inputs: inputs.to_vec() };
        self.ask::<Done>(&ask, "mapping of the inputs", PATIENCE)?;
        self.inputs = inputs.to_vec();
        Ok(true)
    }

    /// Calls the model on each of these slots, once; its answer describes the outputs, and is slower for it.
    pub(crate) fn run(
        &mut self,
        slots: &[usize],
        deadline: Duration,
        hider: &mut impl LatencyHider,
    ) -> Attempt<Called> {
        let ask = Ask::Run { slots: slots.to_vec() };
        let (said, outside) = self.peer.ask_timed(&ask, &[], deadline, hider)?;
        self.ran(slots, said, outside)
    }

    /// The same for the first time: while it compiles, whoever is `aside` lets others have the device.
    pub(crate) fn run_first(&mut self, slots: &[usize], deadline: Duration, aside: &mut impl Aside) -> Attempt<Called> {
        let ask = Ask::RunFirst { slots: slots.to_vec() };
        let (said, outside) = self.peer.ask_aside(&ask, deadline, aside)?;
        self.ran(slots, said, outside)
    }

    fn ran(&mut self, slots: &[usize], said: Said<Ran>, outside: Duration) -> Attempt<Called> {
        let Ran { inside_ns, outputs, addresses } = self.unless_raised(said, "forward")?;
        if outputs.len() != slots.len() {
            return Err(self.peer.tampered());
        }
        self.places.learn(slots, &outputs, addresses);
        self.has_called = true;
        let reading = Reading { outside_ns: outside.as_nanos() as f64, inside_ns: inside_ns as f64 };
        Ok(Called { reading, outputs })
    }

    /// Does all of a request that comes before the calls.
    pub(crate) fn prepare(&mut self, slots: &[usize]) -> Attempt<()> {
        self.ask::<Done>(&Ask::Prepare { slots: slots.to_vec() }, RELEASE, PATIENCE).map(|_| ())
    }

    /// Calls the model on each of the slots that it is prepared for; `None` where its outputs lie where none has lain.
    pub(crate) fn go(
        &mut self,
        slots: &[usize],
        deadline: Duration,
        hider: &mut impl LatencyHider,
    ) -> Attempt<Option<Called>> {
        match self.peer.go::<Said<Done>>(deadline, hider)? {
            Went::Done { outside, inside_ns, addresses } => {
                let reading = Reading { outside_ns: outside.as_nanos() as f64, inside_ns: inside_ns as f64 };
                Ok(self.places.at(slots, &addresses).map(|outputs| Called { reading, outputs }))
            }
            Went::Said(Said::Raised { raised }) => Err(self.blame("forward", raised)),
            Went::Said(Said::Answer(_)) => Err(self.peer.tampered()),
        }
    }

    /// Has it put its outputs, of these sizes in bytes and so many of each, elsewhere in every request from here on. Nobody
    /// may have them open.
    pub(crate) fn randomize_allocations(&mut self, sizes: &[u64], count: usize) -> Attempt<()> {
        self.places = Places::default();
        let ask = Ask::RandomizeAllocations { sizes: sizes.to_vec(), count };
        self.ask::<Done>(&ask, RELEASE, PATIENCE)?;
        self.peer.be_alone()
    }

    /// Calls the model on the first slot under torch's own profiler; what it says of each launch.
    pub(crate) fn trace(&mut self, deadline: Duration) -> Attempt<Vec<Row>> {
        let traced: Traced = self.ask(&Ask::Trace, "forward", deadline)?;
        self.peer.be_alone()?;
        Ok(traced.launches)
    }

    /// Gets ready to read these counters of every launch of a call on the first slot; of one of its own where no model was made.
    pub(crate) fn prepare_counters(&mut self, names: Vec<String>, deadline: Duration) -> Attempt<Counters> {
        self.counted(&Ask::PrepareCounters { names }, deadline)
    }

    /// Reads them: the table, or why there is none. All of its parts are here by then, for the device is held alone meanwhile.
    pub(crate) fn read_counters(&mut self, deadline: Duration) -> Attempt<Counters> {
        let (start, mut whole) = (Instant::now(), String::new());
        let mut said = self.counted(&Ask::ReadCounters, deadline)?;
        while let Counters::Table(part) = &said {
            if part.is_empty() {
                return Ok(Counters::Table(whole));
            }
            whole.push_str(part);
            if whole.len() > LONGEST_TABLE {
                return Err(self.peer.tampered());
            }
            said = self.counted(&Ask::MoreCounters, deadline.saturating_sub(start.elapsed()))?;
        }
        Ok(said)
    }

    fn counted(&mut self, ask: &Ask, deadline: Duration) -> Attempt<Counters> {
        let counted: Counted = self.ask(ask, "forward", deadline)?;
        self.peer.be_alone()?;
        Ok(counted.counted)
    }

    /// Drops what the last run put out.
    pub(crate) fn release_outputs(&mut self) -> Attempt<()> {
        self.ask::<Done>(&Ask::ReleaseOutputs, RELEASE, PATIENCE)?;
        self.peer.be_alone()
    }

    /// Has it give memory back: what it keeps beside its model, or with `all` the model and the inputs too, so that these
    /// must be bound again. Nobody may have its outputs open.
    pub(crate) fn trim_memory(&mut self, all: bool) -> Attempt<()> {
        self.places = Places::default();
        if all {
            self.inputs = vec![];
        }
        let trimmed: Trimmed = self.ask(&Ask::TrimMemory { all }, RELEASE, PATIENCE)?;
        self.most_bytes = trimmed.most;
        self.refused = trimmed.refused;
        self.peer.be_alone()
    }

    fn ask<A: DeserializeOwned>(&mut self, ask: &Ask, stage: &str, deadline: Duration) -> Attempt<A> {
        self.ask_with(ask, &[], stage, deadline)
    }

    fn ask_with<A: DeserializeOwned>(
        &mut self,
        ask: &Ask,
        files: &[&OwnedFd],
        stage: &str,
        deadline: Duration,
    ) -> Attempt<A> {
        let said = self.peer.ask(ask, files, deadline)?;
        self.unless_raised(said, stage)
    }

    fn unless_raised<A>(&mut self, said: Said<A>, stage: &str) -> Attempt<A> {
        match said {
            Said::Answer(answer) => Ok(answer),
            Said::Raised { raised } => Err(self.blame(stage, raised)),
        }
    }

    fn blame(&mut self, stage: &str, raised: Raised) -> EvalError {
        let (case, Raised { error, traceback, memory }) = (CASE.to_owned(), raised);
        self.broken |= memory || error.contains("CUDA error: ");
        if memory {
            let limit_mib = device_mib(&error).unwrap_or(self.peer.memory_mib());
            return Failure::Memory { case, limit_mib }.into();
        }
        if is_of_a_build(stage, &error) {
            return Failure::Build { log: last_lines(&format!("{traceback}\n{error}")) }.into();
        }
        if let Some(at) = error.find("CUDA error: ") {
            let signal = error[at..].lines().next().unwrap_or_default().to_owned();
            return Failure::Crash { case, signal, stderr: traceback }.into();
        }
        Failure::Raised { case, stage: stage.to_owned(), error, traceback }.into()
    }
}

/// A process that was started, with nobody's code in it yet: where it was not, that is the machine's doing.
pub(crate) fn not_started(error: EvalError) -> EvalError {
    match error {
        EvalError::Candidate(failure) => {
            let words = match &*failure {
                Failure::Exit { stderr, .. } | Failure::Crash { stderr, .. } => format!("\n{stderr}"),
                _ => String::new(),
            };
            Fault::told(format!("a process does not start: {failure}{words}")).into()
        }
        fault @ EvalError::Infra(_) => fault,
    }
}

/// Whether a compiler speaks. Much is compiled at the first call: then by its kind alone, for anything may be quoted there.
fn is_of_a_build(stage: &str, error: &str) -> bool {
    const AT_IMPORT: [&str; 6] =
        ["SyntaxError", "IndentationError", "TabError", "Error building extension", "CompilationError", "nvrtc"];
    const AT_A_CALL: [&str; 4] = [
        "CompilationError: ",
        "PTXASError: ",
        "RuntimeError: PassManager::run failed",
        "RuntimeError: Error building extension",
    ];
    match stage {
        "import" => AT_IMPORT.iter().any(|sign| error.contains(sign)),
        _ => AT_A_CALL.iter().any(|sign| error.starts_with(sign)),
    }
}

/// All of a GPU's memory in MiB, as torch says it when there is no more.
fn device_mib(error: &str) -> Option<u64> {
    let (_, rest) = error.split_once(" has a total capacity of ")?;
    let mut words = rest.split_whitespace();
    let number: f64 = words.next()?.parse().ok().filter(|number: &f64| (0.0..1e6).contains(number))?;
    let in_mib = match words.next()? {
        "GiB" => number * 1024.0,
        "MiB" => number,
        _ => return None,
    };
    Some(in_mib as u64)
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.trim().lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::{device_mib, is_of_a_build};

    #[test]
    fn a_compilers_complaint_at_the_first_call_is_of_the_build_and_what_quotes_one_is_not() {
        assert!(is_of_a_build("forward", "CompilationError: at 3:21:\ndef wrong(x, y):"));
        assert!(is_of_a_build("constructor", "RuntimeError: Error building extension 'a'"));
        assert!(is_of_a_build("import", "SyntaxError: invalid syntax"));
        assert!(!is_of_a_build("forward", "ValueError: CompilationError: at 3:21"));
        assert!(!is_of_a_build("forward", "SyntaxError: invalid syntax"));
    }

    #[test]
    fn a_gpu_that_is_full_says_how_much_it_has() {
        let error = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
                     139.81 GiB of which 1.07 GiB is free.";
        assert_eq!(device_mib(error), Some(143_165));
        assert_eq!(device_mib("OutOfMemoryError: it has a total capacity of nothing"), None);
    }
}
