//! Which core does a kernel run on, and who keeps off it?
#![expect(unsafe_code, reason = "asks for and sets the cores of a thread")]

/// The priority (niceness) of what is timed and of who times it.
const PREFERRED: i32 = -15;

/// The cores that this process may use, as it was set up.
#[derive(Clone)]
pub(crate) struct Cores(Option<libc::cpu_set_t>);

impl Cores {
    /// The cores of the calling thread.
    pub(crate) fn here() -> Self {
        // SAFETY: a set of ours, filled by the kernel.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            Self((libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) == 0).then_some(set))
        }
    }

    /// The core that kernels run on: the last. `None` where there is but one.
    pub(crate) fn of_kernels(&self) -> Option<usize> {
        self.each().last().filter(|_| self.several())
    }

    /// Whether kernels have a core of their own, so that the parent may wait for them without sleeping.
    pub(crate) fn several(&self) -> bool {
        self.each().count() > 1
    }

    /// Keeps the calling thread off the kernels' core, where there is another, and prefers it to other programs, until the
    /// result is dropped.
    pub(crate) fn step_aside(&self) -> Aside {
        // SAFETY: asks for the calling thread's own priority.
        let aside = Aside { before: Self::here(), priority: unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) } };
        if let (Some(mut others), Some(core)) = (self.0, self.of_kernels()) {
            // SAFETY: a set of ours.
            unsafe { libc::CPU_CLR(core, &mut others) };
            Self(Some(others)).take();
            prefer(PREFERRED);
        }
        aside
    }

    fn each(&self) -> impl Iterator<Item = usize> {
        let set = self.0;
        // SAFETY: the index stays within the set.
        let has = move |core: &usize| set.is_some_and(|set| unsafe { libc::CPU_ISSET(*core, &set) });
        (0..libc::CPU_SETSIZE as usize).filter(has)
    }

    /// Has the calling thread run on this core alone, preferred to other programs where that is permitted.
    pub(crate) fn pin(core: usize) {
        // SAFETY: a set of ours.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(core, &mut set);
            set
        };
        Self(Some(set)).take();
        prefer(PREFERRED);
        // Where sessions are scheduled as groups, it is the group's priority that counts; a child leads a session.
        let _ = std::fs::write("/proc/self/autogroup", PREFERRED.to_string());
    }

    /// Moves the calling thread onto these.
    fn take(&self) {
        if let Some(set) = &self.0 {
            // SAFETY: a set of ours, and the calling thread's own affinity.
            unsafe { libc::sched_setaffinity(0, size_of_val(set), set) };
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

/// Sets the calling thread's priority; without the right to, it keeps the one it has.
fn prefer(priority: i32) {
    // SAFETY: a plain system call.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, priority) };
}
