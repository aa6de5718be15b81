//! Which kinds of arithmetic did the compiler make of it?

use super::{Rungs, ratio, reading, run};
use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

/// How many floating-point instructions there are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mix {
    scalar: f64,
    bits128: f64,
    bits256: f64,
    bits512: f64,
    scalable: f64,
}

/// The object's code, disassembled.
pub(super) fn listing(object: &Path, end: Instant) -> Result<String, String> {
    let mut command = Command::new("objdump");
    command.args(["-d", "--no-show-raw-insn", "-j", ".text"]).arg(object);
    let end = end.max(Instant::now() + Duration::from_secs(1)).min(Instant::now() + Duration::from_secs(10));
    run::to_end(command, end).map_err(|why| format!("objdump: {why}"))
}

/// Whether there are registers of 512 bits in it.
pub(super) fn has_avx512(listing: &str) -> bool {
    listing.contains("%zmm")
}

/// The mix in the code, counted as it stands there: not how often each runs.
pub(super) fn readings(listing: &str) -> Rungs {
    let mix = Mix::of(listing);
    let all = mix.scalar + mix.bits128 + mix.bits256 + mix.bits512 + mix.scalable;
    if all == 0.0 {
        return Err("no floating-point arithmetic was recognized".to_owned());
    }
    let widest = match mix {
        Mix { scalable, .. } if scalable > 0.0 => None,
        Mix { bits512, .. } if bits512 > 0.0 => Some(512.0),
        Mix { bits256, .. } if bits256 > 0.0 => Some(256.0),
        Mix { bits128, .. } if bits128 > 0.0 => Some(128.0),
        _ => Some(32.0),
    };
    Ok(vec![
        reading(
            "widest arithmetic",
            widest,
            "bit",
            "registers in the code's floating-point arithmetic; 32 is none but scalar",
        ),
        reading(
            "vector arithmetic",
            ratio(Some(all - mix.scalar), Some(all)),
            "",
            "share of those instructions in the code, however often each runs",
        ),
    ])
}

impl Mix {
    fn of(listing: &str) -> Self {
        let mut mix = Self::default();
        for line in listing.lines() {
            let mut columns = line.trim_start().splitn(2, '\t').skip(1);
            let instruction = columns.next().unwrap_or_default().trim();
            let (name, operands) = instruction.split_once([' ', '\t']).unwrap_or((instruction, ""));
            match width(name, operands) {
                Some(32) => mix.scalar += 1.0,
                Some(128) => mix.bits128 += 1.0,
                Some(256) => mix.bits256 += 1.0,
                Some(512) => mix.bits512 += 1.0,
                Some(_) => mix.scalable += 1.0,
                None => {}
            }
        }
        mix
    }
}

/// The register width of a floating-point instruction in bits: 32 for any scalar, 0 for scalable vectors.
fn width(name: &str, operands: &str) -> Option<u32> {
    if name.starts_with('f') && !operands.contains('%') {
        return arm_width(operands);
    }
    let arithmetic = ["add", "sub", "mul", "div", "fmadd", "fmsub", "fnmadd", "fnmsub", "sqrt", "max", "min"];
    let stem = name.strip_prefix('v').unwrap_or(name);
    let known = arithmetic.iter().any(|operation| stem.starts_with(operation));
    if !known {
        return None;
    }
    match stem.get(stem.len().saturating_sub(2)..)? {
        "ss" | "sd" => Some(32),
        "ps" | "pd" if operands.contains("%zmm") => Some(512),
        "ps" | "pd" if operands.contains("%ymm") => Some(256),
        "ps" | "pd" => Some(128),
        _ => None,
    }
}

fn arm_width(operands: &str) -> Option<u32> {
    let first = operands.split(',').next()?.trim();
    match first.chars().next()? {
        'v' => Some(128),
        'z' => Some(0),
        's' | 'd' | 'h' => Some(32),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_told_apart_by_width_on_either_architecture() {
        let listing = "\
    11a0:\tvaddps %ymm0,%ymm1,%ymm2
    11a4:\tvfmadd231ps (%rdi),%zmm1,%zmm2
    11a8:\tmulss  %xmm0,%xmm1
    11ac:\tmulps  %xmm0,%xmm1
    11b0:\tadd    $0x10,%rax
    11b4:\tfadd\tv0.4s, v1.4s, v2.4s
    11b8:\tfmul\ts0, s1, s2
    11bc:\tfmla\tz0.s, p0/m, z1.s, z2.s
";
        let expected = Mix { scalar: 2.0, bits128: 2.0, bits256: 1.0, bits512: 1.0, scalable: 1.0 };
        assert_eq!(Mix::of(listing), expected);
        assert!(has_avx512(listing) && !has_avx512("11a0:\tvaddps %ymm0,%ymm1,%ymm2"));
    }
}
