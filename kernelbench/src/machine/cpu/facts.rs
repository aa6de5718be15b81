//! What does Linux say about this processor?

use metrics::Fact;
use std::{fs, path::Path};

/// The extensions worth a kernel author's while, in the order in which they are told.
const EXTENSIONS: [&str; 27] = [
    "sse2",
    "ssse3",
    "sse4_2",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "neon",
    "asimd",
    "asimdhp",
    "asimddp",
    "bf16",
    "i8mm",
    "sve",
    "sve2",
    "vsx",
];

/// One level of cache, as the first core sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cache {
    pub(super) level: u32,
    pub(super) bytes: u64,
    line: u64,
    shared_by: usize,
}

/// The processor's model name, out of `/proc/cpuinfo`.
pub(super) fn model(cpuinfo: &str) -> String {
    let named = field(cpuinfo, "model name").or_else(|| field(cpuinfo, "cpu")).map(str::to_owned);
    named.or_else(|| arm(cpuinfo)).unwrap_or_else(|| format!("unknown {} processor", std::env::consts::ARCH))
}

/// Every fact but those that a compiler or a measurement gives, in a stable order.
pub(super) fn facts(cpuinfo: &str, caches: &[Cache]) -> Vec<Fact> {
    let mut facts = vec![];
    let mut say = |name: &str, value: Option<String>| {
        facts.extend(value.map(|value| Fact { name: name.to_owned(), value }));
    };
    let cores = std::thread::available_parallelism().ok();
    say("cores", cores.map(|cores| format!("{cores} (a candidate runs on one)")));
    say("frequency", frequency(cpuinfo));
    say("vector extensions", extensions(cpuinfo));
    for cache in caches {
        let shared = if cache.shared_by > 1 { format!(", shared by {}", cache.shared_by) } else { String::new() };
        let value = format!("{} KiB, lines of {} bytes{shared}", cache.bytes >> 10, cache.line);
        say(&format!("L{} data cache", cache.level), Some(value));
    }
    say("memory", memory(&read("/proc/meminfo")));
    say("virtual machine", flags(cpuinfo).contains(&"hypervisor").then(|| "yes".to_owned()));
    say("kernel", Some(read("/proc/sys/kernel/osrelease")).filter(|release| !release.is_empty()));
    facts
}

/// The data caches of the first core, from the nearest on.
pub(super) fn caches(folder: &Path) -> Vec<Cache> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut caches: Vec<Cache> = entries.filter_map(|entry| cache(&entry.path())).collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

/// A file of `/proc` or `/sys`, trimmed; empty where it cannot be read.
pub(super) fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn cache(folder: &Path) -> Option<Cache> {
    let field = |name: &str| read(folder.join(name));
    if field("type") == "Instruction" {
        return None;
    }
    let size = field("size");
    let unit = match size.chars().last()? {
        'K' => 1 << 10,
        'M' => 1 << 20,
        'G' => 1 << 30,
        _ => 1,
    };
    let bytes = size.trim_end_matches(char::is_alphabetic).parse::<u64>().ok()? * unit;
    let line = field("coherency_line_size").parse().ok()?;
    Some(Cache { level: field("level").parse().ok()?, bytes, line, shared_by: count(&field("shared_cpu_list")) })
}

/// How many there are in a list like `0-3,8`.
fn count(list: &str) -> usize {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let ranges = list.split(',').filter_map(|range| match range.split_once('-') {
        Some((from, to)) => Some((number(to)? + 1).saturating_sub(number(from)?)),
        None => number(range).map(|_| 1),
    });
    ranges.sum()
}

fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    lines.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next()
}

fn flags(cpuinfo: &str) -> Vec<&str> {
    let flags = field(cpuinfo, "flags").or_else(|| field(cpuinfo, "Features"));
    flags.unwrap_or_default().split_whitespace().collect()
}

fn extensions(cpuinfo: &str) -> Option<String> {
    let flags = flags(cpuinfo);
    let found: Vec<&str> = EXTENSIONS.into_iter().filter(|extension| flags.contains(extension)).collect();
    (!found.is_empty()).then(|| found.join(", "))
}

fn frequency(cpuinfo: &str) -> Option<String> {
    let highest = read("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").parse::<f64>().ok();
    let now = field(cpuinfo, "cpu MHz").and_then(|mhz| mhz.parse::<f64>().ok());
    match (highest, now) {
        (Some(khz), _) => Some(format!("up to {:.0} MHz", khz / 1e3)),
        (None, Some(mhz)) => Some(format!("{mhz:.0} MHz, as reported")),
        (None, None) => None,
    }
}

fn memory(meminfo: &str) -> Option<String> {
    let kib = field(meminfo, "MemTotal")?.split_whitespace().next()?.parse::<u64>().ok()?;
    Some(format!("{:.1} GiB", kib as f64 / f64::from(1 << 20)))
}

/// ARM kernels give numbers instead of a name (Arm's MIDR register: implementer and part).
fn arm(cpuinfo: &str) -> Option<String> {
    let (implementer, part) = (field(cpuinfo, "CPU implementer")?, field(cpuinfo, "CPU part")?);
    let known = match (implementer, part) {
        ("0x41", "0xd03") => "Cortex-A53",
        ("0x41", "0xd08") => "Cortex-A72",
        ("0x41", "0xd0b") => "Cortex-A76",
        ("0x41", "0xd0c") => "Neoverse-N1",
        ("0x41", "0xd40") => "Neoverse-V1",
        ("0x41", "0xd49") => "Neoverse-N2",
        ("0x41", "0xd4f") => "Neoverse-V2",
        ("0x61", _) => "Apple silicon",
        _ => return Some(format!("ARM processor, implementer {implementer}, part {part}")),
    };
    Some(known.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEOVERSE: &str =
        "processor\t: 0\nFeatures\t: fp asimd asimdhp sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n";
    const EPYC: &str =
        "processor\t: 0\nmodel name\t: AMD EPYC 7763\ncpu MHz\t\t: 2445.4\nflags\t\t: fpu sse2 hypervisor avx2 fma\n";

    #[test]
    fn a_processor_is_named_on_either_architecture() {
        assert_eq!((model(EPYC).as_str(), model(NEOVERSE).as_str()), ("AMD EPYC 7763", "Neoverse-V1"));
        assert!(model("").starts_with("unknown"));
    }

    #[test]
    fn only_the_extensions_that_matter_are_told() {
        assert_eq!(extensions(EPYC).as_deref(), Some("sse2, fma, avx2"));
        assert_eq!(extensions(NEOVERSE).as_deref(), Some("asimd, asimdhp, sve"));
        assert_eq!(extensions(""), None);
    }

    #[test]
    fn caches_are_read_from_the_nearest_on_without_that_of_instructions() {
        let folder = tempfile::tempdir().unwrap();
        let levels = [
            ("index0", "1", "Data", "48K", "0"),
            ("index1", "1", "Instruction", "32K", "0"),
            ("index3", "3", "Unified", "32M", "0-3,8"),
        ];
        for (name, level, kind, size, shared) in levels {
            let index = folder.path().join(name);
            fs::create_dir(&index).unwrap();
            for (file, text) in [
                ("level", level),
                ("type", kind),
                ("size", size),
                ("coherency_line_size", "64"),
                ("shared_cpu_list", shared),
            ] {
                fs::write(index.join(file), format!("{text}\n")).unwrap();
            }
        }
        let nearest = Cache { level: 1, bytes: 48 << 10, line: 64, shared_by: 1 };
        let last = Cache { level: 3, bytes: 32 << 20, line: 64, shared_by: 5 };
        assert_eq!(caches(folder.path()), [nearest, last]);
        assert_eq!(caches(Path::new("/no/such/folder")), []);
    }
}
