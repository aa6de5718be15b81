//! `warpsmith replay`: does the record make the same run again?

use super::{on_threads, resume::opened, say};
use crate::{
    cli::ReplayArgs,
    config::Config,
    exit::{Exit, Trouble},
    progress::plain,
    recall,
    store::{Record, RunFolder, RunHeader},
    verify::Verification,
};
use agents::{
    crew::Crew,
    event::{End, Event},
    llm::{CallId, replay::Replay},
    log::{Log, MemoryLog},
    planner::{Job, Limit, work},
    policy::Policy,
    trajectory::Trajectory,
};
use kernelbench::{Evaluation, Hash, Recorded, Tried};
use prompts::{Catalogue, Prompts, backend};
use serde::Serialize;
use std::{cmp::Ordering, sync::Arc};

/// What a replay found.
#[derive(Debug, Serialize)]
struct Found {
    /// Events in the record.
    recorded: usize,
    /// Events that were made again.
    again: usize,
    /// Whether they agree.
    agrees: bool,
    /// Whether prompts were compared: only where the templates are those that the run was made with.
    prompts_compared: bool,
    /// The first event that does not, from 0, with what stands in the record and what came now.
    difference: Option<Difference>,
    /// What does not follow from the samples and texts that the record holds.
    verification: Verification,
}

#[derive(Debug, Serialize)]
struct Difference {
    event: usize,
    recorded: Option<Event>,
    again: Option<Event>,
}

/// Makes the run again from its record and compares; of many tasks each that has begun.
pub(super) fn replay(arguments: &ReplayArgs) -> Result<Exit, Trouble> {
    let folder = RunFolder::open(&arguments.run)?;
    if arguments.task.is_none() && folder.batch()?.is_some() {
        return every_task(&folder, arguments.json);
    }
    let record = match &arguments.task {
        Some(task) => folder.record(task)?,
        None => folder.only_record()?,
    };
    let found = one(&folder, &record)?;
    if arguments.json {
        say(&super::json(&found));
    } else {
        tell(&found);
    }
    Ok(if found.agrees { Exit::Done } else { Exit::NothingCorrect })
}

fn every_task(folder: &RunFolder, json: bool) -> Result<Exit, Trouble> {
    let (mut agree, mut all) = (true, vec![]);
    for name in folder.tasks()?.iter().filter(|name| folder.has_record(name)) {
        // A record that cannot be replayed at all is no reason not to look at the others.
        let found = folder.record(name).map_err(Trouble::from).and_then(|record| one(folder, &record));
        agree &= found.as_ref().is_ok_and(|found| found.agrees);
        match (json, found) {
            (true, Ok(found)) => all.push(serde_json::json!({ "task": name, "found": found })),
            (true, Err(why)) => all.push(serde_json::json!({ "task": name, "trouble": why.to_string() })),
            (false, Ok(found)) => {
                say(&format!("{}:", plain(name)));
                tell(&found);
            }
            (false, Err(why)) => say(&format!("{}: {}", plain(name), plain(&why.to_string()))),
        }
    }
    if json {
        say(&super::json(&all));
    }
    Ok(if agree { Exit::Done } else { Exit::NothingCorrect })
}

fn one(folder: &RunFolder, record: &Record) -> Result<Found, Trouble> {
    let prompts = Prompts::embedded();
    let header = folder.header()?;
    let same_words = header.templates == RunHeader::templates_of(&prompts) && !says_more(&header.configuration);
    let again = on_threads(make_again(record, prompts))?;
    let mut found = compare(&comparable(record.events(), same_words), &comparable(again, same_words), same_words);
    found.verification = Verification::of(record);
    found.agrees &= found.verification.differences.is_empty();
    Ok(found)
}

/// Whether prompts held more than the templates, from folders that are not looked into again, or by a setting of theirs.
fn says_more(config: &Config) -> bool {
    let said = &config.prompts;
    [&said.hints, &said.features, &said.context, &said.pool, &said.first].into_iter().any(|named| !named.is_empty())
}

async fn make_again(record: &Record, prompts: Prompts) -> Result<Vec<Event>, Trouble> {
    let (task, policy) = opened(record)?;
    let replies = Replay::new("the record", recall::answers(record)?, false).ending_at(recall::unanswered(record));
    let log = MemoryLog::default();
    let found = recall::findings(record.events());
    let (machine, mut findings) = found.ok_or_else(|| Trouble::record("the record holds no event"))?;
    findings.printed = recall::printed(record)?;
    let workshop = Arc::new(Recorded::new(machine, findings));
    let prompts = prompts.transforming(transformations(record, backend(&task))?).recalling(recall::looked_up(record)?);
    let crew = Crew::spawn(workshop, Arc::new(replies), Arc::new(prompts)).await;
    let crew = crew.with_validators(recall::validators(record.events()));
    let mut recorded = vec![];
    for part in parts(record) {
        let mut log = log.clone();
        if let Some(extended @ Event::Extended { .. }) = part.first() {
            log.note(extended)?;
        }
        let mut so_far: Trajectory = log.events().into_iter().collect();
        recorded.extend(part);
        let whole: Trajectory = recorded.iter().cloned().collect();
        so_far.extended_to = whole.extended_to;
        let limit = as_recorded(&whole, &policy);
        let job = Job { task: task.clone(), policy: policy.clone(), so_far, log: Box::new(log), limit };
        // However it ends, the events say how far it came; that is what is compared.
        let _ = work(job, &crew).await;
    }
    crew.stop().await;
    Ok(log.events())
}

/// The transformations, and what they imported for a backend, as they were when they were applied. What a person ordered, restored or branched is not in the
/// policy, so such a run is not made again.
fn transformations(record: &Record, backend: &str) -> Result<Catalogue, Trouble> {
    let mut catalogue = Catalogue::embedded();
    for event in record.events() {
        match event {
            Event::Ordered(order) if !order.by_hand => {
                let text = record.blobs.fetch(&order.definition)?;
                let imported =
                    order.imports.iter().map(|import| record.blobs.fetch(import)).collect::<Result<_, _>>()?;
                let applied = catalogue.as_applied(&order.transformation, text, imported, backend);
                catalogue = applied.map_err(|why| Trouble::record(why.to_string()))?;
            }
            Event::Ordered(_) | Event::Restored { .. } | Event::Branched { .. } | Event::Steered { .. } => {
                return Err(Trouble::usage(
                    "this workflow was steered by hand: only a run of a policy's sequence alone can be made again",
                ));
            }
            _ => {}
        }
    }
    Ok(catalogue)
}

/// The record, cut before each place where the run was given more after it had ended.
fn parts(record: &Record) -> Vec<Vec<Event>> {
    let mut parts: Vec<Vec<Event>> = vec![vec![]];
    for event in record.events() {
        let Some(part) = parts.last_mut() else { continue };
        if matches!((part.last(), &event), (Some(Event::Ended { .. }), Event::Extended { .. })) {
            parts.push(vec![event]);
        } else {
            part.push(event);
        }
    }
    parts
}

/// A limit ends the replay where one ended the record, or kept what the last round taught from being asked for: after as many rounds
/// and answers.
fn as_recorded(whole: &Trajectory, policy: &Policy) -> Limit {
    let counts = |story: &Trajectory| (story.baseline.is_some(), story.rounds.len(), story.answers().count());
    let unasked = policy.reflect.is_some() && whole.rounds.last().is_some_and(|round| round.reflected.is_none());
    let limited = |end: &End| end.limit().is_some() || *end == End::Finished || unasked;
    let (end, last) = (whole.end.filter(limited), counts(whole));
    Arc::new(move |so_far| end.filter(|_| counts(so_far) >= last))
}

/// The events without what is different every time: who says it answers, why a reply is passed over, waiting times, what a
/// device was held for, and where the run was interrupted;
/// and without the prompts, where these templates cannot make them again.
fn comparable(events: impl IntoIterator<Item = Event>, same_words: bool) -> Vec<Event> {
    let mut kept: Vec<Event> = vec![];
    for event in events {
        match event {
            Event::BrokeOff { .. } | Event::Spent { .. } => {}
            Event::Opened { format, task, name, policy, machine, .. } => {
                kept.push(Event::Opened { format, task, name, policy, machine, model: String::new() });
            }
            // Whoever answers says in its own words why it does not.
            Event::PassedOver { role, .. } => {
                let passed_over = Event::PassedOver { role, why: String::new() };
                if !in_this_round(&kept, &passed_over) {
                    kept.push(passed_over);
                }
            }
            Event::Answered { call, prompt, reply, model, usage, usd, .. } => {
                let prompt = if same_words { prompt } else { Hash::of(b"") };
                kept.push(Event::Answered { call, prompt, reply, model, usage, usd, latency_ms: 0, requests: 0 });
            }
            // What was under way when the run was interrupted stands twice in its record.
            again @ (Event::Asked { .. } | Event::Misread { .. }) if in_this_round(&kept, &again) => {}
            // What was given before the run had ended is no event of a run that is made in one go.
            Event::Extended { .. } if !matches!(kept.last(), Some(Event::Ended { .. })) => {}
            // It rests on times of day, too.
            Event::Certified { certificate, .. } => kept.push(Event::Certified { certificate, evidence: None }),
            Event::Tuned { candidate, bound, mut tried } => {
                tried.sort_by(by_bindings);
                kept.push(Event::Tuned { candidate, bound, tried });
            }
            other => kept.push(other),
        }
    }
    let mut kept = in_order(kept);
    // A question that nobody answered is where the run was left.
    let answer = |event: &Event| if let Event::Answered { call, .. } = event { Some(call.clone()) } else { None };
    let answered: Vec<CallId> = kept.iter().filter_map(answer).collect();
    kept.retain(|event| !matches!(event, Event::Asked { call, .. } if !answered.contains(call)));
    kept
}

/// Of configurations on several devices the one that is done first is noted first; and where one is wrong, others were under way.
fn in_order(events: Vec<Event>) -> Vec<Event> {
    let (mut ordered, mut search): (Vec<Event>, Vec<Tried>) = (vec![], vec![]);
    for event in events {
        if let Event::Tried { tried } = event {
            search.push(tried);
            continue;
        }
        if let Event::Evaluated { candidate, evaluation: Evaluation::Failed(_) } = &event
            && search.iter().any(|tried| tried.candidate == *candidate)
        {
            search.retain(|tried| tried.candidate == *candidate);
        }
        search.sort_by(by_bindings);
        ordered.extend(search.drain(..).map(|tried| Event::Tried { tried }));
        ordered.push(event);
    }
    search.sort_by(by_bindings);
    ordered.extend(search.into_iter().map(|tried| Event::Tried { tried }));
    ordered
}

fn by_bindings(one: &Tried, other: &Tried) -> Ordering {
    one.bindings.cmp(&other.bindings)
}

fn in_this_round(kept: &[Event], event: &Event) -> bool {
    kept.iter().rev().take_while(|earlier| !matches!(earlier, Event::Began { .. })).any(|earlier| earlier == event)
}

fn compare(recorded: &[Event], again: &[Event], prompts_compared: bool) -> Found {
    let longest = recorded.len().max(again.len());
    let at = (0..longest).find(|i| recorded.get(*i) != again.get(*i));
    let difference =
        at.map(|event| Difference { event, recorded: recorded.get(event).cloned(), again: again.get(event).cloned() });
    let agrees = difference.is_none();
    let verification = Verification::default();
    Found { recorded: recorded.len(), again: again.len(), agrees, prompts_compared, difference, verification }
}

fn tell(found: &Found) {
    if !found.prompts_compared {
        say(
            "its prompts are not compared: the run was made with other templates than this program's, or with more than they hold",
        );
    }
    for difference in &found.verification.differences {
        say(&format!("the record does not follow from what it holds: {}", plain(difference)));
    }
    let Some(difference) = &found.difference else {
        say(&format!("the replay agrees with the record in all {} events", found.recorded));
        return;
    };
    say(&format!("the replay differs from the record at event {} (from 0, interruptions aside)", difference.event));
    for (name, event) in [("record", &difference.recorded), ("replay", &difference.again)] {
        let text =
            event.as_ref().map_or("nothing more".to_owned(), |event| serde_json::to_string(event).unwrap_or_default());
        let mut short: String = plain(&text).chars().take(300).collect();
        if short.len() < text.len() {
            short.push_str("...");
        }
        say(&format!("  {name}: {short}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernelbench::{Candidate, Failure, Found as Came};

    #[test]
    fn a_search_is_the_same_in_whatever_order_it_was_noted_and_with_whatever_was_under_way_beside_a_wrong_one() {
        let failure = || Failure::Invalid { case: "all".to_owned() };
        let id = |at: u32| Candidate::new(at.to_string()).id();
        let tried = |at: u32, found| {
            let bindings = [("A".to_owned(), at.to_string().as_str().into())].into();
            Event::Tried { tried: Tried { candidate: id(at), bindings, found } }
        };
        let right = |at: u32| tried(at, Came::Ratio(f64::from(at)));
        let wrong = |at: u32| tried(at, Came::Failed(failure()));
        let evaluated = || Event::Evaluated { candidate: id(2), evaluation: Evaluation::Failed(failure()) };
        let ended = || Event::Ended { end: End::Stopped };
        assert_eq!(in_order(vec![right(3), right(1), ended()]), [right(1), right(3), ended()]);
        let alone = in_order(vec![right(1), wrong(2), evaluated(), ended()]);
        assert_eq!(in_order(vec![wrong(4), wrong(2), right(3), right(1), evaluated(), ended()]), alone);
        assert_eq!(alone, [wrong(2), evaluated(), ended()]);
        assert_eq!(in_order(vec![right(3), right(1)]), [right(1), right(3)], "left in the midst of it");
    }
}
