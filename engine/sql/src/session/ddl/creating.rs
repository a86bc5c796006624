//! CREATE TABLE … SELECT: a table with the columns of a query, and with its rows.
//!
//! The table is there before its rows are; where those cannot be written, it goes again.

use futures::future::BoxFuture;
use placement::api::CatalogChange;
use sqlparser::ast::{
    CharacterLength, CreateTable, DataType, Expr, Ident, Insert, ObjectName, Query, SelectItem,
    SetExpr, Statement, TableObject, Value as SqlValue,
};
use syntax::{parser, table_options};
use tokio_util::sync::CancellationToken;
use types::{Column, Table, Value};
use values::column::ResultColumn;
use values::error::{
    SqlError, SqlResult, TABLE_EXISTS, interrupted, may_still_be_there, no_database, table_exists,
};

use crate::session::write::statement::Write;
use crate::session::{Session, done, impossible};
use definitions::{Described, queried};
use execution::reply::Reply;

impl Session {
    /// CREATE TABLE … SELECT. Its future is large, and so no part of every statement's.
    pub(in crate::session) fn create_filled<'a>(
        &'a mut self,
        create: CreateTable,
        parameters: &'a [Value],
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, SqlResult<Reply>> {
        Box::pin(self.create_filled_as(create, parameters, cancel))
    }

    async fn create_filled_as(
        &mut self,
        mut create: CreateTable,
        parameters: &[Value],
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        self.commit().await?;
        let Some(query) = create.query.take() else {
            return Err(impossible("a table to be filled by no query"));
        };
        // First of all: another table of the name is not the temporary one that was meant.
        table_options::refuse_forms(&create)?;
        // Brings the catalog up to date.
        self.engine.storage.timestamp().await?;
        let (database, name) = definitions::spelled(&create.name, self.variables.database())?;
        let catalog = self.engine.storage.catalog().await?;
        if catalog.database_named(&database).is_none() {
            return Err(no_database(&database));
        }
        if catalog.table_named(&database, &name).is_some()
            || catalog.view_named(&database, &name).is_some()
        {
            return self.is_there(&create, &name);
        }
        let columns = self.columns_to_fill(&query, parameters).await?;
        let insert = insert_into(&create, &columns, query)?;
        // Without autocommit the query has begun a transaction, which is older than the table.
        self.commit().await?;
        let Described { table, foreign_keys, first_number, warnings } =
            definitions::describe_filled(&create, columns, self.variables.database())?;
        self.check_expressions(&table)?;
        let _held = self.interrupts.hold();
        let table = match self.make_referring(table, foreign_keys, first_number).await {
            Ok(table) => table,
            Err(error) if error.code == TABLE_EXISTS => return self.is_there(&create, &name),
            Err(error) => return Err(error),
        };
        let interrupts = self.interrupts.clone();
        let filled = tokio::select! {
            biased;
            () = interrupts.interruption_but(cancel, 1) => Err(interrupted()),
            filled = self.fill_created(insert, parameters) => filled,
        };
        match filled {
            Ok(reply) => {
                warnings.into_iter().for_each(|warning| self.diagnostics.warn(warning));
                Ok(reply)
            }
            Err(error) => self.drop_created(&table, error).await,
        }
    }

    /// The answer where there is a table, or a view, of the name.
    pub(super) fn is_there(&mut self, create: &CreateTable, name: &str) -> SqlResult<Reply> {
        if !create.if_not_exists {
            return Err(table_exists(name));
        }
        self.note(table_exists(name));
        Ok(done())
    }

    /// The columns of a query as those of a table.
    async fn columns_to_fill(
        &mut self,
        query: &Query,
        parameters: &[Value],
    ) -> SqlResult<Vec<Column>> {
        let shown = self.columns_of(query.clone(), parameters).await?;
        let catalog = self.engine.storage.catalog().await?;
        let items = match &*query.body {
            SetExpr::Select(select) if select.projection.len() == shown.len() => {
                select.projection.as_slice()
            }
            _ => &[],
        };
        let column = |(at, shown): (usize, &ResultColumn)| {
            let table = catalog.table_named(&shown.database, &shown.org_table);
            let source = table.and_then(|table| table.column_named(&shown.org_name));
            let length = items.get(at).and_then(text_length);
            queried::column(shown, source.map(|(_, column)| column), length)
        };
        shown.iter().enumerate().map(column).collect()
    }

    async fn fill_created(&mut self, insert: Insert, parameters: &[Value]) -> SqlResult<Reply> {
        let reply = self.write(Write::Insert(Box::new(insert)), parameters).await?;
        self.commit().await?;
        Ok(reply)
    }

    /// Drops a table that could not be filled; gives the error on.
    async fn drop_created(&mut self, table: &Table, error: SqlError) -> SqlResult<Reply> {
        self.transaction.rollback().await;
        let dropped = self.engine.storage.change(CatalogChange::DropTable(table.id)).await;
        if let Err(also) = dropped {
            self.diagnostics.warn(may_still_be_there(&table.name, also));
        }
        Err(error)
    }
}

/// The INSERT that fills a new table. Names do not go through a text: they may have quotes in them.
fn insert_into(create: &CreateTable, columns: &[Column], query: Box<Query>) -> SqlResult<Insert> {
    let name = |column: &Column| ObjectName::from(Ident::with_quote('`', &column.name));
    let columns = columns.iter().map(name).collect();
    let table = TableObject::TableName(create.name.clone());
    match parser::parse_sql("INSERT INTO t SELECT 1")? {
        Statement::Insert(insert) => Ok(Insert { table, columns, source: Some(query), ..insert }),
        _ => Err(impossible("an INSERT that is none")),
    }
}

/// The length of a text that an item of a select list says itself.
fn text_length(item: &SelectItem) -> Option<u32> {
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
        return None;
    };
    match expr {
        Expr::Value(value) => match &value.value {
            SqlValue::SingleQuotedString(text) | SqlValue::DoubleQuotedString(text) => {
                u32::try_from(text.chars().count()).ok()
            }
            _ => None,
        },
        Expr::Cast {
            data_type: DataType::Char(Some(CharacterLength::IntegerLength { length, .. })),
            ..
        } => u32::try_from(*length).ok(),
        _ => None,
    }
}
