//! The system-call filters (seccomp) of child processes, and what a refused call was about to do.

pub(crate) mod driver;
pub(crate) mod kernel;
pub(crate) mod tool;

use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompFilter, SeccompRule};
use std::collections::BTreeMap;

/// Set in a report's detail beside the number of a call that was to open a file for writing.
pub(crate) const WRITING: u64 = 1 << 32;

/// System calls, each with the conditions under which a rule fits.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// A program for the kernel: one action for calls that fit a rule, one for all others.
fn compile(rules: Rules, others: SeccompAction, matching: SeccompAction) -> Result<BpfProgram, BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, others, matching, arch)?.try_into()
}

/// Has threads be started by the older call, whose flags a filter can see.
fn older_threads() -> Result<BpfProgram, BackendError> {
    let rules = [(libc::SYS_clone3, vec![])].into();
    compile(rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))
}

/// Whether a call asks for memory: denied, it means that the memory is too much.
pub(crate) fn asks_for_memory(detail: u64) -> bool {
    [libc::SYS_mmap, libc::SYS_mremap].contains(&number(detail))
}

/// What a denied call was to do, as a verb phrase.
pub(crate) fn describe(detail: u64) -> String {
    let call = number(detail);
    let what = match call {
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_execve | libc::SYS_execveat => "start a thread or a process",
        libc::SYS_openat | libc::SYS_openat2 => opening(detail),
        libc::SYS_socket
        | libc::SYS_socketpair
        | libc::SYS_connect
        | libc::SYS_bind
        | libc::SYS_sendto
        | libc::SYS_sendmsg => "open a network connection",
        libc::SYS_kill | libc::SYS_tkill | libc::SYS_tgkill | libc::SYS_rt_sigqueueinfo => "send a signal",
        libc::SYS_rt_sigaction | libc::SYS_sigaltstack => "change how its signals are handled",
        libc::SYS_ptrace | libc::SYS_process_vm_readv | libc::SYS_process_vm_writev | libc::SYS_pidfd_open => {
            "reach into another process"
        }
        libc::SYS_setitimer | libc::SYS_timer_create | libc::SYS_timerfd_create => "set a timer",
        libc::SYS_unlinkat
        | libc::SYS_renameat2
        | libc::SYS_mkdirat
        | libc::SYS_linkat
        | libc::SYS_symlinkat
        | libc::SYS_fchmodat
        | libc::SYS_fchownat
        | libc::SYS_ftruncate => "change files",
        libc::SYS_write | libc::SYS_writev | libc::SYS_pwrite64 => "write to a file that is not its own output",
        libc::SYS_mprotect | libc::SYS_munmap => "change the memory that its arguments lie in",
        libc::SYS_shmget | libc::SYS_memfd_create | libc::SYS_mq_open => "share memory with another process",
        libc::SYS_prctl
        | libc::SYS_seccomp
        | libc::SYS_prlimit64
        | libc::SYS_unshare
        | libc::SYS_setns
        | libc::SYS_sched_setaffinity
        | libc::SYS_setpriority => "change how its process is confined",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork | libc::SYS_vfork => "start a thread or a process",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open | libc::SYS_creat => opening(detail),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink | libc::SYS_rename | libc::SYS_mkdir | libc::SYS_chmod | libc::SYS_link => "change files",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_alarm => "set a timer",
        _ => return format!("make the system call {call}"),
    };
    what.to_owned()
}

fn opening(detail: u64) -> &'static str {
    if detail & WRITING == 0 { "open a file" } else { "open a file for writing" }
}

fn number(detail: u64) -> libc::c_long {
    libc::c_long::from((detail as u32).cast_signed())
}
