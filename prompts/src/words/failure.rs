//! The words for a failure: what went wrong, where, and by which limit.

use super::text::{cut_log, one_line, without_arguments};
use kernelbench::{Failure, Spread};
use minijinja::{Value, context};
use std::borrow::Cow;

/// The values that `failure.md` names.
pub(crate) fn failure(failure: &Failure) -> Value {
    let (log_title, log) = log(failure);
    context! {
        short => short(failure),
        summary => summary(failure),
        details => details(failure),
        log_title => log_title,
        log => cut_log(&log),
    }
}

/// What went wrong, after "it".
fn short(failure: &Failure) -> &'static str {
    match failure {
        Failure::Build { .. } => "does not build",
        Failure::Interface { .. } => "lacks the entry point asked for",
        Failure::Raised { .. } => "raises an exception",
        Failure::Crash { .. } => "crashes",
        Failure::Exit { .. } => "ends its process",
        Failure::Hang { .. } => "does not return in time",
        Failure::Memory { .. } => "asks for too much memory",
        Failure::Flood { .. } => "prints without end",
        Failure::Forbidden { .. } => "does what a kernel may not do",
        Failure::Library { .. } => "uses a library that it may not use",
        Failure::Mismatch { .. } => "gives wrong results",
        Failure::InputChanged { .. } => "changes an input",
        Failure::OutOfBounds { .. } => "writes out of bounds",
        Failure::Clocks { .. } | Failure::BelowFloor { .. } => "cannot be timed honestly",
        Failure::Invalid { .. } => "calls its configuration invalid",
        Failure::Sanitizer { .. } => "has a memory error",
    }
}

fn summary(failure: &Failure) -> String {
    let text = match failure {
        Failure::Build { .. } => "Build error: the file does not compile or link.".into(),
        Failure::Interface { .. } => "Interface error: the file builds, but not with the entry point asked for.".into(),
        Failure::Raised { stage, error, .. } => {
            format!("Exception: the file raised {} in its {stage}.", without_arguments(error))
        }
        Failure::Crash { case, signal, .. } => format!("Crash: the kernel died of {signal} on case {case}."),
        Failure::Exit { case, status, .. } => {
            format!("Exit: instead of returning, the kernel ended its process with status {status} on case {case}.")
        }
        Failure::Hang { case, deadline_ms } => format!(
            "Hang: the kernel did not return on case {case}. It was ended after its limit of {deadline_ms} ms, which is many \
             times what the reference needs."
        ),
        Failure::Memory { case, limit_mib } => {
            format!("Out of memory: the kernel asked for more than {limit_mib} MiB on case {case}.")
        }
        Failure::Flood { case, .. } => format!("Output flood: the kernel printed without end on case {case}."),
        Failure::Forbidden { case, what } => {
            format!("Forbidden: the kernel tried to {what} on case {case}. A kernel only computes.")
        }
        Failure::Library { library, how } => format!(
            "Forbidden library: the kernel {how}. It is to be faster than {library}, and may not use it: write the computation \
             itself."
        ),
        Failure::Mismatch { case, argument, while_timed, .. } => {
            let again = if *while_timed { ", in a later call after all first calls had been right" } else { "" };
            format!("Wrong result: output `{argument}` differs from the reference on case {case}{again}.")
        }
        Failure::InputChanged { case, argument } => {
            format!("Input changed: the kernel wrote to `{argument}`, which it may only read, on case {case}.")
        }
        Failure::OutOfBounds { case, argument } => {
            format!("Out of bounds: the kernel wrote before or behind `{argument}` on case {case}.")
        }
        Failure::Clocks { case, inside_ns, outside_ns } => format!(
            "Clocks disagree: the kernel takes {inside_ns} ns seen from inside its process and {outside_ns} ns from outside, \
             on case {case}. Work is left for later, or the clock is tampered with."
        ),
        Failure::BelowFloor { case, measured_ns, floor_ns } => format!(
            "Too good to be true: on case {case} the kernel returns after {measured_ns} ns, and this machine needs \
             {floor_ns} ns to move its inputs and outputs once. Work is skipped."
        ),
        Failure::Invalid { case } => format!(
            "Invalid configuration: the entry returned WS_INVALID on case {case} with every value of its tuning parameters \
             that was tried."
        ),
        Failure::Sanitizer { tool, .. } => format!("Memory error: the {tool} sanitizer stopped the kernel."),
    };
    one_line(&text)
}

fn details(failure: &Failure) -> Vec<String> {
    let Failure::Mismatch { wrong, total, worst_at, expected, got, unwritten, nan, spread, .. } = failure else {
        return Vec::new();
    };
    let share = 100.0 * *wrong as f64 / (*total).max(1) as f64;
    let place = if spread.is_unknown() { worst_at.to_string() } else { list(&spread.index(*worst_at)) };
    let mut details = vec![
        format!("{wrong} of {total} elements are wrong ({share:.2} %)"),
        format!("worst at index {place}: expected {}, got {}", one_line(expected), one_line(got)),
    ];
    details.extend(where_they_lie(spread));
    if *unwritten > 0 {
        details.push(format!("{unwritten} elements were never written: they hold what was there before the call"));
    }
    if *nan > 0 {
        details.push(format!("{nan} elements are NaN"));
    }
    details
}

/// The largest errors, the shape, and the part of it that holds all wrong elements.
fn where_they_lie(spread: &Spread) -> Vec<String> {
    if spread.is_unknown() {
        return vec![];
    }
    let error = |name: &str, error: Option<f64>| error.map(|error| format!("largest {name} error {error:.3e}"));
    let errors = [error("absolute", spread.max_absolute), error("relative", spread.max_relative)];
    let errors: Vec<String> = errors.into_iter().flatten().collect();
    let along = |(axis, (length, [first, last])): (usize, (&u64, &[u64; 2]))| {
        let all = if *first == 0 && last + 1 == *length { " (from end to end)" } else { "" };
        format!("axis {axis}: {first} to {last}{all}")
    };
    let ranges: Vec<String> = spread.shape.iter().zip(&spread.ranges).enumerate().map(along).collect();
    let place =
        format!("the output's shape is {}; the wrong elements lie in {}", list(&spread.shape), ranges.join(", "));
    errors.is_empty().then(Vec::new).unwrap_or_else(|| vec![errors.join(", ")]).into_iter().chain([place]).collect()
}

/// Numbers as Python writes a tuple.
fn list(numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    format!("({}{})", numbers.join(", "), if numbers.len() == 1 { "," } else { "" })
}

/// The log's title and text; empty where there is none.
fn log(failure: &Failure) -> (&'static str, Cow<'_, str>) {
    match failure {
        Failure::Build { log } => ("The compiler said", log.into()),
        Failure::Interface { log } => ("What is missing or different", log.into()),
        Failure::Raised { traceback, .. } => ("Python's traceback", without_arguments(traceback)),
        Failure::Crash { stderr, .. } | Failure::Exit { stderr, .. } => ("On standard error", stderr.into()),
        Failure::Sanitizer { finding, .. } => ("It found", finding.into()),
        _ => ("", "".into()),
    }
}
