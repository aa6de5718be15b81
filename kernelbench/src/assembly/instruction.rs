//! One instruction: the registers and the memory that it reads and writes, and whether it may change places with another.

use super::isa::{Isa, Use};
use std::collections::BTreeSet;

/// An access to memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Access {
    stores: bool,
    /// The address without its constant part.
    base: String,
    /// The bytes from the base that it covers, where they are known.
    bytes: Option<(i64, i64)>,
}

/// What an instruction reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    reads: BTreeSet<String>,
    writes: BTreeSet<String>,
    memory: Vec<Access>,
}

/// Registers that are always zero.
const NOTHING: [&str; 4] = ["zero", "x0", "xzr", "wzr"];

impl Effects {
    /// What an instruction does; none where that is not known in full. `group` is how many registers a vector may span.
    pub(super) fn of(isa: Isa, text: &str, group: u32) -> Option<Self> {
        let (mnemonic, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let signature = isa.signature(&mnemonic.to_ascii_lowercase())?;
        let mut operands = operands(&rest.to_ascii_lowercase());
        let mut effects = Self::default();
        if isa == Isa::Rvv && operands.last().is_some_and(|last| last == "v0.t") {
            operands.pop();
            effects.read(isa, operands.first()?, group);
            effects.reads.insert("v0".to_owned());
        }
        let moved = if isa == Isa::Neon { take_moved_base(&mut operands) } else { None };
        if operands.len() != signature.operands.len() {
            return None;
        }
        for (operand, used) in operands.iter().zip(&signature.operands) {
            effects.take_in(isa, operand, *used, group)?;
        }
        if let Some((base, by)) = moved {
            effects.writes.insert(isa.register(&base)?);
            effects.read(isa, &by, 1);
            effects.memory.iter_mut().for_each(|access| access.bytes = None);
        }
        effects.size_accesses(isa, mnemonic, &operands);
        effects.reads.extend(signature.reads.iter().map(ToString::to_string));
        effects.writes.extend(signature.writes.iter().map(ToString::to_string));
        Some(effects)
    }

    fn take_in(&mut self, isa: Isa, operand: &str, used: Use, group: u32) -> Option<()> {
        if let Some((base, at)) = address(isa, operand) {
            self.read(isa, operand, 1);
            if used != Use::Address {
                let stores = used != Use::Read;
                self.memory.push(Access { stores, base, bytes: at.map(|at| (at, at)) });
                if used == Use::Updated {
                    self.memory.push(Access { stores: false, ..self.memory.last()?.clone() });
                }
            }
            return Some(());
        }
        match used {
            Use::Constant => {}
            // A range of registers is not taken apart here.
            _ if isa == Isa::Neon && operand.contains('-') && operand.starts_with('{') => return None,
            Use::Read | Use::Address => {
                let registers = registers(isa, operand, group);
                // A part of a register, such as `cl`, is no name here: what it is read for is not known.
                let constant =
                    operand.starts_with(['#', '-', '+']) || operand.starts_with(|c: char| c.is_ascii_digit());
                if registers.is_empty() && !constant && !NOTHING.contains(&operand) {
                    return None;
                }
                self.reads.extend(registers);
            }
            Use::Written | Use::Updated => {
                let registers = registers(isa, operand, group);
                if registers.is_empty() && !NOTHING.contains(&operand) {
                    return None;
                }
                // What is masked, or one lane, leaves the rest as it was.
                let partial = operand.contains('[') || (isa != Isa::Neon && operand.contains('{'));
                if used == Use::Updated || partial {
                    self.reads.extend(registers.iter().cloned());
                }
                let masks: BTreeSet<String> = registers.iter().filter(|name| name.starts_with('k')).cloned().collect();
                let own = operand.starts_with('k');
                self.writes.extend(registers.into_iter().filter(|name| own || !masks.contains(name)));
            }
        }
        Some(())
    }

    fn read(&mut self, isa: Isa, operand: &str, group: u32) {
        self.reads.extend(registers(isa, operand, group));
    }

    /// Where every accessed byte is known: whole vectors at a constant distance from a base.
    fn size_accesses(&mut self, isa: Isa, mnemonic: &str, operands: &[String]) {
        let register = operands.iter().find(|operand| address(isa, operand).is_none());
        let bytes = register.and_then(|register| width(isa, mnemonic, register));
        for access in &mut self.memory {
            access.bytes = access.bytes.zip(bytes).map(|((at, _), bytes)| (at, at + bytes));
        }
    }

    /// Whether the other must stay on its side of this one.
    pub(super) fn depends(&self, other: &Self) -> bool {
        let meets = |one: &BTreeSet<String>, other: &BTreeSet<String>| one.iter().any(|name| other.contains(name));
        let aliases = |one: &Access| other.memory.iter().any(|two| (one.stores || two.stores) && one.may_be(two));
        meets(&self.writes, &other.reads)
            || meets(&self.writes, &other.writes)
            || meets(&self.reads, &other.writes)
            || self.memory.iter().any(aliases)
    }
}

impl Access {
    /// Whether both may touch the same byte. The base has the same value for both: an instruction between them that changes
    /// it keeps them in their order.
    fn may_be(&self, other: &Self) -> bool {
        match (self.bytes, other.bytes) {
            (Some(one), Some(two)) if self.base == other.base => one.0 < two.1 && two.0 < one.1,
            _ => true,
        }
    }
}

/// The operands, split at commas outside brackets.
fn operands(text: &str) -> Vec<String> {
    let (mut found, mut depth) = (vec![String::new()], 0);
    for c in text.trim().chars() {
        match c {
            '[' | '{' | '(' => depth += 1,
            ']' | '}' | ')' => depth -= 1,
            _ => {}
        }
        match found.last_mut() {
            Some(last) if c != ',' || depth > 0 => last.push(c),
            _ => found.push(String::new()),
        }
    }
    found.into_iter().map(|operand| operand.trim().to_owned()).filter(|operand| !operand.is_empty()).collect()
}

/// The base register of an address that the instruction moves on (`[x0], #16` or `[x0, #16]!`), and by what; what stands
/// behind the address is taken away.
fn take_moved_base(operands: &mut Vec<String>) -> Option<(String, String)> {
    let at = operands.iter().position(|operand| operand.starts_with('['))?;
    let behind = operands.split_off(at + 1).join(",");
    let before = operands[at].ends_with('!');
    let inside = operands[at].trim_matches(['[', ']', '!']).split(',').next()?.trim().to_owned();
    (before || !behind.is_empty()).then_some((inside, behind))
}

/// The address that an operand names: its base, and the constant part where it is one; none where it names no memory.
fn address(isa: Isa, operand: &str) -> Option<(String, Option<i64>)> {
    match isa {
        Isa::X86 => {
            let inside = operand.split_once('[')?.1.split_once(']')?.0.replace(' ', "");
            if operand.contains(':') {
                return Some((operand.to_owned(), None));
            }
            let (base, constant) = inside.rfind(['+', '-']).map_or((&inside[..], ""), |at| inside.split_at(at));
            Some(match (constant.is_empty(), integer(constant)) {
                (true, _) => (inside.clone(), Some(0)),
                (_, Some(at)) if !base.contains("rip") => (base.to_owned(), Some(at)),
                _ => (inside.clone(), (!inside.contains("rip")).then_some(0)),
            })
        }
        Isa::Neon => {
            let inside = operand.strip_prefix('[')?.trim_end_matches(['!', ']']);
            let (base, constant) = inside.split_once(',').unwrap_or((inside, "#0"));
            let at = integer(constant.trim().trim_start_matches('#'));
            Some((if at.is_some() { base.trim().to_owned() } else { inside.to_owned() }, at))
        }
        Isa::Rvv => {
            let (constant, rest) = operand.split_once('(')?;
            let at = if constant.trim().is_empty() { Some(0) } else { integer(constant.trim()) };
            Some((rest.trim_end_matches(')').to_owned(), at))
        }
    }
}

fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = digits.strip_prefix("0x").map_or_else(|| digits.parse().ok(), |hex| i64::from_str_radix(hex, 16).ok());
    value.map(|value| sign * value)
}

/// The bytes that a move of this register covers, where they are known.
fn width(isa: Isa, mnemonic: &str, register: &str) -> Option<i64> {
    let one_float = ["vmovss", "vbroadcastss", "flw", "fsw"].contains(&mnemonic);
    let starts = |prefix: &str| register.starts_with(prefix);
    match isa {
        _ if one_float => Some(4),
        Isa::X86 if register.contains('{') => None,
        Isa::X86 if mnemonic.starts_with("vmovup") || mnemonic.starts_with("vmovap") => {
            [("xmm", 16), ("ymm", 32), ("zmm", 64)].iter().find(|(name, _)| starts(name)).map(|(_, bytes)| *bytes)
        }
        Isa::Neon if ["ldr", "str", "ldur", "stur"].contains(&mnemonic) => {
            [("q", 16), ("d", 8), ("s", 4), ("x", 8), ("w", 4)].iter().find(|(name, _)| starts(name)).map(|(_, b)| *b)
        }
        _ => None,
    }
}

/// Every register that an operand names; of a vector all that its group may span.
fn registers(isa: Isa, operand: &str, group: u32) -> BTreeSet<String> {
    let words = operand.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let mut found: BTreeSet<String> = words.filter_map(|word| isa.register(word)).collect();
    if isa == Isa::Rvv && group > 1 {
        let vectors: Vec<u32> = found.iter().filter_map(|name| name.strip_prefix('v')?.parse().ok()).collect();
        found.extend(vectors.into_iter().flat_map(|n| (n..n + group).map(|n| format!("v{n}"))));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depend(isa: Isa, one: &str, other: &str) -> Option<bool> {
        Some(Effects::of(isa, one, 1)?.depends(&Effects::of(isa, other, 1)?))
    }

    #[test]
    fn what_depends_through_a_register_or_memory_is_told_on_x86() {
        for (one, other, expected) in [
            ("vmovups ymm0, [rsi]", "vmovups ymm1, [rsi+32]", Some(false)),
            ("vmovups ymm0, [rsi]", "vfmadd231ps ymm4, ymm0, ymm2", Some(true)),
            ("vfmadd231ps ymm4, ymm0, ymm2", "vfmadd231ps ymm4, ymm1, ymm2", Some(true)),
            ("vfmadd231ps ymm4, ymm0, ymm2", "vfmadd231ps ymm5, ymm0, ymm2", Some(false)),
            ("vfmadd231ps ymm4, ymm0, ymm2", "vmovups ymm0, [rsi]", Some(true)),
            ("vmovups [rdi], ymm0", "vmovups [rdi+32], ymm1", Some(false)),
            ("vmovups [rdi], ymm0", "vmovups [rdi+16], ymm1", Some(true)),
            ("vmovups [rdi], ymm0", "vmovups ymm1, [rsi]", Some(true)),
            ("vmovups [rdi], ymm0", "prefetcht0 [rsi+256]", Some(false)),
            ("vmovups [rdi+8*rcx], ymm0", "vmovups [rdi+8*rcx+32], ymm1", Some(false)),
            ("vmovups [rdi+rcx], ymm0", "vmovups [rdi+rdx], ymm1", Some(true)),
            ("add rsi, 32", "vmovups ymm0, [rsi]", Some(true)),
            ("add rsi, 32", "add rdi, 32", Some(true)),
            ("lea rax, [rsi+8]", "vmovups [rdi], ymm0", Some(false)),
            ("vbroadcastss zmm0, dword ptr [rax]", "vbroadcastss zmm1, dword ptr [rax+4]", Some(false)),
            ("vmovups zmm0{k1}{z}, [rax]", "kmovw k1, eax", Some(true)),
            ("vzeroupper", "vmovups ymm0, [rsi]", None),
            ("mov al, 1", "mov rcx, 2", None),
            ("shl rax, cl", "mov rcx, 2", None),
            ("shl rax, 5", "mov rcx, 2", Some(false)),
            ("vmovups ymm0, fs:[rsi]", "vmovups [rsi+32], ymm1", Some(true)),
        ] {
            assert_eq!(depend(Isa::X86, one, other), expected, "{one} | {other}");
        }
    }

    #[test]
    fn and_on_neon_and_rvv() {
        for (isa, one, other, expected) in [
            (Isa::Neon, "ldr q0, [x0]", "ldr q1, [x0, #16]", Some(false)),
            (Isa::Neon, "ldr q0, [x0], #16", "ldr q1, [x0]", Some(true)),
            (Isa::Neon, "ldr q0, [x0, #16]!", "ldr q1, [x1]", Some(false)),
            (Isa::Neon, "fmla v8.4s, v0.4s, v4.s[0]", "fmla v9.4s, v0.4s, v4.s[1]", Some(false)),
            (Isa::Neon, "ldr q0, [x0], x3", "add x3, x4, x5", Some(true)),
            (Isa::Neon, "fmla v8.4s, v0.4s, v4.s[0]", "ldr q4, [x1]", Some(true)),
            (Isa::Neon, "ldp q0, q1, [x0], #32", "ldp q2, q3, [x1], #32", Some(false)),
            (Isa::Neon, "str q0, [x0]", "str q1, [x0, #16]", Some(false)),
            (Isa::Neon, "st1 {v0.4s}, [x0]", "ldr q1, [x1]", Some(true)),
            (Isa::Neon, "ld1 {v0.4s-v3.4s}, [x0]", "ldr q9, [x1]", None),
            (Isa::Rvv, "vle32.v v0, (a0)", "vle32.v v1, (a1)", Some(false)),
            (Isa::Rvv, "vle32.v v0, (a0)", "vfmacc.vf v8, ft0, v0", Some(true)),
            (Isa::Rvv, "flw ft0, 0(a1)", "flw ft1, 4(a1)", Some(false)),
            (Isa::Rvv, "vse32.v v0, (a0)", "vle32.v v1, (a1)", Some(true)),
            (Isa::Rvv, "vsetvli t0, a2, e32, m1, ta, ma", "vle32.v v0, (a0)", Some(true)),
        ] {
            assert_eq!(depend(isa, one, other), expected, "{one} | {other}");
        }
        let grouped = |text| Effects::of(Isa::Rvv, text, 4).unwrap();
        assert!(grouped("vle32.v v0, (a0)").depends(&grouped("vfmacc.vf v8, ft0, v3")), "v3 is a part of v0's group");
    }
}
