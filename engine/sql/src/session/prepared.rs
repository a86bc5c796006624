//! Statements that a session has prepared: by number, for the binary protocol, and by name.
//!
//! They are kept as they were parsed and never run here; the two kinds know nothing of each other.

use std::collections::HashMap;
use std::sync::Arc;

use syntax::statement::Stmt;
use types::Value;
use values::column::ResultColumn;
use values::error::{SqlResult, no_prepared, too_many_prepared, wrong_arguments};

use super::query::known::KnownRead;

/// Most statements that a session prepares by name.
const MOST_BY_NAME: usize = 16_382;

/// A prepared statement, for its client.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Number within the session.
    pub id: u32,
    /// Parameters it takes.
    pub parameters: u16,
    /// Columns of its result; empty for a statement without one.
    pub columns: Vec<ResultColumn>,
}

/// A statement that waits for its parameters.
pub(super) struct PreparedStatement {
    pub(super) statement: Arc<Stmt>,
    /// How many it takes.
    pub(super) parameters: usize,
    /// The current database of then, in which it runs.
    pub(super) database: String,
    /// What its runs have shown, if it is a query.
    pub(super) known: KnownRead,
}

impl PreparedStatement {
    /// The statement, to be run with parameters; error 1210 if it takes another number of them.
    fn taking(self: &Arc<Self>, parameters: usize) -> SqlResult<Arc<PreparedStatement>> {
        if self.parameters != parameters {
            return Err(wrong_arguments("EXECUTE"));
        }
        Ok(self.clone())
    }

    /// As many parameters as it takes, of which nothing is known.
    pub(super) fn unknown_parameters(&self) -> Vec<Value> {
        vec![Value::Null; self.parameters]
    }
}

/// The prepared statements of a session.
pub(super) struct PreparedStatements {
    by_id: HashMap<u32, Arc<PreparedStatement>>,
    next_id: u32,
    /// By names in lower case.
    by_name: HashMap<String, Arc<PreparedStatement>>,
}

impl Default for PreparedStatements {
    fn default() -> Self {
        PreparedStatements { by_id: HashMap::new(), next_id: 1, by_name: HashMap::new() }
    }
}

impl PreparedStatements {
    /// A number for another statement; 0 is none.
    pub(super) fn new_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1).max(1);
        id
    }

    /// Keeps a statement under a number.
    pub(super) fn keep(&mut self, id: u32, statement: PreparedStatement) {
        self.by_id.insert(id, Arc::new(statement));
    }

    /// The statement of a number, to be run with so many parameters.
    pub(super) fn of_id(&self, id: u32, parameters: usize) -> SqlResult<Arc<PreparedStatement>> {
        let known = self.by_id.get(&id);
        known.ok_or_else(|| no_prepared(id, "EXECUTE"))?.taking(parameters)
    }

    /// Forgets the statement of a number, if there is one.
    pub(super) fn forget(&mut self, id: u32) {
        self.by_id.remove(&id);
    }

    /// Forgets all statements that have numbers.
    pub(super) fn forget_ids(&mut self) {
        self.by_id.clear();
    }

    /// Forgets the statement of a name, which another one is to have; error 1461 if there are too many.
    pub(super) fn make_room(&mut self, name: &str) -> SqlResult<()> {
        self.by_name.remove(&name.to_lowercase());
        if self.by_name.len() >= MOST_BY_NAME {
            return Err(too_many_prepared(MOST_BY_NAME));
        }
        Ok(())
    }

    /// Keeps a statement under a name.
    pub(super) fn keep_named(&mut self, name: &str, statement: PreparedStatement) {
        self.by_name.insert(name.to_lowercase(), Arc::new(statement));
    }

    /// What EXECUTE of a name runs, whatever its parameters are.
    pub(super) fn of_name(&self, name: &str) -> Option<&Stmt> {
        Some(&self.by_name.get(&name.to_lowercase())?.statement)
    }

    /// The statement of a name, to be run with so many parameters.
    pub(super) fn named(&self, name: &str, parameters: usize) -> SqlResult<Arc<PreparedStatement>> {
        let known = self.by_name.get(&name.to_lowercase());
        known.ok_or_else(|| no_prepared(name, "EXECUTE"))?.taking(parameters)
    }

    /// DEALLOCATE PREPARE: forgets the statement of a name; error 1243 if there is none.
    pub(super) fn forget_named(&mut self, name: &str) -> SqlResult<()> {
        let known = self.by_name.remove(&name.to_lowercase());
        known.map(|_| ()).ok_or_else(|| no_prepared(name, "DEALLOCATE PREPARE"))
    }
}
