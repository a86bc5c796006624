//! Prepared queries that rows answer without a plan, run again: what an earlier run has found to hold for all of them.
//!
//! Between two runs of a prepared query nothing differs but its parameters, the moment and the rows, as long as catalog and
//! variables are the same. So its tree is neither copied nor written out nor looked up again. What it reads from, whether
//! it may, and which engine answers is decided each time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use binder::{Scalar, plain_literal};
use execution::bound_queries::{Operand, Shape, Template};
use execution::reply::Reply;
use execution::router::{self, Route};
use parking_lot::Mutex;
use placement::api::Catalog;
use sqlparser::ast::Query;
use storage::access;
use storage::reader::Reader;
use syntax::constant::expression;
use syntax::hints::Engine;
use syntax::names::TableName;
use syntax::statement::Stmt;
use types::{Table, Value};
use values::column::ResultColumn;
use values::error::SqlResult;
use values::mysql_type::MysqlType;

use super::tables;
use crate::session::Session;

/// After so many runs that have shown nothing, no more is looked for.
const TRIES: u32 = 16;

/// What is known of a prepared query.
#[derive(Default)]
pub(in crate::session) struct KnownRead {
    found: Mutex<Option<Arc<Found>>>,
    /// Runs that have shown nothing since one did.
    in_vain: AtomicU32,
}

/// Where the literals of a query come from, and their types.
pub(super) struct Operands {
    from: Vec<Operand>,
    types: Vec<MysqlType>,
}

/// What a run has found.
struct Found {
    template: Arc<Template>,
    operands: Operands,
    columns: Vec<ResultColumn>,
    aliases: BTreeMap<TableName, Vec<String>>,
    /// The catalog's version and the variables' of then.
    versions: (u64, u64),
}

impl Found {
    /// What the query compares with, if that is of the types of then.
    fn literals(&self, parameters: &[Value]) -> Option<Vec<Scalar>> {
        let Operands { from, types } = &self.operands;
        let literal = |(operand, ty): (&Operand, &MysqlType)| {
            let literal = match operand {
                Operand::Literal(literal) => literal.clone(),
                Operand::Parameter(at) => plain_literal(&expression(parameters.get(*at)?))?,
            };
            (literal.ty == *ty).then_some(literal)
        };
        from.iter().zip(types).map(literal).collect()
    }
}

impl Session {
    /// What is known of the prepared statement that runs, if that is this query.
    fn known_of(&self, query: &Query) -> Option<&KnownRead> {
        let running = self.running.as_ref()?;
        match &*running.statement {
            Stmt::Query(prepared) if std::ptr::eq(&**prepared, query) => Some(&running.known),
            _ => None,
        }
    }

    /// Where the literals of a query come from that is the running prepared one with its parameters written in, if it is, and
    /// is worth knowing.
    pub(super) fn operands_of(&self, shape: &Shape) -> Option<Operands> {
        let running = self.running.as_ref()?;
        let Stmt::Query(prepared) = &*running.statement else { return None };
        if running.known.in_vain.fetch_add(1, Ordering::Relaxed) >= TRIES {
            return None;
        }
        let from = shape.operands(prepared)?;
        Some(Operands { from, types: shape.types().to_vec() })
    }

    /// Takes note of how the running prepared query was answered: from rows, without a plan.
    pub(super) fn keep_known(
        &self,
        (template, operands): (Arc<Template>, Operands),
        columns: Vec<ResultColumn>,
        aliases: BTreeMap<TableName, Vec<String>>,
        catalog: &Catalog,
    ) {
        let Some(running) = &self.running else { return };
        let versions = (catalog.version, self.variables.version());
        let found = Found { template, operands, columns, aliases, versions };
        *running.known.found.lock() = Some(Arc::new(found));
        running.known.in_vain.store(0, Ordering::Relaxed);
    }

    fn forget_known(&self) {
        if let Some(running) = &self.running {
            *running.known.found.lock() = None;
        }
    }

    /// The answer of a prepared query of which enough is known; `None` if it is to be looked at again.
    pub(super) async fn known_read(
        &mut self,
        query: &Query,
        parameters: &[Value],
    ) -> SqlResult<Option<Reply>> {
        let Some(found) = self.known_of(query).and_then(|known| known.found.lock().clone()) else {
            return Ok(None);
        };
        let version = self.engine.storage.catalog().await?.version;
        if found.versions != (version, self.variables.version()) {
            return Ok(None);
        }
        let Some(literals) = found.literals(parameters) else { return Ok(None) };
        let (reader, catalog) = self.reader().await?;
        let Some(query) = found.template.row_query(&literals) else { return Ok(None) };
        if catalog.version != version {
            return Ok(None);
        }
        let name = &query.table;
        let table = tables::readable(&catalog, &name.database, &name.table, reader.ts())?;
        self.check_columns_then(&catalog, &table)?;
        let narrow = access::choose(&table, &query.filters(&table), reader.ts()).is_narrow();
        let route = self.route_known(&found, (name, &table, narrow), &catalog, &reader).await;
        if route.engine != Engine::Rows || route.refused.is_some() || !route.warnings.is_empty() {
            return Ok(None);
        }
        let reply = self.by_rows(&query, &table, (&reader, route), found.columns.clone()).await?;
        match &reply {
            Some(_) => self.engine.bound_queries.note_repeated(),
            // Too many rows for that; they are not read twice the next time, too.
            None => self.forget_known(),
        }
        Ok(reply)
    }

    async fn route_known(
        &self,
        found: &Found,
        (name, table, narrow): (&TableName, &Table, bool),
        catalog: &Catalog,
        reader: &Reader,
    ) -> Route {
        let mut facts = self.table_facts(name, Some(table), catalog, reader, &found.aliases).await;
        facts.narrow = narrow;
        // One with hints is not known.
        router::route(&self.query_facts(vec![facts], BTreeMap::new(), false))
    }
}
