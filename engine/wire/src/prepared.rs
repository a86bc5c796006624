//! Prepared statements of one connection, as far as the wire must remember them: how many
//! parameters, their bound types, and pieces of long parameters. What they mean is the session's.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use types::Value;
use values::error::{self, SqlError};

use crate::backend;
use crate::params::{self, ParamType};

/// Most prepared statements of one connection (MySQL's default, there for the whole server).
pub const MAX_STATEMENTS: usize = 16_382;

/// One prepared statement.
#[derive(Debug, Default)]
struct Statement {
    /// For the process list.
    text: Bytes,
    params: usize,
    bound: Vec<ParamType>,
    long_data: BTreeMap<usize, Vec<u8>>,
    /// A failure of COM_STMT_SEND_LONG_DATA, which has no answer: reported at the next execution.
    failed: Option<SqlError>,
}

/// Prepared statements by number.
#[derive(Debug)]
pub struct Statements {
    statements: HashMap<u32, Statement>,
    /// Bytes of long parameters held now, and the most that may be.
    held: usize,
    limit: usize,
}

impl Statements {
    /// None yet. Long parameters may hold `limit` bytes in all.
    pub fn new(limit: usize) -> Self {
        Self { statements: HashMap::new(), held: 0, limit }
    }

    /// Fails if one more statement would be too many.
    pub fn check_room(&self) -> Result<(), SqlError> {
        match self.statements.len() < MAX_STATEMENTS {
            true => Ok(()),
            false => Err(error::too_many_statements(MAX_STATEMENTS)),
        }
    }

    /// Remembers a statement.
    pub fn add(&mut self, prepared: &backend::Prepared, text: &[u8]) {
        let params = usize::from(prepared.params);
        let text = Bytes::copy_from_slice(text);
        self.statements.insert(prepared.id, Statement { text, params, ..Statement::default() });
    }

    /// What was prepared.
    pub fn text(&self, id: u32) -> Option<Bytes> {
        self.statements.get(&id).map(|statement| statement.text.clone())
    }

    /// Whether the number is known.
    pub fn contains(&self, id: u32) -> bool {
        self.statements.contains_key(&id)
    }

    /// Keeps a piece of a parameter. Failures wait for the next execution.
    pub fn add_long_data(&mut self, id: u32, param: u16, data: &[u8]) {
        let Some(statement) = self.statements.get_mut(&id) else { return };
        let param = usize::from(param);
        if param >= statement.params {
            let why = format!("there is no parameter {}", param + 1);
            statement.failed = Some(error::wrong_arguments_because("mysqld_stmt_execute", why));
        } else if self.held + data.len() > self.limit {
            let limit = self.limit;
            statement.failed = Some(error::unknown(format!(
                "Parameters set through COM_STMT_SEND_LONG_DATA hold more than \
                 'max_allowed_packet' bytes ({limit})"
            )));
        } else {
            self.held += data.len();
            statement.long_data.entry(param).or_default().extend_from_slice(data);
        }
    }

    /// Forgets pieces of parameters. `None` if the statement is unknown.
    pub fn reset(&mut self, id: u32) -> Option<()> {
        let statement = self.statements.get_mut(&id)?;
        self.held -= statement.forget_long_data();
        statement.failed = None;
        Some(())
    }

    /// Forgets a statement; whether it was known.
    pub fn remove(&mut self, id: u32) -> bool {
        self.reset(id);
        self.statements.remove(&id).is_some()
    }

    /// Forgets every statement.
    pub fn clear(&mut self) {
        self.statements.clear();
        self.held = 0;
    }

    /// Decodes the parameters of one execution, and forgets its long data.
    pub fn params(&mut self, id: u32, payload: &[u8]) -> Result<Vec<Value>, SqlError> {
        let Some(statement) = self.statements.get_mut(&id) else {
            return Err(error::no_prepared(id, "mysqld_stmt_execute"));
        };
        let Statement { params, bound, long_data, failed, .. } = statement;
        let decoded = match failed.take() {
            Some(error) => Err(error),
            None => params::decode(payload, *params, bound, |position| {
                long_data.get(&position).map(Vec::as_slice)
            }),
        };
        self.held -= statement.forget_long_data();
        decoded
    }
}

impl Statement {
    /// Returns how many bytes were held.
    fn forget_long_data(&mut self) -> usize {
        std::mem::take(&mut self.long_data).values().map(Vec::len).sum()
    }
}
