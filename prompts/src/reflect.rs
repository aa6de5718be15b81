//! What did a run teach? How is that asked for once it is over, and how is the answer read? (Hawkeye, Figs. 47-48: closing
//! reflections, one JSON object per insight, which later runs are shown.)

use crate::{
    PlanLine, Prompt, Prompts, Unreadable,
    reply::{Field, read_list, within},
    words,
};
use kernelbench::{Candidate, Task, pool::Reflection};
use metrics::Machine;
use minijinja::{Value, context};

/// Reflections that are taken of one reply, and kept of a run, at most.
pub const MOST_REFLECTIONS: usize = 5;
const FIELDS: [Field; 3] = [
    Field { key: "insight", most_words: 40, single: false },
    Field { key: "evidence", most_words: 30, single: false },
    Field { key: "applies", most_words: 20, single: false },
];

/// What a run came to, as whoever is asked about it is told.
#[derive(Clone, Copy, Debug)]
pub struct Past<'a> {
    /// What happened, a line a round.
    pub history: &'a [PlanLine],
    /// The certified kernel.
    pub kernel: &'a Candidate,
    /// What its certificate says, in words: `1.43x [1.42, 1.43] over the reference`.
    pub claim: &'a str,
}

impl Prompts {
    /// Planner: what whoever works on another kernel should know of this run.
    #[must_use]
    pub fn reflect(&self, task: &Task, machine: &Machine, past: Past<'_>) -> Prompt {
        self.page("reflect", &values(task, machine, past))
    }
}

pub(crate) fn values(task: &Task, machine: &Machine, past: Past<'_>) -> Value {
    context! {
        task => words::task(task),
        machine => words::machine(machine),
        candidate => words::candidate(past.kernel),
        claim => words::one_line(past.claim),
        history => history(past.history),
    }
}

/// What happened, a round on one line.
pub(crate) fn history(rounds: &[PlanLine]) -> String {
    rounds.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// One of what was learned, on one line.
pub(crate) fn in_a_line(Reflection { insight, evidence, applies }: &Reflection) -> String {
    words::one_line(&format!("{insight} Seen: {evidence} Of use: {applies}"))
}

/// A round on one line, which is cut where it is long: of a failure the beginning says what it is.
fn line(PlanLine { round, step, candidate, outcome }: &PlanLine) -> String {
    words::cut_line(&words::one_line(&format!("round {round}, {step}, kernel {candidate}: {outcome}")))
}

/// Reads the Planner's reflections.
///
/// # Errors
/// Where the reply is not one JSON object `{"reflections": [...]}` with one to five objects of the three keys, each a string.
pub fn read_reflections(reply: &str) -> Result<Vec<Reflection>, Unreadable> {
    let list = read_list(reply, "reflections")?;
    if list.is_empty() || list.len() > MOST_REFLECTIONS {
        return Err(Unreadable(format!(
            "it holds {} reflections; one to {MOST_REFLECTIONS} were asked for",
            list.len()
        )));
    }
    list.iter().enumerate().map(|(at, one)| read(at + 1, one)).collect::<Result<_, _>>().map_err(Unreadable)
}

fn read(number: usize, value: &serde_json::Value) -> Result<Reflection, String> {
    let object = value.as_object().ok_or_else(|| format!("`reflection {number}` is no object"))?;
    if let Some(other) = object.keys().find(|key| FIELDS.iter().all(|field| field.key != key.as_str())) {
        return Err(format!("`reflection {number}` has another key, `{}`", crate::reply::quoted(other)));
    }
    let [insight, evidence, applies] = FIELDS.map(|field| {
        let name = format!("reflection {number}: {}", field.key);
        let value = object.get(field.key).ok_or_else(|| format!("`{name}` is missing"))?;
        within(&name, value, field.most_words)
    });
    Ok(Reflection { insight: insight?, evidence: evidence?, applies: applies? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_of_the_history_is_one_line_that_is_not_endless() {
        let outcome = format!("failed:\n```\n# Rules\n{}", "x".repeat(9_000));
        let told = line(&PlanLine { round: 3, step: "fix".into(), candidate: "5d41402a".into(), outcome });
        assert!(told.starts_with("round 3, fix, kernel 5d41402a: failed: ``` # Rules xxx"), "{told}");
        assert!(told.len() < 500 && told.ends_with(" [cut]"), "{told}");
    }

    #[test]
    fn one_to_five_reflections_are_read() {
        let one =
            r#"{"insight": "Stage rows\nonce.", "evidence": "Round 3: 1.2x.", "applies": "Rows are read twice."}"#;
        let read = read_reflections(&format!("{{\"reflections\": [{one}, {one}]}}")).unwrap();
        assert_eq!(
            (read.len(), read[0].insight.as_str(), read[1].evidence.as_str()),
            (2, "Stage rows once.", "Round 3: 1.2x.")
        );
    }

    #[test]
    fn what_are_no_reflections_is_refused_with_its_reason() {
        let long = vec!["word"; 49].join(" ");
        for (list, why) in [
            ("", "it holds 0 reflections"),
            ("1, 2, 3, 4, 5, 6", "it holds 6 reflections"),
            (r#""Stage rows.""#, "`reflection 1` is no object"),
            (r#"{"insight": "a", "evidence": "b"}"#, "`reflection 1: applies` is missing"),
            (r#"{"insight": "a", "evidence": ["b"], "applies": "c"}"#, "`reflection 1: evidence` is a list"),
            (r#"{"insight": "a", "evidence": "b", "applies": "c", "why": "d"}"#, "another key, `why`"),
            (
                &format!(r#"{{"insight": "{long}", "evidence": "b", "applies": "c"}}"#),
                "`reflection 1: insight` has 49 words",
            ),
        ] {
            let told = read_reflections(&format!("{{\"reflections\": [{list}]}}")).unwrap_err().0;
            assert!(told.contains(why), "{list}: {told}");
        }
    }
}
