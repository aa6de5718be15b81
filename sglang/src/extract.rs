//! How does an operator of SGLang become a task's folder?

use super::{
    chain,
    closure::{self, Header},
    inventory,
    operator::{Operator, Precision},
    render,
    tree::Tree,
};
use kernelbench::{Gate, Hash};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// What is to be taken out, from where.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    /// The operator.
    pub operator: &'a Operator,
    /// The type of its elements.
    pub precision: Precision,
    /// The framework.
    pub tree: &'a Tree,
    /// Further folders of headers.
    pub headers: &'a [PathBuf],
    /// The Python that may know where tvm-ffi lies.
    pub python: &'a str,
    /// The compiler.
    pub nvcc: &'a Path,
}

/// What was taken out.
#[derive(Clone, Debug)]
pub struct Extract {
    /// The framework's file, as it is.
    pub source: String,
    /// The binding behind it.
    pub binding: String,
    /// The headers that both need.
    pub headers: BTreeMap<String, Header>,
    /// The task file.
    pub task: String,
    /// What is known of all of it.
    pub manifest: Value,
    /// A page for people.
    pub readme: String,
    /// The file's name in the folder.
    pub name: String,
    /// What a checkout's commits changed in the framework's files since the release that it calls itself.
    pub since_release: Vec<String>,
}

/// Gathers all that makes the task, in memory.
///
/// # Errors
/// A sentence that says what is missing and what to do.
pub fn gather(order: &Order<'_>) -> Result<Extract, String> {
    let Order { operator, precision, tree, .. } = *order;
    let scratch = Scratch::new()?;
    let mut file = inventory::file(tree, operator)?;
    let since = since_release(tree, operator, &file)?;
    if !operator.parts.is_empty() {
        file = chain::write(operator, &file, &scratch.0)?;
    }
    let source = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let binding = render::binding(operator, precision);
    let roots = closure::roots(tree, operator.level, order.headers, order.python, &scratch.0.join("stand-in"))?;
    let headers = closure::headers(order.nvcc, &file, &binding, &operator.flags, &roots, &scratch.0)?;
    let hash = Hash::of(source.as_bytes());
    Ok(Extract {
        task: render::task(operator, precision, &tree.version, hash.as_str()),
        readme: render::readme(operator, precision, &tree.version),
        manifest: manifest(order, &hash, &headers, &since),
        since_release: since,
        name: operator.source().to_owned(),
        source,
        binding,
        headers,
    })
}

/// What is to be said of the file, or of a chain's files.
fn since_release(tree: &Tree, operator: &Operator, file: &Path) -> Result<Vec<String>, String> {
    let files = match operator.parts.as_slice() {
        [] => vec![file.to_owned()],
        _ => chain::files(operator)?.iter().map(|part| file.join(part)).collect(),
    };
    Ok(files.iter().filter_map(|file| tree.since_release(file)).collect())
}

fn manifest(order: &Order<'_>, hash: &Hash, headers: &BTreeMap<String, Header>, since: &[String]) -> Value {
    let Order { operator, precision, tree, .. } = *order;
    let written =
        |one: &&super::operator::Argument| one.transfer.is_some_and(|transfer| transfer != kernelbench::Transfer::In);
    let mutates: Vec<&str> = operator.argument.iter().filter(written).map(|one| one.name.as_str()).collect();
    let files: BTreeMap<&String, Value> =
        headers.iter().map(|(path, one)| (path, json!({"from": one.kind, "sha256": one.hash}))).collect();
    json!({
        "operator": operator.name,
        "level": operator.level.letter(),
        "parts": operator.parts,
        "dtype": precision.name(),
        "origin": {
            "framework": "sglang",
            "version": tree.version,
            "kernel_version": tree.aot_version,
            "checkout": tree.checkout,
            "since_release": since,
            "file": operator.file,
            "sha256": hash,
        },
        "entry": {"symbol": operator.entry(), "exports": render::exports(operator, precision), "schema": operator.schema},
        "mutates": mutates,
        "arguments": operator.argument,
        "constraints": operator.constraints,
        "flags": operator.flags,
        "arch": "sm_90a",
        "call": operator.call,
        "tests": operator.tests,
        "tolerance": operator.tolerance[&precision],
        "include": files,
        "notes": operator.notes,
    })
}

impl Extract {
    /// Writes the folder, which must not exist or be empty.
    ///
    /// # Errors
    /// A sentence that says why not.
    pub fn write(&self, folder: &Path) -> Result<(), String> {
        if fs::read_dir(folder).is_ok_and(|mut inside| inside.next().is_some()) {
            return Err(format!("{} is not empty: name another folder with -o", folder.display()));
        }
        self.lay(folder).map_err(|e| format!("cannot write {}: {e}", folder.display()))
    }

    fn lay(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder.join("include"))?;
        for (path, header) in &self.headers {
            let file = folder.join("include").join(path);
            fs::create_dir_all(file.parent().unwrap_or(folder))?;
            fs::write(file, &header.text)?;
        }
        let manifest = serde_json::to_string_pretty(&self.manifest).unwrap_or_default();
        let texts = [
            (self.name.as_str(), &self.source),
            ("binding.cu", &self.binding),
            ("task.toml", &self.task),
            ("README.md", &self.readme),
            ("manifest.json", &manifest),
        ];
        texts.iter().try_for_each(|(name, text)| fs::write(folder.join(name), text))
    }
}

/// Writes into the task's file what the gate said of it; what it refused is no task any more.
///
/// # Errors
/// A sentence that says why not.
pub fn judged(folder: &Path, said: Gate) -> Result<(), String> {
    let task = folder.join("task.toml");
    let wrong =
        |e: io::Error| format!("{}: cannot write there that the gate says {}: {e}", task.display(), said.name());
    let text = fs::read_to_string(&task).map_err(wrong)?;
    if said == Gate::Refused {
        fs::rename(&task, folder.join("task.refused.toml")).map_err(wrong)?;
        return fs::write(folder.join("task.refused.toml"), render::judged(&text, said)).map_err(wrong);
    }
    fs::write(&task, render::judged(&text, said)).map_err(wrong)
}

/// A folder that goes when it is done with.
#[derive(Debug)]
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new() -> Result<Self, String> {
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_nanos());
        let folder = std::env::temp_dir().join(format!("warpsmith-sglang-{}-{nanos}", std::process::id()));
        fs::create_dir(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operator, *};
    use std::error::Error;

    #[test]
    fn what_the_gate_said_travels_in_the_origin_and_what_it_refused_is_no_task() -> Result<(), Box<dyn Error>> {
        let folder = Scratch::new()?;
        let operator = operator::named("silu_and_mul")?;
        let text = render::task(&operator, Precision::Bf16, "0.0.1", "0");
        let said = |file: &str| -> Result<String, Box<dyn Error>> {
            let task: toml::Table = fs::read_to_string(folder.0.join(file))?.parse()?;
            Ok(task["origin"]["gate"].as_str().unwrap_or_default().to_owned())
        };
        fs::write(folder.0.join("task.toml"), &text)?;
        assert_eq!(said("task.toml")?, "not-run");
        judged(&folder.0, Gate::Passed)?;
        assert_eq!(said("task.toml")?, "passed");
        fs::write(folder.0.join("task.toml"), &text)?;
        judged(&folder.0, Gate::Refused)?;
        assert_eq!(said("task.refused.toml")?, "refused");
        assert!(!folder.0.join("task.toml").exists());
        Ok(())
    }
}
