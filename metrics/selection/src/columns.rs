//! How do columns of values become a Parquet file?

pub use metrics::columns::Values;
use polars::prelude::*;
use polars_io::prelude::ParquetWriter;

/// These columns, all of one length, as the bytes of a Parquet file.
///
/// # Errors
///
/// If they have no common length, or two share a name.
pub fn parquet(columns: Vec<(String, Values)>) -> Result<Vec<u8>, String> {
    let column = |(name, values): (String, Values)| match values {
        Values::Text(values) => Column::new(name.into(), values),
        Values::Number(values) => Column::new(name.into(), values),
        Values::Whole(values) => Column::new(name.into(), values),
        Values::Flag(values) => Column::new(name.into(), values),
    };
    let columns: Vec<Column> = columns.into_iter().map(column).collect();
    let mut bytes = vec![];
    let height = columns.first().map_or(0, Column::len);
    let written =
        DataFrame::new(height, columns).and_then(|mut frame| ParquetWriter::new(&mut bytes).finish(&mut frame));
    written.map_err(|e| format!("the columns are no table: {e}"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use polars_io::{SerReader, prelude::ParquetReader};

    #[test]
    fn what_is_missing_stays_missing() {
        let columns = [
            ("task", Values::Text(vec!["a".into(), "b".into()])),
            ("speedup", Values::Number(vec![Some(1.5), None])),
            ("level", Values::Whole(vec![None, Some(2)])),
            ("won", Values::Flag(vec![true, false])),
        ];
        let bytes = parquet(columns.map(|(name, values)| (name.to_owned(), values)).into()).unwrap();
        let frame = ParquetReader::new(std::io::Cursor::new(bytes)).finish().unwrap();
        assert_eq!(frame.shape(), (2, 4));
        assert_eq!(frame.column("speedup").unwrap().f64().unwrap().to_vec(), [Some(1.5), None]);
        assert_eq!(frame.column("level").unwrap().i64().unwrap().to_vec(), [None, Some(2)]);
    }

    #[test]
    fn columns_of_two_lengths_are_no_table() {
        let columns = vec![("a".into(), Values::Flag(vec![true])), ("b".into(), Values::Flag(vec![]))];
        assert!(parquet(columns).unwrap_err().contains("no table"));
    }
}
