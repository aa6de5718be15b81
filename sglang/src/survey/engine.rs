//! How does SGLang's own engine come to run a configuration with random weights?

use crate::Error;
use serde::Deserialize;
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
pub struct Recorded {
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
    let read: serde_json::Value = serde_json::from_str(&text)
        .map_err(|e| Error::request(format!("{}: this is no configuration of a model: {e}", file.display())))?;
    match ["architectures", "vocab_size"].into_iter().find(|key| read.get(key).is_none()) {
        None => Ok(text),
        Some(key) => Err(Error::request(format!(
            "{}: it has no {key}: expected a model's config.json, as transformers writes it",
            file.display()
        ))),
    }
}

/// Records traces of a model into a folder, which must not exist or be empty.
///
/// # Errors
/// What the machine lacks, or what the engine said when it failed.
pub fn record(python: &str, model: &str, batches: &[u32], tokens: &[u32], out: &Path) -> Result<Vec<Recorded>, Error> {
    prepare(model, out)?;
    let comma = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let (scripts, model) = (out.join("scripts"), out.join("model"));
    let mut command = Command::new(python);
    command.arg(scripts.join("survey.py")).arg(&model).arg(out).arg(comma(batches)).arg(comma(tokens));
    run(command, python)?;
    let index = out.join("traces.json");
    let wrong =
        |e: String| Error::machine(format!("{}: {e}: the driver ended without naming its traces", index.display()));
    let text = fs::read_to_string(&index).map_err(|e| wrong(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))
}

/// The folder in which the engine finds the configuration and the scripts.
pub(super) fn prepare(model: &str, out: &Path) -> Result<(), Error> {
    let configuration = configuration(model)?;
    if fs::read_dir(out).is_ok_and(|mut inside| inside.next().is_some()) {
        return Err(Error::request(format!("{} is not empty: name another folder with -o", out.display())));
    }
    lay(out, &configuration).map_err(|e| Error::files(format!("cannot write {}: {e}", out.display())))
}

fn lay(out: &Path, configuration: &str) -> std::io::Result<()> {
    fs::create_dir_all(out.join("scripts"))?;
    fs::create_dir_all(out.join("model"))?;
    fs::write(out.join("model/config.json"), configuration)?;
    SCRIPTS.iter().try_for_each(|(name, text)| fs::write(out.join("scripts").join(name), text))
}

/// Runs a script to its end; what it prints of its progress goes where the program's own goes.
pub(super) fn run(mut command: Command, python: &str) -> Result<(), Error> {
    let told =
        command.env("PYTHONDONTWRITEBYTECODE", "1").stdout(std::process::Stdio::null()).output().map_err(|e| {
            Error::machine(format!("{python} cannot be started: {e}: name the Python that has SGLang with --python"))
        })?;
    if told.status.success() {
        return Ok(());
    }
    let said = end_of(&told.stderr);
    if told.status.code() == Some(CANNOT) {
        return Err(Error::machine(said.lines().last().unwrap_or_default().to_owned()));
    }
    Err(Error::machine(format!("SGLang's engine did not run to its end ({}); it said:\n{said}", told.status)))
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
        let nowhere = configuration("/nowhere").unwrap_err().to_string();
        assert!(nowhere.contains("expected llama-3.1-8b, qwen3-8b-fp8, qwen3-30b-a3b"), "{nowhere}");
    }
}
