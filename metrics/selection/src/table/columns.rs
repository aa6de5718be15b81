//! What stands in this row?

use super::{Launch, Profiled, Setup};
use polars::prelude::*;

/// The columns of a frame whose types were checked.
pub(super) struct Columns<'a> {
    pub(super) task: &'a StringChunked,
    pub(super) kernel: &'a StringChunked,
    pub(super) metric: &'a StringChunked,
    pub(super) unit: &'a StringChunked,
    pub(super) value: &'a Float64Chunked,
    pub(super) runtime_ns: &'a Float64Chunked,
    registers: &'a UInt32Chunked,
    shared_bytes: &'a UInt64Chunked,
    /// The other texts that all rows of a kernel have in common.
    common: [(&'static str, &'a StringChunked); 7],
}

impl<'a> Columns<'a> {
    pub(super) fn of(frame: &'a DataFrame) -> Self {
        const CHECKED: &str = "the columns and their types were checked";
        let column = |name: &str| frame.column(name).expect(CHECKED);
        let text = |name: &str| column(name).str().expect(CHECKED);
        let number = |name: &str| column(name).f64().expect(CHECKED);
        Self {
            task: text("task"),
            kernel: text("kernel"),
            metric: text("metric"),
            unit: text("unit"),
            value: number("value"),
            runtime_ns: number("runtime_ns"),
            registers: column("registers").u32().expect(CHECKED),
            shared_bytes: column("shared_bytes").u64().expect(CHECKED),
            common: ["kernel_name", "grid", "block", "architecture", "gpu", "driver", "ncu"]
                .map(|name| (name, text(name))),
        }
    }

    /// Whether this row is about the kernel and task of the row before it.
    pub(super) fn same_kernel(&self, row: usize) -> bool {
        [self.task, self.kernel].iter().all(|column| column.get(row) == column.get(row - 1))
    }

    /// The column in which this row differs from the row before it, where rows of one kernel agree.
    pub(super) fn differs(&self, row: usize) -> Option<&'static str> {
        if self.runtime_ns.get(row) != self.runtime_ns.get(row - 1) {
            return Some("runtime_ns");
        }
        self.common.iter().find(|(_, column)| column.get(row) != column.get(row - 1)).map(|(name, _)| *name)
    }

    pub(super) fn place(&self, row: usize) -> String {
        [self.task, self.kernel, self.metric].map(|column| say(column, row)).join(", ")
    }

    /// What this row says of its kernel.
    pub(super) fn profile(&self, row: usize) -> Profiled {
        let [kernel_name, grid, block, architecture, gpu, driver, ncu] =
            self.common.map(|(_, column)| column.get(row).map(str::to_owned));
        let told = Option::unwrap_or_default;
        let (registers, shared_bytes) = (self.registers.get(row), self.shared_bytes.get(row));
        Profiled {
            task: say(self.task, row),
            kernel: say(self.kernel, row),
            kernel_name: told(kernel_name),
            launch: Launch { grid, block, registers, shared_bytes },
            runtime_ns: self.runtime_ns.get(row).unwrap_or(f64::NAN),
            setup: Setup { architecture: told(architecture), gpu: told(gpu), driver: told(driver), ncu: told(ncu) },
            measured: vec![],
        }
    }
}

/// The text of a row; nothing where it has none.
pub(super) fn say(column: &StringChunked, row: usize) -> String {
    column.get(row).unwrap_or_default().to_owned()
}
