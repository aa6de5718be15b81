//! Are the outputs of both sides the same, every element?

use super::{
    runner::{Ran, Runner},
    session::{Session, with},
    verifier::ask_about,
};
use crate::{
    result::{
        error::{Attempt, Trouble, fault},
        failure::Failure,
    },
    sandbox::peer::Peer,
    task::Tolerance,
};
use serde_json::{Value, json};
use std::fs;

/// Bytes at once, out of another process.
const CHUNK: usize = 4 << 20;

/// What one look at the outputs found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Root mean square error against double precision, reference and candidate, the worst of all outputs.
    pub(crate) errors: Vec<(f64, f64)>,
    /// Why there is no such error.
    pub(crate) no_oracle: Option<String>,
    /// How it differs, where that decides nothing.
    pub(crate) differs: Option<Failure>,
}

/// How closely a look looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look<'a> {
    pub(crate) tolerance: &'a Tolerance,
    pub(crate) case: &'a str,
    pub(crate) oracle: bool,
    pub(crate) while_timed: bool,
    /// Whether these are inputs that the problem does not draw: only an output that is its own input is wrong there.
    pub(crate) beyond: bool,
}

impl Session {
    /// Compares every element of what both put out in these runs.
    pub(crate) fn verify(
        &mut self,
        candidate: &Runner,
        reference: &Ran,
        got: &Ran,
        slots: &[usize],
        look: &Look<'_>,
    ) -> Attempt<Found> {
        let outputs = json!({"reference": reference.outputs, "candidate": got.outputs, "slots": slots});
        let Tolerance { atol, rtol, .. } = *look.tolerance;
        let mut how = json!({"do": "examine", "atol": atol, "rtol": rtol, "oracle": look.oracle});
        if !self.on_gpu {
            let said = ask_about(&mut self.judge, with(&outputs, &json!({"do": "want"})))?;
            formed(&said)?;
            self.copy(&said["reads"], candidate)?;
            how["do"] = json!("compare");
        }
        let said = ask_about(&mut self.judge, with(&outputs, &how))?;
        formed(&said)?;
        if said["late"].is_string() {
            return Err(candidate.peer.forbidden("go on writing its output after it had returned"));
        }
        judged(&said, look)
    }

    fn copy(&self, reads: &Value, candidate: &Runner) -> Attempt<()> {
        self.copy_side(reads, "reference", &self.reference.peer)?;
        self.copy_side(reads, "candidate", &candidate.peer)
    }

    /// Copies what the judge wants out of a process that stands still.
    pub(crate) fn copy_side(&self, reads: &Value, side: &str, peer: &Peer) -> Attempt<()> {
        use std::os::unix::fs::FileExt;
        let file = fs::File::from(self.outputs.try_clone().map_err(fault("cannot share memory"))?);
        let mut chunk = vec![0; CHUNK];
        for read in reads.as_array().into_iter().flatten().filter(|read| read[0] == side) {
            let [address, length, at] = [1, 2, 3].map(|index| read[index].as_u64().unwrap_or(0));
            for done in (0..length).step_by(CHUNK) {
                let part = &mut chunk[..usize::try_from(length - done).unwrap_or(CHUNK).min(CHUNK)];
                peer.read_memory(address + done, part).map_err(|e| unreadable(&e))?;
                file.write_all_at(part, at + done).map_err(fault("cannot write shared memory"))?;
            }
        }
        Ok(())
    }
}

fn unreadable(error: &std::io::Error) -> Trouble {
    Failure::Interface { log: format!("its output is not where it says it is: {error}") }.into()
}

fn formed(said: &Value) -> Attempt<()> {
    match said["form"].as_str() {
        Some(form) => Err(Failure::Interface { log: form.to_owned() }.into()),
        None => Ok(()),
    }
}

fn judged(said: &Value, look: &Look<'_>) -> Attempt<Found> {
    let case = || look.case.to_owned();
    if let Some(found) = said.get("mismatch") {
        let number = |name: &str| found[name].as_u64().unwrap_or(0);
        let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
        let failure = Failure::Mismatch {
            case: case(),
            argument: text("output"),
            wrong: number("wrong"),
            total: number("total"),
            worst_at: number("worst_at"),
            expected: text("expected"),
            got: text("got"),
            unwritten: 0,
            nan: number("nan"),
            while_timed: look.while_timed,
        };
        if look.beyond && said["passed_inputs"] != true {
            return Ok(Found { differs: Some(failure), ..Found::default() });
        }
        return Err(failure.into());
    }
    if let Some(index) = said["changed"].as_u64() {
        return Err(Failure::InputChanged { case: case(), argument: format!("input {index}") }.into());
    }
    let pair = |error: &Value| Some((error["reference"].as_f64()?, error["candidate"].as_f64()?));
    let errors = said["errors"].as_array().into_iter().flatten().filter_map(pair).collect();
    Ok(Found { errors, no_oracle: said["no_oracle"].as_str().map(str::to_owned), differs: None })
}
