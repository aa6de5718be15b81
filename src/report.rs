//! What came of it, on one page that needs nothing but itself?
//!
//! A pure function from a record to HTML. Everything from outside (sources, replies, compiler output, names) goes through
//! the template's escaping; the charts are drawn by the template too, from positions computed here.

mod apart;
pub mod batch;
mod chart;
mod claim;
mod curve;
pub mod file;
mod page;
mod picture;
mod round;
mod samples;
mod search;
pub(crate) mod so_far;
mod spent;
mod spread;

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

pub(crate) use round::{advice, details, fields, invented};

pub use apart::apart;

use agents::{event::Line, trajectory::Trajectory};
use kernelbench::Hash;
use minijinja::{Environment, UndefinedBehavior, Value, context, value::Serde};

/// What a report is made from.
pub struct ReportInput<'a> {
    /// The story: the fold of the events.
    pub trajectory: &'a Trajectory,
    /// The events with their times, in order: where the time and the money went.
    pub lines: &'a [Line],
    /// The text that was kept under a name: sources, the task, the policy. `None` where the record lacks it.
    pub fetch: &'a dyn Fn(&Hash) -> Option<String>,
    /// What one needs to do it again, by name: the program's version, the compiler's, the command line.
    pub facts: &'a [(String, String)],
}

/// The report as one self-contained HTML file.
///
/// # Panics
///
/// If a template of the program itself is broken: ours.
#[must_use]
pub fn html(input: &ReportInput) -> String {
    render("report.html", context! { page => Value::from(Serde(page::Page::of(input, ""))) })
}

/// What lies behind one round, as a part of a page; `None` where there is no such round.
fn round_part(input: &ReportInput, number: u32) -> Option<String> {
    let round = input.trajectory.rounds.iter().find(|round| round.number == number)?;
    let round = round::RoundView::of(input, round);
    Some(render("inside.html", context! { r => Value::from(Serde(round)) }))
}

/// The rounds of a run as a picture (SVG), light or dark as its reader's desktop is: speedups with their intervals, and what
/// the Judge said before each. `None` before the first round has ended.
///
/// # Panics
///
/// If a template of the program itself is broken: ours.
#[must_use]
pub fn picture(input: &ReportInput) -> Option<String> {
    let picture = picture::Picture::of(input)?;
    Some(render("picture.svg", context! { picture => Value::from(Serde(picture)) }))
}

/// A template of the program, rendered.
fn render(name: &str, values: Value) -> String {
    let mut pages = Environment::new();
    pages.set_undefined_behavior(UndefinedBehavior::Strict);
    for (name, text) in [
        ("report.html", include_str!("report/report.html")),
        ("batch.html", include_str!("report/batch.html")),
        ("member.html", include_str!("report/member.html")),
        ("task.html", include_str!("report/task.html")),
        ("picture.svg", include_str!("report/picture.svg")),
        ("charts.html", include_str!("report/charts.html")),
        ("inside.html", include_str!("report/inside.html")),
        ("round.html", include_str!("report/round.html")),
        ("report.css", include_str!("report/report.css")),
    ] {
        pages.add_template(name, text).expect("the templates are part of the program and parse");
    }
    let template = pages.get_template(name).expect("it was added above");
    template.render(values).expect("the page has every field the template reads")
}
