//! A survey, as people read it.

use super::{Row, Stage, pairs::Pair};
use std::fmt::Write;

/// Kernels that are shown, unless all are asked for.
const MOST: usize = 15;

/// A stage's tables.
#[must_use]
pub fn stage(stage: &Stage, all: bool) -> String {
    let mut text = String::new();
    let busy = stage.busy.map_or(String::new(), |busy| format!(", {:.0} % of the time a kernel ran", busy * 100.0));
    let gpu = match (stage.gpu.as_str(), stage.has_roofline) {
        ("", _) => "the trace names no GPU; --gpu NAME gives rooflines".to_owned(),
        (name, false) => format!("{name} is not in the table of GPUs; --gpu NAME gives rooflines"),
        (name, true) => name.to_owned(),
    };
    let _ = writeln!(text, "{}: {} ({gpu}): {:.1} us of kernels a step{busy}", stage.file, stage.stage, stage.us);
    let _ = writeln!(
        text,
        "{:>6} {:>9} {:>6} {:>9}  {:<44} can be taken out",
        "calls", "us", "share", "roofline", "kernel"
    );
    let shown = if all { stage.kernels.len() } else { MOST };
    for row in stage.kernels.iter().take(shown) {
        text += &kernel(row);
    }
    if let Some(rest) = stage.kernels.get(shown..).filter(|rest| !rest.is_empty()) {
        let share: f64 = rest.iter().map(|row| row.share).sum();
        let _ = writeln!(text, "       and {} more with {:.1} % (--all)", rest.len(), share * 100.0);
    }
    text += &pairs(&stage.pairs, if all { stage.pairs.len() } else { MOST });
    text
}

fn kernel(row: &Row) -> String {
    let roofline = row.of_roofline.map_or("-".to_owned(), |part| format!("{:.0} %", part * 100.0));
    let name = if row.operator.is_empty() { row.kernel.clone() } else { format!("{} ({})", row.operator, row.kernel) };
    let standing = match (&row.standing.why_not, row.standing.operators.as_slice()) {
        (Some(why), _) => format!("no: {}", why.split(';').next().unwrap_or_default()),
        (None, [one]) => format!("yes: {one}"),
        (None, several) => format!("yes: one of {}", several.join(", ")),
    };
    let share = format!("{:.1} %", row.share * 100.0);
    format!("{:>6} {:>9.1} {share:>6} {roofline:>9}  {:<44} {standing}\n", amount(row.calls), row.us, cut(&name))
}

fn pairs(pairs: &[Pair], shown: usize) -> String {
    if pairs.is_empty() {
        return "no two kernels run after one another that could be one\n".into();
    }
    let mut text = "run after one another and could be one:\n".to_owned();
    for pair in pairs.iter().take(shown) {
        let saves = pair.saves_us.map_or(String::new(), |us| format!(", at most {us:.1} us of it need not be moved"));
        let chain = pair.chain.as_ref().map_or(String::new(), |name| format!("; can be taken out: {name}"));
        let share = pair.share * 100.0;
        let _ = writeln!(
            text,
            "{:>6} {:>9.1} {:>6}  {} then {}{saves}{chain}",
            amount(pair.calls),
            pair.us,
            format!("{share:.1} %"),
            pair.first,
            pair.second
        );
    }
    text
}

fn amount(calls: f64) -> String {
    if (calls - calls.round()).abs() < 1e-9 { format!("{calls:.0}") } else { format!("{calls:.1}") }
}

/// Names of kernels are as long as their authors like.
fn cut(name: &str) -> String {
    if name.chars().count() <= 44 { name.to_owned() } else { name.chars().take(43).chain(['…']).collect() }
}
