//! The memory that a child shares with us: its arguments, and nothing else of ours.
#![expect(unsafe_code, reason = "maps memory")]

use super::placement::Guards;
use crate::task::layout::{Array, Layout, PAGE};
use nix::{
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::{
        memfd::{MFdFlags, memfd_create},
        mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap},
    },
    unistd::ftruncate,
};
use std::{
    ffi::c_void,
    io,
    num::NonZeroUsize,
    ops::Range,
    os::fd::{AsFd, OwnedFd},
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
    /// A segment of `slots` slots of so many bytes, and the pattern of its red zones, drawn from `paint`.
    pub(crate) fn new(slot_bytes: usize, slots: usize, paint: u64) -> io::Result<Self> {
        let bytes = (slot_bytes * slots).max(PAGE);
        let memory = sealed_memory(bytes)?;
        let base = map(&memory, bytes, MapFlags::MAP_SHARED)?;
        let mut zone = [0; PAGE];
        for (at, place) in zone.chunks_exact_mut(8).enumerate() {
            let word = paint.wrapping_add(at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            place.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(Self { memory, base, bytes, slot_bytes, zone })
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

    /// Paints the red zones of a slot.
    pub(crate) fn paint(&mut self, slot: usize, plan: &Layout) {
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
        let _ = unsafe { munmap(self.base.cast::<c_void>(), self.bytes) };
    }
}

/// The red zones around an array: what its room has before and after it.
fn zones(array: &Array) -> [Range<usize>; 2] {
    [array.room.start..array.offset, array.offset + array.bytes..array.room.end]
}

fn sealed_memory(bytes: usize) -> io::Result<OwnedFd> {
    let memory = memfd_create(c"arguments", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    ftruncate(&memory, i64::try_from(bytes).map_err(io::Error::other)?)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&memory, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(memory)
}

/// Takes the guard pages of a mapping away from this process.
pub(crate) fn guard(base: NonNull<u8>, guards: &Guards) -> io::Result<()> {
    for slot in 0..guards.slots {
        for [from, to] in guards.ranges.iter().map(|range| range.map(|at| slot * guards.slot_bytes + at)) {
            // SAFETY: pages of our own mapping that hold nothing.
            unsafe { mprotect(base.add(from).cast(), to - from, ProtFlags::PROT_NONE) }?;
        }
    }
    Ok(())
}

/// Maps all of a segment, to be shared, behind so many bytes that cannot be touched: no call that changes the mappings from
/// there on, and is no longer than they are, reaches the segment.
pub(crate) fn map_behind(memory: &impl AsFd, bytes: usize, moat: usize) -> io::Result<NonNull<u8>> {
    let all = NonZeroUsize::new(moat + bytes + PAGE).ok_or_else(|| io::Error::other("a segment of no length"))?;
    let reserved = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let start = unsafe { mmap_anonymous(None, all, ProtFlags::PROT_NONE, reserved) }?;
    let at = NonZeroUsize::new(start.as_ptr() as usize + moat);
    let (length, sharing) =
        (NonZeroUsize::new(bytes), MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE | MapFlags::MAP_FIXED);
    let length = length.ok_or_else(|| io::Error::other("a segment of no length"))?;
    // SAFETY: over a part of what was just reserved.
    let base = unsafe { mmap(at, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, sharing, memory, 0) }?;
    Ok(base.cast())
}

/// Maps all of a segment, to be shared or as a private copy, every page present at once.
pub(crate) fn map(memory: &impl AsFd, bytes: usize, sharing: MapFlags) -> io::Result<NonNull<u8>> {
    let length = NonZeroUsize::new(bytes).ok_or_else(|| io::Error::other("a segment of no length"))?;
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let base = unsafe { mmap(None, length, protection, sharing | MapFlags::MAP_POPULATE, memory, 0) }?;
    Ok(base.cast())
}
