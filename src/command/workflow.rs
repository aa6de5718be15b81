//! `warpsmith tree`, `checkpoint`, `branch` and `restore`: the checkpoints of a workflow, and where it goes on

use super::{SIMULATED, say};
use crate::{
    at::At,
    cli::{NewNameArgs, RestoreArgs, TreeArgs},
    config::Config,
    exit::{Exit, Trouble},
    progress::plain,
    show,
};
use agents::{
    event::{Event, Step},
    log::Log,
    trajectory::{Round, Trajectory},
    workflow::Checkpoint,
};
use kernelbench::{CandidateId, Evaluation, Hash, in_words};
use metrics::MachineKind;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};

/// The run that these words name, and perhaps one of its checkpoints.
fn of(words: &str, config: &Config) -> Result<At, Trouble> {
    let expected = || Trouble::usage(format!("{words}: expected the folder of a run, or RUN@NAME"));
    At::find(words, &config.run.folder)?.ok_or_else(expected)
}

/// The checkpoint that is named; none where none is.
pub(super) fn named(at: &At) -> Result<Option<Checkpoint>, Trouble> {
    let story = &at.story;
    let found = at.name.as_deref().map(|name| story.workflow.named(name).cloned());
    found.transpose().map_err(|why| Trouble::usage(format!("{}: {why}", at.folder.path().display())))
}

/// The checkpoint that is named, or the head.
fn named_or_head(at: &At) -> Result<Checkpoint, Trouble> {
    let head = || {
        let none = || Trouble::usage(format!("{}: there is no checkpoint in this run", at.folder.path().display()));
        at.story.workflow.head().cloned().ok_or_else(none)
    };
    named(at)?.map_or_else(head, Ok)
}

/// Notes an event in the run's record.
fn note(at: &At, event: &Event) -> Result<(), Trouble> {
    let (lock, _) = at.folder.lock()?;
    let grown = || {
        let run = at.folder.path().display();
        Trouble::record(format!("{run}: another process has written to its record meanwhile: try again"))
    };
    let mut log = at.folder.append_unchanged(&at.story.name, &at.end, &lock)?.ok_or_else(grown)?;
    let noted = log.note(event).map_err(|why| Trouble::record(why.to_string()));
    drop(lock);
    noted
}

fn free(at: &At, name: &str) -> Result<(), Trouble> {
    at.story.workflow.is_free(name).map_err(Trouble::usage)
}

/// Prints the checkpoints, the failed tries, and where it goes on.
pub(super) fn print_tree(arguments: &TreeArgs, config: &Config) -> Result<Exit, Trouble> {
    let run = arguments.run.display().to_string();
    let at = match &arguments.task {
        Some(task) => At::of_task(&run, task, &config.run.folder)?,
        None => of(&run, config)?,
    };
    if let Some(name) = &at.name {
        let run = at.folder.path().display();
        return Err(Trouble::usage(format!("{run}@{name}: the tree is of a run: name it without @{name}")));
    }
    let story = &at.story;
    if !story.tree.nodes().is_empty() {
        let task = story.task.as_ref().and_then(|task| at.blobs.fetch(task).ok());
        let task = task.and_then(|text| serde_json::from_str(&text).ok());
        let pace = task.and_then(|task| crate::progress::pace(story, &task));
        let told = if arguments.json {
            super::json(&show::search::as_json(&story.tree, pace.as_ref()))
        } else {
            show::search::text(&story.tree, pace.as_ref())
        };
        say(told.trim_end());
        return Ok(Exit::Done);
    }
    say(&if arguments.json { super::json(&as_json(story)) } else { tree(story).trim_end().to_owned() });
    Ok(Exit::Done)
}

/// Gives a checkpoint a name.
pub(super) fn checkpoint(arguments: &NewNameArgs, config: &Config) -> Result<Exit, Trouble> {
    let at = of(&arguments.at, config)?;
    let checkpoint = named_or_head(&at)?;
    free(&at, &arguments.name)?;
    note(&at, &Event::Named { name: arguments.name.clone(), checkpoint: checkpoint.id.clone() })?;
    say(&format!("{} is {} ({})", arguments.name, checkpoint.name, checkpoint.id.short()));
    Ok(Exit::Done)
}

/// Begins a branch at a checkpoint; the workflow goes on there.
pub(super) fn branch(arguments: &NewNameArgs, config: &Config) -> Result<Exit, Trouble> {
    let at = of(&arguments.at, config)?;
    let checkpoint = named_or_head(&at)?;
    free(&at, &arguments.name)?;
    let drops = at.story.under_way().is_some();
    note(&at, &Event::Branched { branch: arguments.name.clone(), checkpoint: checkpoint.id.clone(), drops })?;
    say(&format!("branch {} at {}: the workflow goes on there{}", arguments.name, checkpoint.name, dropped(&at.story)));
    Ok(Exit::Done)
}

/// Lets a branch go on, or sets the one that goes on back to a checkpoint.
pub(super) fn restore(arguments: &RestoreArgs, config: &Config) -> Result<Exit, Trouble> {
    let at = of(&arguments.at, config)?;
    let Some(name) = at.name.clone() else {
        return Err(Trouble::usage(format!("{0}: to which checkpoint or branch? Name it as {0}@NAME", arguments.at)));
    };
    let (checkpoint, story) = (named_or_head(&at)?, &at.story);
    let is_branch = story.workflow.branches.contains_key(&name);
    let branch = if is_branch { name } else { story.workflow.branch().to_owned() };
    let drops = story.under_way().is_some();
    note(&at, &Event::Restored { branch: branch.clone(), checkpoint: checkpoint.id.clone(), drops })?;
    say(&format!("the workflow goes on from {} on branch {branch}{}", checkpoint.name, dropped(story)));
    Ok(Exit::Done)
}

/// That a transformation was under way, which a workflow drops that goes on from elsewhere; nothing where none was.
fn dropped(story: &Trajectory) -> String {
    story.under_way().map_or_else(String::new, |(order, tries)| {
        let (name, from) = (plain(&order.transformation), crate::progress::name_of(&order.from, story));
        format!("\n{name} of {from} was under way, try {} of {}: it is dropped", tries + 1, order.tries)
    })
}

/// The checkpoints as text, each with its speedup over the reference, and the tries that failed.
pub(super) fn tree(story: &Trajectory) -> String {
    let (grown, mut lines) = (Grown::of(story), vec![]);
    let roots = story.workflow.checkpoints.iter().filter(|checkpoint| checkpoint.parent.is_none());
    roots.for_each(|root| grown.grow(root, 0, &mut lines));
    if lines.is_empty() {
        lines.push("no checkpoint yet".to_owned());
    }
    if story.machine.as_ref().is_some_and(|machine| machine.kind == MachineKind::Simulated) {
        lines.push(SIMULATED.to_owned());
    }
    lines.join("\n") + "\n"
}

/// What was made of each checkpoint, and tried on it.
struct Grown<'a> {
    story: &'a Trajectory,
    head: Option<&'a Hash>,
    children: HashMap<&'a Hash, Vec<&'a Checkpoint>>,
    /// The orders from each, by where they stand.
    orders: HashMap<&'a Hash, Vec<usize>>,
    /// What came of candidates the last time.
    evaluations: HashMap<&'a CandidateId, &'a Evaluation>,
}

impl<'a> Grown<'a> {
    fn of(story: &'a Trajectory) -> Self {
        let workflow = &story.workflow;
        let (mut children, mut orders) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for child in &workflow.checkpoints {
            child.parent.iter().for_each(|parent| children.entry(parent).or_default().push(child));
        }
        for (nth, ordered) in workflow.orders.iter().enumerate() {
            orders.entry(&ordered.order.from).or_default().push(nth);
        }
        let evaluated = |round: &'a Round| round.candidate.as_ref().zip(round.evaluation.as_ref());
        let evaluations = story.rounds.iter().filter_map(evaluated).collect();
        Self { story, head: workflow.head().map(|head| &head.id), children, orders, evaluations }
    }

    /// A checkpoint's line, its failed tries, and what was made of it: the last child stands below it, the others beside.
    fn grow(&self, at: &Checkpoint, depth: usize, lines: &mut Vec<String>) {
        let indent = "  ".repeat(depth);
        lines.push(format!("{indent}{}", self.line(at)));
        for (name, number, why) in self.failed_tries(at) {
            lines.push(format!("{indent}  x {name}, try {number}: {why}"));
        }
        let made = self.children.get(&at.id).map_or(&[][..], Vec::as_slice);
        for (nth, child) in made.iter().enumerate() {
            self.grow(child, depth + usize::from(nth + 1 < made.len()), lines);
        }
    }

    fn line(&self, at: &Checkpoint) -> String {
        let workflow = &self.story.workflow;
        let what = at.transformation.as_deref().unwrap_or("initial context");
        let ratio = match self.evaluations.get(&at.bound) {
            Some(Evaluation::Passed(timed)) => metrics::quantity::times(timed.speedup.ratio),
            Some(Evaluation::Compiled(_)) => "compiled, not run".to_owned(),
            _ => "-".to_owned(),
        };
        let best = at.kept.first().map(in_words).unwrap_or_default();
        let called = |names: &BTreeMap<String, Hash>| {
            names.iter().filter(|(_, id)| **id == at.id).map(|(name, _)| plain(name)).collect::<Vec<_>>()
        };
        let mut names = [called(&workflow.names), called(&workflow.branches)].concat();
        if self.head == Some(&at.id) {
            names.push("head".to_owned());
        }
        let names = if names.is_empty() { String::new() } else { format!("  [{}]", names.join(", ")) };
        format!("{:<4} {} {what:<17} {ratio:>8}  {best}{names}", at.name, at.id.short()).trim_end().to_owned()
    }

    /// The tries on a checkpoint of which nothing came, but those of a study: the transformation, which try it was, and why.
    fn failed_tries(&self, at: &Checkpoint) -> Vec<(String, usize, String)> {
        let (workflow, mut failed) = (&self.story.workflow, vec![]);
        for nth in self.orders.get(&at.id).into_iter().flatten() {
            let order = &workflow.orders[*nth].order;
            if order.trial {
                continue;
            }
            let rounds = workflow.rounds_of(*nth, &self.story.rounds);
            let tries = rounds.iter().filter(|round| matches!(round.step, Step::Transform { .. })).enumerate();
            failed
                .extend(tries.filter_map(|(try_, round)| Some((order.transformation.clone(), try_ + 1, why(round)?))));
        }
        failed
    }
}

/// Why nothing came of a round; none where something did, or it is not over.
fn why(round: &Round) -> Option<String> {
    let unreadable = round.unreadable.as_ref().map(|(_, why)| format!("no readable reply: {why}"));
    let failed = match &round.evaluation {
        Some(failed @ Evaluation::Failed(_)) => Some(crate::progress::evaluated(failed)),
        _ => None,
    };
    unreadable.or(failed).or_else(|| round.not_timed.clone()).map(|why| plain(&why))
}

fn as_json(story: &Trajectory) -> serde_json::Value {
    let (workflow, grown) = (&story.workflow, Grown::of(story));
    let checkpoint = |at: &Checkpoint| {
        let evaluation = grown.evaluations.get(&at.bound);
        let speedup = evaluation.and_then(|evaluation| evaluation.passed()).map(|timed| timed.speedup);
        let compiled = match evaluation {
            Some(Evaluation::Compiled(code)) => Some(code),
            _ => None,
        };
        let failed: Vec<_> = grown
            .failed_tries(at)
            .into_iter()
            .map(|(transformation, number, why)| json!({"transformation": transformation, "try": number, "why": why}))
            .collect();
        let mut object = json!({
            "id": at.id, "name": at.name, "parent": at.parent, "transformation": at.transformation, "round": at.round,
            "speedup": speedup, "bindings": at.kept.first(), "kept": at.kept.len(), "tuning": at.tuning, "failed": failed,
        });
        if let Some(code) = compiled {
            object["compiled"] = json!(code);
        }
        object
    };
    json!({
        "checkpoints": workflow.checkpoints.iter().map(checkpoint).collect::<Vec<_>>(),
        "names": workflow.names, "branches": workflow.branches, "branch": workflow.branch(),
        "head": workflow.head().map(|head| &head.name),
    })
}
