//! How does a machine read?

use super::text::one_line;
use metrics::{Machine, MachineKind};
use minijinja::{Value, context};

/// The values that `machine.md` names.
pub(crate) fn machine(machine: &Machine) -> Value {
    let fact = |fact: &metrics::Fact| context! { name => one_line(&fact.name), value => one_line(&fact.value) };
    let bandwidth = |b: &metrics::Bandwidth| {
        context! { working_set => bytes(b.working_set_bytes), rate => rate(b.bytes_per_second, "B/s") }
    };
    context! {
        name => one_line(&machine.name),
        arch => one_line(&machine.arch.to_string()),
        gpu => machine.kind == MachineKind::Gpu,
        facts => machine.facts.iter().map(fact).collect::<Vec<_>>(),
        bandwidths => machine.bandwidths.iter().filter(|b| b.working_set_bytes < u64::MAX).map(bandwidth).collect::<Vec<_>>(),
        peak => machine.peak_flops.map(|flops| rate(flops, "FLOP/s")),
    }
}

/// A size in bytes: "48 KiB".
pub(crate) fn bytes(count: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let power = (0..4).take_while(|power| count >> (10 * (power + 1)) > 0).count();
    let value = count as f64 / (1u64 << (10 * power)) as f64;
    format!("{} {}", (value * 10.0).round() / 10.0, units[power])
}

/// A rate in billions: "12.3 GB/s".
fn rate(per_second: f64, unit: &str) -> String {
    format!("{:.1} G{unit}", per_second / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_in_the_largest_unit_that_fits() {
        assert_eq!([bytes(0), bytes(1023), bytes(1536)], ["0 bytes", "1023 bytes", "1.5 KiB"]);
        assert_eq!([bytes(3 << 30), bytes(u64::MAX)], ["3 GiB", "16777216 TiB"]);
    }
}
