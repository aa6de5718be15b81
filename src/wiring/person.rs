//! A person at this terminal, with an editor.

use crate::{cli::HandArgs, exit::Trouble, show};
use agents::llm::{
    Call, Llm,
    by_hand::{ByHand, Person, Wish},
};
use agents::policy::Policy;
use std::{
    env, fs,
    io::{self, IsTerminal, Write},
    path::Path,
    process::Command,
    sync::Arc,
};

/// Where a person takes part in a transformation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hand {
    /// Each reply is finished in an editor.
    pub edits: bool,
    /// The person is asked before each call.
    pub pauses: bool,
}

impl Hand {
    /// Whether the terminal is the person's.
    #[must_use]
    pub fn is_lent(self) -> bool {
        self.edits || self.pauses
    }

    /// Where a person wants to take part.
    ///
    /// # Errors
    ///
    /// Where there is no terminal to ask at, or no editor.
    pub fn of(HandArgs { edit: edits, pause: pauses }: HandArgs) -> Result<Self, Trouble> {
        let hand = Self { edits, pauses };
        hand.check().map(|()| hand)
    }

    /// The same, where the policy applies transformations, which is where a person takes part.
    ///
    /// # Errors
    ///
    /// Where it does not.
    pub fn in_a_run_of(self, policy: &Policy) -> Result<Self, Trouble> {
        if self.is_lent() && policy.sequence.is_none() {
            return Err(Trouble::usage(format!(
                "--edit and --pause are for transformations, and the policy {} applies none: expected one with a \
                 sequence, such as peak-x1-85 (`warpsmith policies` lists them)",
                show::plain(&policy.name)
            )));
        }
        Ok(self)
    }

    fn check(self) -> Result<(), Trouble> {
        if self.pauses && !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return Err(Trouble::usage(
                "--pause asks at a terminal, and there is none here: --say says something beside the transformation, --edit \
                 finishes replies in $EDITOR",
            ));
        }
        if self.edits { editor().map(|_| ()).map_err(Trouble::usage) } else { Ok(()) }
    }

    /// A model with the person beside it, where they take part.
    #[must_use]
    pub fn beside(self, llm: Arc<dyn Llm>) -> Arc<dyn Llm> {
        if self.is_lent() { Arc::new(ByHand::new(llm, Arc::new(Terminal), self.pauses, self.edits)) } else { llm }
    }
}

/// The words that start the person's editor.
fn editor() -> Result<Vec<String>, String> {
    let named = ["VISUAL", "EDITOR"].iter().find_map(|name| env::var(name).ok().filter(|text| !text.trim().is_empty()));
    let named = named.ok_or("--edit needs an editor: set EDITOR, such as EDITOR=vi")?;
    let words: Vec<String> = named.split_whitespace().map(ToOwned::to_owned).collect();
    let path = env::var_os("PATH").unwrap_or_default();
    match words.first() {
        Some(program) if kernelbench::on_path(program, &path).is_none() && !Path::new(program).is_file() => {
            Err(format!("--edit needs an editor: there is no {program}, which EDITOR or VISUAL names"))
        }
        _ => Ok(words),
    }
}

struct Terminal;

impl Person for Terminal {
    fn wish(&self, call: &Call) -> Result<Wish, String> {
        say(&format!("\n  {} is about to be asked", called(call)))?;
        loop {
            match asked("  [y]es, [e]dit the reply, [r]ephrase, [s]kip, [p]rint the prompt? ")?.as_str() {
                "y" | "yes" | "" => return Ok(Wish::Yes),
                "e" | "edit" => match editor() {
                    Ok(_) => return Ok(Wish::Edit),
                    Err(why) => say(&format!("  {why}"))?,
                },
                "r" | "rephrase" => match asked("  said beside it: ")? {
                    empty if empty.is_empty() => {}
                    text => return Ok(Wish::Rephrase(text)),
                },
                "s" | "skip" => return Ok(Wish::Skip),
                "p" | "print" => {
                    let turns = call.prompt.turns.iter().map(|turn| turn.text.as_str());
                    say(&show::plain(&turns.collect::<Vec<_>>().join("\n\n")))?;
                }
                _ => say("  expected y, e, r, s or p")?,
            }
        }
    }

    fn edited(&self, call: &Call, text: &str) -> Result<String, String> {
        let folder = env::temp_dir().join(format!("warpsmith-edit-{}", std::process::id()));
        let in_words = |e: io::Error| format!("{}: {e}", folder.display());
        private(&folder).map_err(in_words)?;
        let path = folder.join(format!("{}.cpp", call.id.part));
        let done = fs::write(&path, text).map_err(in_words).and_then(|()| {
            let words = editor()?;
            let (program, arguments) = words.split_first().ok_or("--edit needs an editor: set EDITOR")?;
            let ended = Command::new(program).args(arguments).arg(&path).status();
            match ended.map_err(|e| format!("EDITOR: {program} cannot be started: {e}"))? {
                status if status.success() => fs::read_to_string(&path).map_err(in_words),
                status => Err(format!("EDITOR: {program} ended with {status}: nothing is taken")),
            }
        });
        // What lies there is in the record too, or was given up.
        let _ = fs::remove_dir_all(&folder);
        done
    }
}

/// A folder that is nobody else's.
fn private(folder: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    // One of an earlier call that could not be removed.
    let _ = fs::remove_dir_all(folder);
    fs::DirBuilder::new().mode(0o700).create(folder)
}

/// A call in words.
fn called(call: &Call) -> String {
    let (pass, region) = call.id.part.split_once('.').unwrap_or(("1", &call.id.part));
    let again = if call.id.attempt > 1 { ", once more: the first reply could not be read" } else { "" };
    format!("pass {pass}, the region {region} (round {}{again})", call.id.round)
}

fn say(line: &str) -> Result<(), String> {
    writeln!(io::stdout().lock(), "{line}").map_err(|e| format!("the terminal: {e}"))
}

fn asked(question: &str) -> Result<String, String> {
    let mut out = io::stdout().lock();
    write!(out, "{question}").and_then(|()| out.flush()).map_err(|e| format!("the terminal: {e}"))?;
    let mut line = String::new();
    match io::stdin().read_line(&mut line) {
        Ok(0) => Err("nobody answers at the terminal any more".to_owned()),
        Ok(_) => Ok(line.trim().to_owned()),
        Err(e) => Err(format!("the terminal: {e}")),
    }
}
