//! The filter of a kernel on the CPU: it names what is allowed, and that is little.
//!
//! Two, one upon the other: the first holds while the kernel is loaded and its constructors run, and lets it read files; the
//! second is added before the first call, and opens nothing at all.

use super::{Rules, compile};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpArgLen::Qword, SeccompCmpOp,
    SeccompCondition, SeccompRule,
};
use std::ops::Range;

/// When a filter is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// While the kernel is loaded.
    Loading,
    /// From then on.
    Running,
}

/// Allowed whatever their arguments: they reach nothing outside the process.
const HARMLESS: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask, // and has no effect: see `without_effect`
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
    libc::SYS_mbind, // and has no effect: see `without_effect`
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

/// Filters this process's system calls from here on. Reports go to the descriptor `control`; no mapping may be longer than
/// `memory_bytes`, and once the kernel runs none may be put or changed at the addresses of `closed`, which begin with as many
/// bytes that nothing lies at.
///
/// # Errors
/// In words, where this system does not filter.
pub(crate) fn apply(phase: Phase, control: i32, memory_bytes: u64, closed: &Range<u64>) -> Result<(), String> {
    let mut programs = vec![filter(phase, control, memory_bytes, closed)];
    if phase == Phase::Loading {
        programs.splice(0..0, WITHOUT_EFFECT.map(without_effect));
    }
    programs.into_iter().try_for_each(|program| {
        let program = program.map_err(|e| e.to_string())?;
        seccompiler::apply_filter_all_threads(&program).map_err(|e| e.to_string())
    })
}

fn filter(phase: Phase, control: i32, memory_bytes: u64, closed: &Range<u64>) -> Result<BpfProgram, BackendError> {
    compile(rules(phase, control, memory_bytes, closed)?, SeccompAction::Trap, SeccompAction::Allow)
}

/// What is answered so, and nothing done. A blocked `SIGSYS` would kill before its handler could say which call it was; where
/// memory lies is the system's choice, and a library that asks for a place (`OpenBLAS` does) goes on without an answer.
const WITHOUT_EFFECT: [(libc::c_long, i32); 2] = [(libc::SYS_rt_sigprocmask, 0), (libc::SYS_mbind, libc::ENOSYS)];

fn without_effect((call, answer): (libc::c_long, i32)) -> Result<BpfProgram, BackendError> {
    let rules = [(call, vec![])].into();
    compile(rules, SeccompAction::Allow, SeccompAction::Errno(answer as u32))
}

fn rules(phase: Phase, control: i32, memory_bytes: u64, closed: &Range<u64>) -> Result<Rules, BackendError> {
    let mut rules: Rules = HARMLESS.iter().map(|call| (*call, vec![])).collect();
    let own = u64::from(std::process::id());
    let mut allow = |call: libc::c_long, conditions: Vec<SeccompCondition>| {
        SeccompRule::new(conditions).map(|rule| rules.entry(call).or_default().push(rule))
    };
    for fd in [1, 2, control as u64] {
        allow(libc::SYS_write, vec![is(0, fd)?])?;
        allow(libc::SYS_writev, vec![is(0, fd)?])?;
    }
    // Guards are put around arguments before the kernel is loaded: from here on nobody takes them away.
    let below = || Ok::<_, BackendError>([compare(0, SeccompCmpOp::Lt, closed.start)?, at_most(1, memory_bytes)?]);
    let above = || compare(0, SeccompCmpOp::Ge, closed.end);
    for call in [libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_mmap] {
        allow(call, below()?.to_vec())?;
        allow(call, vec![above()?, at_most(1, memory_bytes)?])?;
    }
    let stays = || SeccompCondition::new(3, Dword, SeccompCmpOp::MaskedEq(libc::MREMAP_FIXED as u64), 0);
    let mut below = below()?.to_vec();
    below.extend([at_most(2, memory_bytes)?, stays()?]);
    allow(libc::SYS_mremap, below)?;
    allow(libc::SYS_mremap, vec![above()?, at_most(2, memory_bytes)?, stays()?])?;
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

fn is(argument: u8, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, Dword, SeccompCmpOp::Eq, value)
}

fn compare(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, Qword, operator, value)
}

fn at_most(argument: u8, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, Qword, SeccompCmpOp::Le, value)
}
