//! The other side: a process that loads one kernel and calls it as often as it is asked to.
//!
//! It holds the kernel and its arguments, and neither reference nor comparison nor the clock that counts.
#![expect(unsafe_code, reason = "loads and calls foreign code, and handles its signals")]

use super::{
    segment,
    wire::{LONGEST, Ready, Report, Request, Setup},
};
use crate::{machine::cores::Cores, profile::standalone, sandbox::confine, task::layout::Passed};
use std::{
    ffi::c_void,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicI32, Ordering},
    time::Instant,
};

/// The generated function that unpacks its arguments and calls the kernel.
pub(crate) type Call = unsafe extern "C" fn(*const *const c_void);
/// Its symbol.
pub(crate) const CALL: &[u8] = b"warpsmith_call\0";

/// Where the signal handler reports.
static CONTROL: AtomicI32 = AtomicI32::new(-1);

/// Runs the child and ends the process. Its last three arguments are the descriptors of the control socket, of the shared
/// memory and of the kernel's shared object.
///
/// This is what the hidden sub-command calls, first thing in `main` and before any thread is started.
///
/// The same sub-command starts confined Python processes.
pub fn child_main() -> ! {
    crate::backend::cuda::run_if_asked();
    if let Some(launch) = crate::backend::torch::launch_asked_for() {
        crate::backend::torch::launch(&launch);
    }
    if let Some(why) = crate::sandbox::enclose::become_the_tool() {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), why.as_bytes());
        std::process::exit(127);
    }
    if let Some(ran) = standalone::run_if_asked() {
        let why = ran.err().unwrap_or_default();
        let _ = std::io::Write::write_all(&mut std::io::stderr(), why.as_bytes());
        std::process::exit(i32::from(!why.is_empty()));
    }
    let status = match serve() {
        Ok(()) => 0,
        Err(what) => {
            tell(&Report::broken(&what));
            1
        }
    };
    std::process::exit(status)
}

fn serve() -> Result<(), String> {
    let [control, memory, artifact] = descriptors().ok_or("expected three descriptors as the last arguments")?;
    CONTROL.store(control, Ordering::Relaxed);
    close_all_but([control, memory, artifact]);
    // SAFETY: the parent left these two open for us, and nothing else in this process owns them.
    let (memory, artifact) = unsafe { (OwnedFd::from_raw_fd(memory), OwnedFd::from_raw_fd(artifact)) };
    let mut message = vec![0; LONGEST];
    let length = hear(&mut message).ok_or("the parent is gone")?;
    let setup: Setup = serde_json::from_slice(&message[..length]).map_err(|e| e.to_string())?;
    let base = segment::map(&memory, setup.segment_bytes, libc::MAP_SHARED).map_err(|e| e.to_string())?;
    drop(memory);
    if let Some(core) = setup.core {
        Cores::pin(core);
    }
    handle_signals();
    let address_space = address_space();
    let mut layers = confine::confine(&setup, address_space, control, artifact.as_fd());
    let kernel = setup.load.then(|| load(&artifact));
    drop(artifact);
    layers.push(confine::lock(control, &setup));
    let ready = serde_json::to_vec(&Ready { layers, address_space }).map_err(|e| e.to_string())?;
    match kernel {
        None => tell(&Report::ready(&ready)),
        Some(Err(why)) => tell(&Report::not_loaded(&why)),
        Some(Ok((_library, call))) => {
            tell(&Report::ready(&ready));
            answer(&Slots::of(&setup, base), call);
        }
    }
    Ok(())
}

/// Loads a kernel and calls it on a private copy of a segment, without a parent that listens.
pub(crate) fn run_alone(
    mut setup: Setup,
    segment: &std::fs::File,
    artifact: &OwnedFd,
    calls: u32,
    confined: bool,
) -> Result<(), String> {
    let base = segment::map(segment, setup.segment_bytes, libc::MAP_PRIVATE).map_err(|e| e.to_string())?;
    // SAFETY: a plain system call.
    setup.parent = unsafe { libc::getppid() }.cast_unsigned();
    if let Some(core) = setup.core {
        Cores::pin(core);
    }
    if confined {
        confine::confine(&setup, address_space(), 2, artifact.as_fd());
    }
    let (_library, call) = load(artifact)?;
    if confined {
        confine::lock(2, &setup);
    }
    let slots = Slots::of(&setup, base);
    for _ in 0..calls {
        for slot in slots.range(Request { nonce: 0, first: 0, count: 1 }) {
            // SAFETY: the candidate's own code, in a process that is there for nothing else.
            unsafe { call(slot.as_ptr()) };
        }
    }
    Ok(())
}

fn answer(slots: &Slots, call: Call) {
    let mut message = [0; Request::BYTES];
    while let Some(request) = hear(&mut message).and_then(|length| Request::decode(&message[..length])) {
        let start = Instant::now();
        for slot in slots.range(request) {
            // SAFETY: the candidate's own code, in a process that is there for nothing else.
            unsafe { call(slot.as_ptr()) };
        }
        tell(&Report::done(request.nonce, start.elapsed().as_nanos() as u64));
    }
}

/// What to pass for each slot.
struct Slots {
    pointers: Vec<*const c_void>,
    arguments: usize,
    count: usize,
}

impl Slots {
    fn of(setup: &Setup, base: NonNull<u8>) -> Self {
        let mut pointers = vec![];
        for slot in 0..setup.slots {
            for passed in &setup.passed {
                pointers.push(match passed {
                    Passed::Array(offset) => {
                        base.as_ptr().wrapping_add(slot * setup.slot_bytes + offset).cast_const().cast()
                    }
                    Passed::Scalar(bits) => std::ptr::from_ref(Box::leak(Box::new(*bits))).cast(),
                });
            }
        }
        Self { pointers, arguments: setup.passed.len().max(1), count: setup.slots }
    }

    fn range(&self, request: Request) -> impl Iterator<Item = &[*const c_void]> {
        let first = (request.first as usize).min(self.count);
        let end = first.saturating_add(request.count as usize).min(self.count);
        self.pointers.chunks(self.arguments).skip(first).take(end - first)
    }
}

fn load(artifact: &OwnedFd) -> Result<(libloading::Library, Call), String> {
    let path = format!("/proc/self/fd/{}", artifact.as_raw_fd());
    // SAFETY: its constructors are the candidate's code, confined like the rest of it.
    unsafe {
        let library = libloading::Library::new(path).map_err(|e| e.to_string())?;
        let call = *library.get::<Call>(CALL).map_err(|e| e.to_string())?;
        Ok((library, call))
    }
}

fn descriptors() -> Option<[i32; 3]> {
    let arguments: Vec<String> = std::env::args().collect();
    let last = arguments.last_chunk::<3>()?;
    let numbers: Vec<i32> = last.iter().filter_map(|a| a.parse().ok()).collect();
    numbers.try_into().ok()
}

fn close_all_but(mut keep: [i32; 3]) {
    keep.sort_unstable();
    let mut from = 3;
    for fd in keep.into_iter().chain([i32::MAX]) {
        if from < fd {
            // SAFETY: descriptors that nobody in this process uses: it has just begun.
            unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) };
        }
        from = fd.saturating_add(1);
    }
}

/// Bytes of address space in use now.
fn address_space() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').next().and_then(|p| p.parse().ok()).unwrap_or(1 << 20);
    pages * 4096
}

fn handle_signals() {
    let stack = Box::leak(vec![0_u8; 1 << 16].into_boxed_slice());
    let alternate = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
    // SAFETY: the stack is never freed, and the handler only makes system calls.
    unsafe {
        libc::sigaltstack(&raw const alternate, std::ptr::null_mut());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigdelset(&raw mut action.sa_mask, libc::SIGSYS);
        for signal in SIGNALS {
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

const SIGNALS: [i32; 8] = [
    libc::SIGSYS,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGXCPU,
];

/// Reports and then waits to be killed, so that the parent can look at the process as it is.
unsafe extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands a handler valid pointers.
    let detail = unsafe { if signal == libc::SIGSYS { denied_call(info, context) } else { (*info).si_addr() as u64 } };
    tell(&Report::signal(signal, detail));
    let mut nothing = [0; 1];
    while hear(&mut nothing).is_some() {}
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(1) }
}

/// The number of the call that was denied, and whether it was to open a file for writing.
///
/// # Safety
/// Both must be what the kernel handed to a handler of `SIGSYS`.
unsafe fn denied_call(info: *mut libc::siginfo_t, context: *mut c_void) -> u64 {
    // SAFETY: `si_call_addr`, `si_syscall` and `si_arch` follow the header: one pointer and two words.
    let call = unsafe { info.cast::<u8>().add(16 + 8).cast::<i32>().read_unaligned() };
    // SAFETY: handed on.
    let flags = unsafe { open_flags(libc::c_long::from(call), context) };
    let writing = flags & (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64 != 0;
    u64::from(call as u32) | if writing { crate::sandbox::filter::WRITING } else { 0 }
}

#[cfg(target_arch = "x86_64")]
unsafe fn open_flags(call: libc::c_long, context: *mut c_void) -> u64 {
    // SAFETY: the caller's.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    match call {
        libc::SYS_openat => registers[libc::REG_RDX as usize] as u64,
        libc::SYS_open => registers[libc::REG_RSI as usize] as u64,
        _ => 0,
    }
}

#[cfg(target_arch = "aarch64")]
unsafe fn open_flags(call: libc::c_long, context: *mut c_void) -> u64 {
    // SAFETY: the caller's.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.regs };
    if call == libc::SYS_openat { registers[2] } else { 0 }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn open_flags(_: libc::c_long, _: *mut c_void) -> u64 {
    0
}

/// Sends one message to the parent. Safe in a signal handler.
fn tell(message: &[u8]) {
    // SAFETY: reads a slice.
    unsafe { libc::write(CONTROL.load(Ordering::Relaxed), message.as_ptr().cast(), message.len()) };
}

/// Waits for one message from the parent; `None` once it is gone. Safe in a signal handler.
fn hear(message: &mut [u8]) -> Option<usize> {
    loop {
        // SAFETY: writes into a slice.
        let length = unsafe { libc::read(CONTROL.load(Ordering::Relaxed), message.as_mut_ptr().cast(), message.len()) };
        if length > 0 {
            return Some(length as usize);
        }
        if length == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return None;
        }
    }
}
