//! Which core does a kernel run on, and who keeps off it?
#![expect(unsafe_code, reason = "asks for and sets the cores of a thread")]

/// The core that kernels run on: the last that this process may use. `None` where that is unknown.
pub(crate) fn of_kernels() -> Option<usize> {
    cores(&allowed()?).max()
}

/// Whether kernels have a core of their own, so that the parent may wait for them without sleeping.
pub(crate) fn several() -> bool {
    allowed().is_some_and(|set| cores(&set).count() > 1)
}

/// Keeps the calling thread off the kernels' core until dropped.
pub(crate) struct Aside(Option<libc::cpu_set_t>);

impl Aside {
    /// Moves the calling thread off, where there is another core.
    pub(crate) fn step() -> Self {
        let (Some(before), Some(core)) = (allowed(), of_kernels()) else { return Self(None) };
        if !several() {
            return Self(None);
        }
        let mut others = before;
        // SAFETY: a set of ours.
        unsafe { libc::CPU_CLR(core, &mut others) };
        set(&others);
        Self(Some(before))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            set(before);
        }
    }
}

fn cores(set: &libc::cpu_set_t) -> impl Iterator<Item = usize> {
    // SAFETY: the index stays within the set.
    (0..libc::CPU_SETSIZE as usize).filter(move |core| unsafe { libc::CPU_ISSET(*core, set) })
}

fn allowed() -> Option<libc::cpu_set_t> {
    // SAFETY: a set of ours, filled by the kernel.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        (libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) == 0).then_some(set)
    }
}

fn set(set: &libc::cpu_set_t) {
    // SAFETY: a set of ours, and the calling thread's own affinity.
    unsafe { libc::sched_setaffinity(0, size_of_val(set), set) };
}
