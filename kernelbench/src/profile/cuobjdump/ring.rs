//! Does a kernel give a place in shared memory back to bulk copies while it still reads it?
//!
//! Ordinary loads from shared memory and bulk copies into it take different ways to it (the generic and the async proxy; PTX
//! ISA, "Async proxy"). A barrier that a warp arrives at does not order loads of its own before the copy that the barrier
//! sets free, unless they have come back or a proxy fence stands between; and a compiler waits for a load only where its
//! value is used, which may be behind the arrival. Such a kernel is right nearly always. Machine code shows it: on every
//! architecture since Volta an instruction says which of six counters it will lower when it is done, and which it waits for
//! (Jia et al. 2018, arXiv:1804.06826, §2.1). What is looked at is straight lines alone, of kernels with bulk copies.

use super::{instruction, mnemonic};

/// A kernel that may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GivenBack {
    /// Its name, as the linker has it.
    pub(crate) kernel: String,
    /// The instruction that gives a place back.
    pub(crate) at: String,
    /// The loads that are under way then.
    pub(crate) loads: Vec<String>,
}

/// Counters of an instruction's control bits.
const COUNTERS: usize = 6;

/// The first such place of each kernel of a disassembly by `cuobjdump -sass`.
pub(crate) fn given_back_early(sass: &str) -> Vec<GivenBack> {
    let mut kernels: Vec<(String, Vec<Instruction<'_>>)> = vec![];
    let mut lines = sass.lines().peekable();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix("Function : ") {
            kernels.push((name.to_owned(), vec![]));
        } else if let (Some((_, instructions)), Some(text)) = (kernels.last_mut(), instruction(line)) {
            let control = lines.peek().and_then(|next| encoding(next.trim()));
            instructions.extend(control.map(|high| Instruction { text, control: Control::of(high) }));
        }
    }
    kernels.into_iter().filter_map(|(kernel, instructions)| first_in(kernel, &instructions)).collect()
}

struct Instruction<'a> {
    text: &'a str,
    control: Control,
}

/// What an instruction says of the counters.
struct Control {
    /// The one that it lowers when its result is there.
    lowers: Option<usize>,
    /// Those it waits for, a bit each.
    waits: u64,
}

impl Control {
    /// Of the upper half of an instruction's 128 bits: 21 bits from the 41st, four for stalls, one to yield, three for the
    /// counter of its result, three for that of its operands, six for those it waits for.
    fn of(high: u64) -> Self {
        let control = high >> 41;
        let lowers = (control >> 5 & 7) as usize;
        Self { lowers: (lowers < COUNTERS).then_some(lowers), waits: control >> 11 & 63 }
    }
}

/// `/* 0x000fe20000000800 */`
fn encoding(line: &str) -> Option<u64> {
    u64::from_str_radix(line.strip_prefix("/* 0x")?.strip_suffix("*/")?.trim(), 16).ok()
}

fn first_in(kernel: String, instructions: &[Instruction<'_>]) -> Option<GivenBack> {
    let names: Vec<&str> = instructions.iter().map(|one| mnemonic(one.text).unwrap_or_default()).collect();
    // Into shared memory: from there to elsewhere nothing is filled.
    if !names.iter().any(|name| name.starts_with("UBLKCP.S") || name.starts_with("UTMALDG")) {
        return None;
    }
    let mut under_way: [Vec<&str>; COUNTERS] = Default::default();
    for (Instruction { text, control }, name) in instructions.iter().zip(&names) {
        for (counter, loads) in under_way.iter_mut().enumerate() {
            if control.waits >> counter & 1 == 1 {
                loads.clear();
            }
        }
        if ["MEMBAR", "FENCE"].iter().any(|fence| name.starts_with(fence)) || goes_on_elsewhere(text, name) {
            under_way = Default::default();
            continue;
        }
        let arrives = name.starts_with("SYNCS.ARRIVE") && name.contains("A1T0")
            || name.starts_with("BAR.SYNC")
            || name.starts_with("BAR.ARV");
        let loads: Vec<String> = under_way.iter().flatten().map(|load| (*load).to_owned()).collect();
        if arrives && !loads.is_empty() {
            return Some(GivenBack { kernel, at: (*text).to_owned(), loads });
        }
        // Others may count on the same counter: whoever waits for it waits for all.
        if let Some(counter) = control.lowers.filter(|_| name.starts_with("LDS")) {
            under_way[counter].push(text);
        }
    }
    None
}

/// Whether what stands next is reached from elsewhere alone. A branch with a predicate, or for some of a warp, may be passed.
fn goes_on_elsewhere(text: &str, name: &str) -> bool {
    let may_be_passed = text.starts_with('@') || name.starts_with("BRA.DIV") || text.contains("UP");
    let ends = ["BRA", "BRX", "JMP", "JMX", "EXIT", "RET"].iter().any(|end| name.split('.').next() == Some(end));
    ends && !may_be_passed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ring.cu`, by nvcc 13.0 for `sm_90a`: one kernel with a fence before it gives a place back, one without.
    const RING: &str = include_str!("../../../tests/cuobjdump/ring.txt");

    #[test]
    fn a_place_that_is_given_back_while_it_is_read_is_found_and_with_a_fence_before_it_is_not() {
        let [found] = &given_back_early(RING)[..] else { panic!("{:?}", given_back_early(RING)) };
        assert_eq!(found.kernel, "_Z4ringILb0EEvPK6float4Pfi");
        assert!(found.at.starts_with("SYNCS.ARRIVE.TRANS64.A1T0"), "{found:?}");
        assert!(!found.loads.is_empty() && found.loads.iter().all(|load| load.starts_with("LDS.128")), "{found:?}");
        // Where nothing fills the place but ordinary stores, the barrier is enough.
        assert_eq!(given_back_early(&RING.replace("UBLKCP", "STS")), []);
        assert_eq!(given_back_early(&RING.replace("UBLKCP.S.G", "UBLKCP.G.S")), [], "copies out fill nothing");
    }

    #[test]
    fn whoever_waits_for_its_loads_before_it_arrives_is_not_suspected() {
        let line = |address: u32, text: &str, control: u64| {
            format!("        /*{address:04x}*/  {text} ;  /* 0x0000000000000000 */\n  /* 0x{:016x} */\n", control << 41)
        };
        // Counter 2 is lowered by the load; 7 is none.
        let none = 7 << 5;
        let code = |waits: u64, (between, lowers): (&str, u64)| {
            let lines = [
                line(0x10, "UBLKCP.S.G [UR6], [UR4], UR8", none),
                line(0x20, "@P0 LDS R4, [R2]", 2 << 5),
                line(0x30, between, lowers),
                line(0x40, "SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R20+URZ], RZ", none | waits << 11),
            ];
            format!("\t\tFunction : k\n{}", lines.concat())
        };
        let found = |waits: u64, between: &str| given_back_early(&code(waits, (between, none))).len();
        assert_eq!((found(0, "NOP"), found(1 << 2, "NOP")), (1, 0));
        assert_eq!(found(1 << 3, "NOP"), 1, "it waits for another");
        assert_eq!((found(0, "FENCE.VIEW.ASYNC.S"), found(0, "BRA 0x3a0")), (0, 0));
        assert_eq!((found(0, "@P1 BRA 0x3a0"), found(0, "BRA.U UP0, 0x3a0")), (1, 1), "it may go on");
        // Another instruction lowers the same counter, and a second load does: both are under way.
        assert_eq!(given_back_early(&code(0, ("MUFU.EX2 R9, R9", 2 << 5))).len(), 1);
        assert_eq!(given_back_early(&code(0, ("LDS R5, [R3]", 2 << 5)))[0].loads.len(), 2);
    }

    #[test]
    fn what_is_no_disassembly_holds_nothing() {
        for text in ["", "Function : k", "\t\tFunction : k\n/*0010*/ LDS R1, [R2] ; /* 0x1 */", "/*zz*/ x\n/* 0x */"] {
            assert_eq!(given_back_early(text), [], "{text:?}");
        }
    }
}
