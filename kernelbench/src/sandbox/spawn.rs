//! The thread that starts child processes.
//!
//! A process dies with the thread that started it, as the kernel sees it: so all are started on one thread that lives as
//! long as its workshop.

use crate::result::failure::Fault;
use std::{
    process::{Child, Command},
    sync::{Mutex, PoisonError, mpsc},
};

type Request = (Command, mpsc::Sender<std::io::Result<Child>>);

/// The thread that starts processes.
#[derive(Debug)]
pub(crate) struct SpawnThread {
    requests: Mutex<mpsc::Sender<Request>>,
    started: Mutex<Vec<i32>>,
}

impl SpawnThread {
    /// Starts the thread; it ends when this value is dropped.
    pub(crate) fn new() -> Self {
        let (requests, queue) = mpsc::channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, answer) in queue {
                let _ = answer.send(command.spawn());
            }
        });
        Self { requests: Mutex::new(requests), started: Mutex::default() }
    }

    /// Starts a process.
    pub(crate) fn spawn(&self, command: Command) -> Result<Child, Fault> {
        let program = command.get_program().to_string_lossy().into_owned();
        let (answer, answered) = mpsc::channel();
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = |_| Fault::Machine("the thread that starts processes is gone".to_owned());
        requests.send((command, answer)).map_err(|_| gone(mpsc::RecvError))?;
        let child =
            answered.recv().map_err(gone)?.map_err(|e| Fault::Machine(format!("cannot start {program}: {e}")))?;
        self.count(child.id().cast_signed());
        Ok(child)
    }

    /// Counts a process among those that were started here.
    pub(crate) fn count(&self, id: i32) {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    /// The numbers of all processes that were started here and still run.
    pub(crate) fn running(&self) -> Vec<i32> {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.iter().copied().filter(|id| std::path::Path::new(&format!("/proc/{id}")).exists()).collect()
    }
}
