//! The cores of this machine: on which one kernels run, and who keeps off it.
#![expect(unsafe_code, reason = "sets the priority of a thread")]

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

/// The priority (niceness) of what is timed and of who times it.
const PREFERRED: i32 = -15;
/// The same of what computes beside it.
const PRIORITY_BESIDE: i32 = 10;
/// Of so many cores what computes beside it leaves one free: launches that wait for a core are slow launches.
const ONE_FREE_OF: usize = 8;

/// The cores that this process may use, as it was set up.
#[derive(Clone)]
pub(crate) struct Cores(Option<CpuSet>);

fn set_of(cores: impl IntoIterator<Item = usize>) -> CpuSet {
    let mut set = CpuSet::new();
    for core in cores {
        // One that is larger than the system counts is none.
        let _ = set.set(core);
    }
    set
}

/// The calling thread, or process.
fn this() -> Pid {
    Pid::from_raw(0)
}

impl Cores {
    /// The cores of the calling thread.
    pub(crate) fn here() -> Self {
        Self(sched_getaffinity(this()).ok())
    }

    /// The core that kernels run on: the last. `None` where there is but one.
    pub(crate) fn of_kernels(&self) -> Option<usize> {
        self.each().last().filter(|_| self.each().count() > 1)
    }

    /// Keeps the calling thread off the kernels' core, where there is another, and prefers it to other programs, until the
    /// result is dropped.
    pub(crate) fn step_aside(&self) -> Aside {
        // SAFETY: asks for the calling thread's own priority.
        let aside = Aside { before: Self::here(), priority: unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) } };
        if let (Some(mut others), Some(core)) = (self.0, self.of_kernels()) {
            let _ = others.unset(core);
            Self(Some(others)).take();
            prefer(PREFERRED);
        }
        aside
    }

    /// Without those that what computes beside something timed leaves free: the last.
    fn beside(self) -> Self {
        let all: Vec<usize> = self.each().collect();
        let taken = &all[..all.len() - all.len() / ONE_FREE_OF];
        Self(self.0.map(|_| set_of(taken.iter().copied())))
    }

    fn each(&self) -> impl Iterator<Item = usize> {
        let set = self.0;
        (0..CpuSet::count()).filter(move |core| set.is_some_and(|set| set.is_set(*core).unwrap_or(false)))
    }

    /// Has the calling thread run on this core alone, preferred to other programs where that is permitted.
    pub(crate) fn pin(core: usize) {
        Self(Some(set_of([core]))).take();
        prefer(PREFERRED);
        // Where sessions are scheduled as groups, it is the group's priority that counts; a child leads a session.
        let _ = std::fs::write("/proc/self/autogroup", PREFERRED.to_string());
    }

    /// Moves the calling thread onto these.
    fn take(&self) {
        if let Some(set) = &self.0 {
            let _ = sched_setaffinity(this(), set);
        }
    }
}

impl std::fmt::Debug for Cores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.each()).finish()
    }
}

/// Puts the thread back where it was.
pub(crate) struct Aside {
    before: Cores,
    priority: i32,
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.before.take();
        prefer(self.priority);
    }
}

/// Has a process, and all that it starts from now on, give way to what is timed beside it, and to whatever this one does.
pub(crate) fn give_way(process: u32) {
    // SAFETY: plain system calls.
    unsafe {
        let own = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, process, own.max(PRIORITY_BESIDE))
    };
    if let Some(cores) = Cores::here().beside().0 {
        let _ = sched_setaffinity(Pid::from_raw(process.cast_signed()), &cores);
    }
}

/// Sets the calling thread's priority; without the right to, it keeps the one it has.
fn prefer(priority: i32) {
    // SAFETY: a plain system call.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, priority) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Write,
        process::{Command, Stdio},
    };

    #[test]
    fn what_computes_beside_leaves_one_core_of_eight_free() {
        let left = |count: usize| Cores(Some(set_of(0..count))).beside().each().count();
        assert_eq!([1, 2, 7, 8, 16, 32].map(left), [1, 2, 7, 7, 14, 28]);
    }

    #[test]
    fn a_process_that_gives_way_has_a_lower_priority_and_so_has_what_it_starts() {
        // It waits for a line, so that it starts the other behind that.
        let mut command = Command::new("sh");
        command.args(["-c", "read _; sh -c nice"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        give_way(child.id());
        writeln!(child.stdin.take().unwrap()).unwrap();
        let said = child.wait_with_output().unwrap().stdout;
        let priority: i32 = String::from_utf8_lossy(&said).trim().parse().unwrap();
        assert!(priority >= PRIORITY_BESIDE, "{priority}");
    }
}
