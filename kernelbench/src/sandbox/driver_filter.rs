//! Which system calls may a kernel's launcher not make?
//!
//! The driver works in the same process and needs most of them: threads, files of its own, many controls of devices. So
//! this filter names what is refused, where the one of a kernel on the processor names what is allowed.
#![expect(unsafe_code, reason = "handles a signal")]

use crate::sandbox::filter::describe;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::{collections::BTreeMap, ffi::c_void};

/// What stands before the number of a refused call on standard error.
const MARK: &str = "warpsmith: refused system call ";

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

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Filters this process's system calls from here on.
///
/// # Errors
/// In words, where this system does not filter.
pub(crate) fn filter() -> Result<(), String> {
    handle();
    let [older, refused] = [older_threads(), refused()].map(|program| program.map_err(|e| e.to_string()));
    for program in [older?, refused?] {
        seccompiler::apply_filter_all_threads(&program).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Threads are started by the older call, whose flags a filter can see.
fn older_threads() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = [(libc::SYS_clone3, vec![])].into();
    compile(rules, SeccompAction::Errno(libc::ENOSYS as u32))
}

fn refused() -> Result<BpfProgram, seccompiler::BackendError> {
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
    compile(rules, SeccompAction::Trap)
}

fn compile(rules: Rules, matching: SeccompAction) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, matching, arch)?.try_into()
}

/// What was refused, by what the process left on standard error.
pub(crate) fn told(stderr: &str) -> Option<String> {
    let number = stderr.rsplit_once(MARK)?.1.lines().next()?.trim().parse::<u64>().ok()?;
    Some(describe(number))
}

fn handle() {
    // SAFETY: the handler only makes system calls.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_refusal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut());
    }
}

/// Says which call it was, and ends the process.
unsafe extern "C" fn on_refusal(_: i32, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel hands a handler a valid pointer; the number follows the header and one pointer.
    let call = unsafe { info.cast::<u8>().add(16 + 8).cast::<i32>().read_unaligned() };
    let mut text = [b' '; MARK.len() + 12];
    text[..MARK.len()].copy_from_slice(MARK.as_bytes());
    let (mut rest, mut at) = (call.unsigned_abs(), text.len() - 1);
    text[at] = b'\n';
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    // SAFETY: writes a slice, and ends the process at once.
    unsafe {
        libc::write(2, text.as_ptr().cast(), text.len());
        libc::_exit(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_call_is_told_in_words() {
        let left = format!("hello\n{MARK}        {}\n", libc::SYS_execve);
        assert_eq!(told(&left).as_deref(), Some("start a thread or a process"));
        assert_eq!(told("warpsmith: something else"), None);
    }

    #[test]
    fn this_architecture_has_both_filters() {
        assert!(older_threads().is_ok() && refused().is_ok());
    }
}
