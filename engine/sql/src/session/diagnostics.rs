//! What a session says of its last statement: warnings, and what ROW_COUNT(), FOUND_ROWS() and
//! LAST_INSERT_ID() give, and how its last query was answered.
//!
//! Warnings are its own and those of its expressions; both are bounded by max_error_count, and
//! counted beyond it. They stay until the next statement that is not a SHOW of them. It reads no
//! variable: whoever calls says what is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::record_batch::RecordBatch;
use execution::BatchStream;
use functions::warnings::ExprWarnings;
use futures::{Stream, TryStreamExt};
use values::error::{SqlError, SqlResult};

use super::query::last_insert_id::AssignedId;
use super::query::last_query::LastQuery;
use execution::reply::WarningCount;

/// A warning or note of the last statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// `Note`, `Warning` or `Error`.
    pub level: &'static str,
    /// MySQL's number.
    pub code: u16,
    /// What.
    pub message: String,
}

impl Warning {
    /// What is listed of an error, of the table of errors, that did not end the statement, or did.
    pub(super) fn new(level: &'static str, error: SqlError) -> Self {
        Warning { level, code: error.code, message: error.message }
    }
}

/// What a session says of its last statement.
pub(super) struct Diagnostics {
    /// Warnings of the statement itself.
    own: Vec<Warning>,
    /// How many of these were not kept.
    dropped: u64,
    /// Where the warnings of its expressions go, if it listens to any.
    expr_warnings: Option<Arc<ExprWarnings>>,
    /// How many warnings, and errors among them, the statement before it had.
    before: (u64, u64),
    /// What ROW_COUNT() gives.
    row_count: i64,
    /// What FOUND_ROWS() gives.
    found_rows: Arc<AtomicU64>,
    /// What SQL_CALC_FOUND_ROWS of the statement counts.
    counted: Option<Arc<AtomicU64>>,
    last_insert_id: u64,
    /// What LAST_INSERT_ID(expr) assigned, and how much of it `last_insert_id` knows.
    assigned_id: Arc<AssignedId>,
    adopted: u64,
    last_query: Option<LastQuery>,
}

impl Default for Diagnostics {
    fn default() -> Self {
        Diagnostics {
            own: Vec::new(),
            dropped: 0,
            expr_warnings: None,
            before: (0, 0),
            row_count: -1,
            found_rows: Arc::default(),
            counted: None,
            last_insert_id: 0,
            assigned_id: Arc::default(),
            adopted: 0,
            last_query: None,
        }
    }
}

impl Diagnostics {
    /// Those of a session that begins anew. Plans of the one before go on assigning values where
    /// they did.
    pub(super) fn renewed(&self) -> Self {
        let assigned_id = self.assigned_id.clone();
        Diagnostics { adopted: assigned_id.count(), assigned_id, ..Diagnostics::default() }
    }

    /// Begins another statement; its warnings take the place of those before, unless it is a SHOW of
    /// these.
    pub(super) fn begin(&mut self, shows_warnings: bool) {
        if !shows_warnings {
            self.before = self.counts();
            (self.own, self.dropped, self.expr_warnings) = (Vec::new(), 0, None);
        }
        // Rows of a SELECT LAST_INSERT_ID(n) are pulled after its answer.
        _ = self.adopt_assigned_id();
        self.counted = None;
    }

    // ---- warnings ---------------------------------------------------------------------------

    /// Adds a warning.
    pub(super) fn warn(&mut self, warning: SqlError) {
        self.own.push(Warning::new("Warning", warning));
    }

    /// Adds a note.
    pub(super) fn note(&mut self, note: SqlError) {
        self.own.push(Warning::new("Note", note));
    }

    /// Adds the error that the statement ends with.
    pub(super) fn error(&mut self, error: &SqlError) {
        self.own.push(Warning::new("Error", error.clone()));
    }

    /// Adds several.
    pub(super) fn extend(&mut self, warnings: impl IntoIterator<Item = Warning>) {
        self.own.extend(warnings);
    }

    /// Keeps no more of the statement's own than so many; the others still count.
    pub(super) fn bound(&mut self, most: usize) {
        let beyond = self.own.len().saturating_sub(most);
        self.dropped += beyond as u64;
        self.own.truncate(most);
    }

    /// How many there are so far: its own, and those of its expressions.
    pub(super) fn mark(&self) -> (usize, u64) {
        (self.own.len(), self.of_exprs())
    }

    /// Takes back all since a mark.
    pub(super) fn back_to(&mut self, (own, of_exprs): (usize, u64)) {
        self.own.truncate(own);
        self.forget_expr_warnings(of_exprs);
    }

    /// Takes back the warnings of its expressions since a mark.
    pub(super) fn forget_expr_warnings(&self, from: u64) {
        if let Some(expr_warnings) = &self.expr_warnings {
            expr_warnings.forget_from(from);
        }
    }

    /// Where the warnings of the statement's expressions go; made now if it did not listen yet.
    pub(super) fn listen(&mut self, new: impl FnOnce() -> ExprWarnings) -> Arc<ExprWarnings> {
        self.expr_warnings.get_or_insert_with(|| Arc::new(new())).clone()
    }

    /// Listens to the statement's expressions from now on; what they said before is forgotten.
    pub(super) fn listen_anew(&mut self, expr_warnings: ExprWarnings) {
        self.expr_warnings = Some(Arc::new(expr_warnings));
    }

    /// Listens to the statement's expressions no more, and forgets what they said.
    pub(super) fn listen_no_more(&mut self) {
        self.expr_warnings = None;
    }

    /// Where warnings of expressions go, if the statement listens.
    pub(super) fn listening(&self) -> Option<&Arc<ExprWarnings>> {
        self.expr_warnings.as_ref()
    }

    fn of_exprs(&self) -> u64 {
        self.expr_warnings.as_ref().map_or(0, |warnings| warnings.count())
    }

    /// How many there are, kept or not.
    pub(super) fn count(&self) -> u64 {
        self.own.len() as u64 + self.dropped + self.of_exprs()
    }

    /// How many there are, and how many errors among them.
    pub(super) fn counts(&self) -> (u64, u64) {
        let errors = self.own.iter().filter(|warning| warning.level == "Error").count();
        (self.count(), errors as u64)
    }

    /// What `@@warning_count` and `@@error_count` say: of the statement before.
    pub(super) fn counted_before(&self) -> (u64, u64) {
        self.before
    }

    /// How many warnings an answer announces: with rows, more may come until the last.
    pub(super) fn warning_count(&self) -> WarningCount {
        WarningCount::new(self.own.len() as u64 + self.dropped, self.expr_warnings.clone())
    }

    /// What SHOW WARNINGS lists: so many at most.
    pub(super) fn listed(&self, most: usize) -> Vec<Warning> {
        let of_exprs = self.expr_warnings.as_ref().map(|warnings| warnings.kept());
        let of_exprs = of_exprs.unwrap_or_default().into_iter();
        let of_exprs = of_exprs.map(|warning| Warning::new("Warning", warning));
        self.own.iter().cloned().chain(of_exprs).take(most).collect()
    }

    // ---- counts -----------------------------------------------------------------------------

    /// What ROW_COUNT() gives.
    pub(super) fn row_count(&self) -> i64 {
        self.row_count
    }

    /// The statement has changed so many rows.
    pub(super) fn set_row_count(&mut self, rows: u64) {
        self.row_count = i64::try_from(rows).unwrap_or(i64::MAX);
    }

    /// The statement is none that changes rows, or has failed.
    pub(super) fn no_row_count(&mut self) {
        self.row_count = -1;
    }

    /// What FOUND_ROWS() gives.
    pub(super) fn found_rows(&self) -> u64 {
        self.found_rows.load(Ordering::Acquire)
    }

    /// What counts the rows of the statement beyond its LIMIT (SQL_CALC_FOUND_ROWS).
    pub(super) fn count_beyond_limit(&mut self) -> Arc<AtomicU64> {
        let found = Arc::new(AtomicU64::new(0));
        self.counted = Some(found.clone());
        found
    }

    /// Counts the rows of an answer while they are pulled.
    pub(super) fn count_rows(
        &mut self,
        batches: impl Stream<Item = SqlResult<RecordBatch>> + Send + 'static,
    ) -> BatchStream {
        self.no_row_count();
        let found = Arc::new(AtomicU64::new(0));
        self.found_rows = self.counted.take().unwrap_or_else(|| found.clone());
        Box::pin(batches.inspect_ok(move |batch| {
            found.fetch_add(batch.num_rows() as u64, Ordering::AcqRel);
        }))
    }

    // ---- LAST_INSERT_ID() -------------------------------------------------------------------

    /// What LAST_INSERT_ID() gives.
    pub(super) fn last_insert_id(&self) -> u64 {
        self.last_insert_id
    }

    /// What LAST_INSERT_ID() gives from now on.
    pub(super) fn set_last_insert_id(&mut self, id: u64) {
        self.last_insert_id = id;
    }

    /// Where LAST_INSERT_ID(expr) assigns values.
    pub(super) fn assigned_id(&self) -> &Arc<AssignedId> {
        &self.assigned_id
    }

    /// What statements assigned becomes what LAST_INSERT_ID() gives; the value, if one was assigned
    /// since.
    pub(super) fn adopt_assigned_id(&mut self) -> Option<u64> {
        let count = self.assigned_id.count();
        if count == self.adopted {
            return None;
        }
        self.adopted = count;
        self.last_insert_id = self.assigned_id.value();
        Some(self.last_insert_id)
    }

    // ---- the last query ---------------------------------------------------------------------

    /// How the last query was answered, if there was one.
    pub(super) fn last_query(&self) -> Option<&LastQuery> {
        self.last_query.as_ref()
    }

    /// A query is answered so.
    pub(super) fn set_last_query(&mut self, query: LastQuery) {
        self.last_query = Some(query);
    }
}
