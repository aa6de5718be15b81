//! Instruction sets: what each instruction reads and writes, by its mnemonic.
//!
//! The tables are data. An instruction that no table has is unknown, and nothing is ever moved past it.

use std::{collections::HashMap, sync::OnceLock};

/// An instruction set that primitives are printed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// x86-64 with AVX2 or AVX-512, in Intel's syntax.
    X86,
    /// `AArch64` with NEON.
    Neon,
    /// RISC-V with RVV 1.0.
    Rvv,
}

/// What an instruction does with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Written,
    Read,
    Updated,
    /// It names an address, whose memory is not accessed.
    Address,
    Constant,
}

/// A row of a table.
#[derive(Clone, Debug)]
pub(super) struct Signature {
    pub(super) operands: Vec<Use>,
    /// State that is no operand: the flags, the vector type.
    pub(super) reads: Vec<&'static str>,
    pub(super) writes: Vec<&'static str>,
}

type Table = HashMap<&'static str, Signature>;

impl Isa {
    /// The instruction set of a processor's architecture, by its name in Rust; none where there is no table for it.
    #[must_use]
    pub fn of(arch: &str) -> Option<Self> {
        match arch {
            "x86_64" => Some(Self::X86),
            "aarch64" => Some(Self::Neon),
            "riscv64" => Some(Self::Rvv),
            _ => None,
        }
    }

    /// What people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86-64 (AVX2, AVX-512)",
            Self::Neon => "AArch64 (NEON)",
            Self::Rvv => "RISC-V (RVV 1.0)",
        }
    }

    /// What goes before and behind its text where a C compiler reads it.
    pub(super) fn around(self) -> (&'static str, &'static str) {
        match self {
            Self::X86 => (".intel_syntax noprefix", ".att_syntax prefix"),
            Self::Neon => ("", ""),
            Self::Rvv => (".option push\n.option arch, +v", ".option pop"),
        }
    }

    /// What begins a remark behind an instruction.
    pub(super) fn remark(self) -> &'static str {
        if self == Self::Neon { "//" } else { "#" }
    }

    pub(super) fn signature(self, mnemonic: &str) -> Option<&'static Signature> {
        static TABLES: OnceLock<[Table; 3]> = OnceLock::new();
        let texts =
            [include_str!("tables/x86.toml"), include_str!("tables/neon.toml"), include_str!("tables/rvv.toml")];
        TABLES.get_or_init(|| texts.map(|text| table(text).unwrap_or_default()))[self as usize].get(mnemonic)
    }

    /// The register that a name stands for, the same for every width of one register; none where it names none.
    pub(super) fn register(self, name: &str) -> Option<String> {
        match self {
            Self::X86 => x86(name),
            Self::Neon => neon(name),
            Self::Rvv => rvv(name),
        }
    }
}

/// Reads a table; none where it is wrong, which a test rules out.
fn table(text: &'static str) -> Option<Table> {
    let rows: toml::Table = text.parse().ok()?;
    let mut table = Table::new();
    for (form, names) in &rows {
        let signature = signature(form)?;
        for name in names.as_str()?.split_whitespace() {
            // The rows are the program's own, read once.
            table.insert(String::leak(name.to_owned()), signature.clone());
        }
    }
    Some(table)
}

fn signature(form: &str) -> Option<Signature> {
    let mut signature = Signature { operands: vec![], reads: vec![], writes: vec![] };
    for word in form.split_whitespace() {
        match word {
            "w" => signature.operands.push(Use::Written),
            "r" => signature.operands.push(Use::Read),
            "u" => signature.operands.push(Use::Updated),
            "a" => signature.operands.push(Use::Address),
            "-" => signature.operands.push(Use::Constant),
            "+flags" => signature.writes.push("flags"),
            "+vtype" => signature.writes.push("vtype"),
            "?vtype" => signature.reads.push("vtype"),
            _ => return None,
        }
    }
    Some(signature)
}

const X86_NAMED: [&str; 8] = ["ax", "bx", "cx", "dx", "si", "di", "bp", "sp"];

fn number(name: &str, prefix: &str, below: u32) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    digits.parse().ok().filter(|n| *n < below && digits.chars().all(|c| c.is_ascii_digit()))
}

fn x86(name: &str) -> Option<String> {
    let vector = ["xmm", "ymm", "zmm"].iter().find_map(|prefix| number(name, prefix, 32));
    if let Some(n) = vector {
        return Some(format!("v{n}"));
    }
    if let Some(n) = number(name, "k", 8) {
        return Some(format!("k{n}"));
    }
    let wide = name.strip_suffix('d').unwrap_or(name);
    if let Some(n) = number(wide, "r", 16).filter(|n| *n >= 8) {
        return Some(format!("r{n}"));
    }
    // Parts of 8 and 16 bits keep the rest of their register: they are no names here, so who uses one is unknown.
    let named = name.strip_prefix(['r', 'e'])?;
    X86_NAMED.contains(&named).then(|| format!("r{named}"))
}

fn neon(name: &str) -> Option<String> {
    if let Some(n) = ["v", "q", "d", "s", "h", "b"].iter().find_map(|prefix| number(name, prefix, 32)) {
        return Some(format!("v{n}"));
    }
    let general = ["x", "w"].iter().find_map(|prefix| number(name, prefix, 31));
    general.map(|n| format!("x{n}")).or((name == "sp").then(|| "sp".to_owned()))
}

const RVV_INTEGER: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "s2",
    "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];
const RVV_FLOAT: [&str; 32] = [
    "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "fs0", "fs1", "fa0", "fa1", "fa2", "fa3", "fa4", "fa5",
    "fa6", "fa7", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9", "fs10", "fs11", "ft8", "ft9", "ft10", "ft11",
];

fn rvv(name: &str) -> Option<String> {
    if let Some(n) = number(name, "v", 32) {
        return Some(format!("v{n}"));
    }
    let at = |names: [&str; 32]| names.iter().position(|known| *known == name).map(|n| n as u32);
    let integer = number(name, "x", 32).or_else(|| at(RVV_INTEGER)).or((name == "fp").then_some(8));
    let float = number(name, "f", 32).or_else(|| at(RVV_FLOAT));
    integer.filter(|n| *n > 0).map(|n| format!("x{n}")).or(float.map(|n| format!("f{n}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_reads_and_knows_its_multiply_add() {
        for (isa, mnemonic, unknown) in
            [(Isa::X86, "vfmadd231ps", "vzeroupper"), (Isa::Neon, "fmla", "bl"), (Isa::Rvv, "vfmacc.vf", "bnez")]
        {
            let signature = isa.signature(mnemonic).unwrap();
            assert_eq!(signature.operands, [Use::Updated, Use::Read, Use::Read], "{mnemonic}");
            assert!(isa.signature(unknown).is_none(), "{unknown} never moves");
        }
    }

    #[test]
    fn each_width_of_a_register_is_the_same_register_and_a_part_is_none() {
        let same = [
            (Isa::X86, ["xmm3", "zmm3"]),
            (Isa::X86, ["eax", "rax"]),
            (Isa::X86, ["r9d", "r9"]),
            (Isa::Neon, ["q7", "v7"]),
            (Isa::Neon, ["w2", "x2"]),
            (Isa::Rvv, ["a0", "x10"]),
            (Isa::Rvv, ["fa0", "f10"]),
        ];
        for (isa, [one, other]) in same {
            assert!(isa.register(one).is_some() && isa.register(one) == isa.register(other), "{one} {other}");
        }
        for (isa, none) in
            [(Isa::X86, "al"), (Isa::X86, "ptr"), (Isa::X86, "zmm32"), (Isa::Neon, "xzr"), (Isa::Rvv, "zero")]
        {
            assert_eq!(isa.register(none), None, "{none}");
        }
    }
}
