//! The memory that a child shares with us: its arguments, and nothing else of ours.
#![expect(unsafe_code, reason = "maps memory")]

use crate::task::layout::{Array, PAGE, Plan};
use std::{
    io,
    ops::Range,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr::NonNull,
};

/// A shared segment of several slots, mapped here. Neither side can change its size.
pub(crate) struct Segment {
    memory: OwnedFd,
    base: NonNull<u8>,
    bytes: usize,
    slot_bytes: usize,
    zone: [u8; PAGE],
}

// SAFETY: the mapping belongs to this value alone and goes with it.
unsafe impl Send for Segment {}

impl Segment {
    /// A segment of `slots` slots, its red zones painted with a pattern drawn from `paint`.
    pub(crate) fn new(plan: &Plan, slots: usize, paint: u64) -> io::Result<Self> {
        let bytes = (plan.slot_bytes * slots).max(PAGE);
        let memory = sealed_memory(bytes)?;
        let base = map(&memory, bytes, libc::MAP_SHARED)?;
        let mut zone = [0; PAGE];
        for (at, place) in zone.chunks_exact_mut(8).enumerate() {
            let word = paint.wrapping_add(at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let mut segment = Self { memory, base, bytes, slot_bytes: plan.slot_bytes, zone };
        for slot in 0..slots {
            segment.paint(slot, plan);
        }
        Ok(segment)
    }

    /// The file that a child maps.
    pub(crate) fn memory(&self) -> &OwnedFd {
        &self.memory
    }

    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All of it.
    pub(crate) fn all(&self) -> &[u8] {
        self.part(0, 0..self.bytes)
    }

    /// An array of a slot.
    pub(crate) fn array(&self, slot: usize, array: &Array) -> &[u8] {
        self.part(slot, array.offset..array.offset + array.bytes)
    }

    /// An array of a slot, to be written.
    pub(crate) fn array_mut(&mut self, slot: usize, array: &Array) -> &mut [u8] {
        self.part_mut(slot, array.offset..array.offset + array.bytes)
    }

    /// Whether both red zones of an array are as they were painted.
    pub(crate) fn zones_are_intact(&self, slot: usize, array: &Array) -> bool {
        let intact = |zone| self.part(slot, zone).rchunks(PAGE).all(|part| part == &self.zone[PAGE - part.len()..]);
        zones(array).into_iter().all(intact)
    }

    fn paint(&mut self, slot: usize, plan: &Plan) {
        let pattern = self.zone;
        for zone in plan.arrays.iter().flat_map(zones) {
            for part in self.part_mut(slot, zone).rchunks_mut(PAGE) {
                part.copy_from_slice(&pattern[PAGE - part.len()..]);
            }
        }
    }

    fn part(&self, slot: usize, range: Range<usize>) -> &[u8] {
        let start = slot * self.slot_bytes + range.start;
        assert!(start + range.len() <= self.bytes, "the plan that laid it out stays within it");
        // SAFETY: within the mapping, which lives as long as `self`; the child is stopped whenever we read.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(start), range.len()) }
    }

    fn part_mut(&mut self, slot: usize, range: Range<usize>) -> &mut [u8] {
        let start = slot * self.slot_bytes + range.start;
        assert!(start + range.len() <= self.bytes, "the plan that laid it out stays within it");
        // SAFETY: as in `part`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(start), range.len()) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no borrow of it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The red zones around an array: a page before it, and the rest of its last page with a page more after it.
fn zones(array: &Array) -> [Range<usize>; 2] {
    [array.offset - PAGE..array.offset, array.offset + array.bytes..array.end_of_zone()]
}

fn sealed_memory(bytes: usize) -> io::Result<OwnedFd> {
    // SAFETY: plain system calls on a descriptor of our own.
    unsafe {
        let fd = libc::memfd_create(c"arguments".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let memory = OwnedFd::from_raw_fd(fd);
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
        if libc::ftruncate(fd, length) != 0 || libc::fcntl(fd, libc::F_ADD_SEALS, seals) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(memory)
    }
}

/// Maps all of a segment, to be shared or as a private copy, every page present at once.
pub(crate) fn map(memory: &impl AsRawFd, bytes: usize, sharing: i32) -> io::Result<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, sharing | libc::MAP_POPULATE);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, memory.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}
