//! An untrusted Python process with one module: what it is asked to do, and what its answers mean.

use super::{
    CASE,
    headers::{self, Extension, Headers},
    places::Places,
    python::raised,
};
use crate::{
    measure::clock::Reading,
    result::{
        error::{Attempt, Trouble},
        failure::{Failure, Fault},
    },
    sandbox::peer::{Cover, Peer, Reply, Went},
};
use serde_json::{Value, json};
use std::{os::fd::OwnedFd, path::Path, time::Duration};

/// How long a constructor may take, and small requests.
const PATIENCE: Duration = Duration::from_mins(2);
/// Lines of a build's log that are kept.
const LOG_LINES: usize = 150;

/// What came of a run.
pub(crate) struct Ran {
    /// By our clock.
    pub(crate) outside: Duration,
    /// By its own, in nanoseconds; not to be believed.
    pub(crate) inside_ns: u64,
    /// Where each slot's output lies.
    pub(crate) outputs: Vec<Value>,
}

impl Ran {
    /// By both clocks.
    pub(crate) fn reading(&self) -> Reading {
        Reading { outside_ns: self.outside.as_nanos() as f64, inside_ns: self.inside_ns as f64 }
    }
}

/// What a process is to load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module<'a> {
    /// The file.
    pub(crate) path: &'a Path,
    /// What the module is called.
    pub(crate) name: &'a str,
    /// What it must define.
    pub(crate) entry: &'a str,
}

impl Module<'_> {
    /// As the harness reads it.
    pub(crate) fn to_load(self, headers: Headers) -> Value {
        json!({"path": self.path, "module": self.name, "entry": self.entry, "headers": headers.word()})
    }
}

/// A process that runs the reference's or a candidate's module.
pub(crate) struct Runner {
    pub(crate) peer: Peer,
    folder: tempfile::TempDir,
    /// Which headers its extensions were to be built with.
    pub(crate) headers: Headers,
    /// How they were, as its process tells it.
    pub(crate) extensions: Vec<Extension>,
    /// Where its inputs lie, as it was told last.
    inputs: Value,
    places: Places,
    /// Whether it has made a model: from then on it may hold the device's memory.
    pub(crate) has_run: bool,
    /// Bytes of the device that torch had in it at most, as it says.
    pub(crate) most_bytes: u64,
    /// Whether it failed in a way that leaves it of no use.
    broken: bool,
}

impl Runner {
    pub(crate) fn new(peer: Peer, folder: tempfile::TempDir) -> Self {
        let (inputs, places) = (Value::Null, Places::default());
        Self {
            peer,
            folder,
            headers: Headers::Stock,
            extensions: vec![],
            inputs,
            places,
            has_run: false,
            most_bytes: 0,
            broken: false,
        }
    }

    /// Whether it can do no more work: it has ended, or its device refuses it.
    pub(crate) fn is_broken(&mut self) -> bool {
        self.broken || !self.peer.is_alive()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Loads the module, which builds what it builds, and looks for its entry.
    pub(crate) fn load(&mut self, module: &Module<'_>, headers: Headers, deadline: Duration) -> Attempt<()> {
        let mut message = module.to_load(headers);
        message["do"] = json!("load");
        self.headers = headers;
        let reply = self.ask(message, "import", deadline)?;
        self.extensions = headers::extensions(&reply.said);
        self.peer.be_alone()?;
        match reply.said.get("missing").and_then(Value::as_str) {
            Some(missing) => Err(Failure::Interface { log: missing.to_owned() }.into()),
            None => Ok(()),
        }
    }

    /// Makes the model anew, with the contract's seed.
    pub(crate) fn construct(&mut self, init: &Value, dtype: &str) -> Attempt<()> {
        self.construct_compiled(init, dtype, None)
    }

    /// The same; its forward is compiled by torch, in this mode, when it is first called.
    pub(crate) fn construct_compiled(&mut self, init: &Value, dtype: &str, compile: Option<&str>) -> Attempt<()> {
        self.has_run = true;
        let message = json!({"do": "construct", "init": init, "dtype": dtype, "compile": compile});
        self.ask(message, "constructor", PATIENCE)?;
        self.peer.be_alone()
    }

    /// Opens the arena.
    pub(crate) fn map(&mut self, arena: &Value, file: &OwnedFd) -> Attempt<()> {
        self.inputs = Value::Null;
        let message = json!({"do": "map", "arena": arena});
        self.ask_with(message, &[file], "mapping of the inputs", PATIENCE).map(|_| ())
    }

    /// Says where the inputs of each slot lie, where it does not know; whether it had to be told.
    pub(crate) fn inputs(&mut self, inputs: &Value) -> Attempt<bool> {
        if self.inputs == *inputs {
            return Ok(false);
        }
        self.ask(json!({"do": "inputs_of", "inputs": inputs}), "mapping of the inputs", PATIENCE)?;
        self.inputs = inputs.clone();
        Ok(true)
    }

    /// Calls the model on each of these slots, once; its answer describes the outputs, and is slower for it.
    pub(crate) fn run(&mut self, slots: &[usize], deadline: Duration, cover: &mut impl Cover) -> Attempt<Ran> {
        let reply = self.peer.ask_timed(json!({"do": "run", "slots": slots}), &[], deadline, cover)?;
        let Reply { said, outside } = self.unless_raised(reply, "forward")?;
        let meddled = || self.peer.forbidden("meddle with the line between its process and the workshop");
        let outputs = said["outputs"].as_array().filter(|outputs| outputs.len() == slots.len());
        let outputs = outputs.ok_or_else(meddled)?.clone();
        let inside_ns = said["inside_ns"].as_u64().ok_or_else(meddled)?;
        let addresses = said["addresses"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
        self.places.learn(slots, &outputs, addresses);
        Ok(Ran { outside, inside_ns, outputs })
    }

    /// Does all of a request that comes before the calls.
    pub(crate) fn prepare(&mut self, slots: &[usize]) -> Attempt<()> {
        self.ask(json!({"do": "prepare", "slots": slots}), "release of its outputs", PATIENCE).map(|_| ())
    }

    /// Calls the model on each of the slots that it is prepared for; `None` where its outputs lie where none has lain.
    pub(crate) fn go(&mut self, slots: &[usize], deadline: Duration, cover: &mut impl Cover) -> Attempt<Option<Ran>> {
        match self.peer.go(deadline, cover)? {
            Went::Done { outside, inside_ns, addresses } => {
                Ok(self.places.at(slots, &addresses).map(|outputs| Ran { outside, inside_ns, outputs }))
            }
            Went::Raised(said) => Err(match raised(&said) {
                Some((error, traceback, memory)) => self.blame("forward", error, traceback, memory),
                None => self.peer.forbidden("meddle with the line between its process and the workshop"),
            }),
        }
    }

    /// Has it put its outputs, of these sizes in bytes and so many of each, elsewhere in every request from here on. Nobody
    /// may have them open.
    pub(crate) fn scatter(&mut self, sizes: &[u64], count: usize) -> Attempt<()> {
        self.places = Places::default();
        self.ask(json!({"do": "scatter", "sizes": sizes, "count": count}), "release of its outputs", PATIENCE)?;
        self.peer.be_alone()
    }

    /// Calls the model on the first slot under torch's own profiler; what it says of each launch.
    pub(crate) fn trace(&mut self, deadline: Duration) -> Attempt<Value> {
        let mut reply = self.ask(json!({"do": "trace"}), "forward", deadline)?;
        self.peer.be_alone()?;
        Ok(reply.said["launches"].take())
    }

    /// Lets go of what the last run put out.
    pub(crate) fn release(&mut self) -> Attempt<()> {
        self.ask(json!({"do": "release"}), "release of its outputs", PATIENCE)?;
        self.peer.be_alone()
    }

    /// Gives memory back: what it keeps beside its model, or with `all` the model and the inputs too, so that it must be
    /// introduced anew. Nobody may have its outputs open.
    pub(crate) fn rest(&mut self, all: bool) -> Attempt<()> {
        self.places = Places::default();
        if all {
            self.inputs = Value::Null;
        }
        let reply = self.ask(json!({"do": "rest", "all": all}), "release of its outputs", PATIENCE)?;
        self.most_bytes = self.most_bytes.max(reply.said["most"].as_u64().unwrap_or(0));
        self.peer.be_alone()
    }

    fn ask(&mut self, message: Value, stage: &str, deadline: Duration) -> Attempt<Reply> {
        self.ask_with(message, &[], stage, deadline)
    }

    fn ask_with(&mut self, message: Value, files: &[&OwnedFd], stage: &str, deadline: Duration) -> Attempt<Reply> {
        let reply = self.peer.ask_with(message, files, deadline)?;
        self.unless_raised(reply, stage)
    }

    fn unless_raised(&mut self, reply: Reply, stage: &str) -> Attempt<Reply> {
        match raised(&reply.said) {
            Some((error, traceback, memory)) => Err(self.blame(stage, error, traceback, memory)),
            None => Ok(reply),
        }
    }

    fn blame(&mut self, stage: &str, error: String, traceback: String, memory: bool) -> Trouble {
        let case = CASE.to_owned();
        self.broken |= memory || error.contains("CUDA error: ");
        if memory {
            let limit_mib = device_mib(&error).unwrap_or(self.peer.memory_mib);
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

/// A failure of the reference is no candidate's.
pub(crate) fn trusted<T>(attempt: Attempt<T>) -> Attempt<T> {
    attempt.map_err(|trouble| match trouble {
        Trouble::Failure(failure) => {
            let more = match *failure {
                Failure::Raised { ref traceback, .. } => format!("\n{traceback}"),
                Failure::Build { ref log } | Failure::Interface { ref log } => format!("\n{log}"),
                Failure::Exit { ref stderr, .. } | Failure::Crash { ref stderr, .. } => format!("\n{stderr}"),
                Failure::Memory { .. } => ": out of memory".to_owned(),
                _ => String::new(),
            };
            Fault(format!("the problem's reference failed: {failure}{more}")).into()
        }
        fault @ Trouble::Fault(_) => fault,
    })
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
