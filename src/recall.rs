//! What was answered and found out before?

use crate::store::{Blobs, Record, RunFolder, StoreError};
use agents::{
    event::{End, Event, LookedUp},
    llm::{
        CallId, Purpose, Reply,
        replay::RecordedAnswer,
        seeded::{Seeds, is_of_a_seed},
    },
    validator::{By, Validator},
};
use kernelbench::{Bindings, Failure, Findings, Hash, Tried};
use metrics::Machine;
use prompts::{Lookup, Shelf};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// Every answered question of a record, with the texts.
///
/// # Errors
///
/// If a text is missing or damaged.
pub fn answers(record: &Record) -> Result<Vec<RecordedAnswer>, StoreError> {
    let answered = record.events().filter_map(|event| match event {
        Event::Answered { call, prompt, reply, model, usage, usd, .. } => {
            Some((call, prompt, reply, model, usage, usd))
        }
        _ => None,
    });
    answered
        .map(|(id, prompt, reply, model, usage, usd)| {
            let (prompt, reply) = (record.blobs.fetch(&prompt)?, record.blobs.fetch(&reply)?);
            Ok(RecordedAnswer { id, prompt, reply, model, usage, usd })
        })
        .collect()
}

/// The questions that no answer came to, in a record that ended there because what answered held no further reply.
#[must_use]
pub fn unanswered(record: &Record) -> Vec<CallId> {
    let (mut asked, mut unanswered) = (None, vec![]);
    for event in record.events() {
        match event {
            Event::Asked { call } => asked = Some(call),
            Event::Answered { .. } => asked = None,
            Event::Ended { end: End::RecordEnds } => unanswered.extend(asked.take()),
            _ => {}
        }
    }
    unanswered
}

/// The Coder's first replies of a run's tasks and the approaches that they were written by, each with who gave it.
///
/// # Errors
///
/// If a record or a text is missing or damaged.
pub fn seeds(run: &RunFolder) -> Result<Seeds, StoreError> {
    let mut seeds = Seeds::new();
    for task in run.tasks()?.iter().filter(|task| run.path().join("tasks").join(task).join("events.jsonl").exists()) {
        let record = run.record(task)?;
        let mut in_the_first = false;
        for event in record.events() {
            match event {
                Event::Began { round, .. } => in_the_first = round == 1,
                Event::Answered { call, reply, model, .. } if is_of_a_seed(&call) => {
                    seeds.insert((call.task, call.purpose, call.attempt), (record.blobs.fetch(&reply)?, model));
                }
                // The candidate is in a later reply, and those before are none of it.
                Event::LookedUp(_) if in_the_first => {
                    seeds.retain(|(of, purpose, _), _| of != task || *purpose != Purpose::Seed);
                }
                _ => {}
            }
        }
    }
    Ok(seeds)
}

/// The same by question, for a run that goes on: they are not asked again.
///
/// # Errors
///
/// If a text is missing or damaged.
pub fn known(record: &Record) -> Result<HashMap<CallId, (Hash, Reply)>, StoreError> {
    let mut known = HashMap::new();
    for event in record.events() {
        if let Event::Answered { call, prompt, reply, model, usage, usd, latency_ms, requests } = event {
            let text = record.blobs.fetch(&reply)?;
            known.insert(call, (prompt, Reply { text, model, usage, usd, latency_ms, requests }));
        }
    }
    Ok(known)
}

/// Those of these events whose replies are whole, by question.
#[must_use]
pub fn known_of(events: &[Event], blobs: &Blobs) -> HashMap<CallId, (Hash, Reply)> {
    let reply = |event: &Event| match event.clone() {
        Event::Answered { call, prompt, reply, model, usage, usd, latency_ms, requests } => {
            let text = blobs.fetch(&reply).ok()?;
            Some((call, (prompt, Reply { text, model, usage, usd, latency_ms, requests })))
        }
        _ => None,
    };
    events.iter().filter_map(reply).collect()
}

/// Who answered in this record, each once.
#[must_use]
pub fn who_answered(record: &Record) -> Vec<String> {
    let models = record.events().filter_map(|event| match event {
        Event::Answered { model, .. } => Some(model),
        _ => None,
    });
    models.collect::<BTreeSet<_>>().into_iter().collect()
}

/// What a script printed, or how it failed, by the hash of the script and its values.
type Printed = ((Hash, Bindings), Result<String, Failure>);

/// What scripts printed in this record, by the hash of the script and its values.
///
/// # Errors
///
/// If a text is missing or damaged.
pub fn printed(record: &Record) -> Result<Vec<Printed>, StoreError> {
    let printed = record.events().filter_map(|event| match event {
        Event::Printed { script, bindings, text } => Some(((script, bindings), text)),
        _ => None,
    });
    let told = |text: Result<Hash, Failure>| match text {
        Ok(text) => record.blobs.fetch(&text).map(Ok),
        Err(failure) => Ok(Err(failure)),
    };
    printed.map(|(key, text)| Ok((key, told(text)?))).collect()
}

/// What the Coder looked up in this record, and what it was shown; what it asked of the run itself comes about again.
///
/// # Errors
///
/// If a text is missing or damaged.
pub fn looked_up(record: &Record) -> Result<BTreeMap<Lookup, String>, StoreError> {
    let looked_up = record.events().filter_map(|event| match event {
        Event::LookedUp(looked_up) if looked_up.lookup.look_up != Shelf::QueryReplay => Some(looked_up),
        _ => None,
    });
    looked_up.map(|LookedUp { lookup, found }| Ok((lookup, record.blobs.fetch(&found)?))).collect()
}

/// The validators that looked at its candidates, who say again what they said: as many samples as each took.
#[must_use]
pub fn validators(events: impl IntoIterator<Item = Event>) -> Arc<[Validator]> {
    let (mut all, mut looks): (Vec<Validator>, BTreeMap<String, usize>) = (vec![], BTreeMap::new());
    for event in events {
        match event {
            Event::Began { .. } => looks.clear(),
            Event::Validated { candidate, validator: name, found, .. } => {
                let at = all.iter().position(|known| known.name == name).unwrap_or_else(|| {
                    all.push(Validator { name: name.clone(), by: By::Record(vec![]), samples: 0 });
                    all.len() - 1
                });
                let looks = looks.entry(name).or_default();
                *looks += 1;
                all[at].samples = all[at].samples.max(*looks);
                if let By::Record(known) = &mut all[at].by {
                    known.push((candidate, found));
                }
            }
            _ => {}
        }
    }
    all.into()
}

/// What the workshop found, by the events of one task, and the machine that it ran on; `None` without an opening.
#[must_use]
pub fn findings(events: impl IntoIterator<Item = Event>) -> Option<(Machine, Findings)> {
    let mut findings = Findings::default();
    let mut found = None;
    let mut timed = BTreeSet::new();
    for event in events {
        match event {
            Event::Opened { machine, .. } => found = Some(machine),
            Event::SuiteFrozen { suite, notes } => (findings.suite, findings.suite_notes) = (Some(suite), notes),
            Event::Prepared { baseline } => findings.baseline = Some(baseline),
            Event::Began { .. } => timed.clear(),
            Event::Checked { candidate, failure, .. } => findings.checks.push((candidate, failure)),
            Event::Tried { tried } => {
                findings.evaluations.push((tried.candidate.clone(), Ok(tried.evaluation())));
                timed.insert(tried.candidate);
            }
            Event::Retimed { tried } => findings.evaluations.push((tried.candidate.clone(), Ok(tried.evaluation()))),
            // Those of a workflow stand in the record one by one already.
            Event::Tuned { tried, .. } => {
                let others = tried.into_iter().filter(|tried| !timed.contains(&tried.candidate));
                let found = others.map(|tried| (tried.candidate.clone(), Ok(tried.evaluation())));
                findings.evaluations.extend(found);
            }
            Event::Simulated { candidate: Some(candidate), found, .. } => {
                let evaluation = found
                    .map(|found| Tried { candidate: candidate.clone(), bindings: Bindings::new(), found }.evaluation());
                findings.evaluations.push((candidate, evaluation));
            }
            Event::Evaluated { candidate, evaluation } => findings.evaluations.push((candidate, Ok(evaluation))),
            Event::NotTimed { candidate, why } => findings.evaluations.push((candidate, Err(why))),
            Event::Profiled { candidate, profile: Ok(profile) } => findings.profiles.push((candidate, profile)),
            Event::Certified { certificate, .. } => findings.certificates.push(certificate),
            _ => {}
        }
    }
    found.map(|machine| (machine, findings))
}
