//! Literature values: what the papers print, kept as data to be set beside what is measured.

use serde::Deserialize;
use std::sync::LazyLock;

const TABLE: &str = include_str!("../literature/qimeng.toml");

/// A table of a paper.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What it is called here.
    pub name: String,
    /// Where it stands.
    pub source: String,
    /// The unit of its values, such as GFLOPS.
    pub unit: String,
    /// The sizes m, k, n of its columns.
    pub sizes: Vec<[u64; 3]>,
    /// Its rows.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

/// A row: one method on one hardware.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The hardware.
    pub hardware: String,
    /// The method: a library, a model, or `MODEL+ours` for the paper's with that model.
    pub method: String,
    /// A value for each size.
    pub values: Vec<Value>,
}

/// What a cell says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A rate.
    Rate(f64),
    /// In words why there is none: "Failed".
    Words(String),
}

#[derive(Deserialize)]
struct Tables {
    table: Vec<Table>,
}

static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let read: Result<Tables, _> = toml::from_str(TABLE);
    read.expect("the tables that come with the program are well-formed: a test reads them").table
});

/// All tables.
#[must_use]
pub fn tables() -> &'static [Table] {
    &TABLES
}

/// The table of this name.
#[must_use]
pub fn table(name: &str) -> Option<&'static Table> {
    TABLES.iter().find(|table| table.name == name)
}

impl Table {
    /// The row of a method on a hardware.
    #[must_use]
    pub fn row(&self, hardware: &str, method: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.hardware == hardware && row.method == method)
    }

    /// How many times as fast one method is as another on the same hardware, size by size; `None` where either has no rate.
    #[must_use]
    pub fn ratios(&self, hardware: &str, method: &str, over: &str) -> Vec<Option<f64>> {
        let (Some(method), Some(over)) = (self.row(hardware, method), self.row(hardware, over)) else { return vec![] };
        let ratio = |(a, b): (&Value, &Value)| Some(a.rate()? / b.rate()?);
        method.values.iter().zip(&over.values).map(ratio).collect()
    }
}

impl Value {
    /// The rate, where there is one.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        if let Self::Rate(rate) = self { Some(*rate) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greatest(table: &Table, hardware: &str, methods: [&str; 2], over: &str) -> f64 {
        let each = methods.iter().flat_map(|method| table.ratios(hardware, method, over));
        each.flatten().fold(0.0, f64::max)
    }

    fn near(value: f64, printed: f64) -> bool {
        (value - printed).abs() < 0.006
    }

    const OURS: [&str; 2] = ["GPT-4o+ours", "DS-V3+ours"];

    #[test]
    fn every_row_has_a_value_for_each_size_and_failures_are_values_of_their_own() {
        let count = |name: &str| table(name).unwrap().rows.len();
        assert_eq!(["qimeng-table1-cpu", "qimeng-table1-gpu", "qimeng-table2"].map(count), [28, 12, 12]);
        assert!(tables().iter().all(|table| table.rows.iter().all(|row| row.values.len() == table.sizes.len())));
        let tvm = &table("qimeng-table1-cpu").unwrap().row("A76", "TVM").unwrap().values;
        assert_eq!((&tvm[3], tvm[3].rate()), (&Value::Words("Failed".to_owned()), None));
    }

    #[test]
    fn the_ratios_that_the_paper_prints_follow_from_its_cells() {
        let (cpu, gpu) = (table("qimeng-table1-cpu").unwrap(), table("qimeng-table1-gpu").unwrap());
        assert!(near(greatest(cpu, "K1", OURS, "OpenBLAS"), 2.51), "GEMM on K1 over OpenBLAS");
        assert!(near(greatest(cpu, "A76", OURS, "ACL"), 1.21), "GEMM over ACL");
        assert!(near(greatest(gpu, "RTX 4060", OURS, "cuBLAS"), 1.24), "GEMM over cuBLAS");
        let vanilla = cpu.ratios("A72", "DS-V3+ours", "DS-V3")[3].unwrap();
        assert!((vanilla - 1291.0).abs() < 0.5, "over a plain prompt: {vanilla}");
        let prompts = table("qimeng-table2").unwrap();
        let models = ["GPT-4o", "Claude 3.5 Sonnet", "DeepSeek-V3", "Llama-3.1-405B"];
        let over = |what: &str| -> Vec<f64> {
            let each = models.iter().flat_map(|model| prompts.ratios("K1", &format!("{model}+{what}"), model));
            each.flatten().collect()
        };
        let ends =
            |all: &[f64]| all.iter().fold((f64::MAX, 0.0_f64), |(low, high), one| (low.min(*one), high.max(*one)));
        let (method, thought) = (ends(&over("ours")), ends(&over("CoT")));
        assert!(near(method.0, 26.49) && near(method.1, 47.0), "{method:?}");
        assert!(near(thought.0, 1.29) && near(thought.1, 2.09), "{thought:?}");
    }

    #[test]
    fn what_the_paper_prints_against_its_own_cells_is_known() {
        let cpu = table("qimeng-table1-cpu").unwrap();
        let acl = cpu.ratios("A76", "GPT-4o+ours", "ACL")[6].unwrap();
        assert!(near(acl, 1.13), "the text says 1.29: {acl}");
        assert!(!near(greatest(cpu, "C910", OURS, "OpenBLAS"), 2.32), "the text's 2.32 stands nowhere");
        let open = |hardware| &cpu.row(hardware, "OpenBLAS").unwrap().values[4..];
        assert_eq!(open("C910"), open("K1"), "two chips share four values");
    }
}
