//! How is the one fault asked for, and how is the answer read? (CudaForge, Appendix D.2.)

use crate::{
    Fix, Prompt, Prompts, Unreadable,
    reply::{Field, read_fields},
    words,
};
use kernelbench::{Candidate, Failure, Task};
use metrics::Machine;
use minijinja::{Value, context};

/// What the reply must hold.
pub(crate) const FIELDS: [Field; 3] = [
    Field { key: "critical_issue", most_words: 20, single: true },
    Field { key: "why_it_matters", most_words: 35, single: false },
    Field { key: "minimal_fix_hint", most_words: 20, single: true },
];

impl Prompts {
    /// Judge: the one problem that explains why this candidate failed.
    #[must_use]
    pub fn diagnose(&self, task: &Task, machine: &Machine, candidate: &Candidate, failure: &Failure) -> Prompt {
        self.page("diagnose", &values(task, machine, candidate, failure))
    }
}

pub(crate) fn values(task: &Task, machine: &Machine, candidate: &Candidate, failure: &Failure) -> Value {
    context! {
        task => words::task(task),
        machine => words::machine(machine),
        candidate => words::candidate(candidate),
        failure => words::failure(failure),
    }
}

/// Reads the Judge's one fix.
///
/// # Errors
/// Where the reply is not one JSON object with the three keys, each a string of 20, 35 and 20 words and a fifth more;
/// or holds two verdicts, or an optimization.
pub fn read_fix(reply: &str) -> Result<Fix, Unreadable> {
    let [critical_issue, why_it_matters, minimal_fix_hint] =
        read_fields(reply, &FIELDS, &crate::advise::FIELDS, "an optimization came where a fix was asked for", &[])?;
    Ok(Fix { critical_issue, why_it_matters, minimal_fix_hint, features: vec![] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    const GOOD: &str = r#"{"critical_issue": "It writes one too many.", "why_it_matters": "The next row breaks.", "minimal_fix_hint": "Use < for <=."}"#;

    #[test]
    fn one_fix_is_read_bare_fenced_and_within_prose() {
        let fix = Fix {
            critical_issue: "It writes one too many.".into(),
            why_it_matters: "The next row breaks.".into(),
            minimal_fix_hint: "Use < for <=.".into(),
            features: vec![],
        };
        let replies = [
            GOOD.to_owned(),
            format!("```json\n{GOOD}\n```"),
            format!("The loop `for (;;) {{ x[i] = {{}}; }}` is wrong.\n{GOOD}\nThat is all."),
            format!("[{GOOD}]"),
            format!("<think>{{\"critical_issue\": \"no\"}}</think>{GOOD}"),
            format!("{GOOD}\n\nOnce more:\n{GOOD}"),
        ];
        for reply in replies {
            assert_eq!(read_fix(&reply), Ok(fix.clone()), "{reply}");
        }
    }

    #[test]
    fn that_nothing_is_wrong_can_be_said() {
        let reply = GOOD.replace("It writes one too many.", "Nothing clearly wrong was found.");
        assert_eq!(read_fix(&reply).unwrap().critical_issue, "Nothing clearly wrong was found.");
    }

    #[test]
    fn what_is_not_one_fix_is_refused_with_its_reason() {
        let words = |count: usize| vec!["word"; count].join(" ");
        let with = |from: &str, to: &str| GOOD.replace(from, to);
        let cases = [
            (String::new(), "it is empty"),
            ("The bound is wrong.".into(), "holds no JSON object"),
            (GOOD[..GOOD.len() - 9].into(), "broken or not complete"),
            (format!("{GOOD}{}", with("one", "two")), "holds 2 answers"),
            (format!("[{GOOD}, {}]", with("one", "two")), "holds 2 answers"),
            (with("\"It writes one too many.\"", "[\"a\", \"b\"]"), "`critical_issue` is a list"),
            (with("\"It writes one too many.\"", "7"), "`critical_issue` is no string"),
            (with("It writes one too many.", "1. It leaks. 2. It races."), "`critical_issue` lists several things"),
            (with("It writes one too many.", " "), "`critical_issue` is empty"),
            (with("It writes one too many.", &words(25)), "`critical_issue` has 25 words; at most 20"),
            (with("The next row breaks.", &words(43)), "`why_it_matters` has 43 words; at most 35"),
            (with("Use < for <=.", &words(25)), "`minimal_fix_hint` has 25 words; at most 20"),
            (with("Use < for <=.", &"x".repeat(5000)), "`minimal_fix_hint` is too long"),
            (with("\"why_it_matters\"", "\"why\""), "`why_it_matters` is missing; `why` was not asked for"),
            (with("}", ", \"severity\": \"high\"}"), "`severity` was not asked for"),
            (with("}", ", \"critical_issue\": \"another\"}"), "`critical_issue` is given twice"),
            ("{\"verdict\": {}}".into(), "other keys than asked for: verdict"),
            (
                r#"{"bottleneck": "a", "optimization method": "b", "modification plan": "c"}"#.into(),
                "an optimization came",
            ),
        ];
        for (reply, reason) in cases {
            let why = read_fix(&reply).unwrap_err().0;
            assert!(why.contains(reason), "{reply:?}: {why}");
        }
    }

    #[test]
    fn each_field_may_be_a_fifth_longer_than_it_was_asked_to_be() {
        let words = |count: usize| vec!["word"; count].join(" ");
        let object = serde_json::json!({"critical_issue": words(24), "why_it_matters": words(42), "minimal_fix_hint": words(24)});
        assert!(read_fix(&object.to_string()).is_ok());
        let fix = example::one_fix();
        let object = serde_json::to_string(&fix).unwrap();
        assert_eq!(read_fix(&object), Ok(fix));
    }
}
