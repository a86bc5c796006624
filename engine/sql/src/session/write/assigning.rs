//! ON DUPLICATE KEY UPDATE: what the row that was met becomes, assignment by assignment from left
//! to right, each seeing what the ones before have made of it.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use binder::planning_schema;
use datafusion::common::{DFSchema, TableReference};
use datafusion::physical_expr::PhysicalExpr;
use functions::value::value_at;
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Insert, OnInsert, Query, SetExpr,
    VisitorMut,
};
use syntax::names::parts;
use syntax::tree::is_default;
use syntax::walk::walk_mut;
use types::columns::ColumnsBuilder;
use types::{Table, Value};
use values::coerce::Place;
use values::error::{
    SqlError, SqlResult, ambiguous_column, no_column, unknown, unsupported, value_for_generated,
    wrong_name_count,
};

use super::clauses::assigned;
use super::fitting::Fitting;
use crate::session::Session;

/// What a column is assigned.
enum Given {
    /// Its default.
    Default,
    /// What the new row has in a column.
    Values(usize),
    /// A literal.
    Literal(Value),
    /// Anything else, until it is compiled.
    Written(Box<Expr>),
    /// The same, ready.
    Compiled(Arc<dyn PhysicalExpr>),
}

/// The assignments of an ON DUPLICATE KEY UPDATE.
pub(super) struct Assigning {
    table: Arc<Table>,
    set: Vec<(usize, Given)>,
    /// What is read from the tables of an INSERT … SELECT, beside the new row.
    beside: Vec<Expr>,
    schema: SchemaRef,
}

impl Assigning {
    /// Reads the clause.
    pub(in crate::session) fn new(
        on: &OnInsert,
        insert: &Insert,
        table: &Arc<Table>,
        database: &str,
    ) -> SqlResult<Self> {
        let OnInsert::DuplicateKeyUpdate(assignments) = on else {
            return Err(unsupported("ON CONFLICT (write ON DUPLICATE KEY UPDATE)"));
        };
        let mut names = Names::new(insert, table, database)?;
        let mut set = Vec::with_capacity(assignments.len());
        for assignment in assignments {
            let written = assigned(&assignment.target)?;
            let found = table.column_named(&written).filter(|(_, c)| !c.hidden);
            let Some((at, column)) = found else {
                return Err(no_column(&written, "field list"));
            };
            let mut expr = assignment.value.clone();
            if column.generated().is_some() {
                // It has its value anyhow.
                if is_default(&expr) {
                    continue;
                }
                return Err(value_for_generated(&column.name, &table.name));
            }
            if is_default(&expr) {
                set.push((at, Given::Default));
                continue;
            }
            walk_mut(&mut expr, &mut names)?;
            let number = syntax::constant::number_of_bytes(&expr, column.ty);
            set.push((
                at,
                match (names.values_of(&expr), number.or_else(|| syntax::constant::literal(&expr)))
                {
                    (Some(column), _) => Given::Values(column),
                    (None, Some(value)) => Given::Literal(value),
                    (None, None) => {
                        let number = super::column_values::number_of_column(expr, column.ty);
                        Given::Written(Box::new(number))
                    }
                },
            ));
        }
        let (table, schema) = (table.clone(), Arc::new(Schema::empty()));
        Ok(Assigning { table, set, beside: names.beside, schema })
    }

    /// What the SELECT has to give beside the new row.
    pub(in crate::session) fn beside(&self) -> Vec<Expr> {
        self.beside.clone()
    }

    /// Makes expressions ready. `beside` shows the types of what the SELECT gives beside the rows.
    pub(in crate::session) fn compile(
        &mut self,
        beside: &[Vec<ArrayRef>],
        session: &Session,
    ) -> SqlResult<()> {
        if !self.set.iter().any(|(_, given)| matches!(given, Given::Written(_))) {
            return Ok(());
        }
        let columns = planning_schema(&self.table);
        let own = TableReference::bare(self.table.name.to_lowercase());
        let mut fields: Vec<(Option<TableReference>, Arc<Field>)> =
            columns.fields().iter().map(|field| (Some(own.clone()), field.clone())).collect();
        for (at, field) in columns.fields().iter().enumerate() {
            let field = Field::new(values_name(at), field.data_type().clone(), true)
                .with_metadata(field.metadata().clone());
            fields.push((None, Arc::new(field)));
        }
        for (at, array) in beside.first().into_iter().flatten().enumerate() {
            let field = Field::new(beside_name(at), array.data_type().clone(), true);
            fields.push((None, Arc::new(field)));
        }
        let plain: Vec<Arc<Field>> = fields.iter().map(|(_, field)| field.clone()).collect();
        self.schema = Arc::new(Schema::new(plain));
        let frame = DFSchema::new_with_metadata(fields, Default::default())?;
        for (_, given) in &mut self.set {
            if let Given::Written(expr) = given {
                *given = Given::Compiled(session.compiled((**expr).clone(), &frame)?);
            }
        }
        Ok(())
    }

    /// The row that `old` becomes when it is met by `new`.
    pub(in crate::session) fn assigned(
        &self,
        session: &Session,
        old: &[Value],
        new: &[Value],
        beside: &[ArrayRef],
        fitting: &mut Fitting,
    ) -> SqlResult<Vec<Value>> {
        let zone = session.context().zone()?;
        let mut row = old.to_vec();
        for (at, given) in &self.set {
            let Some(column) = self.table.columns.get(*at) else { continue };
            let value = match given {
                Given::Default => session.default_value(column, zone)?,
                Given::Values(from) => {
                    let value = new.get(*from).cloned().unwrap_or(Value::Null);
                    let of = self.table.columns.get(*from).map(|column| column.ty);
                    super::column_values::number_of_label(value, of, column.ty)
                }
                Given::Literal(value) => value.clone(),
                Given::Written(_) => return Err(unknown("an assignment was not compiled")),
                Given::Compiled(expr) => {
                    let batch = self.batch(&row, new, beside)?;
                    value_at(&expr.evaluate(&batch)?.into_array(1)?, 0)?
                }
            };
            let value = fitting.column(value, Place { column, row: 1, zone })?;
            if let Some(slot) = row.get_mut(*at) {
                *slot = value;
            }
        }
        if row != old {
            for (at, column) in self.table.columns.iter().enumerate() {
                let set = self.set.iter().any(|(set, _)| *set == at);
                if let (true, false, Some(slot)) = (column.on_update_now, set, row.get_mut(at)) {
                    *slot = session.now_for(column, zone)?;
                }
            }
        }
        Ok(row)
    }

    fn batch(&self, old: &[Value], new: &[Value], beside: &[ArrayRef]) -> SqlResult<RecordBatch> {
        let all: Vec<usize> = (0..self.table.columns.len()).collect();
        let mut arrays = Vec::with_capacity(self.schema.fields().len());
        for row in [old, new] {
            let mut builder = ColumnsBuilder::new(&self.table, &all)?;
            builder.push(row)?;
            arrays.extend_from_slice(builder.finish()?.columns());
        }
        arrays.extend_from_slice(beside);
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(1));
        // What was met may hold NULL where the new row may not, and the other way round.
        let fields = self.schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        RecordBatch::try_new_with_options(schema, arrays, &options).map_err(Into::into)
    }
}

fn values_name(at: usize) -> String {
    format!("__values_{at}")
}

fn beside_name(at: usize) -> String {
    format!("__beside_{at}")
}

/// What names mean in the clause: columns of the row that was met, of the new one (`VALUES(c)`, or
/// by its alias), or of the SELECT's tables.
struct Names<'a> {
    table: &'a Table,
    database: &'a str,
    /// The new row's alias, and what its columns are called.
    alias: Option<(String, Vec<(String, usize)>)>,
    /// Whether columns may be those of a SELECT's tables.
    selects: bool,
    beside: Vec<Expr>,
}

impl<'a> Names<'a> {
    fn new(insert: &Insert, table: &'a Table, database: &'a str) -> SqlResult<Self> {
        let selects = insert.source.as_ref().is_some_and(|source| plain(source));
        let mut names = Names { table, database, alias: None, selects, beside: Vec::new() };
        let Some(aliases) = &insert.insert_alias else { return Ok(names) };
        let mut targets = super::insert::targets(insert, table)?;
        let given: Vec<String> =
            aliases.col_aliases.iter().flatten().map(|ident| ident.value.to_lowercase()).collect();
        if given.is_empty() {
            targets = (0..table.columns.len()).collect();
        } else if given.len() != targets.len() {
            return Err(wrong_name_count());
        }
        let called = targets.into_iter().enumerate().filter_map(|(at, target)| {
            let own = table.columns.get(target)?.name.to_lowercase();
            Some((given.get(at).cloned().unwrap_or(own), target))
        });
        let alias = parts(&aliases.row_alias).pop().unwrap_or_default().to_lowercase();
        names.alias = Some((alias, called.collect()));
        Ok(names)
    }

    /// The column of the new row that an expression is, and nothing more.
    fn values_of(&self, expr: &Expr) -> Option<usize> {
        let Expr::Identifier(ident) = expr else { return None };
        let at = ident.value.strip_prefix("__values_")?.parse().ok()?;
        (at < self.table.columns.len()).then_some(at)
    }

    fn meaning(&mut self, expr: &Expr) -> SqlResult<Option<Expr>> {
        let new = |at: usize| Some(Expr::Identifier(Ident::new(values_name(at))));
        match expr {
            Expr::Function(function)
                if parts(&function.name).last().is_some_and(|name| name == "values") =>
            {
                let FunctionArguments::List(list) = &function.args else {
                    return Err(values::error::syntax("VALUES() takes the name of a column"));
                };
                let [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] = &list.args[..] else {
                    return Err(values::error::syntax("VALUES() takes the name of a column"));
                };
                let column = match argument {
                    Expr::Identifier(ident) => &ident.value,
                    Expr::CompoundIdentifier(idents) => match idents.last() {
                        Some(ident) => &ident.value,
                        None => return Ok(None),
                    },
                    _ => return Err(values::error::syntax("VALUES() takes the name of a column")),
                };
                match self.table.column_named(column) {
                    Some((at, _)) => Ok(new(at)),
                    None => Err(no_column(column, "field list")),
                }
            }
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                Err(unsupported("a subquery in ON DUPLICATE KEY UPDATE"))
            }
            Expr::Identifier(ident) => self.bare(ident, expr),
            Expr::CompoundIdentifier(idents) => self.qualified(idents, expr),
            _ => Ok(None),
        }
    }

    fn bare(&mut self, ident: &Ident, expr: &Expr) -> SqlResult<Option<Expr>> {
        let name = ident.value.to_lowercase();
        let own = self.table.column_named(&name).is_some_and(|(_, column)| !column.hidden);
        let called = self.alias.as_ref().and_then(|(_, columns)| {
            columns.iter().find(|(called, _)| *called == name).map(|(_, at)| *at)
        });
        match called {
            Some(_) if own => Err(ambiguous_column(&ident.value, "field list")),
            Some(at) => Ok(Some(Expr::Identifier(Ident::new(values_name(at))))),
            None if own => Ok(None),
            None => self.selected(&ident.value, expr),
        }
    }

    fn qualified(&mut self, idents: &[Ident], expr: &Expr) -> SqlResult<Option<Expr>> {
        let [.., qualifier, column] = idents else { return Ok(None) };
        let database = idents.len().checked_sub(3).and_then(|at| idents.get(at));
        if let Some((alias, columns)) = &self.alias
            && database.is_none()
            && qualifier.value.eq_ignore_ascii_case(alias)
        {
            let name = column.value.to_lowercase();
            return match columns.iter().find(|(called, _)| *called == name) {
                Some((_, at)) => Ok(Some(Expr::Identifier(Ident::new(values_name(*at))))),
                None => {
                    Err(no_column(format!("{}.{}", qualifier.value, column.value), "field list"))
                }
            };
        }
        let here = database.map_or(self.database, |database| database.value.as_str());
        if qualifier.value.eq_ignore_ascii_case(&self.table.name)
            && here.eq_ignore_ascii_case(&self.table.database)
        {
            let own = Ident::new(self.table.name.to_lowercase());
            return Ok(Some(Expr::CompoundIdentifier(vec![own, column.clone()])));
        }
        self.selected(&format!("{}.{}", qualifier.value, column.value), expr)
    }

    /// A column of the SELECT's tables.
    fn selected(&mut self, name: &str, expr: &Expr) -> SqlResult<Option<Expr>> {
        if !self.selects {
            return Err(no_column(name, "field list"));
        }
        self.beside.push(expr.clone());
        Ok(Some(Expr::Identifier(Ident::new(beside_name(self.beside.len() - 1)))))
    }
}

/// Whether columns of a query's tables can be read beside its rows: no groups, no UNION.
fn plain(query: &Query) -> bool {
    match &*query.body {
        SetExpr::Select(select) => {
            let grouped = !matches!(
                &select.group_by,
                sqlparser::ast::GroupByExpr::Expressions(by, _) if by.is_empty()
            );
            !grouped && select.distinct.is_none() && select.having.is_none()
        }
        _ => false,
    }
}

impl VisitorMut for Names<'_> {
    type Break = SqlError;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        match self.meaning(expr) {
            Ok(Some(meant)) => *expr = meant,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}
