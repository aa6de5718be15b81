//! The signals of a child that runs a kernel: each is reported to the parent, which then ends the child.
#![expect(unsafe_code, reason = "handles signals")]

use super::filter::WRITING;
use std::{
    ffi::c_void,
    sync::atomic::{AtomicI32, Ordering},
};

/// The first byte of a report; an answer in words, or to a `go`, begins otherwise.
pub(crate) const SIGNAL: u8 = 1;
/// Bytes of a report.
const REPORT: usize = 17;

/// Where the handler reports.
static CONTROL: AtomicI32 = AtomicI32::new(-1);

const HANDLED: [i32; 8] = [
    libc::SIGSYS,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGXCPU,
];

/// What a child's handler said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// The signal.
    pub(crate) signal: i32,
    /// For `SIGSYS` the number of the refused call, with [`WRITING`] where it was to open a file for writing; else the
    /// address that was touched.
    pub(crate) detail: u64,
}

impl Report {
    /// The report in a message, if it is one.
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        let (kind, rest) = message.split_first()?;
        let (signal, detail) = rest.split_first_chunk()?;
        let signal = i32::try_from(u64::from_ne_bytes(*signal)).ok()?;
        let detail = u64::from_ne_bytes(detail.try_into().ok()?);
        (*kind == SIGNAL).then_some(Self { signal, detail })
    }

    fn write(self) -> [u8; REPORT] {
        let mut bytes = [SIGNAL; REPORT];
        bytes[1..9].copy_from_slice(&u64::from(self.signal.unsigned_abs()).to_ne_bytes());
        bytes[9..].copy_from_slice(&self.detail.to_ne_bytes());
        bytes
    }
}

/// Has the signals of this process reported on this descriptor from here on.
pub(crate) fn report_on(control: i32) {
    CONTROL.store(control, Ordering::Relaxed);
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
        for signal in HANDLED {
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Reports and then waits to be killed, so that the parent can look at the process as it is.
unsafe extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands a handler valid pointers.
    let detail = unsafe { if signal == libc::SIGSYS { denied_call(info, context) } else { (*info).si_addr() as u64 } };
    let report = Report { signal, detail }.write();
    let control = CONTROL.load(Ordering::Relaxed);
    let mut nothing = [0_u8; 1];
    // SAFETY: writes and reads arrays of ours, and ends the process once the parent is gone.
    unsafe {
        libc::write(control, report.as_ptr().cast(), report.len());
        loop {
            let length = libc::read(control, nothing.as_mut_ptr().cast(), 1);
            if length == 0 || (length < 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR)) {
                break;
            }
        }
        libc::_exit(1)
    }
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
    u64::from(call as u32) | if writing { WRITING } else { 0 }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written_and_nothing_else_is() {
        let report = Report { signal: libc::SIGSYS, detail: WRITING | 7 };
        assert_eq!(Report::read(&report.write()), Some(report));
        assert_eq!(Report::read(b"{\"nonce\": 1}...."), None);
        assert_eq!(Report::read(&report.write()[..16]), None);
    }
}
