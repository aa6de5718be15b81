//! What of a task does a policy replace: its shapes, and which of these are timed?

use crate::progress::plain;
use agents::policy::{Policy, Shapes};
use kernelbench::{Task, TimedCases};

/// A line each for what is replaced, with the flag that keeps it; of several tasks, as the first says that it holds for.
#[must_use]
pub fn overruled<'a>(tasks: impl IntoIterator<Item = &'a Task>, policy: &Policy) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for line in tasks.into_iter().flat_map(|task| of_task(task, policy)) {
        let subject = |line: &str| line.split_whitespace().next().map(str::to_owned);
        if !lines.iter().any(|said| subject(said) == subject(&line)) {
            lines.push(line);
        }
    }
    lines
}

fn of_task(task: &Task, policy: &Policy) -> Vec<String> {
    if task.problem().is_some() {
        return vec![];
    }
    let (count, name) = (task.cases.len(), plain(&policy.name));
    let mut lines = vec![];
    if policy.shapes == Shapes::Model {
        let own = format!("the {count} of {}", plain(&task.name));
        lines.push(format!("shapes     a model's ({name}), in place of {own}: --shapes task keeps these"));
    }
    let chooses = count > 1 || policy.shapes == Shapes::Model;
    if let Some(timed) = policy.timed.as_ref().filter(|timed| chooses && **timed != task.timed) {
        let (here, there) = (in_words(timed), in_words(&task.timed));
        lines.push(format!(
            "timed      {here} ({name}), where {} says {there}: --timed task keeps that",
            plain(&task.name)
        ));
    }
    lines
}

fn in_words(timed: &TimedCases) -> String {
    match timed {
        TimedCases::Largest => "the largest case".to_owned(),
        TimedCases::All => "all cases".to_owned(),
        TimedCases::Case(name) => format!("the case {name}"),
    }
}

/// The cases that a setting names: `all`, `largest`, a case's name; `None` where it says `task`.
pub(super) fn read(word: &str) -> Option<TimedCases> {
    match word {
        "task" => None,
        "all" => Some(TimedCases::All),
        "largest" => Some(TimedCases::Largest),
        name => Some(TimedCases::Case(name.to_owned())),
    }
}

/// A problem has the one shape that its file gives: the policy keeps it, whoever else may choose. What to say of that where
/// a model was asked for.
pub fn of_one_shape(task: &Task, policy: &mut Policy, asked: Option<Shapes>) -> Option<String> {
    task.problem()?;
    policy.shapes = Shapes::Task;
    let name = plain(&task.name);
    (asked == Some(Shapes::Model))
        .then(|| format!("--shapes model changes nothing: {name} is a problem, and its file gives its one shape"))
}

/// Whether the case that is to be timed is there.
///
/// # Errors
///
/// What was expected.
pub fn known(task: &Task, policy: &Policy) -> Result<(), String> {
    let Some(TimedCases::Case(name)) = &policy.timed else { return Ok(()) };
    let names: Vec<&str> = task.cases.iter().map(|case| case.name.as_str()).collect();
    if !names.contains(&name.as_str()) {
        let names = names.join(", ");
        return Err(format!("--timed {name}: {} has no such case; expected task, all, largest or {names}", task.name));
    }
    if policy.shapes == Shapes::Model {
        return Err(format!(
            "--timed {name} names a case of the task, and a model chooses the shapes: add --shapes task"
        ));
    }
    Ok(())
}
