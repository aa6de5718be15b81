//! Where did the time and the money go?

use crate::{quantity, scores::spent::lay_there};
use agents::{
    event::{Event, Line},
    lease::Work,
    llm::{CallId, Role, Usage},
};
use serde::Serialize;

/// What a stretch of time was spent on. Everything between one event and the next belongs to the one that it led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// Waiting for a model's reply.
    Model(Role),
    /// Building, checking and timing the reference.
    Reference,
    /// Building, checking and timing candidates.
    Examine,
    /// Profiling.
    Profile,
    /// Examining the best anew.
    Certify,
    /// Broken off, until it was resumed.
    Away,
    /// The program itself.
    Own,
}

impl Activity {
    const ALL: [Self; 10] = [
        Self::Model(Role::Coder),
        Self::Model(Role::Judge),
        Self::Model(Role::Tester),
        Self::Model(Role::Planner),
        Self::Reference,
        Self::Examine,
        Self::Profile,
        Self::Certify,
        Self::Away,
        Self::Own,
    ];

    fn describe(self) -> String {
        match self {
            Self::Model(role) => format!("model, as {}", role.name()),
            Self::Reference => "reference: build, check, time".into(),
            Self::Examine => "candidates: build, check, time".into(),
            Self::Profile => "profile".into(),
            Self::Certify => "certificate".into(),
            Self::Away => "broken off".into(),
            Self::Own => "the program itself".into(),
        }
    }
}

/// How long each activity took, in milliseconds.
pub(super) fn times(lines: &[Line]) -> Vec<(Activity, u64)> {
    let spans: Vec<(Activity, u64)> = lines.windows(2).map(|pair| span(&pair[0], &pair[1])).collect();
    let total = |of: Activity| spans.iter().filter(|(activity, _)| *activity == of).map(|(_, ms)| ms).sum();
    Activity::ALL.into_iter().map(|activity| (activity, total(activity))).filter(|(_, ms)| *ms > 0).collect()
}

fn span(before: &Line, after: &Line) -> (Activity, u64) {
    let ms = u64::try_from(after.at_ms - before.at_ms).unwrap_or(0);
    let activity = match (&before.event, &after.event) {
        (before, after) if lay_there(before, after) => Activity::Away,
        (_, Event::Answered { call, .. }) | (Event::Asked { call, .. }, _) => Activity::Model(call.role),
        (_, Event::Spent { work, .. }) => match work {
            Work::Prepare => Activity::Reference,
            Work::Build | Work::Examine | Work::Check => Activity::Examine,
            Work::Profile => Activity::Profile,
            Work::Certify => Activity::Certify,
        },
        (_, Event::Prepared { .. }) => Activity::Reference,
        (_, Event::Tuned { .. } | Event::Tried { .. } | Event::Checked { .. } | Event::Evaluated { .. }) => {
            Activity::Examine
        }
        (_, Event::Profiled { .. }) => Activity::Profile,
        (_, Event::Certified { .. }) => Activity::Certify,
        _ => Activity::Own,
    };
    (activity, ms)
}

/// The bar of all activities and its legend.
#[derive(Serialize)]
pub(super) struct TimeBar {
    total: String,
    parts: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    /// Which colour, from 0.
    colour: usize,
    /// Where it begins and how long it is, in thousandths of the bar.
    from: f64,
    share: f64,
    percent: String,
    what: String,
    time: String,
}

impl TimeBar {
    /// `None` where the record spans no time.
    pub(super) fn of(lines: &[Line]) -> Option<Self> {
        let colour = |activity| Activity::ALL.iter().position(|known| *known == activity).unwrap_or(0);
        Self::of_parts(
            times(lines).into_iter().map(|(activity, ms)| (colour(activity), activity.describe(), ms)).collect(),
        )
    }

    /// Of these parts, each with its colour, what it is, and milliseconds; `None` where they are none.
    pub(super) fn of_parts(parts: Vec<(usize, String, u64)>) -> Option<Self> {
        let total: u64 = parts.iter().map(|(_, _, ms)| ms).sum();
        let mut from = 0.0;
        let parts = parts.into_iter().map(|(colour, what, ms)| {
            let share = ms as f64 / total as f64 * 1000.0;
            from += share;
            Part {
                colour,
                from: super::chart::round1(from - share),
                share: super::chart::round1(share),
                percent: format!("{:.1} %", share / 10.0),
                what,
                time: quantity::wait(ms),
            }
        });
        (total > 0).then(|| Self { parts: parts.collect(), total: quantity::wait(total) })
    }
}

/// What one role's calls took.
#[derive(Default, Serialize)]
pub(super) struct Bill {
    role: &'static str,
    calls: u64,
    requests: u64,
    input: String,
    cached: String,
    output: String,
    reasoning: String,
    cost: String,
}

/// One line for each role that asked, and one for all where there are several.
pub(super) fn bills(lines: &[Line]) -> Vec<Bill> {
    let roles: Vec<Role> = Role::ALL.into_iter().filter(|role| answers(lines, &[*role]).next().is_some()).collect();
    let mut bills: Vec<Bill> = roles.iter().map(|role| bill(role.name(), answers(lines, &[*role]))).collect();
    if bills.len() > 1 {
        bills.push(bill("all", answers(lines, &roles)));
    }
    bills
}

struct Answer {
    requests: u32,
    usage: Option<Usage>,
    usd: Option<f64>,
}

fn answers<'a>(lines: &'a [Line], roles: &'a [Role]) -> impl Iterator<Item = Answer> + 'a {
    lines.iter().filter_map(|line| match &line.event {
        Event::Answered { call: CallId { role, .. }, usage, usd, requests, .. } if roles.contains(role) => {
            Some(Answer { requests: *requests, usage: *usage, usd: *usd })
        }
        _ => None,
    })
}

fn bill(role: &'static str, answers: impl Iterator<Item = Answer>) -> Bill {
    let answers: Vec<Answer> = answers.collect();
    let usages: Vec<Usage> = answers.iter().filter_map(|answer| answer.usage).collect();
    let tokens = |of: fn(&Usage) -> u64| {
        if usages.is_empty() { "not counted".into() } else { quantity::count(usages.iter().map(of).sum()) }
    };
    Bill {
        role,
        calls: answers.len() as u64,
        requests: answers.iter().map(|answer| u64::from(answer.requests)).sum(),
        input: tokens(|usage| usage.input_tokens),
        cached: tokens(|usage| usage.cached_tokens),
        output: tokens(|usage| usage.output_tokens),
        reasoning: tokens(|usage| usage.reasoning_tokens),
        cost: cost(&answers),
    }
}

fn cost(answers: &[Answer]) -> String {
    let known: Vec<f64> = answers.iter().filter_map(|answer| answer.usd).collect();
    match answers.len() - known.len() {
        0 => quantity::usd(known.iter().sum()),
        unknown if known.is_empty() && unknown > 0 => "price unknown".into(),
        unknown => format!("{}, and {unknown} calls of unknown price", quantity::usd(known.iter().sum())),
    }
}
