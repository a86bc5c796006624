//! UPDATE and DELETE of one table: which rows, and what becomes of them.
//!
//! Where rows are named by their whole keys and values are set as they are written, nothing is bound: that took more time than
//! the change itself.

use std::sync::Arc;

use binder::{BoundChange, ResolvedTables, RowsOf, Set, Target, Targets};
use placement::api::Catalog;
use sqlparser::ast::{Delete, Expr, Update};
use syntax::names::table_name;
use types::{Column, Table};
use values::error::{SqlResult, unsupported};

use super::changes::Changes;
use super::changes::in_key_order;
use super::clauses::ignores;
use super::fitting::Fitting;
use super::joined::refuse_reading;
use super::matched_rows::{Weight, table_of};
use super::new_values::{Found, NewValues, Pair};
use crate::session::query::point::{Lookup, lookup, single};
use crate::session::query::tables::readable;
use crate::session::transaction::finding::Finding;
use crate::session::{Session, Warning};

/// Rows of one table by their whole keys.
struct ByKey {
    table: Arc<Table>,
    /// Its alias, in lower case.
    called: Option<String>,
    lookup: Lookup,
}

impl Session {
    /// The rows that an UPDATE changes.
    pub(super) async fn update_pairs(
        &mut self,
        update: &Update,
        catalog: &Arc<Catalog>,
        finding: &Finding,
        weight: &Weight,
    ) -> SqlResult<(Arc<Table>, Changes)> {
        if update.from.is_some() || update.returning.is_some() {
            return Err(unsupported("UPDATE of this form"));
        }
        let rows = RowsOf::of_update(update);
        let at = (catalog, finding);
        if let Some(by_key) = self.by_key(&rows, at)
            && let called = by_key.called.as_deref()
            && let Some(values) =
                NewValues::written(self, &by_key.table, called, &update.assignments)?
        {
            let found = self.looked_up_rows(&by_key.table, finding, by_key.lookup).await?;
            if values.can_add(&found) {
                let (pairs, warnings) =
                    self.changed_pairs(update, (&by_key.table, &values), found).await?;
                self.diagnostics.extend(warnings);
                return Ok((by_key.table.clone(), Changes::Update { pairs }));
            }
        }
        let resolved = self.tables_of_change(&rows, &update.assignments, at).await?;
        let bound = self.bound_update(update, &rows, &resolved)?;
        let (target, table) = only(&bound, &resolved, "UPDATE")?;
        refuse_reading(
            &table,
            self.variables.database(),
            (&update.selection, &update.assignments),
        )?;
        let found = self.found_rows(&rows, (&bound, target, &table), at, weight).await?;
        let values = NewValues::new(self, &table, target, bound.set.iter())?;
        let (pairs, warnings) = self.changed_pairs(update, (&table, &values), found).await?;
        self.diagnostics.extend(warnings);
        Ok((table, Changes::Update { pairs }))
    }

    /// Rows before and after, in the order in which they change, and what is to be said of them.
    async fn changed_pairs(
        &self,
        update: &Update,
        (table, values): (&Arc<Table>, &NewValues<'_>),
        found: Vec<Found>,
    ) -> SqlResult<(Vec<Pair>, Vec<Warning>)> {
        let mut fitting = Fitting::ignoring(ignores(update));
        let mut pairs = values.of(found, &mut fitting)?;
        self.derive_pairs(table, &mut pairs, &mut fitting)?;
        if update.order_by.is_empty() {
            in_key_order(table, &mut pairs)?;
        }
        self.count_changed(table, &pairs).await?;
        Ok((pairs, fitting.into_warnings()))
    }

    /// The table of a statement that names its rows by their whole keys and says nothing else of them, and these keys.
    fn by_key(
        &self,
        rows: &RowsOf<'_>,
        (catalog, finding): (&Arc<Catalog>, &Finding),
    ) -> Option<ByKey> {
        if !rows.order_by.is_empty() || rows.limit.is_some() {
            return None;
        }
        let (name, called) = single(rows.from)?;
        let name = table_name(name, self.variables.database()).ok()?;
        let table = readable(catalog, &name.database, &name.table, finding.ts()).ok()?;
        let lookup = lookup(&table, called.as_deref(), rows.condition?, finding.ts())?;
        Some(ByKey { table, called, lookup })
    }

    async fn looked_up_rows(
        &self,
        table: &Arc<Table>,
        finding: &Finding,
        lookup: Lookup,
    ) -> SqlResult<Vec<Found>> {
        let found = self.look_up(table, finding, lookup).await?;
        Ok(found.into_iter().map(|(_, row)| (row, Vec::new())).collect())
    }

    /// Binds an UPDATE over its tables.
    pub(super) fn bound_update(
        &self,
        update: &Update,
        rows: &RowsOf<'_>,
        resolved: &ResolvedTables,
    ) -> SqlResult<BoundChange> {
        let zone = self.context().zone()?;
        let default = |column: &Column| self.default_value(column, zone);
        let set = Set { assignments: &update.assignments, default: &default };
        self.bound_change(rows, Targets::Set(set), resolved)
    }

    /// The rows of one table that a statement is about, each with what is found with it.
    async fn found_rows(
        &self,
        rows: &RowsOf<'_>,
        (bound, target, table): (&BoundChange, &Target, &Arc<Table>),
        (catalog, finding): (&Arc<Catalog>, &Finding),
        weight: &Weight,
    ) -> SqlResult<Vec<Found>> {
        // What is found with the rows takes a plan, and so do some rows of all in an order.
        let plain = bound.query.output.len() == target.columns.len()
            && rows.order_by.is_empty()
            && rows.limit.is_none();
        let by_key =
            |condition: &Expr| lookup(table, Some(&target.called), condition, finding.ts());
        match rows.condition.filter(|_| plain).and_then(by_key) {
            Some(lookup) => self.looked_up_rows(table, finding, lookup).await,
            None => self.found_by_plan(&bound.query, catalog, finding, (table, weight)).await,
        }
    }

    /// The rows that a DELETE ends.
    pub(super) async fn delete_rows(
        &mut self,
        delete: &Delete,
        catalog: &Arc<Catalog>,
        finding: &Finding,
        weight: &Weight,
    ) -> SqlResult<(Arc<Table>, Changes)> {
        if !delete.tables.is_empty() || delete.using.is_some() || delete.returning.is_some() {
            return Err(unsupported("DELETE from several tables"));
        }
        let rows = RowsOf::of_delete(delete);
        let at = (catalog, finding);
        if let Some(ByKey { table, lookup, .. }) = self.by_key(&rows, at) {
            let found = self.looked_up_rows(&table, finding, lookup).await?;
            let rows = found.into_iter().map(|(row, _)| row).collect();
            return Ok((table, Changes::Delete { rows }));
        }
        let resolved = self.tables_of_change(&rows, &[], at).await?;
        let bound = self.bound_change(&rows, Targets::Stored, &resolved)?;
        let (target, table) = only(&bound, &resolved, "DELETE")?;
        refuse_reading(&table, self.variables.database(), (&delete.selection, &delete.order_by))?;
        let found = self.found_rows(&rows, (&bound, target, &table), at, weight).await?;
        let rows = found.into_iter().map(|(row, _)| row).collect();
        Ok((table, Changes::Delete { rows }))
    }
}

/// The one table that a statement changes.
fn only<'b>(
    bound: &'b BoundChange,
    resolved: &ResolvedTables,
    verb: &str,
) -> SqlResult<(&'b Target, Arc<Table>)> {
    let [target] = &bound.targets[..] else {
        return Err(unsupported(format!("{verb} of several tables")));
    };
    Ok((target, table_of(target, resolved)?))
}
