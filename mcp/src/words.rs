//! What a client may say of each tool, and the words of the command line that it comes to.
//!
//! What a client names never becomes a flag: a value behind a flag stands in one word with it, and a name that begins with a
//! dash is refused.

use schemars::JsonSchema;
use serde::Deserialize;

/// Words of the command line, or why there are none.
pub(crate) type Words = Result<Vec<String>, String>;

/// What is common to everything that is searched.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Searching {
    /// How configurations are chosen: exhaustive, sampled or tpe.
    pub(crate) tuner: Option<String>,
    /// How many configurations are timed at most.
    pub(crate) tests: Option<u32>,
    /// How many of the fastest are kept.
    pub(crate) keep: Option<u32>,
}

/// `list_transformations`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listing {
    /// Those for this backend alone: cuda, hip, hlsl or cpu.
    backend: Option<String>,
}

/// `transform`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Transforming {
    /// A task's folder, which begins a run; or a run's folder for its head; or RUN@NAME for one of its checkpoints.
    at: String,
    /// The transformation's name.
    name: String,
    /// What answers: openai:NAME, mailbox:DIR, scripted:FILE. For a run, the one that it has, where none is named.
    model: Option<String>,
    /// For a task: the initial context is this candidate of a run, such as RUN@best.
    from: Option<String>,
    /// What the model is told beside the transformation.
    say: Option<String>,
    /// How often it is tried.
    tries: Option<u32>,
    /// For a task: the run's folder.
    out: Option<String>,
    /// For a task: calls of each before the first sample.
    warmup: Option<u32>,
    /// For a task: samples of each.
    repetitions: Option<u32>,
    /// For a task: on a simulated machine, whose times are made up.
    simulate: Option<bool>,
    /// How configurations are chosen: exhaustive, sampled or tpe.
    tuner: Option<String>,
    /// How many configurations are timed at most.
    tests: Option<u32>,
    /// How many of the fastest are kept.
    keep: Option<u32>,
}

/// `tune`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retuning {
    /// A run's folder for its head, or RUN@NAME.
    at: String,
    /// How configurations are chosen: exhaustive, sampled or tpe.
    tuner: Option<String>,
    /// How many configurations are timed at most.
    tests: Option<u32>,
    /// How many of the fastest are kept.
    keep: Option<u32>,
}

/// `resume`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resuming {
    /// The run's folder.
    run: String,
    /// Another model than the run has.
    model: Option<String>,
}

/// `checkpoint` and `branch`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Naming {
    /// A run's folder for its head, or RUN@NAME.
    at: String,
    /// The new name.
    name: String,
}

/// `restore` and `show`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pointing {
    /// RUN@NAME: a checkpoint or a branch; for `show` also a round's number, `best` or the first digits of an id.
    at: String,
}

/// `tree`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Looking {
    /// The run's folder.
    run: String,
}

/// `compare`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Comparing {
    /// Two or more, each RUN@NAME, or each a run's folder; the others are compared with the first.
    which: Vec<String>,
    /// What was measured when they were made, without building and timing now.
    #[serde(default)]
    pub(crate) recorded: bool,
}

/// `evaluate`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Evaluating {
    /// A task's folder; or RUN@NAME, a candidate on its run's own task.
    task: String,
    /// Source files, or RUN@NAME.
    #[serde(default)]
    candidates: Vec<String>,
    /// Profile what is correct.
    #[serde(default)]
    profile: bool,
    /// Certify what is correct.
    #[serde(default)]
    certify: bool,
}

/// `status` and `cancel`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asking {
    /// A job's id, as the tool gave it that began it.
    pub(crate) job: Option<String>,
    /// A run's folder: how far that run has come.
    pub(crate) run: Option<String>,
}

impl Listing {
    pub(crate) fn words(self) -> Words {
        Line::of("transform").on("list", true).with("backend", self.backend).on("json", true).done()
    }
}

impl Transforming {
    pub(crate) fn words(self) -> Words {
        let Self { tuner, tests, keep, .. } = self;
        let line = Line::of("transform").names([("at", self.at), ("name", self.name)]);
        let line =
            line.with("model", self.model).with("from", self.from).with("say", self.say).with("tries", self.tries);
        let line = line.with("out", self.out).with("warmup", self.warmup).with("repetitions", self.repetitions);
        line.on("simulate", self.simulate.unwrap_or(false))
            .searching(Searching { tuner, tests, keep })
            .on("json", true)
            .done()
    }
}

impl Retuning {
    pub(crate) fn words(self) -> Words {
        let Self { tuner, tests, keep, at } = self;
        Line::of("tune").names([("at", at)]).searching(Searching { tuner, tests, keep }).on("json", true).done()
    }
}

impl Resuming {
    pub(crate) fn words(self) -> Words {
        Line::of("resume").names([("run", self.run)]).with("model", self.model).on("json", true).done()
    }
}

impl Naming {
    pub(crate) fn words(self, command: &str) -> Words {
        Line::of(command).names([("at", self.at), ("name", self.name)]).done()
    }
}

impl Pointing {
    pub(crate) fn restore(self) -> Words {
        Line::of("restore").names([("at", self.at)]).done()
    }

    pub(crate) fn show(self) -> Words {
        Line::of("show").names([("at", self.at)]).on("json", true).done()
    }
}

impl Looking {
    pub(crate) fn words(self, command: &str) -> Words {
        Line::of(command).names([("run", self.run)]).on("json", true).done()
    }
}

impl Comparing {
    pub(crate) fn words(self) -> Words {
        let which = self.which.into_iter().map(|name| ("which", name));
        Line::of("compare").names(which).on("recorded", self.recorded).on("json", true).done()
    }
}

impl Evaluating {
    pub(crate) fn words(self) -> Words {
        let line = Line::of("evaluate").names([("task", self.task)]);
        let line = line.names(self.candidates.into_iter().map(|name| ("candidates", name)));
        line.on("profile", self.profile).on("certify", self.certify).on("json", true).done()
    }
}

impl Asking {
    /// How far a run has come.
    pub(crate) fn of_run(run: String) -> Words {
        Looking { run }.words("status")
    }
}

/// A command line that grows.
struct Line(Words);

impl Line {
    fn of(command: &str) -> Self {
        Self(Ok(vec![command.to_owned()]))
    }

    fn names(mut self, names: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        for (argument, name) in names {
            self.0 = self.0.and_then(|mut words| {
                if name.is_empty() || name.starts_with('-') {
                    return Err(format!("{argument}: {name:?} names nothing: expected a path or a name"));
                }
                words.push(name);
                Ok(words)
            });
        }
        self
    }

    fn with(mut self, flag: &str, value: Option<impl ToString>) -> Self {
        if let (Ok(words), Some(value)) = (&mut self.0, value) {
            words.push(format!("--{flag}={}", value.to_string()));
        }
        self
    }

    fn on(mut self, flag: &str, wanted: bool) -> Self {
        if let (Ok(words), true) = (&mut self.0, wanted) {
            words.push(format!("--{flag}"));
        }
        self
    }

    fn searching(self, how: Searching) -> Self {
        self.with("tuner", how.tuner).with("tests", how.tests).with("keep", how.keep)
    }

    fn done(self) -> Words {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn what_a_client_says_is_a_command_line_and_never_another_flag() {
        let said = json!({"at": "W@c1", "name": "Unroll", "say": "--edit", "tests": 9});
        let words = from_value::<Transforming>(said).unwrap().words().unwrap();
        assert_eq!(words, ["transform", "W@c1", "Unroll", "--say=--edit", "--tests=9", "--json"]);
        let words = from_value::<Comparing>(json!({"which": ["W@c1", "--config=x"]})).unwrap().words();
        assert_eq!(words.unwrap_err(), "which: \"--config=x\" names nothing: expected a path or a name");
        let unknown = from_value::<Naming>(json!({"at": "W", "name": "n", "nome": "m"})).unwrap_err().to_string();
        assert!(unknown.contains("unknown field `nome`"), "{unknown}");
    }
}
