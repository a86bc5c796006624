//! What a statement answers: the contract between the engine and the MySQL wire.
//!
//! Rows are Arrow record batches on every path; the wire turns them into packets.

use std::sync::Arc;

use functions::warnings::ExprWarnings;
use values::column::ResultColumn;

use crate::BatchStream;

/// How many warnings a result has. More may come for as long as its rows are computed.
#[derive(Clone, Debug, Default)]
pub struct WarningCount {
    own: u64,
    expr_warnings: Option<Arc<ExprWarnings>>,
}

impl WarningCount {
    /// Those of a statement, and those of its expressions.
    pub fn new(own: u64, expr_warnings: Option<Arc<ExprWarnings>>) -> Self {
        WarningCount { own, expr_warnings }
    }

    /// The number as it is now, as far as the protocol can carry it.
    pub fn now(&self) -> u16 {
        let of_exprs = self.expr_warnings.as_ref().map_or(0, |warnings| warnings.count());
        u16::try_from(self.own.saturating_add(of_exprs)).unwrap_or(u16::MAX)
    }
}

/// What a statement without rows answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows changed (or found, under CLIENT_FOUND_ROWS).
    pub affected_rows: u64,
    /// First AUTO_INCREMENT number given, or 0.
    pub last_insert_id: u64,
    /// Warnings that SHOW WARNINGS would list.
    pub warnings: u16,
    /// `Records: 3  Duplicates: 0  Warnings: 0` and the like.
    pub info: String,
}

/// What a statement answers.
pub enum Reply {
    /// No rows.
    Done(Done),
    /// Rows; their Arrow columns stand in the order of `columns`, typed by
    /// [`types::columns::arrow_type`].
    Rows {
        /// What the columns are.
        columns: Vec<ResultColumn>,
        /// The rows.
        batches: BatchStream,
        /// Warnings that SHOW WARNINGS would list.
        warnings: WarningCount,
    },
    /// LOAD DATA LOCAL INFILE: the client is to send this file; its bytes go to
    /// `Session::load_data`, whose reply follows.
    LocalInfile {
        /// Name as the statement gave it.
        file: String,
    },
}

/// Changes of its session that a client is to receive, if it tracks them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionChanges {
    /// Variables of session_track_system_variables that were set, with their values.
    pub variables: Vec<(String, String)>,
    /// Whether changes of the current database are tracked (session_track_schema).
    pub tracks_schema: bool,
    /// Whether it is to receive that anything has changed (session_track_state_change).
    pub tracks_state: bool,
    /// Whether any variable was set.
    pub any: bool,
}
