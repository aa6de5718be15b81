//! Validators of a user's own: programs that look at the source of a transformed context (PEAK §3.3).
//!
//! A program is run on this machine, outside every sandbox, with a file that holds one configuration's source. It says by its
//! exit status what it found: 0 for nothing, 77 for a source that it has no word about, anything else for a fault, which what
//! it printed describes.

use kernelbench::{Candidate, CandidateId, Language};
use serde::{Deserialize, Serialize};
use std::{io::ErrorKind, process::Stdio, time::Duration};
use tokio::process::Command;

/// What stands in a command for the source's file.
pub const FILE: &str = "{file}";
/// The exit status of a program that has no word about a source.
const DOES_NOT_APPLY: i32 = 77;
/// How long a program may look at one source.
const PATIENCE: Duration = Duration::from_mins(10);
/// What a program sees of this one's environment; no key is among it.
const SEEN: [&str; 5] = ["PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH"];
/// What is kept of what it prints, in bytes.
const KEPT: usize = 4 << 10;

/// A program that looks at sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validator {
    /// What it is called.
    pub name: String,
    /// Who looks.
    pub by: By,
    /// How many of the drawn configurations that are right it looks at.
    pub samples: usize,
}

/// Who looks at a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// A program and its arguments; [`FILE`] stands for the source's file.
    Command(Vec<String>),
    /// A record, which says what a program had to say.
    Record(Vec<(CandidateId, Validated)>),
}

/// What a validator has to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Validated {
    /// It found nothing.
    Passed,
    /// It has no word about this source, and why.
    DoesNotApply(String),
    /// What it found.
    Failed(String),
}

impl Validator {
    /// Has it look at a configuration in this language.
    pub async fn look_at(&self, candidate: &Candidate, language: Language) -> Validated {
        match &self.by {
            By::Command(command) => run(command, &candidate.text(), language).await,
            By::Record(found) => {
                let id = candidate.id();
                let known = found.iter().find(|(of, _)| *of == id).map(|(_, found)| found.clone());
                known.unwrap_or_else(|| Validated::DoesNotApply("not in the record".to_owned()))
            }
        }
    }
}

/// Runs a program on a source.
async fn run(command: &[String], source: &str, language: Language) -> Validated {
    let not_run = |why: String| Validated::DoesNotApply(format!("not run: {why}"));
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(e) => return not_run(format!("no folder for the source: {e}")),
    };
    let file = folder.path().join(format!("candidate.{}", language.ending()));
    if let Err(e) = std::fs::write(&file, source) {
        return not_run(format!("the source cannot be written: {e}"));
    }
    let words: Vec<String> = command.iter().map(|word| word.replace(FILE, &file.display().to_string())).collect();
    let Some((program, arguments)) = words.split_first() else { return not_run("it has no command".to_owned()) };
    let seen = SEEN.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(seen).stdin(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(PATIENCE, command.output()).await {
        Err(_) => not_run(format!("{program} was not done after {} minutes", PATIENCE.as_secs() / 60)),
        Ok(Err(e)) if e.kind() == ErrorKind::NotFound => not_run(format!("there is no program {program}")),
        Ok(Err(e)) => not_run(format!("{program}: {e}")),
        Ok(Ok(output)) => {
            let said = said(&[&output.stdout[..], &output.stderr[..]]);
            match output.status.code() {
                Some(0) => Validated::Passed,
                Some(DOES_NOT_APPLY) => Validated::DoesNotApply(said),
                _ => Validated::Failed(format!("{} ({})", said, output.status)),
            }
        }
    }
}

/// The end of what it printed.
fn said(printed: &[&[u8]]) -> String {
    let text = printed.iter().map(|part| String::from_utf8_lossy(part)).collect::<Vec<_>>().join("\n");
    let text = text.trim();
    let from = (text.len().saturating_sub(KEPT)..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    if text.is_empty() { "it said nothing".to_owned() } else { text.get(from..).unwrap_or(text).to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Validator {
        let command = ["sh", "-c", script, "validator", FILE].map(ToOwned::to_owned).to_vec();
        Validator { name: "mine".into(), by: By::Command(command), samples: 1 }
    }

    #[tokio::test]
    async fn a_program_says_by_its_status_what_it_found_and_sees_the_source_and_no_key() {
        let found = |script: &'static str| async move {
            shell(script).look_at(&Candidate::new("int race;"), Language::Cuda).await
        };
        assert_eq!(found("grep -q race $1 && test ${1##*.} = cu").await, Validated::Passed);
        assert_eq!(found("echo no tensor cores; exit 77").await, Validated::DoesNotApply("no tensor cores".into()));
        let racy = found("echo a race on line 3; exit 1").await;
        assert!(
            matches!(&racy, Validated::Failed(why) if why.starts_with("a race on line 3 (exit status: 1")),
            "{racy:?}"
        );
        let long = found("yes | head -c 100000; exit 1").await;
        assert!(matches!(&long, Validated::Failed(why) if why.len() < KEPT + 100), "{}", format!("{long:?}").len());
        let names = found("env | cut -d= -f1 | sort | tr '\\n' ' '; exit 1").await;
        let Validated::Failed(names) = names else { unreachable!("{names:?}") };
        let own = ["PWD", "SHLVL", "_", "OLDPWD"];
        for name in names.split_once('(').unwrap().0.split_whitespace() {
            assert!(SEEN.contains(&name) || own.contains(&name), "{name}");
        }
    }

    #[tokio::test]
    async fn one_that_is_not_there_is_noted_and_fails_nobody() {
        let command = vec!["no-such-validator".to_owned()];
        let none = Validator { name: "none".into(), by: By::Command(command), samples: 1 };
        let why = "not run: there is no program no-such-validator".to_owned();
        assert_eq!(none.look_at(&Candidate::new(""), Language::Cpp).await, Validated::DoesNotApply(why));
    }
}
