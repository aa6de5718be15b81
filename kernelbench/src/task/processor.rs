//! Processors that a task may be written for and that are not here: they are emulated (QiMeng-TensorOp §4.1).

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A processor of `QiMeng-TensorOp`'s that there is an emulator for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Processor {
    /// Arm Cortex-A72: `AArch64` with NEON.
    A72,
    /// Arm Cortex-A76: `AArch64` with NEON.
    A76,
    /// `XuanTie` C908: RISC-V with RVV 1.0, vectors of 128 bits.
    C908,
    /// `SpacemiT` K1: RISC-V with RVV 1.0, vectors of 256 bits.
    K1,
}

impl Processor {
    /// All that there are.
    pub const ALL: [Self; 4] = [Self::A72, Self::A76, Self::C908, Self::K1];

    /// What the records of hardware call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::A72 => "A72",
            Self::A76 => "A76",
            Self::C908 => "C908",
            Self::K1 => "K1",
        }
    }

    /// What its makers call it.
    #[must_use]
    pub const fn full_name(self) -> &'static str {
        match self {
            Self::A72 => "Cortex-A72",
            Self::A76 => "Cortex-A76",
            Self::C908 => "XuanTie C908",
            Self::K1 => "SpacemiT K1",
        }
    }

    /// Its architecture, as Rust and QEMU name it.
    #[must_use]
    pub const fn arch(self) -> &'static str {
        match self {
            Self::A72 | Self::A76 => "aarch64",
            Self::C908 | Self::K1 => "riscv64",
        }
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Processor {
    type Err = String;

    /// Reads a name, such as `K1` or `cortex-a72`.
    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |text: &str| text.to_lowercase().replace(['-', ' ', '_'], "");
        let wanted = plain(text);
        let is = |one: &&Self| [one.name(), one.full_name()].iter().any(|name| plain(name) == wanted);
        if let Some(found) = Self::ALL.iter().find(is) {
            return Ok(*found);
        }
        let known = Self::ALL.map(Self::name).join(", ");
        Err(match wanted.as_str() {
            "c906" | "c910" | "xuantie910" => {
                format!("the {text} has vectors of RVV 0.7.1, which no emulator here knows: there are {known}")
            }
            _ => format!("there is no emulated processor {text:?}: there are {known}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_found_by_any_of_its_names_and_those_of_rvv_0_7_are_refused_with_the_reason() {
        for (name, is) in [
            ("k1", Processor::K1),
            ("SpacemiT K1", Processor::K1),
            ("cortex-a72", Processor::A72),
            ("A76", Processor::A76),
        ] {
            assert_eq!(name.parse(), Ok(is));
        }
        assert!("C910".parse::<Processor>().unwrap_err().contains("RVV 0.7.1"));
        assert!("M4".parse::<Processor>().unwrap_err().contains("A72, A76, C908, K1"));
    }
}
