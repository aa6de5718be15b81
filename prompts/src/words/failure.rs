//! How does a failure read? Without times: the Coder sees this too, and judges no measurement (CudaForge §2.1).

use super::text::{cut_log, one_line};
use kernelbench::Failure;
use minijinja::{Value, context};

/// The values that `failure.md` names.
pub(crate) fn failure(failure: &Failure) -> Value {
    let (log_title, log) = log(failure);
    context! {
        short => short(failure),
        summary => summary(failure),
        details => details(failure),
        log_title => log_title,
        log => cut_log(log),
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
        Failure::Raised { stage, error, .. } => format!("Exception: the file raised {error} in its {stage}."),
        Failure::Crash { case, signal, .. } => format!("Crash: the kernel died of {signal} on case {case}."),
        Failure::Exit { case, status, .. } => {
            format!("Exit: instead of returning, the kernel ended its process with status {status} on case {case}.")
        }
        Failure::Hang { case, .. } => {
            format!("Hang: the kernel did not return on case {case}, in many times what the reference needs.")
        }
        Failure::Memory { case, limit_mib } => {
            format!("Out of memory: the kernel asked for more than {limit_mib} MiB on case {case}.")
        }
        Failure::Flood { case, .. } => format!("Output flood: the kernel printed without end on case {case}."),
        Failure::Forbidden { case, what } => {
            format!("Forbidden: the kernel tried to {what} on case {case}. A kernel only computes.")
        }
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
        Failure::Clocks { case, .. } => format!(
            "Clocks disagree: seen from inside and from outside its process, the kernel takes different times on case \
             {case}. Work is left for later, or the clock is tampered with."
        ),
        Failure::BelowFloor { case, .. } => format!(
            "Too good to be true: on case {case} the kernel returns sooner than this machine can move its inputs and \
             outputs once. Work is skipped."
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
    let Failure::Mismatch { wrong, total, worst_at, expected, got, unwritten, nan, .. } = failure else {
        return Vec::new();
    };
    let share = 100.0 * *wrong as f64 / (*total).max(1) as f64;
    let mut details = vec![
        format!("{wrong} of {total} elements are wrong ({share:.2} %)"),
        format!("worst at index {worst_at}: expected {}, got {}", one_line(expected), one_line(got)),
    ];
    if *unwritten > 0 {
        details.push(format!("{unwritten} elements were never written: they hold what was there before the call"));
    }
    if *nan > 0 {
        details.push(format!("{nan} elements are NaN"));
    }
    details
}

/// The log's title and text; empty where there is none.
fn log(failure: &Failure) -> (&'static str, &str) {
    match failure {
        Failure::Build { log } => ("The compiler said", log),
        Failure::Interface { log } => ("What is missing or different", log),
        Failure::Raised { traceback, .. } => ("Python's traceback", traceback),
        Failure::Crash { stderr, .. } | Failure::Exit { stderr, .. } => ("On standard error", stderr),
        Failure::Sanitizer { finding, .. } => ("It found", finding),
        _ => ("", ""),
    }
}
