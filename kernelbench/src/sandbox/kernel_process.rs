//! A kernel process as its parent sees it: a child that loads one kernel, and is asked to call it.

use super::{
    kernel_child::{Answer, Ask, CallLayout, DeviceError},
    peer::{LatencyHider, Peer, Went},
};
use crate::{
    build::unit::INVALID,
    measure::reading::Reading,
    result::{
        error::{Attempt, EvalError, fault},
        failure::{Failure, Fault},
    },
    task::layout::Layout,
};
use std::{
    fs::{File, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::Duration,
};
use tempfile::TempDir;

/// The number of the error that says that a device has no memory left, in CUDA's and HIP's numbering.
const OUT_OF_MEMORY: u32 = 2;

/// A child that holds one kernel, or none yet.
pub(crate) struct KernelProcess {
    pub(crate) peer: Peer,
    /// How long loading may take, constructors included, and small requests.
    patience: Duration,
    case: String,
    /// What was asked of each request last, and whether its calls are recorded.
    asked: Option<(usize, bool, bool)>,
    /// Its own folder, where it has one.
    folder: Option<TempDir>,
    /// How many copies it was given there.
    copies: u32,
}

impl KernelProcess {
    /// A process that was greeted.
    pub(crate) fn new(peer: Peer, patience: Duration) -> Self {
        Self { peer, patience, case: "while it was loaded".to_owned(), asked: None, folder: None, copies: 0 }
    }

    /// The same with a folder of its own, which goes away with it.
    pub(crate) fn in_folder(self, folder: TempDir) -> Self {
        Self { folder: Some(folder), ..self }
    }

    /// Has it load a copy of a shared object in its own folder, which it can read as the user that it is. What it loads is called
    /// from then on, and what was printed by then is not its doing; a copy that it had before stays, for its code may be in use.
    /// What it may hold of the host's memory is for all together.
    pub(crate) fn load_copy(&mut self, object: &Path) -> Attempt<()> {
        let Some(folder) = &self.folder else { return self.load(Some(object)) };
        let copy = folder.path().join(format!("kernel-{}.so", self.copies));
        if self.copies > 0 {
            self.peer.forget_printed();
            "while it was loaded".clone_into(&mut self.case);
        }
        self.copies += 1;
        lay(object, &copy).map_err(fault(format_args!("cannot copy {}", object.display())))?;
        self.load(Some(&copy))
    }

    /// Has it load a shared object, and lock itself in.
    pub(crate) fn load(&mut self, object: Option<&Path>) -> Attempt<()> {
        match self.ask(&Ask::Load { object: object.map(Path::to_owned) })? {
            Answer::Loaded(layers) => {
                self.peer.layers.extend(layers);
                Ok(())
            }
            Answer::NotLoaded(why) => Err(Failure::Interface { log: format!("it cannot be loaded: {why}") }.into()),
            other => Err(self.unexpected(other)),
        }
    }

    /// Says which case is called next, in so many slots.
    pub(crate) fn case(&mut self, layout: &Layout, slots: usize) -> Attempt<()> {
        self.case.clone_from(&layout.case);
        self.asked = None;
        let layout = CallLayout { arguments: layout.passed.clone(), slot_bytes: layout.slot_bytes, slots };
        match self.ask(&Ask::Case { layout })? {
            Answer::Ready { .. } => Ok(()),
            other => Err(self.unexpected(other)),
        }
    }

    /// Says on how many slots it calls its kernel at each request, once on each; and whether it is to record these calls and
    /// to replay them as a whole. Whether it does.
    pub(crate) fn count(&mut self, count: usize, record: bool) -> Attempt<bool> {
        if let Some((_, _, recorded)) = self.asked.filter(|asked| (asked.0, asked.1) == (count, record)) {
            return Ok(recorded);
        }
        match self.ask(&Ask::Count { count, record })? {
            Answer::Ready { recorded } => {
                self.asked = Some((count, record, recorded));
                Ok(recorded)
            }
            other => Err(self.unexpected(other)),
        }
    }

    /// Has it make its calls.
    pub(crate) fn call(&mut self, deadline: Duration, hider: &mut impl LatencyHider) -> Attempt<Reading> {
        self.peer.case.clone_from(&self.case);
        match self.peer.go(deadline, hider)? {
            Went::Done { outside, inside_ns, .. } => {
                Ok(Reading { outside_ns: outside.as_nanos() as f64, inside_ns: inside_ns as f64 })
            }
            Went::Said(answer) => Err(self.unexpected(answer)),
        }
    }

    fn ask(&mut self, ask: &Ask) -> Attempt<Answer> {
        self.peer.case.clone_from(&self.case);
        self.peer.ask(ask, &[], self.patience)
    }

    /// An error that a device or its runtime told, or an answer to something else.
    fn unexpected(&mut self, answer: Answer) -> EvalError {
        let case = self.case.clone();
        match answer {
            Answer::DeviceError(DeviceError { code: OUT_OF_MEMORY, .. }) => self.peer.too_much_memory(),
            Answer::DeviceError(DeviceError { code: INVALID, .. }) => Failure::Invalid { case }.into(),
            Answer::DeviceError(error) => {
                Failure::Crash { case, signal: error.to_string(), stderr: String::new() }.into()
            }
            _ => self.peer.tampered(),
        }
    }
}

/// Copies a file to a place where there is nothing yet: who may write there may have put a link there, or a pipe.
fn lay(file: &Path, place: &Path) -> io::Result<()> {
    let mut copy = File::options().write(true).create_new(true).open(place)?;
    io::copy(&mut File::open(file)?, &mut copy)?;
    copy.set_permissions(Permissions::from_mode(0o755))
}

/// What did not start: whatever a process says before a candidate's code is in it is the machine's doing.
pub(crate) fn not_started(error: EvalError) -> Fault {
    match error {
        EvalError::Infra(fault) => fault,
        EvalError::Candidate(failure) => {
            let words = match &*failure {
                Failure::Exit { stderr, .. } | Failure::Crash { stderr, .. } => format!(": {stderr}"),
                _ => String::new(),
            };
            Fault::Machine(format!("a process for kernels does not start: {failure}{words}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn what_is_laid_into_the_folder_of_a_process_follows_no_link_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let [object, other, place] = ["object", "other", "kernel-1.so"].map(|name| folder.path().join(name));
        fs::write(&object, "machine code").unwrap();
        fs::write(&other, "somebody's").unwrap();
        symlink(&other, &place).unwrap();
        assert!(lay(&object, &place).is_err());
        assert_eq!(fs::read_to_string(&other).unwrap(), "somebody's");
        fs::remove_file(&place).unwrap();
        lay(&object, &place).unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "machine code");
    }
}
