//! Validation: an export, checked and timed inside SGLang, in its own Python, which takes samples; what they come to is
//! reckoned here.

use crate::{Error, speedups};
use std::{env, fs, path::Path, process::Command};

/// The scripts that do it, in SGLang's Python.
const SCRIPTS: [(&str, &str); 10] = [
    ("validate.py", include_str!("../python/validate/validate.py")),
    ("calls.py", include_str!("../python/validate/calls.py")),
    ("checks.py", include_str!("../python/validate/checks.py")),
    ("clock.py", include_str!("../python/validate/clock.py")),
    ("layers.py", include_str!("../python/validate/layers.py")),
    ("own.py", include_str!("../python/validate/own.py")),
    ("times.py", include_str!("../python/validate/times.py")),
    ("tolerance.py", kernelbench::torch::TOLERANCE),
    ("told.py", include_str!("../python/validate/told.py")),
    ("warpsmith_pytest.py", include_str!("../python/validate/warpsmith_pytest.py")),
];
/// How the scripts end where an output was wrong, or something that was asked could not be done.
const FAILED: i32 = 1;

/// What is to be validated, and how.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The folder of an export as plug-in.
    pub plugin: &'a Path,
    /// These operators alone; all, where none is named.
    pub operators: &'a [String],
    /// SGLang's source tree.
    pub tests: Option<&'a Path>,
    /// Where the result is written as JSON.
    pub result: &'a Path,
    /// How often each shape is timed.
    pub repetitions: u32,
    /// Whether SGLang's own tests are run.
    pub own_tests: bool,
    /// Whether anything is timed.
    pub timing: bool,
}

/// How a validation ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Whether all that was checked passed.
    pub passed: bool,
    /// The speedups with their intervals, line by line.
    pub speedups: Vec<String>,
}

impl Order<'_> {
    /// Runs the scripts with this Python, and completes the result that they write with what its samples come to.
    ///
    /// # Errors
    ///
    /// If they cannot be written or started, or broke off, or their result cannot be read.
    pub fn run(&self, python: &str) -> Result<Ended, Error> {
        let work = env::temp_dir().join(format!("warpsmith-validate-{}", std::process::id()));
        let ended = lay(&work).and_then(|()| self.start(python, &work));
        let _ = fs::remove_dir_all(&work);
        match ended? {
            Some(code @ (0 | FAILED)) => Ok(Ended { passed: code == 0, speedups: self.reckoned()? }),
            _ => Err(Error::machine("the validation broke off; what it printed says where")),
        }
    }

    fn reckoned(&self) -> Result<Vec<String>, Error> {
        let wrong = |why: &dyn std::fmt::Display| Error::files(format!("{}: {why}", self.result.display()));
        let text =
            fs::read_to_string(self.result).map_err(|e| wrong(&format!("the validation left no result there: {e}")))?;
        let mut result = serde_json::from_str(&text).map_err(|e| wrong(&e))?;
        let lines = speedups::reckon(&mut result);
        fs::write(self.result, format!("{result:#}\n")).map_err(|e| wrong(&e))?;
        Ok(lines)
    }

    fn start(&self, python: &str, work: &Path) -> Result<Option<i32>, Error> {
        let mut command = Command::new(python);
        command.arg(work.join("validate.py")).arg("--plugin").arg(self.plugin).arg("--result").arg(self.result);
        command.arg("--work").arg(work).arg("--repetitions").arg(self.repetitions.to_string());
        if let Some(tests) = self.tests {
            command.arg("--tests").arg(tests);
        }
        command.args(self.operators.iter().flat_map(|op| ["--op", op.as_str()]));
        for (flag, asked) in [("--no-tests", self.own_tests), ("--no-timing", self.timing)] {
            if !asked {
                command.arg(flag);
            }
        }
        let status = command.status().map_err(|e| {
            Error::machine(format!("{python}: cannot be started: {e}; name SGLang's Python with --python"))
        })?;
        Ok(status.code())
    }
}

fn lay(work: &Path) -> Result<(), Error> {
    let wrong = |e| Error::machine(format!("{}: cannot write the scripts there: {e}", work.display()));
    fs::create_dir_all(work).map_err(wrong)?;
    SCRIPTS.iter().try_for_each(|(name, text)| fs::write(work.join(name), text)).map_err(wrong)
}
