//! What the compiler made of a candidate's own kernels.
//!
//! `cuobjdump` reads the extensions and the cubins that lie in the candidate's folder. Nothing is run: how often a kernel is
//! launched, in which shape and for how long is not known here.

use crate::{
    profile::{cuobjdump, tool::Tools},
    result::{error::Attempt, label::Label},
};
use metrics::{Kernel, Reading};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Where a candidate's own extensions are built, in its folder.
const EXTENSIONS: &str = "extensions";
/// Kernels that are shown at most.
const SHOWN: usize = 6;
/// Objects that are read at most.
const OBJECTS: usize = 16;
/// Registers of a multiprocessor, on every architecture since 3.5.
const REGISTERS: u64 = 65536;
/// Threads of a warp.
const WARP: u64 = 32;
/// Kinds of instructions, each with the beginnings of the names in it (the first that fits counts).
const KINDS: [(&str, &[&str], &str); 12] = [
    ("spills", &["STL", "LDL"], "loads and stores of registers that did not fit, and of arrays in local memory"),
    (
        "asynchronous copies",
        &["LDGSTS", "UBLKCP", "UTMA", "LDGDEPBAR"],
        "copies into shared memory that nobody waits for",
    ),
    ("global memory", &["LDG", "STG", "LD.", "ST.", "ATOMG", "RED.", "REDG"], "loads, stores and atomics"),
    ("shared memory", &["LDS", "STS", "LDSM", "STSM", "ATOMS"], "loads, stores and atomics"),
    (
        "tensor cores",
        &["HMMA", "IMMA", "DMMA", "QMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA", "UTCMMA"],
        "matrix products",
    ),
    ("half precision", &["HADD2", "HFMA2", "HMUL2", "HMNMX2", "HSET"], "arithmetic"),
    ("single precision", &["FADD", "FMUL", "FFMA", "FMNMX", "FSET", "FSEL"], "arithmetic"),
    ("double precision", &["DADD", "DMUL", "DFMA", "DSET"], "arithmetic"),
    ("special functions", &["MUFU"], "exponentials, logarithms, roots, reciprocals"),
    (
        "integers",
        &["IMAD", "IADD", "LEA", "SHF", "LOP3", "ISET", "UIADD", "UIMAD", "ULOP", "ULEA", "USHF", "IMNMX"],
        "arithmetic and addresses",
    ),
    ("barriers", &["BAR", "SYNCS", "WARPSYNC", "DEPBAR"], "waits for other threads"),
    ("branches", &["BRA", "BRX", "EXIT", "BSSY", "BSYNC", "CALL", "RET"], "control"),
];

/// The kernels, and what has to be known of them.
type Kernels = (Vec<Kernel>, Vec<String>);

/// What is known of a kernel.
#[derive(Debug, Default)]
struct Known {
    architecture: String,
    resources: BTreeMap<String, u64>,
    instructions: u64,
    kinds: [u64; KINDS.len()],
}

/// The kernels that the candidate itself brought, the longest text first; in words why there are none.
pub(super) fn kernels(tools: &Tools, candidate: &Path) -> Attempt<Result<Kernels, String>> {
    let objects = objects(candidate);
    if objects.is_empty() {
        return Ok(Err("it built no kernel of its own".to_owned()));
    }
    let mut known = BTreeMap::new();
    let mut notes = vec![];
    for object in objects.iter().take(OBJECTS) {
        for option in ["--dump-resource-usage", "-sass"] {
            match cuobjdump::printed(tools, object, option)? {
                Ok(text) => read(&text, &mut known),
                Err(why) => notes.push(format!("cuobjdump {option}: {why}")),
            }
        }
    }
    notes.dedup();
    if known.is_empty() {
        return Ok(Err(notes.first().cloned().unwrap_or_else(|| "cuobjdump found no kernel in what it built".into())));
    }
    Ok(Ok(shown(known, notes)))
}

/// What the code of its extensions shows that is not so in every call.
pub(super) fn races(tools: &Tools, candidate: &Path) -> Vec<Label> {
    let objects = objects_in(vec![candidate.join(EXTENSIONS)]);
    objects.iter().take(OBJECTS).flat_map(|object| cuobjdump::races(tools, object)).collect()
}

/// The libraries and cubins under a candidate's folder, none twice.
fn objects(folder: &Path) -> Vec<PathBuf> {
    objects_in([EXTENSIONS, "triton", "inductor"].map(|part| folder.join(part)).into())
}

fn objects_in(mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut found = vec![];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            let named = path.extension().is_some_and(|ending| ending == "so" || ending == "cubin");
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && named && entry.metadata().is_ok_and(|about| about.len() <= cuobjdump::LARGEST) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Adds what one dump says of each kernel.
fn read(text: &str, known: &mut BTreeMap<String, Known>) {
    let (mut architecture, mut kernel) = (String::new(), None);
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("arch = ") {
            name.clone_into(&mut architecture);
            kernel = None;
        } else if let Some(name) = line.strip_prefix("Function : ").or_else(|| line.strip_prefix("Function ")) {
            let name = name.trim_end_matches(':').to_owned();
            known.entry(name.clone()).or_default().architecture.clone_from(&architecture);
            kernel = Some(name);
        } else if let Some(known) = kernel.as_ref().and_then(|name| known.get_mut(name)) {
            known.line(line);
        }
    }
}

impl Known {
    fn line(&mut self, line: &str) {
        if line.starts_with("REG:") {
            let pairs = line.split_whitespace().filter_map(|word| word.split_once(':'));
            self.resources = pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect();
        } else if let Some(name) = cuobjdump::instruction(line).and_then(cuobjdump::mnemonic) {
            self.instructions += 1;
            let kind = KINDS.iter().position(|(_, starts, _)| starts.iter().any(|start| fits(name, start)));
            if let Some(kind) = kind {
                self.kinds[kind] += 1;
            }
        }
    }

    fn readings(&self) -> Vec<Reading> {
        let resource = |name: &str| self.resources.get(name).map(|value| *value as f64);
        let mut readings = vec![
            Reading::new("registers", resource("REG"), "register/thread", "registers a thread"),
            Reading::new("shared memory", resource("SHARED"), "byte/block", "static, and what the driver adds"),
            Reading::new("stack", resource("STACK"), "byte/thread", "local memory a thread"),
            Reading::new("occupancy by registers", self.occupancy(), "%", "warps that the registers leave room for"),
        ];
        if self.instructions > 0 {
            readings.push(Reading::new("instructions", Some(self.instructions as f64), "inst", "in its text"));
            let kinds = KINDS.iter().zip(self.kinds);
            readings.extend(
                kinds.map(|((name, _, meaning), count)| Reading::new(name, Some(count as f64), "inst", meaning)),
            );
        }
        readings
    }

    /// The share of a multiprocessor's warps that fit beside each other, as far as registers decide.
    fn occupancy(&self) -> Option<f64> {
        let most = warps(&self.architecture)?;
        let registers = self.resources.get("REG").filter(|registers| **registers > 0)?.next_multiple_of(8);
        Some((REGISTERS / (registers * WARP)).min(most) as f64 / most as f64 * 100.0)
    }
}

/// Warps that a multiprocessor holds at most (NVIDIA's table of compute capabilities).
fn warps(architecture: &str) -> Option<u64> {
    match architecture.strip_prefix("sm_")?.trim_end_matches(char::is_alphabetic) {
        "70" | "72" | "80" | "90" | "100" | "103" => Some(64),
        "75" => Some(32),
        "86" | "87" | "89" | "120" | "121" => Some(48),
        _ => None,
    }
}

fn fits(name: &str, start: &str) -> bool {
    if start.ends_with('.') { format!("{name}.").starts_with(start) } else { name.starts_with(start) }
}

fn shown(known: BTreeMap<String, Known>, mut notes: Vec<String>) -> Kernels {
    let mut kernels: Vec<(String, Known)> = known.into_iter().collect();
    kernels.sort_by_key(|(_, known)| std::cmp::Reverse(known.instructions));
    if kernels.len() > SHOWN {
        notes.push(format!("further kernels not shown: {}", kernels.len() - SHOWN));
    }
    let kernel =
        |(name, known): (String, Known)| Kernel { readings: known.readings(), name, launches: None, share: None };
    (kernels.into_iter().take(SHOWN).map(kernel).collect(), notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOURCES: &str = include_str!("../../../tests/cuobjdump/resource-usage.txt");
    const SASS: &str = include_str!("../../../tests/cuobjdump/sass.txt");

    fn kernels_of(texts: &[&str]) -> Vec<Kernel> {
        let mut known = BTreeMap::new();
        for text in texts {
            read(text, &mut known);
        }
        shown(known, vec![]).0
    }

    fn value(kernel: &Kernel, name: &str) -> Option<f64> {
        kernel.readings.iter().find(|reading| reading.name == name).unwrap().value
    }

    #[test]
    fn registers_shared_memory_spills_and_the_mix_are_read_from_real_dumps() {
        let kernels = kernels_of(&[RESOURCES, SASS]);
        let [spilly, softplus] = &kernels[..] else { panic!("{kernels:?}") };
        assert!(spilly.name.contains("spilly") && softplus.name.contains("softplus"));
        assert_eq!((value(spilly, "registers"), value(spilly, "stack")), (Some(32.0), Some(144.0)));
        assert_eq!((value(spilly, "spills"), value(softplus, "spills")), (Some(86.0), Some(0.0)));
        assert_eq!(value(softplus, "shared memory"), Some(2048.0));
        assert_eq!((value(softplus, "global memory"), value(softplus, "special functions")), (Some(2.0), Some(1.0)));
    }

    #[test]
    fn the_warps_that_registers_leave_room_for_follow_the_architecture() {
        let room = |text: &str| value(&kernels_of(&[text])[0], "occupancy by registers").map(f64::round);
        assert_eq!(room(RESOURCES), Some(100.0));
        assert_eq!(room(&RESOURCES.replace("REG:32", "REG:92")), Some(33.0));
        assert_eq!(room(&RESOURCES.replace("REG:32", "REG:92").replace("sm_90", "sm_86")), Some(44.0));
        assert_eq!(room(&RESOURCES.replace("sm_90", "sm_999")), None);
    }

    #[test]
    fn without_a_disassembler_there_is_no_mix() {
        let kernels = kernels_of(&[RESOURCES]);
        assert!(kernels[0].readings.iter().all(|reading| reading.name != "instructions"));
    }
}
