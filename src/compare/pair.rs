//! How do two candidates differ: in which regions, in which bindings, and in time?

use super::profiles::Profiles;
use crate::{at::At, diff, exit::Trouble, progress, quantity, show};
use kernelbench::{Bindings, Candidate, CandidateId, Evaluation, Parameter};
use metrics::Speedup;
use serde::Serialize;
use std::fmt::Write;

/// Two candidates of the same task.
#[derive(Debug, Serialize)]
pub struct Pair {
    /// What they are called.
    pub names: [String; 2],
    /// What they are called by their content.
    pub ids: [CandidateId; 2],
    /// The regions that differ, with the difference.
    pub regions: Vec<(String, String)>,
    /// The parameters whose values differ.
    pub bindings: Vec<Differing>,
    /// Over the reference, as measured when each was made.
    pub recorded: [Option<Speedup>; 2],
    /// What the profiler read of both, where both were profiled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiles: Option<Profiles>,
    /// What came of the second where the first stood in the reference's place; none where nothing was measured now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<Evaluation>,
}

/// A tuning parameter with its values; none where a candidate does not have it.
#[derive(Debug, Serialize)]
pub struct Differing {
    /// Its name.
    pub name: String,
    /// Its values.
    pub values: [Option<Parameter>; 2],
}

impl Pair {
    /// Of what two names mean.
    ///
    /// # Errors
    ///
    /// Where a name means nothing, or the two are of different tasks.
    pub fn of(first: &At, second: &At) -> Result<Self, Trouble> {
        let tasks = [first.task()?, second.task()?];
        if !tasks[0].has_interface_of(&tasks[1]) {
            let (one, other) = (&tasks[0].name, &tasks[1].name);
            return Err(Trouble::usage(format!(
                "{} is of the task {one} and {} of {other}, which have different entries: they do not compare",
                first.label(),
                second.label()
            )));
        }
        let both = [first.candidate()?, second.candidate()?];
        let recorded = |at: &At, of: &Candidate| {
            let story = &at.story;
            story.evaluation(&of.id()).and_then(Evaluation::passed).map(|timed| timed.speedup)
        };
        Ok(Self {
            names: [first.label(), second.label()],
            ids: both.each_ref().map(Candidate::id),
            regions: regions(&both),
            bindings: differing(both[0].bindings(), both[1].bindings()),
            recorded: [recorded(first, &both[0]), recorded(second, &both[1])],
            profiles: match [(first, &both[0]), (second, &both[1])].map(|(at, of)| at.story.profile_of(&of.id())) {
                [Some(one), Some(other)] => Some(Profiles::of([one, other])),
                _ => None,
            },
            times: None,
        })
    }

    /// It in a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let [first, second] = &self.names;
        let mut text = format!("{first} and {second}\n");
        for (region, difference) in &self.regions {
            let _ = write!(text, "\nregion {region}\n{difference}");
        }
        if self.regions.is_empty() {
            text += "no region differs\n";
        }
        text.push('\n');
        for Differing { name, values } in &self.bindings {
            let [one, other] = values.each_ref().map(|value| value.as_ref().map_or("-".into(), ToString::to_string));
            let _ = writeln!(text, "{name}: {one} and {other}");
        }
        if self.bindings.is_empty() {
            text += "no binding differs\n";
        }
        let [one, other] = self.recorded.map(|speedup| speedup.map_or("-".into(), |s| quantity::speedup(&s)));
        let _ = writeln!(text, "over the reference, when each was made: {one} and {other}");
        if let Some(times) = &self.times {
            text += &self.timed(times);
        }
        if let Some(profiles) = &self.profiles {
            text += &profiles.text(&self.names);
        }
        show::plain(&text)
    }

    fn timed(&self, found: &Evaluation) -> String {
        let [first, second] = &self.names;
        if matches!(found, Evaluation::Counted(_)) {
            return format!("in pairs: nothing: on an emulated processor {second} and {first} are not timed\n");
        }
        if let Evaluation::Compiled(code) = found {
            return format!("in pairs: nothing: for {} {second} and {first} are compiled, not run\n", code.arch);
        }
        let Evaluation::Passed(timed) = found else {
            return format!("in pairs: {second} beside {first}: {}\n", progress::evaluated(found));
        };
        let (speedup, claim) = (quantity::speedup(&timed.speedup), quantity::claim(&timed.speedup));
        let mut text = format!("in pairs: {second} is {speedup} as fast as {first} ({claim})\n");
        for case in &timed.cases {
            let [one, other] =
                [&case.reference, &case.candidate].map(|t| quantity::time(t.typical_ns(timed.statistic)));
            let _ = writeln!(text, "          {}: {one} and {other}, {}", case.case, quantity::speedup(&case.speedup));
        }
        text
    }
}

/// The regions that differ; whole sources where they do not have the same regions.
fn regions(both: &[Candidate; 2]) -> Vec<(String, String)> {
    let names = |candidate: &Candidate| candidate.parts().iter().map(|p| p.region.clone()).collect::<Vec<_>>();
    let mut all = names(&both[0]);
    all.extend(names(&both[1]).into_iter().filter(|name| both[0].region(name).is_none()));
    let known = |name: &String| both.iter().filter(|candidate| candidate.region(name).is_some()).count();
    let pairs: Vec<(String, [String; 2])> = if all.iter().any(|name| known(name) == 2) {
        let text = |name: &String| both.each_ref().map(|c| c.region(name).unwrap_or_default().to_owned());
        all.iter().map(|name| (name.clone(), text(name))).collect()
    } else {
        vec![("source".to_owned(), both.each_ref().map(|candidate| candidate.source().into_owned()))]
    };
    let differ = pairs.into_iter().filter(|(_, [one, other])| one != other);
    differ.map(|(name, [one, other])| (name, diff::text(&diff::between(&one, &other)))).collect()
}

fn differing(one: &Bindings, other: &Bindings) -> Vec<Differing> {
    let names: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let values = |name: &String| [one.get(name).cloned(), other.get(name).cloned()];
    let all = names.into_iter().map(|name| Differing { name: name.clone(), values: values(name) });
    all.filter(|found| found.values[0] != found.values[1]).collect()
}
