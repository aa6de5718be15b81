//! Which metrics go with the runtime, on one page that needs nothing but itself?
//!
//! The tables are those of the paper's appendix E.2, a task each; the scatter plots show what is behind a coefficient.

mod page;
mod scatter;

use crate::{Evidence, Wish};
use metrics::set::Data;
use minijinja::{Environment, UndefinedBehavior, Value, context, value::Serde};

/// The page as one self-contained HTML file.
///
/// # Panics
///
/// If a template of the program itself is broken: ours.
#[must_use]
pub fn html(evidence: &Evidence, data: &[Data], wish: &Wish) -> String {
    let mut pages = Environment::new();
    pages.set_undefined_behavior(UndefinedBehavior::Strict);
    let texts = [
        ("profiles.html", include_str!("report/profiles.html")),
        ("report.css", include_str!("../../../src/report/report.css")),
    ];
    for (name, text) in texts {
        pages.add_template(name, text).expect("the templates are part of the program and parse");
    }
    let page = Value::from(Serde(page::Page::of(evidence, data, wish)));
    let template = pages.get_template("profiles.html").expect("it was added above");
    template.render(context! { page => page }).expect("the page has every field the template reads")
}
