//! How does SGLang's own engine come to run a configuration with random weights?

use crate::Error;
use serde::Deserialize;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The configurations that come along, by their models' names: figures of the models' public configuration files.
pub const MODELS: [(&str, &str, &str); 3] = [
    ("llama-3.1-8b", "dense, bf16: Llama 3.1 8B", include_str!("../../models/llama-3.1-8b.json")),
    ("qwen3-8b-fp8", "dense, fp8 in blocks: Qwen3 8B FP8", include_str!("../../models/qwen3-8b-fp8.json")),
    ("qwen3-30b-a3b", "mixture of experts, bf16: Qwen3 30B A3B", include_str!("../../models/qwen3-30b-a3b.json")),
];

const SCRIPTS: [(&str, &str); 3] = [
    ("bench.py", include_str!("../../python/engine/bench.py")),
    ("engine.py", include_str!("../../python/engine/engine.py")),
    ("survey.py", include_str!("../../python/engine/survey.py")),
];
/// How a script ends where the machine lacks something.
const CANNOT: i32 = 3;

/// A trace that was recorded.
#[derive(Clone, Debug, Deserialize)]
pub struct Trace {
    /// The trace.
    pub file: PathBuf,
    /// `prefill` or `decode`.
    pub stage: String,
    /// Requests at once.
    pub batch: u32,
    /// Tokens of each prompt.
    pub tokens: u32,
    /// Steps in the trace.
    pub steps: u32,
}

/// The configuration of this name, or in this file or folder.
///
/// # Errors
/// A sentence that says what is expected.
pub fn configuration(model: &str) -> Result<String, Error> {
    if let Some((_, _, text)) = MODELS.iter().find(|(name, _, _)| *name == model) {
        return Ok((*text).to_owned());
    }
    let path = Path::new(model);
    let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let names: Vec<&str> = MODELS.iter().map(|(name, _, _)| *name).collect();
    let text = fs::read_to_string(&file).map_err(|e| {
        Error::request(format!(
            "--model {model}: {e}: expected {}, or a model's config.json or its folder",
            names.join(", ")
        ))
    })?;
    let read: Value = serde_json::from_str(&text)
        .map_err(|e| Error::request(format!("{}: this is no configuration of a model: {e}", file.display())))?;
    match ["architectures", "vocab_size"].into_iter().find(|key| read.get(key).is_none()) {
        None => Ok(text),
        Some(key) => Err(Error::request(format!(
            "{}: it has no {key}: expected a model's config.json, as transformers writes it",
            file.display()
        ))),
    }
}

/// What the engine is told beside the configuration: arguments of SGLang's server, by their names in Python.
pub type Settings = serde_json::Map<String, Value>;

/// Reads `NAME=VALUE`; the value is JSON, or else a text as it stands.
///
/// # Errors
/// A sentence that says what is expected.
pub fn setting(text: &str) -> Result<(String, Value), String> {
    let wrong =
        || format!("{text:?}: expected NAME=VALUE, an argument of SGLang's server such as attention_backend=triton");
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_word) {
        return Err(wrong());
    }
    Ok((name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}

/// What traces are recorded of.
#[derive(Clone, Copy, Debug)]
pub struct Recording<'a> {
    /// A configuration's name, file or folder.
    pub model: &'a str,
    /// What the engine is told beside it.
    pub settings: &'a Settings,
    /// Requests at once.
    pub batches: &'a [u32],
    /// Tokens of each prompt.
    pub tokens: &'a [u32],
}

/// What was recorded, and what an engine died over, where it was tried no further.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The traces, those of the same requests together.
    pub traces: Vec<Trace>,
    /// Why some that were asked for are not there.
    pub lacking: Option<String>,
}

/// Records traces of a model into a folder, which must not exist or be empty. An engine that dies after some of them is
/// started again for the others, as long as one of two starts adds one.
///
/// # Errors
/// What the machine lacks, or what the engine said when it failed twice before any trace was there.
pub fn record(python: &str, asked: Recording<'_>, out: &Path) -> Result<Recorded, Error> {
    prepare(asked.model, asked.settings, out)?;
    let (mut recorded, mut in_vain) = (Recorded::default(), false);
    loop {
        let known = recorded.traces.len();
        let has =
            |batch: u32, tokens: u32| recorded.traces.iter().any(|one| (one.batch, one.tokens) == (batch, tokens));
        let pairs = asked.batches.iter().flat_map(|batch| asked.tokens.iter().map(|tokens| (*batch, *tokens)));
        let left: Vec<String> =
            pairs.filter(|(batch, tokens)| !has(*batch, *tokens)).map(|(b, t)| format!("{b}x{t}")).collect();
        if left.is_empty() {
            return Ok(recorded);
        }
        let mut command = Command::new(python);
        command.arg(out.join("scripts/survey.py")).arg(out.join("model")).arg(out).args(&left);
        let died = driven(command, python, out)?;
        recorded.traces = index(out)?;
        let adds_none = recorded.traces.len() == known;
        match died {
            None => return Ok(recorded),
            Some(why) if adds_none && in_vain && known == 0 => return Err(Error::machine(why)),
            Some(why) if adds_none && in_vain => {
                recorded.lacking = Some(format!("without {}: {why}", left.join(", ")));
                return Ok(recorded);
            }
            Some(_) => in_vain = adds_none,
        }
    }
}

/// The traces that the driver has named so far.
fn index(out: &Path) -> Result<Vec<Trace>, Error> {
    let place = out.join("traces.json");
    let wrong = |e: String| Error::machine(format!("{}: {e}: the driver named its traces wrongly", place.display()));
    match fs::read_to_string(&place) {
        Ok(text) => serde_json::from_str(&text).map_err(|e| wrong(e.to_string())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(vec![]),
        Err(e) => Err(wrong(e.to_string())),
    }
}

/// The folder in which the engine finds the configuration, what it is told beside it, and the scripts.
pub(super) fn prepare(model: &str, settings: &Settings, out: &Path) -> Result<(), Error> {
    let configuration = configuration(model)?;
    if fs::read_dir(out).is_ok_and(|mut inside| inside.next().is_some()) {
        return Err(Error::request(format!("{} is not empty: name another folder with -o", out.display())));
    }
    lay(out, &configuration, settings).map_err(|e| Error::files(format!("cannot write {}: {e}", out.display())))
}

fn lay(out: &Path, configuration: &str, settings: &Settings) -> std::io::Result<()> {
    fs::create_dir_all(out.join("scripts"))?;
    fs::create_dir_all(out.join("model"))?;
    fs::write(out.join("model/config.json"), configuration)?;
    fs::write(out.join("settings.json"), serde_json::to_string_pretty(settings)?)?;
    SCRIPTS.iter().try_for_each(|(name, text)| fs::write(out.join("scripts").join(name), text))
}

/// Runs a script, and says how the engine died if it did; what it says goes into `engine.log` in the folder.
pub(super) fn driven(mut command: Command, python: &str, out: &Path) -> Result<Option<String>, Error> {
    let log = out.join("engine.log");
    let unwritten = |e: std::io::Error| Error::files(format!("cannot write {}: {e}", log.display()));
    let file = fs::File::options().create(true).append(true).open(&log).map_err(unwritten)?;
    let status = command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdout(std::process::Stdio::null())
        .stderr(file)
        .status()
        .map_err(|e| {
            Error::machine(format!("{python} cannot be started: {e}: name the Python that has SGLang with --python"))
        })?;
    if status.success() {
        return Ok(None);
    }
    let said = end_of(&fs::read(&log).unwrap_or_default());
    if status.code() == Some(CANNOT) {
        return Err(Error::machine(said.lines().last().unwrap_or_default().to_owned()));
    }
    let log = log.display();
    Ok(Some(format!("SGLang's engine did not run to its end ({status}); all it said is in {log}, and last:\n{said}")))
}

/// The end of what was said.
fn end_of(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<String> = text.lines().map(kernelbench::plain).collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_along_is_a_configuration_and_what_is_none_is_said() {
        for (name, _, _) in MODELS {
            assert!(configuration(name).is_ok(), "{name}");
        }
        let (name, value) = setting("cuda_graph_max_bs=16").unwrap();
        assert_eq!((name.as_str(), value), ("cuda_graph_max_bs", Value::from(16)));
        assert_eq!(setting("attention_backend=triton").unwrap().1, "triton");
        for wrong in ["triton", "=triton", "a b=1"] {
            assert!(setting(wrong).unwrap_err().contains("expected NAME=VALUE"), "{wrong}");
        }
        let nowhere = configuration("/nowhere").unwrap_err().to_string();
        assert!(nowhere.contains("expected llama-3.1-8b, qwen3-8b-fp8, qwen3-30b-a3b"), "{nowhere}");
    }

    /// A driver that records one pair and dies unless it was the last, but dies before where there are already so many.
    fn driver(folder: &Path, most: usize) -> String {
        let line = r#"{\"file\":\"f\",\"stage\":\"decode\",\"batch\":${pair%x*},\"tokens\":${pair#*x},\"steps\":4}"#;
        let stop = format!(
            "[ $(grep -o file \"$out/traces.json\" 2>/dev/null | wc -l) -lt {most} ] || {{ echo 'killed by the test' >&2; exit 1; }}\n"
        );
        let text = format!(
            "#!/bin/sh\nout=$3; pair=$4\n{stop}old=$(sed 's/^.//; s/.$//' \"$out/traces.json\" 2>/dev/null)\n\
             echo \"[${{old:+$old,}}{line}]\" > \"$out/traces.json\"\n[ $# = 4 ] || exit 1\n"
        );
        let place = folder.join("driver");
        fs::write(&place, text).unwrap();
        fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        place.display().to_string()
    }

    #[test]
    fn an_engine_that_dies_is_started_again_for_what_is_not_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let settings = [("attention_backend".to_owned(), Value::from("triton"))].into_iter().collect();
        let asked = Recording { model: "llama-3.1-8b", settings: &settings, batches: &[1, 16], tokens: &[128, 1024] };
        let pairs = |recorded: &Recorded| recorded.traces.iter().map(|one| (one.batch, one.tokens)).collect::<Vec<_>>();
        let out = folder.path().join("all");
        let recorded = record(&driver(folder.path(), 4), asked, &out).unwrap();
        assert_eq!(pairs(&recorded), [(1, 128), (1, 1024), (16, 128), (16, 1024)]);
        assert!(recorded.lacking.is_none());
        assert!(fs::read_to_string(out.join("settings.json")).unwrap().contains("triton"));

        let out = folder.path().join("some");
        let recorded = record(&driver(folder.path(), 1), asked, &out).unwrap();
        assert_eq!(pairs(&recorded), [(1, 128)]);
        let why = recorded.lacking.unwrap();
        assert!(why.starts_with("without 1x1024, 16x128, 16x1024: ") && why.contains("killed by the test"), "{why}");
        let starts_in_vain = |out: &Path| fs::read_to_string(out.join("engine.log")).unwrap().matches("killed").count();
        assert_eq!(starts_in_vain(&out), 2);

        let out = folder.path().join("none");
        let why = record(&driver(folder.path(), 0), asked, &out).unwrap_err().to_string();
        assert!(why.contains("did not run to its end") && why.contains("engine.log"), "{why}");
        assert_eq!(starts_in_vain(&out), 2);
    }
}
