//! `warpsmith sglang validate`: an export, checked and timed inside SGLang

use crate::{
    command::say,
    config::Layers,
    exit::{Exit, Trouble},
};
use clap::Args;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The scripts that do it, in SGLang's Python.
const SCRIPTS: [(&str, &str); 9] = [
    ("validate.py", include_str!("../../sglang/python/validate/validate.py")),
    ("calls.py", include_str!("../../sglang/python/validate/calls.py")),
    ("checks.py", include_str!("../../sglang/python/validate/checks.py")),
    ("clock.py", include_str!("../../sglang/python/validate/clock.py")),
    ("layers.py", include_str!("../../sglang/python/validate/layers.py")),
    ("own.py", include_str!("../../sglang/python/validate/own.py")),
    ("times.py", include_str!("../../sglang/python/validate/times.py")),
    ("told.py", include_str!("../../sglang/python/validate/told.py")),
    ("warpsmith_pytest.py", include_str!("../../sglang/python/validate/warpsmith_pytest.py")),
];
/// How the scripts end where an output was wrong, or something that was asked could not be done.
const FAILED: i32 = 1;

/// `sglang validate`
#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// The folder of an export as plug-in.
    pub plugin: PathBuf,
    /// These operators alone.
    #[arg(long, value_name = "OP")]
    pub op: Vec<String>,
    /// SGLang's source tree, whose tests of the operator are run with the kernel in place.
    #[arg(long, value_name = "TREE")]
    pub tests: Option<PathBuf>,
    /// The Python that has SGLang [default: workshop.python, or python3].
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
    /// Where the result is written as JSON, with every sample.
    #[arg(long, value_name = "FILE", default_value = "validation.json")]
    pub result: PathBuf,
    /// How often each shape is timed: replays of a graph of many calls, interleaved.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub repetitions: u32,
    /// Take nothing from the tree but the text of the original, where that is not installed: its tests are not run.
    #[arg(long, requires = "tests")]
    pub no_tests: bool,
    /// Check only: no times.
    #[arg(long)]
    pub no_timing: bool,
}

/// What `--help` shows below the options.
pub(crate) const EXAMPLES: &str = "\
It installs the plug-in into a folder of its own, loads it as SGLang does, and compares it with the original on shapes that
neither the loop nor the certificate had. It ends with 1 where anything failed.

Example:
  warpsmith sglang validate plugin --op silu_and_mul --tests ~/sglang --result silu.json";

/// Runs the scripts and says how they ended.
pub(super) fn validate(arguments: &ValidateArgs, layers: &Layers) -> Result<Exit, Trouble> {
    if !arguments.plugin.join("pyproject.toml").is_file() {
        let why = "this is no export as plug-in: make one with `warpsmith sglang export RUN --as plugin -o DIR`";
        return Err(Trouble::usage(format!("{}: {why}", arguments.plugin.display())));
    }
    let work = env::temp_dir().join(format!("warpsmith-validate-{}", std::process::id()));
    let ended = lay(&work).and_then(|()| start(arguments, &super::python(arguments.python.as_deref(), layers), &work));
    let _ = fs::remove_dir_all(&work);
    let told = || say(&format!("written    {}", arguments.result.display()));
    match ended? {
        Some(0) => {
            told();
            Ok(Exit::Done)
        }
        Some(FAILED) => {
            told();
            Ok(Exit::NothingCorrect)
        }
        _ => Err(Trouble::machine("the validation broke off; what it printed says where")),
    }
}

fn lay(work: &Path) -> Result<(), Trouble> {
    let wrong = |e| Trouble::machine(format!("{}: cannot write the scripts there: {e}", work.display()));
    fs::create_dir_all(work).map_err(wrong)?;
    SCRIPTS.iter().try_for_each(|(name, text)| fs::write(work.join(name), text)).map_err(wrong)
}

fn start(arguments: &ValidateArgs, python: &str, work: &Path) -> Result<Option<i32>, Trouble> {
    let mut command = Command::new(python);
    command.arg(work.join("validate.py")).arg("--plugin").arg(&arguments.plugin).arg("--result").arg(&arguments.result);
    command.arg("--work").arg(work).arg("--repetitions").arg(arguments.repetitions.to_string());
    if let Some(tests) = &arguments.tests {
        command.arg("--tests").arg(tests);
    }
    command.args(arguments.op.iter().flat_map(|op| ["--op", op.as_str()]));
    for (flag, given) in [("--no-tests", arguments.no_tests), ("--no-timing", arguments.no_timing)] {
        if given {
            command.arg(flag);
        }
    }
    let status = command.status().map_err(|e| {
        Trouble::machine(format!("{python}: cannot be started: {e}; name SGLang's Python with --python"))
    })?;
    Ok(status.code())
}
