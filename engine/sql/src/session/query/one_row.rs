//! The one row of a query in the place of values.

use functions::value::value_at;
use futures::TryStreamExt;
use sqlparser::ast::Query;
use types::Value;
use values::error::{SqlError, SqlResult, wrong_width};

use crate::session::{Session, impossible};

impl Session {
    /// The one row of a query, if it has one; error 1242 or 1172 if it has more.
    pub(in crate::session) async fn one_row(
        &mut self,
        query: Query,
        parameters: &[Value],
        several: fn() -> SqlError,
    ) -> SqlResult<(usize, Option<Vec<Value>>)> {
        let reply = self.select(query, parameters).await?;
        let execution::reply::Reply::Rows { columns, mut batches, .. } = reply else {
            return Err(impossible("a SELECT answered no rows"));
        };
        let mut found = None;
        while let Some(batch) = batches.try_next().await? {
            for at in 0..batch.num_rows() {
                if found.is_some() {
                    return Err(several());
                }
                let row: SqlResult<Vec<Value>> =
                    batch.columns().iter().map(|column| value_at(column, at)).collect();
                found = Some(row?);
            }
        }
        Ok((columns.len(), found))
    }
}

/// Error 1241 unless a subquery in the place of a value has one column.
pub(in crate::session) fn one_column(width: usize) -> SqlResult<()> {
    match width {
        1 => Ok(()),
        _ => Err(wrong_width(1)),
    }
}
