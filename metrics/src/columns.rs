//! Named columns of values, on their way to a file of another program.

use serde::{Deserialize, Serialize};

/// Columns, each with its name, in order.
pub type Columns = Vec<(String, Values)>;

/// The values of one column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Values {
    /// Words.
    Text(Vec<String>),
    /// Numbers, where there are any.
    Number(Vec<Option<f64>>),
    /// Whole numbers, where there are any.
    Whole(Vec<Option<i64>>),
    /// Yes or no.
    Flag(Vec<bool>),
}
