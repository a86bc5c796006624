//! UPDATE and DELETE: which rows, and what becomes of them.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use binder::planning_schema;
use datafusion::common::{DFSchema, TableReference};
use functions::value::value_at;
use placement::api::Catalog;
use sqlparser::ast::{
    Delete, Expr, FromTable, Ident, Query, SelectItem, SetExpr, TableWithJoins, Update,
};
use syntax::names::table_name;
use syntax::parser;
use syntax::walk::Part;
use types::columns::ColumnsBuilder;
use types::{Column, Table, Timestamp, Value};
use values::coerce::Place;
use values::error::{SqlResult, no_column, unsupported, value_for_generated};
use values::temporal::Zone;

use super::changes::Changes;
use super::clauses::{assigned, ignores, is_default};
use super::fitting::Fitting;
use super::hidden::refuse_hidden;
use super::joined::refuse_reading;
use super::matched_rows::Weight;
use super::prior_assignments::PriorAssignments;
use super::row_values::has_subquery;
use crate::session::query::point::{lookup, single};
use crate::session::query::tables::readable;
use crate::session::transaction::finding::Finding;
use crate::session::{Session, impossible};

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
        let target =
            self.target(std::slice::from_ref(&update.table), catalog, finding.ts(), "UPDATE")?;
        let table = target.table.clone();
        let set = self.assignments(update, &target, catalog, finding.ts())?;
        refuse_reading(
            &table,
            self.variables.database(),
            (&update.selection, &update.assignments),
        )?;
        target.refuse_hidden(&update.selection)?;
        target.refuse_hidden(&update.assignments)?;
        target.refuse_hidden(&update.order_by)?;
        let found = self.computed(update, &target, &set, catalog, (finding, weight)).await?;
        let zone = self.context().zone()?;
        let mut fitting = Fitting::ignoring(ignores(update));
        let mut pairs = Vec::with_capacity(found.len());
        for (row, (old, computed)) in found.into_iter().enumerate() {
            let new = self.row_set(&table, &old, &set, computed, (row + 1, zone), &mut fitting)?;
            pairs.push((old, new));
        }
        self.derive_pairs(&table, &mut pairs, &mut fitting)?;
        self.count_changed(&table, &pairs).await?;
        self.diagnostics.extend(fitting.into_warnings());
        Ok((table, Changes::Update { pairs }))
    }

    /// Which columns an UPDATE sets, and to what: columns set before stand for what they are set to.
    fn assignments(
        &self,
        update: &Update,
        target: &Target,
        catalog: &Arc<Catalog>,
        ts: Timestamp,
    ) -> SqlResult<Vec<(usize, Expr)>> {
        let table = &target.table;
        let mut set: Vec<(usize, Expr)> = Vec::new();
        for assignment in &update.assignments {
            let written = assigned(&assignment.target)?;
            let known = table.column_named(&written).filter(|(_, column)| !column.hidden);
            let Some((at, column)) = known else {
                return Err(no_column(&written, "field list"));
            };
            if column.generated().is_some() {
                // It has its value anyhow.
                if is_default(&assignment.value) {
                    continue;
                }
                return Err(value_for_generated(&column.name, &table.name));
            }
            let value = if is_default(&assignment.value) {
                let zone = self.context().zone()?;
                syntax::constant::expression(&self.default_value(column, zone)?)
            } else {
                let own = target.own_name();
                let prior = PriorAssignments::new((table, &own), &set, (catalog, ts), self);
                prior.written_into(assignment.value.clone())?
            };
            set.push((at, super::column_values::for_column(value, column.ty)));
        }
        Ok(set)
    }

    /// The rows that an UPDATE finds, each with the values that it sets.
    async fn computed(
        &self,
        update: &Update,
        target: &Target,
        set: &[(usize, Expr)],
        catalog: &Arc<Catalog>,
        (finding, weight): (&Finding, &Weight),
    ) -> SqlResult<Vec<(Vec<Value>, Vec<Value>)>> {
        // A row's subqueries are the planner's.
        let planned = set.iter().any(|(_, expr)| has_subquery(expr));
        let (selection, limit) = (update.selection.as_ref(), update.limit.as_ref());
        let point = || target.point(selection, &update.order_by, limit, finding.ts());
        if let Some(lookup) = if planned { None } else { point() } {
            let rows = self.look_up(&target.table, finding, lookup).await?;
            let olds = rows.into_iter().map(|(_, row)| row).collect();
            return self.compute(target, olds, set);
        }
        // A plan computes values of rows behind a LIMIT, too, and they may be errors.
        let late = update.limit.is_some() && !planned;
        let query = target.query(
            &update.table,
            update.selection.clone(),
            &update.order_by,
            update.limit.clone(),
            if late { &[] } else { set },
        )?;
        let found = self.found_by_plan(query, catalog, finding, (&target.table, weight)).await?;
        if !late {
            return Ok(found);
        }
        self.compute(target, found.into_iter().map(|(old, _)| old).collect(), set)
    }

    /// A row with the values that are set; what it is by its own values is still to come.
    fn row_set(
        &self,
        table: &Table,
        old: &[Value],
        set: &[(usize, Expr)],
        computed: Vec<Value>,
        (row, zone): (usize, Zone),
        fitting: &mut Fitting,
    ) -> SqlResult<Vec<Value>> {
        let mut new = old.to_vec();
        for ((at, _), value) in set.iter().zip(computed) {
            let Some(column) = table.columns.get(*at) else { continue };
            let value = fitting.column(value, Place { column, row, zone })?;
            if let Some(slot) = new.get_mut(*at) {
                *slot = value;
            }
        }
        if new != old {
            for (at, column) in table.columns.iter().enumerate() {
                if column.on_update_now && !set.iter().any(|(set, _)| *set == at) {
                    new[at] = self.now_for(column, zone)?;
                }
            }
        }
        Ok(new)
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
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let target = self.target(from, catalog, finding.ts(), "DELETE")?;
        let table = target.table.clone();
        refuse_reading(&table, self.variables.database(), (&delete.selection, &delete.order_by))?;
        target.refuse_hidden(&delete.selection)?;
        target.refuse_hidden(&delete.order_by)?;
        let rows = match target.point(
            delete.selection.as_ref(),
            &delete.order_by,
            delete.limit.as_ref(),
            finding.ts(),
        ) {
            Some(lookup) => {
                let found = self.look_up(&table, finding, lookup).await?;
                found.into_iter().map(|(_, row)| row).collect()
            }
            None => {
                let Some(first) = from.first() else {
                    return Err(unsupported("DELETE without a table"));
                };
                let query = target.query(
                    first,
                    delete.selection.clone(),
                    &delete.order_by,
                    delete.limit.clone(),
                    &[],
                )?;
                let found = self.found_by_plan(query, catalog, finding, (&table, weight)).await?;
                found.into_iter().map(|(row, _)| row).collect()
            }
        };
        Ok((table, Changes::Delete { rows }))
    }

    fn target(
        &self,
        from: &[TableWithJoins],
        catalog: &Catalog,
        ts: Timestamp,
        verb: &str,
    ) -> SqlResult<Target> {
        let Some((name, alias)) = single(from) else {
            return Err(unsupported(format!("{verb} of several tables")));
        };
        let name = table_name(name, self.variables.database())?;
        Ok(Target { table: readable(catalog, &name.database, &name.table, ts)?, alias })
    }

    /// New values of rows that are at hand, without a plan.
    fn compute(
        &self,
        target: &Target,
        rows: Vec<Vec<Value>>,
        set: &[(usize, Expr)],
    ) -> SqlResult<Vec<(Vec<Value>, Vec<Value>)>> {
        let table = &target.table;
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let mut builder = ColumnsBuilder::new(table, &all)?;
        for row in &rows {
            builder.push(row)?;
        }
        let arrays = builder.finish()?.columns().to_vec();
        let schema = planning_schema(table);
        let batch = RecordBatch::try_new(schema.clone(), arrays)?;
        let qualifier = TableReference::bare(target.own_name());
        let schema = DFSchema::try_from_qualified_schema(qualifier, &schema)?;
        let mut computed: Vec<Vec<Value>> = vec![Vec::with_capacity(set.len()); rows.len()];
        for (_, expr) in set {
            if let Some(value) = syntax::constant::literal(expr) {
                computed.iter_mut().for_each(|values| values.push(value.clone()));
                continue;
            }
            let compiled = self.compiled(expr.clone(), &schema)?;
            let array = compiled.evaluate(&batch)?.into_array(rows.len())?;
            for (at, values) in computed.iter_mut().enumerate() {
                values.push(value_at(&array, at)?);
            }
        }
        Ok(rows.into_iter().zip(computed).collect())
    }
}

/// The table that a statement changes, and the name it goes by there.
struct Target {
    table: Arc<Table>,
    alias: Option<String>,
}

impl Target {
    fn own_name(&self) -> String {
        self.alias.clone().unwrap_or_else(|| self.table.name.to_lowercase())
    }

    fn refuse_hidden(&self, part: &impl Part) -> SqlResult<()> {
        refuse_hidden(&[(&self.own_name(), &self.table)], part)
    }

    /// The condition as a look-up by key, if it is no more.
    fn point(
        &self,
        selection: Option<&Expr>,
        order_by: &[sqlparser::ast::OrderByExpr],
        limit: Option<&Expr>,
        ts: Timestamp,
    ) -> Option<crate::session::query::point::Lookup> {
        if limit.is_some() || !order_by.is_empty() {
            return None;
        }
        lookup(&self.table, self.alias.as_deref(), selection?, ts)
    }

    /// SELECT of every column and of the new values, over the rows to change.
    fn query(
        &self,
        from: &TableWithJoins,
        selection: Option<Expr>,
        order_by: &[sqlparser::ast::OrderByExpr],
        limit: Option<Expr>,
        set: &[(usize, Expr)],
    ) -> SqlResult<Query> {
        let sqlparser::ast::Statement::Query(mut query) = parser::parse_sql("SELECT 1")? else {
            return Err(impossible("SELECT 1 is no query"));
        };
        if let SetExpr::Select(select) = &mut *query.body {
            select.from = vec![from.clone()];
            select.selection = selection;
            let own = self.own_name();
            let column = |column: &Column| {
                let path = vec![Ident::with_quote('`', &own), Ident::with_quote('`', &column.name)];
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path))
            };
            let computed = |(at, (_, expr)): (usize, &(usize, Expr))| SelectItem::ExprWithAlias {
                expr: expr.clone(),
                alias: Ident::new(format!("__set_{at}")),
            };
            select.projection = self.table.columns.iter().map(column).collect();
            select.projection.extend(set.iter().enumerate().map(computed));
        }
        if !order_by.is_empty() {
            query.order_by = Some(sqlparser::ast::OrderBy {
                kind: sqlparser::ast::OrderByKind::Expressions(order_by.to_vec()),
                interpolate: None,
            });
        }
        if limit.is_some() {
            query.limit_clause = Some(sqlparser::ast::LimitClause::LimitOffset {
                limit,
                offset: None,
                limit_by: Vec::new(),
            });
        }
        Ok(*query)
    }
}
