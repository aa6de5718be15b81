//! What did a round teach? How is that asked for after each evaluation, and how is the Coder of later rounds told? (Hawkeye,
//! Figs. 47-48: reflections are written after evaluations, too; §3: an agent that rewrites its skill file after each, as GEPA
//! does.)

use crate::{
    PlanLine, Prompt, Prompts, Unreadable, code, reflect,
    words::{self, tokens},
};
use kernelbench::{Candidate, Task, pool::Reflection};
use metrics::Machine;
use minijinja::{Value, context};
use serde::{Deserialize, Serialize};

/// Words that notes may have; a few more are no reason to ask again.
const MOST_WORDS: usize = 700;
/// Bytes that they may have: words of usual length.
const MOST_BYTES: usize = 10_000;
/// Tokens of reflections that are shown, at most: the latest first.
const MOST_TOKENS: usize = 1_500;
/// What stands where no notes were written yet.
const EMPTY: &str = "(nothing yet)";

/// What was written down after the rounds of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Learned {
    /// Reflections, in order.
    Lessons(Vec<Reflection>),
    /// Notes as they are now, in Markdown; empty before the first round.
    Skill(String),
}

impl Learned {
    /// Whether nothing was written down yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Lessons(lessons) => lessons.is_empty(),
            Self::Skill(text) => text.trim().is_empty(),
        }
    }

    /// As a prompt shows it: of reflections the latest, a line each, as many as may be.
    fn told(&self) -> String {
        let Self::Lessons(lessons) = self else { return self.skill().trim().to_owned() };
        let mut room = MOST_TOKENS;
        let lines = lessons.iter().rev().map(reflect::in_a_line).take_while(|line| {
            let fits = tokens(line.len()) <= room;
            room = room.saturating_sub(tokens(line.len()));
            fits
        });
        let mut lines: Vec<String> = lines.map(|line| format!("- {line}")).collect();
        lines.reverse();
        lines.join("\n")
    }

    fn skill(&self) -> &str {
        if let Self::Skill(text) = self { text } else { "" }
    }
}

/// A run as whoever is asked what its last round taught is shown it.
#[derive(Clone, Copy, Debug)]
pub struct Taught<'a> {
    /// What happened, a line a round.
    pub history: &'a [PlanLine],
    /// The last round's kernel.
    pub kernel: &'a Candidate,
    /// What was written down before.
    pub learned: &'a Learned,
}

impl Prompts {
    /// Planner: what the last round taught; or the notes, written anew.
    #[must_use]
    pub fn learn(&self, task: &Task, machine: &Machine, taught: Taught<'_>) -> Prompt {
        let page = if matches!(taught.learned, Learned::Skill(_)) { "skill" } else { "lesson" };
        self.page(page, &values(task, machine, taught))
    }

    /// A prompt that asks for a kernel, with what earlier rounds taught; the same where that is nothing.
    #[must_use]
    pub fn with_learned(&self, mut prompt: Prompt, learned: &Learned) -> Prompt {
        if let Some(last) = prompt.turns.last_mut().filter(|_| !learned.is_empty()) {
            last.text = format!("{}\n\n{}", last.text, self.text("learned", &shown(learned)));
        }
        prompt
    }
}

pub(crate) fn values(task: &Task, machine: &Machine, taught: Taught<'_>) -> Value {
    let told = taught.learned.told();
    let is_skill = matches!(taught.learned, Learned::Skill(_));
    context! {
        task => words::task(task),
        machine => words::machine(machine),
        candidate => words::candidate(taught.kernel),
        history => reflect::history(taught.history),
        learned => if told.is_empty() && is_skill { EMPTY.to_owned() } else { told },
    }
}

pub(crate) fn shown(learned: &Learned) -> Value {
    context! { is_skill => matches!(learned, Learned::Skill(_)), learned => learned.told() }
}

/// A run whose last round is over.
pub(crate) fn after<'a>(history: &'a [PlanLine], kernel: &'a Candidate, learned: &'a Learned) -> Taught<'a> {
    Taught { history, kernel, learned }
}

/// What rounds taught, for a page to show.
pub(crate) fn example(is_skill: bool) -> Learned {
    let lesson = Reflection {
        insight: "Load each row once, in whole vectors.".into(),
        evidence: "Round 2: 1.73x where round 1 had 1.10x.".into(),
        applies: "Where memory bounds the kernel.".into(),
    };
    if is_skill { Learned::Skill("Use vectors.\n".into()) } else { Learned::Lessons(vec![lesson]) }
}

/// Reads the Planner's notes.
///
/// # Errors
/// Where the reply holds no block of Markdown, an empty one, or one that is too long.
pub fn read_skill(reply: &str) -> Result<String, Unreadable> {
    let block = code::block_of(reply, "markdown")?;
    let text = block.ok_or_else(|| Unreadable("it holds no code block that begins with ```markdown".into()))?;
    match text.split_whitespace().count() {
        0 => Err(Unreadable("its notes are empty".into())),
        _ if text.len() > MOST_BYTES => {
            Err(Unreadable(format!("its notes have {} bytes; 600 words were asked for", text.len())))
        }
        words if words > MOST_WORDS => {
            Err(Unreadable(format!("its notes have {words} words; at most 600 were asked for")))
        }
        _ => Ok(text.trim_end().to_owned() + "\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn lesson(insight: &str) -> Reflection {
        Reflection { insight: insight.into(), evidence: "Round 2: 1.42x.".into(), applies: "Always.".into() }
    }

    #[test]
    fn notes_are_a_block_of_markdown_that_is_neither_empty_nor_long() {
        assert_eq!(read_skill("Here:\n```markdown\n# Notes\n- Vectors.\n```\n").unwrap(), "# Notes\n- Vectors.\n");
        let long = format!("```markdown\n{}\n```", "word ".repeat(701));
        for (reply, why) in [
            ("# Notes", "no code block that begins with ```markdown"),
            ("```markdown\n\n```", "are empty"),
            (&long, "have 701 words"),
            (&format!("```markdown\n{}\n```", "x".repeat(20_000)), "have 20001 bytes"),
            ("```markdown\n# Notes", "not closed"),
        ] {
            let told = read_skill(reply).unwrap_err().0;
            assert!(told.contains(why), "{reply}: {told}");
        }
    }

    #[test]
    fn the_coder_is_shown_the_latest_that_fits_behind_what_it_is_asked_for() {
        let (words, prompt) = (Prompts::embedded(), || Prompts::embedded().seed(&example::task(), &example::machine()));
        for nothing in [Learned::Lessons(vec![]), Learned::Skill(" \n".into())] {
            assert_eq!(words.with_learned(prompt(), &nothing), prompt());
        }
        let many: Vec<Reflection> =
            (0..200).map(|at| lesson(&format!("Insight {at} of many, in a line of its own."))).collect();
        let shown = words.with_learned(prompt(), &Learned::Lessons(many));
        let [text, asked] = [shown, prompt()].map(|prompt| prompt.turns.last().unwrap().text.clone());
        let added = text.strip_prefix(&asked).unwrap();
        assert!(added.contains("# What earlier rounds taught") && added.contains("- Insight 199 of many"), "{added}");
        assert!(!added.contains("- Insight 100 ") && added.len() < 4 * MOST_TOKENS + 500, "{}", added.len());
        let shown = words.with_learned(prompt(), &Learned::Skill("Use vectors.\n".into()));
        assert!(shown.turns.last().unwrap().text.ends_with("Use vectors.\n```"), "{shown:?}");
    }
}
