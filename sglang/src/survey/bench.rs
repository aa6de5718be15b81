//! Does a whole model serve faster with a plug-in than without?

use super::engine;
use crate::{Error, speedups};
use metrics::{Speedup, quantity};
use serde::Deserialize;
use std::{collections::BTreeMap, fs, path::Path, process::Command};

/// What is served, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// A configuration's name, file or folder.
    pub model: &'a str,
    /// What the engine is told beside it.
    pub settings: &'a engine::Settings,
    /// The folder of an export as plug-in.
    pub plugin: &'a Path,
    /// Where everything is written.
    pub out: &'a Path,
    /// Requests at once.
    pub batch: u32,
    /// Tokens of each prompt.
    pub tokens: u32,
    /// Tokens of each answer, two at least.
    pub new: u32,
    /// Processes with the plug-in off, and as many with it on.
    pub rounds: u32,
}

/// What the script found.
#[derive(Debug, Deserialize)]
struct Found {
    samples: BTreeMap<String, Vec<Sample>>,
    difference: Option<serde_json::Value>,
    own_difference: Option<serde_json::Value>,
    counters: BTreeMap<String, u64>,
}

/// What one process measured, in microseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Sample {
    first_us: f64,
    token_us: f64,
}

/// Serves it off and on in turn, and says in lines what came of it.
///
/// # Errors
/// What the machine lacks, or what the engine said when it failed.
pub fn bench(order: &Order<'_>, python: &str) -> Result<Vec<String>, Error> {
    let (plugin, out) = (order.plugin, order.out);
    if !plugin.join("pyproject.toml").is_file() {
        let why = "this is no export as plug-in: `warpsmith sglang export RUN --as plugin` makes one";
        return Err(Error::request(format!("{}: {why}", plugin.display())));
    }
    // To pip a bare name is a package's, and the scripts run elsewhere.
    let absolute =
        |place: &Path| std::path::absolute(place).map_err(|e| Error::files(format!("{}: {e}", place.display())));
    let (plugin, out) = (&absolute(plugin)?, &absolute(out)?);
    engine::prepare(order.model, order.settings, out)?;
    let mut command = Command::new(python);
    command.arg(out.join("scripts/bench.py")).arg(out.join("model")).arg(plugin).arg(out);
    command.args([order.batch, order.tokens, order.new, order.rounds].map(|number| number.to_string()));
    let broke = engine::driven(command, python, out)?;
    let place = out.join("bench.json");
    let wrong = |e: String| Error::machine(format!("{}: {e}: the driver ended without a result", place.display()));
    match (fs::read_to_string(&place), broke) {
        (Ok(text), None) => said(&text).map_err(wrong),
        (Err(e), None) => Err(wrong(e.to_string())),
        (Ok(text), Some(why)) if is_enough(&text) => {
            let mut lines = said(&text).map_err(wrong)?;
            let why = why.lines().last().unwrap_or_default();
            lines.push(format!("note       not all processes that were asked for: {why}"));
            Ok(lines)
        }
        (_, Some(why)) => Err(Error::machine(why)),
    }
}

/// Whether there is an interval to tell: two processes of each kind.
fn is_enough(text: &str) -> bool {
    let found: Result<Found, _> = serde_json::from_str(text);
    found.is_ok_and(|found| ["off", "on"].iter().all(|name| found.samples.get(*name).is_some_and(|all| all.len() > 1)))
}

/// The lines for a result.
fn said(text: &str) -> Result<Vec<String>, String> {
    let found: Found = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let arm = |name: &str| found.samples.get(name).cloned().unwrap_or_default();
    let speedup = |what: fn(&Sample) -> f64| {
        let timing = |name: &str| speedups::timing(arm(name).iter().map(what));
        Speedup::over(&[(&timing("off"), &timing("on"))], speedups::STATISTIC).ok_or("it has no samples".to_owned())
    };
    let (first, later) = (speedup(|one| one.first_us)?, speedup(|one| one.token_us)?);
    let mut lines = vec![
        format!("decode     tokens a second, on over off: {}", quantity::speedup(&later)),
        format!("prefill    time to the first token, off over on: {}", quantity::speedup(&first)),
    ];
    lines.push(match (&found.difference, &found.own_difference) {
        (None, _) => "tokens     equal with the plug-in off and on".to_owned(),
        (Some(at), None) => format!("tokens     DIFFERENT with the plug-in on, first at {at}; two runs without it are equal"),
        (Some(at), Some(own)) => {
            format!("tokens     different with the plug-in on, first at {at}; but so are two runs without it, first at {own}")
        }
    });
    lines
        .extend(found.counters.iter().map(|(what, times)| format!("counted    {}: {times}", kernelbench::plain(what))));
    if !found.counters.iter().any(|(what, times)| what.ends_with(": hit") && *times > 0) {
        lines.push("note       the kernel served no call: these times say nothing of it".to_owned());
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_says_what_got_faster_and_whether_the_tokens_are_the_same() {
        let arm =
            |us: f64| format!("[{{\"first_us\": 100, \"token_us\": {us}}}, {{\"first_us\": 100, \"token_us\": {us}}}]");
        let result = |difference: &str, hits: u32| {
            format!(
                "{{\"samples\": {{\"off\": {}, \"on\": {}}}, \"difference\": {difference}, \"own_difference\": null, \"counters\": {{\"silu_and_mul bf16: hit\": {hits}}}}}",
                arm(12.0),
                arm(10.0)
            )
        };
        let lines = said(&result("null", 7)).unwrap_or_default();
        assert!(
            lines[0].starts_with("decode     tokens a second, on over off: 1.2") && lines[1].contains("1.0"),
            "{lines:?}"
        );
        assert!(lines[2].contains("equal") && lines[3].ends_with(": 7") && lines.len() == 4, "{lines:?}");
        let lines = said(&result("{\"request\": 0, \"token\": 3}", 0)).unwrap_or_default();
        assert!(lines[2].contains("DIFFERENT") && lines[4].contains("served no call"), "{lines:?}");
        assert!(said("{}").is_err());
    }

    #[test]
    fn the_driver_is_told_whole_paths_and_what_the_engine_is_to_be_told() {
        use std::os::unix::fs::PermissionsExt;
        let here = tempfile::tempdir_in(".").expect("a folder");
        let inside = |name: &str| Path::new(here.path().file_name().unwrap_or_default()).join(name);
        fs::create_dir(inside("plugin")).expect("a plug-in");
        fs::write(inside("plugin/pyproject.toml"), "").expect("a plug-in");
        let python = here.path().join("python");
        fs::write(&python, "#!/bin/sh\necho \"$3 $4\" >&2; exit 1\n").expect("a driver");
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("a driver");
        let settings = [("attention_backend".to_owned(), "triton".into())].into_iter().collect();
        let (plugin, out) = (&inside("plugin"), &inside("out"));
        let order =
            Order { model: "llama-3.1-8b", settings: &settings, plugin, out, batch: 1, tokens: 8, new: 2, rounds: 2 };
        let why = bench(&order, &python.display().to_string()).expect_err("a driver that fails").to_string();
        let last: Vec<&str> = why.lines().last().unwrap_or_default().split(' ').collect();
        assert!(last.len() == 2 && last.iter().all(|path| path.starts_with('/')), "{why}");
        assert!(last[0].ends_with("plugin") && last[1].ends_with("out"), "{why}");
        assert!(fs::read_to_string(out.join("settings.json")).is_ok_and(|text| text.contains("triton")));
    }
}
