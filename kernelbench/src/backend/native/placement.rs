//! Where the arrays of a case lie between their guard pages.
//!
//! Each array has a room of its own: its length in whole pages, and a page more. The pages between rooms cannot be read or
//! written, and what is left of a room is painted. An array lies at its room's start or at its end, right beside a guard, or
//! one element past the start, where it has no alignment but its type's.

use crate::task::layout::{KernelArg, Layout, PAGE};
use serde::{Deserialize, Serialize};

/// Where in its room an array lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Placement {
    /// At the start, which is that of a page: timed calls find it there.
    #[default]
    Start,
    /// At the end.
    End,
    /// One element past the start.
    Odd,
}

/// All of them.
pub(super) const PLACEMENTS: [Placement; 3] = [Placement::Start, Placement::End, Placement::Odd];

/// The pages of a segment that its child is not to touch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Guards {
    /// From and to, in bytes from the start of a slot.
    pub(crate) ranges: Vec<[usize; 2]>,
    /// Bytes of a slot.
    pub(crate) slot_bytes: usize,
    /// Slots.
    pub(crate) slots: usize,
}

/// The same arrays with a room each, from a multiple of a page on.
pub(super) fn with_rooms(mut layout: Layout, from: usize) -> Layout {
    layout.slot_bytes = from + PAGE;
    for array in &mut layout.arrays {
        let start = layout.slot_bytes;
        array.offset = start;
        array.room = start..start + array.bytes.next_multiple_of(PAGE) + PAGE;
        layout.slot_bytes = array.room.end + PAGE;
    }
    pass(&mut layout);
    layout
}

/// The same arrays elsewhere in their rooms, each at a multiple of `align` bytes.
pub(super) fn placed(layout: &Layout, placement: Placement, align: usize) -> Layout {
    let mut layout = layout.clone();
    for array in &mut layout.arrays {
        array.offset = match placement {
            Placement::Start => array.room.start,
            Placement::End => (array.room.end - array.bytes) / align * align,
            Placement::Odd => array.room.start + array.dtype.bytes().next_multiple_of(align),
        };
    }
    pass(&mut layout);
    layout
}

/// The guards of layouts that lie one behind the other in each slot.
pub(super) fn guards(layouts: &[Layout], slots: usize) -> Guards {
    let slot_bytes = layouts.last().map_or(0, |layout| layout.slot_bytes);
    let (mut ranges, mut from) = (vec![], 0);
    for array in layouts.iter().flat_map(|layout| &layout.arrays) {
        ranges.push([from, array.room.start]);
        from = array.room.end;
    }
    ranges.push([from, slot_bytes]);
    Guards { ranges, slot_bytes, slots }
}

/// Passes the arrays where they lie.
fn pass(layout: &mut Layout) {
    let mut offsets = layout.arrays.iter().map(|array| array.offset);
    for passed in &mut layout.passed {
        if let (KernelArg::Array(at), Some(offset)) = (passed, offsets.next()) {
            *at = offset;
        }
    }
}
