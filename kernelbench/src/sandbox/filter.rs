//! Which system calls may a kernel make, and what is it called when it makes another?
//!
//! Two filters, one upon the other: the first holds while the kernel is loaded and its constructors run, and lets it read
//! files; the second is added before the first call, and opens nothing at all.

use seccompiler::{
    BpfProgram, SeccompAction,
    SeccompCmpArgLen::{Dword, Qword},
    SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

/// When a filter is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// While the kernel is loaded.
    Loading,
    /// From then on.
    Running,
}

/// Set in a report's detail beside the number of a call that was to open a file for writing.
pub(crate) const WRITING: u64 = 1 << 32;

/// Allowed whatever their arguments: they reach nothing outside the process.
const HARMLESS: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask, // and has no effect: see `keep_signals_open`
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_restart_syscall,
];

/// Allowed beside them while the kernel is loaded.
const LOADING: &[libc::c_long] = &[
    libc::SYS_close,
    libc::SYS_pread64,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_seccomp,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
];

#[cfg(target_arch = "x86_64")]
const LOADING_ON_X86: &[libc::c_long] = &[libc::SYS_readlink, libc::SYS_access, libc::SYS_stat, libc::SYS_lstat];
#[cfg(not(target_arch = "x86_64"))]
const LOADING_ON_X86: &[libc::c_long] = &[];

/// The filter of a phase, as a program for the kernel. `control` is the descriptor that reports go to; no mapping may be
/// longer than `memory_bytes`.
///
/// # Errors
/// Where this architecture has no filters.
pub(crate) fn filter(phase: Phase, control: i32, memory_bytes: u64) -> Result<BpfProgram, String> {
    let rules = rules(phase, control, memory_bytes).map_err(|e| e.to_string())?;
    compile(rules, SeccompAction::Trap, SeccompAction::Allow)
}

/// A filter that makes blocking a signal succeed without effect: a blocked `SIGSYS` would kill before its handler could say
/// which call it was.
///
/// # Errors
/// Where this architecture has no filters.
pub(crate) fn keep_signals_open() -> Result<BpfProgram, String> {
    let rules = [(libc::SYS_rt_sigprocmask, vec![])].into();
    compile(rules, SeccompAction::Allow, SeccompAction::Errno(0))
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn compile(rules: Rules, others: SeccompAction, matching: SeccompAction) -> Result<BpfProgram, String> {
    let arch = std::env::consts::ARCH.try_into().map_err(|e: seccompiler::BackendError| e.to_string())?;
    let filter = SeccompFilter::new(rules, others, matching, arch);
    filter.and_then(TryInto::try_into).map_err(|e: seccompiler::BackendError| e.to_string())
}

fn rules(phase: Phase, control: i32, memory_bytes: u64) -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = HARMLESS.iter().map(|call| (*call, vec![])).collect();
    let own = u64::from(std::process::id());
    let mut allow = |call: libc::c_long, conditions: Vec<SeccompCondition>| {
        SeccompRule::new(conditions).map(|rule| rules.entry(call).or_default().push(rule))
    };
    for fd in [1, 2, control as u64] {
        allow(libc::SYS_write, vec![is(0, fd)?])?;
        allow(libc::SYS_writev, vec![is(0, fd)?])?;
    }
    allow(libc::SYS_mmap, vec![at_most(1, memory_bytes)?])?;
    allow(libc::SYS_mremap, vec![at_most(2, memory_bytes)?])?;
    // abort() raises SIGABRT on its own thread.
    allow(libc::SYS_tgkill, vec![is(0, own)?, is(2, libc::SIGABRT as u64)?])?;
    // fstat(), in newer C libraries.
    allow(libc::SYS_newfstatat, vec![is(3, libc::AT_EMPTY_PATH as u64)?])?;
    // Asking for limits, not setting them; asking whether standard output is a terminal.
    allow(libc::SYS_prlimit64, vec![is(2, 0)?])?;
    allow(libc::SYS_ioctl, vec![is(1, libc::TCGETS)?])?;
    allow(libc::SYS_fcntl, vec![is(1, libc::F_GETFD as u64)?])?;
    // What pthread_create() and system() do first: let them come to what they are refused for.
    for signal in [libc::SIGINT, libc::SIGQUIT, 32, 33] {
        allow(libc::SYS_rt_sigaction, vec![is(0, signal as u64)?])?;
    }
    // Asking for the use of AMX tiles.
    #[cfg(target_arch = "x86_64")]
    for code in 0x1021..=0x1023 {
        allow(libc::SYS_arch_prctl, vec![is(0, code)?])?;
    }
    if phase == Phase::Loading {
        let writing = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND) as u64;
        allow(libc::SYS_openat, vec![SeccompCondition::new(2, Dword, SeccompCmpOp::MaskedEq(writing), 0)?])?;
        allow(libc::SYS_prctl, vec![is(0, libc::PR_SET_NO_NEW_PRIVS as u64)?])?;
        rules.extend(LOADING.iter().chain(LOADING_ON_X86).map(|call| (*call, vec![])));
    }
    Ok(rules)
}

fn is(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, Dword, SeccompCmpOp::Eq, value)
}

fn at_most(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, Qword, SeccompCmpOp::Le, value)
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
