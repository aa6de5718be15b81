//! How is the one optimization asked for, and how is the answer read? (CudaForge, Appendix D.2.)

use crate::{
    Attempted, Hints, Offered, Optimization, Prompt, Prompts, Unreadable,
    approaches::with_approaches,
    reply::{Field, read_fields, read_names},
    words::{self, one_line},
};
use kernelbench::{Candidate, Task, Timed};
use metrics::{Machine, Profile};
use minijinja::{Value, context};

/// What the reply must hold.
pub(crate) const FIELDS: [Field; 3] = [
    Field { key: "bottleneck", most_words: 30, single: true },
    Field { key: "optimization method", most_words: 35, single: true },
    Field { key: "modification plan", most_words: 35, single: false },
];

/// Where the reply names the measurements that it reasons from.
const METRICS: &str = "metrics";
/// Where it names the features that its change brings in, and how many of them: one, and what must come with it.
const FEATURES: &str = "features";
const MOST_FEATURES: usize = 5;
/// How many of the measurements are kept: three or four are asked for (CudaForge §2.2, Appendix D.2).
const MOST_METRICS: usize = 4;

impl Prompts {
    /// Judge: the one bottleneck of this candidate and the one method against it, from its own measurements, and
    /// other than what was tried on it; of the features that are offered it may name one.
    #[must_use]
    pub fn advise(
        &self,
        task: &Task,
        machine: &Machine,
        candidate: &Candidate,
        timed: &Timed,
        profile: Option<&Profile>,
        hints: Hints<'_>,
    ) -> Prompt {
        let values = after(hints.tried, &values(task, machine, candidate, timed, profile));
        self.page("advise", &with_approaches(hints.approaches, &offering(hints.offered, &values)))
    }
}

pub(crate) fn values(
    task: &Task,
    machine: &Machine,
    candidate: &Candidate,
    timed: &Timed,
    profile: Option<&Profile>,
) -> Value {
    context! {
        task => words::task(task),
        machine => words::machine(machine),
        candidate => words::candidate(candidate),
        timed => words::timed(timed),
        tried => Vec::<Value>::new(),
        offered => Vec::<Value>::new(),
        approaches => Vec::<Value>::new(),
        profile => profile.map(|profile| words::profile(profile, machine)),
        products => words::products(task, machine),
    }
}

/// The values with the changes that were tried.
pub(crate) fn after(tried: &[Attempted], values: &Value) -> Value {
    let line = |one: &Attempted| {
        let Optimization { method, plan, .. } = &one.change;
        context! { method => one_line(method), plan => one_line(plan), came => one_line(&one.came), earlier => one.earlier }
    };
    let tried: Vec<Value> = tried.iter().map(line).collect();
    context! { tried, ..values.clone() }
}

/// The values with the features that are offered.
pub(crate) fn offering(offered: &[Offered], values: &Value) -> Value {
    let line = |one: &Offered| {
        let summary = one_line(&one.summary);
        context! { name => one.name.as_str(), summary, why => one.why.join("; "), coupled => one.coupled.join(", ") }
    };
    let offered: Vec<Value> = offered.iter().map(line).collect();
    context! { offered, ..values.clone() }
}

/// Reads the Judge's one optimization, and which measurements it reasons from, as far as it says so: that alone makes no
/// reply unreadable. The keys may be spelt with `s` or `z`, with a space or an underscore.
///
/// # Errors
/// Where the reply is not one JSON object with the three keys, each a string of 30, 35 and 35 words and a fifth more;
/// or holds two verdicts, or a fix.
pub fn read_optimization(reply: &str) -> Result<Optimization, Unreadable> {
    let [bottleneck, method, plan] = read_fields(
        reply,
        &FIELDS,
        &crate::diagnose::FIELDS,
        "a fix came where an optimization was asked for",
        &[METRICS, FEATURES],
    )?;
    let metrics = read_names(reply, &FIELDS, METRICS, MOST_METRICS);
    let features = read_names(reply, &FIELDS, FEATURES, MOST_FEATURES);
    Ok(Optimization { metrics, bottleneck, features, method, plan })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(method: &str, plan: &str) -> String {
        format!(
            r#"{{"bottleneck": "Loads miss.", "{method}": "Block the loop.", "{plan}": "1. Split. 2. Swap the loops."}}"#
        )
    }

    #[test]
    fn both_spellings_and_both_separators_are_read() {
        let methods = ["optimization method", "optimisation method", "optimization_method", "optimisation_method"];
        for (method, plan) in methods.into_iter().zip([
            "modification plan",
            "modification_plan",
            "Modification Plan",
            "modification-plan",
        ]) {
            let optimization = read_optimization(&reply(method, plan)).unwrap();
            assert_eq!(
                (optimization.method.as_str(), optimization.plan.as_str()),
                ("Block the loop.", "1. Split. 2. Swap the loops.")
            );
        }
    }

    #[test]
    fn the_measurements_that_the_judge_reasons_from_are_kept_and_a_reply_without_them_is_as_good() {
        let named = |list: &str| {
            let reply =
                reply("optimization method", "modification plan").replacen('{', &format!("{{\"metrics\": {list}, "), 1);
            read_optimization(&reply).unwrap().metrics
        };
        assert_eq!(named(r#"["dram__bytes_read.sum", "ipc"]"#), ["dram__bytes_read.sum", "ipc"]);
        assert_eq!(named(r#"["a", "b", "c", "d", "e"]"#).len(), 4);
        assert!(named(r#""ipc""#).is_empty() && named("[1, {}]").is_empty());
        assert!(read_optimization(&reply("optimization method", "modification plan")).unwrap().metrics.is_empty());
    }

    #[test]
    fn what_is_not_one_optimization_is_refused_with_its_reason() {
        let good = reply("optimization method", "modification plan");
        let words = |count: usize| vec!["word"; count].join(" ");
        let cases = [
            (good.replace("Loads miss.", &words(37)), "`bottleneck` has 37 words; at most 30"),
            (good.replace("Block the loop.", &words(43)), "`optimization method` has 43 words; at most 35"),
            (good.replace("Split.", &words(40)), "`modification plan` has 45 words; at most 35"),
            (
                good.replace("Block the loop.", "(1) Block the loop. (2) Prefetch."),
                "`optimization method` lists several",
            ),
            (good.replace("\"Block the loop.\"", "[\"Block\", \"Prefetch\"]"), "`optimization method` is a list"),
            (good.replace('}', ", \"optimisation_method\": \"Prefetch.\"}"), "`optimization method` is given twice"),
            (good.replace("Loads", "Loads\n"), "broken or not complete"),
            (r#"{"critical_issue": "a", "why_it_matters": "b", "minimal_fix_hint": "c"}"#.into(), "a fix came"),
            (format!(r#"{good} {{"critical_issue": "a"}}"#), "holds 2 answers"),
        ];
        for (reply, reason) in cases {
            let why = read_optimization(&reply).unwrap_err().0;
            assert!(why.contains(reason), "{reply:?}: {why}");
        }
    }
}
