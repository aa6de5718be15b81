//! The filter of a tool that a kernel runs under, such as valgrind: it names what neither has any business to do.
//!
//! The tool itself needs files, mappings and signals of its own; it is started behind this filter, so it may become another
//! program. What it wraps starts no process, and reaches none; an emulator has threads, a profiler and a script have none.

use super::{Rules, compile, older_threads};
use crate::sandbox::entry::Wrapped;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompRule,
};

/// Refused whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setscheduler,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_setsid,
    libc::SYS_setpgid,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_ON_X86: &[libc::c_long] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_ON_X86: &[libc::c_long] = &[];

/// Filters the system calls of this process, and of what it becomes, from here on: who makes one that is refused is ended.
///
/// # Errors
/// In words, where this system does not filter.
pub(crate) fn apply(wrapped: Wrapped) -> Result<(), String> {
    let older = (wrapped == Wrapped::Emulated).then(older_threads);
    for program in older.into_iter().chain([refused(wrapped)]) {
        let program = program.map_err(|e| e.to_string())?;
        seccompiler::apply_filter(&program).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn refused(wrapped: Wrapped) -> Result<BpfProgram, BackendError> {
    let mut rules: Rules = REFUSED.iter().chain(REFUSED_ON_X86).map(|call| (*call, vec![])).collect();
    if wrapped == Wrapped::Emulated {
        let thread = libc::CLONE_THREAD as u64;
        let process = SeccompCondition::new(0, Dword, SeccompCmpOp::MaskedEq(thread), 0)?;
        rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![process])?]);
    } else {
        rules.extend([libc::SYS_clone, libc::SYS_clone3].map(|call| (call, vec![])));
    }
    let own = u64::from(std::process::id());
    let other = |argument| SeccompCondition::new(argument, Dword, SeccompCmpOp::Ne, own);
    for call in [libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo] {
        rules.insert(call, vec![SeccompRule::new(vec![other(0)?])?]);
    }
    let named = |argument| SeccompCondition::new(argument, Dword, SeccompCmpOp::Ne, 0);
    // Of itself it may say what it likes: our own program chooses its core and its priority behind this filter.
    for call in [libc::SYS_prlimit64, libc::SYS_sched_setaffinity] {
        rules.insert(call, vec![SeccompRule::new(vec![other(0)?, named(0)?])?]);
    }
    let groups = SeccompRule::new(vec![named(0)?])?;
    rules.insert(libc::SYS_setpriority, vec![groups, SeccompRule::new(vec![other(1)?, named(1)?])?]);
    compile(rules, SeccompAction::Allow, SeccompAction::KillProcess)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_architecture_has_the_filter() {
        assert!([Wrapped::Single, Wrapped::Emulated].into_iter().all(|wrapped| refused(wrapped).is_ok()));
    }
}
