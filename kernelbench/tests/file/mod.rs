//! A file with a candidate and, in its first lines, what is to come of it.

use std::path::{Path, PathBuf};
use warpsmith_kernelbench::{Failure, Label, Timed};

/// Up to where a ratio may be, of enough pairs, for what is not faster.
const NOT_FASTER: f64 = 1.1;

/// A candidate's file. Its heading has lines such as `# problem: level1/13`, `# ours: mismatch` and `# says: nan`.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) source: String,
}

impl File {
    pub(crate) fn read(path: &Path) -> Self {
        let source = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self { path: path.to_owned(), source }
    }

    /// All Python files of a folder, in order; or the one file.
    pub(crate) fn all(path: &Path) -> Vec<Self> {
        let Ok(entries) = std::fs::read_dir(path) else { return vec![Self::read(path)] };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "py"));
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    /// A line of the heading, if it is there.
    pub(crate) fn line(&self, name: &str) -> Option<&str> {
        let start = format!("# {name}: ");
        self.source.lines().take_while(|line| line.starts_with('#')).find_map(|line| line.strip_prefix(start.as_str()))
    }

    /// The problem's name, such as `1_Softplus`, or the start of it below a folder, such as `level1/13`.
    pub(crate) fn problem(&self) -> &str {
        self.line("problem").unwrap_or("1_Softplus")
    }

    /// What ours makes of it, in a word: a failure's kind, or how far a pass was accepted.
    pub(crate) fn word(&self, outcome: &Result<Timed, Failure>, labels: &[Label]) -> String {
        let said = |word: &str| self.said().any(|said| said == word);
        match outcome {
            Ok(timed) if said("not faster") && timed.speedup.ratio <= NOT_FASTER => "not faster".to_owned(),
            Ok(_) if said("labelled") && !labels.is_empty() => "labelled".to_owned(),
            Ok(_) => "passed".to_owned(),
            Err(failure) => as_json(failure)["kind"].as_str().unwrap_or_default().to_owned(),
        }
    }

    /// Whether that is what the heading says, one of its words, and for the reason it says.
    pub(crate) fn as_said(&self, outcome: &Result<Timed, Failure>, labels: &[Label]) -> bool {
        let word = self.word(outcome, labels);
        let labels = || labels.iter().map(|label| label.text.as_str()).collect::<Vec<_>>().join("; ");
        let text = outcome.as_ref().map_or_else(|failure| as_json(failure).to_string(), |_| labels());
        let why = |says: &str| says.split(" or ").any(|part| text.contains(part));
        let passed = ["passed", "not faster", "clocks"].contains(&word.as_str());
        // On a machine that is busy, clocks may disagree on honest work: that is no acceptance either.
        let is = |said: &str| said == word || (said, word.as_str()) == ("not faster", "clocks");
        self.said().any(is) && (passed || self.line("says").is_none_or(why))
    }

    fn said(&self) -> impl Iterator<Item = &str> {
        self.line("ours").unwrap_or("passed").split(" or ")
    }
}

fn as_json(failure: &Failure) -> serde_json::Value {
    serde_json::to_value(failure).unwrap_or_default()
}
