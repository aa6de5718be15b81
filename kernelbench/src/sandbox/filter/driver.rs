//! The filter of a process that a GPU's driver works in: it names what is refused.
//!
//! The driver needs most system calls: threads, files of its own, many controls of devices.

use super::{Rules, compile, older_threads};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompRule,
};

/// Refused whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
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
    libc::SYS_setpriority,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_ON_X86: &[libc::c_long] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_ON_X86: &[libc::c_long] = &[];

/// Filters the system calls of all threads of this process from here on.
///
/// # Errors
/// In words, where this system does not filter.
pub(crate) fn apply() -> Result<(), String> {
    let [older, refused] = [older_threads(), refused()].map(|program| program.map_err(|e| e.to_string()));
    for program in [older?, refused?] {
        seccompiler::apply_filter_all_threads(&program).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn refused() -> Result<BpfProgram, BackendError> {
    let mut rules: Rules = REFUSED.iter().chain(REFUSED_ON_X86).map(|call| (*call, vec![])).collect();
    let own = u64::from(std::process::id());
    let mut refuse = |call: libc::c_long, conditions: Vec<SeccompCondition>| {
        SeccompRule::new(conditions).map(|rule| rules.entry(call).or_default().push(rule))
    };
    let thread = libc::CLONE_THREAD as u64;
    refuse(libc::SYS_clone, vec![SeccompCondition::new(0, Dword, SeccompCmpOp::MaskedEq(thread), 0)?])?;
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        refuse(call, vec![SeccompCondition::new(0, Dword, SeccompCmpOp::Ne, own)?])?;
    }
    let local = SeccompCondition::new(0, Dword, SeccompCmpOp::Ne, libc::AF_UNIX as u64)?;
    refuse(libc::SYS_socket, vec![local])?;
    compile(rules, SeccompAction::Allow, SeccompAction::Trap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_architecture_has_both_filters() {
        assert!(older_threads().is_ok() && refused().is_ok());
    }
}
