//! Which thread are processes started on?
//!
//! A process dies with the thread that started it, as the kernel sees it: so all are started on one thread that lives as
//! long as its workshop.

use crate::failure::Fault;
use std::{
    process::{Child, Command},
    sync::{Mutex, mpsc},
};

type Request = (Command, mpsc::Sender<std::io::Result<Child>>);

/// The thread that starts processes.
#[derive(Debug)]
pub(crate) struct Nursery(Mutex<mpsc::Sender<Request>>);

impl Nursery {
    /// Starts the thread; it ends when this value is dropped.
    pub(crate) fn new() -> Self {
        let (requests, queue) = mpsc::channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, answer) in queue {
                let _ = answer.send(command.spawn());
            }
        });
        Self(Mutex::new(requests))
    }

    /// Starts a process.
    pub(crate) fn spawn(&self, command: Command) -> Result<Child, Fault> {
        let program = command.get_program().to_string_lossy().into_owned();
        let (answer, answered) = mpsc::channel();
        let requests = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let gone = |_| Fault("the thread that starts processes is gone".to_owned());
        requests.send((command, answer)).map_err(|_| gone(mpsc::RecvError))?;
        answered.recv().map_err(gone)?.map_err(|e| Fault(format!("cannot start {program}: {e}")))
    }
}
