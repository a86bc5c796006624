//! CREATE TABLE and ALTER TABLE as descriptions for the catalog, and descriptions as SHOW CREATE TABLE prints them.
//!
//! Only shapes are checked here; names and numbers are placement's business.
#![cfg_attr(test, allow(clippy::unwrap_used))]

use sqlparser::ast::{CreateTable, ObjectName, TableConstraint};
use syntax::table_options;
use types::{Column, ColumnId, ColumnType, Default, ForeignKey, IntWidth, Table, Value};
use values::error::{
    SqlError, SqlResult, multiple_primary_keys, no_columns, not_for_columns, nothing_to_number,
    syntax, unsupported, wrong_auto_increment, wrong_column_name,
};

mod column_types;
mod columns;
pub mod expressions;
pub mod foreign_keys;
pub mod keys;
mod labels;
pub mod queried;
mod show;

pub use columns::{column, default_of};
use keys::Form;
pub use show::{key_clause, now_of, qualified, show_create};

/// The column that numbers the rows of a table without a primary key.
pub const ROW_NUMBER: &str = "_isobar_rowid";

/// Where the number is that rows of a table are given and clients see.
pub fn number_of(table: &Table) -> Option<usize> {
    table.columns.iter().position(|column| column.auto_increment && !column.hidden)
}

/// Whether rows of a table are given numbers that clients see.
pub fn has_numbers(table: &Table) -> bool {
    number_of(table).is_some()
}

/// Refuses a columnar replica of a table with a DECIMAL that columns do not hold.
pub fn check_replica(table: &Table) -> SqlResult<()> {
    let wide = table.columns.iter().find(|column| column.ty.is_wide());
    let Some(column) = wide.filter(|_| table.columnar_replicas > 0) else { return Ok(()) };
    Err(not_for_columns(&column.name, &table.name, column.ty))
}
/// A name of a character set or a collation, which may stand in quotes.
fn unquoted(name: &ObjectName) -> String {
    name.0.iter().filter_map(|part| part.as_ident()).map(|ident| ident.value.as_str()).collect()
}

/// What a CREATE TABLE describes.
pub struct Described {
    /// The table.
    pub table: Table,
    /// Its foreign keys, without a look at the tables that they refer to.
    pub foreign_keys: Vec<ForeignKey>,
    /// Its first AUTO_INCREMENT number; 0 where none is named.
    pub first_number: u64,
    /// Warnings.
    pub warnings: Vec<SqlError>,
}

impl Described {
    /// A table about which there is nothing else to be said.
    pub fn of(table: Table) -> Self {
        Described { table, foreign_keys: Vec::new(), first_number: 0, warnings: Vec::new() }
    }
}

/// What CREATE TABLE describes, with its warnings. `database` is the current one.
pub fn describe(create: &CreateTable, database: &str) -> SqlResult<Described> {
    describe_filled(create, Vec::new(), database)
}

/// The same, with the columns of the query that fills the table.
pub fn describe_filled(
    create: &CreateTable,
    queried: Vec<Column>,
    database: &str,
) -> SqlResult<Described> {
    let (database, name) = spelled(&create.name, database)?;
    let mut table = Table {
        id: 0,
        version: 1,
        database,
        name,
        columns: Vec::new(),
        primary_key: Vec::new(),
        indexes: Vec::new(),
        columnar_replicas: 0,
        comment: String::new(),
        dropped: Vec::new(),
        checks: Vec::new(),
    };
    let (mut first_number, mut warnings) = (0, Vec::new());
    for option in table_options::of_create(create, &table.name)? {
        match option {
            table_options::Treated::Comment(text) => table.comment = text,
            table_options::Treated::Number(number) => first_number = number,
            table_options::Treated::Nothing => {}
            table_options::Treated::Warning(warning) => warnings.push(warning),
        }
    }
    for definition in &create.columns {
        column(definition, &mut table, &mut warnings)?;
    }
    queried::add(queried, &mut table)?;
    for constraint in &create.constraints {
        add_constraint(constraint, &mut table, &mut warnings)?;
    }
    finish(&mut table)?;
    expressions::settle(&mut table)?;
    let foreign_keys = foreign_keys::of_create(&create.constraints, &mut table)?;
    if first_number > 0 && !table.columns.iter().any(|c| c.auto_increment && !c.hidden) {
        first_number = 0;
        warnings.push(nothing_to_number());
    }
    Ok(Described { table, foreign_keys, first_number, warnings })
}

/// Database and name of a table, as the statement spells them.
pub fn spelled(name: &ObjectName, database: &str) -> SqlResult<(String, String)> {
    let mut parts: Vec<String> =
        name.0.iter().filter_map(|part| part.as_ident().map(|ident| ident.value.clone())).collect();
    match (parts.pop(), parts.pop(), parts.pop()) {
        (Some(name), Some(database), None) => Ok((database, name)),
        (Some(_), None, None) if database.is_empty() => Err(values::error::no_database_selected()),
        (Some(name), None, None) => Ok((database.to_owned(), name)),
        _ => Err(syntax(format!("'{name}' is no table name"))),
    }
}

fn add_constraint(
    constraint: &TableConstraint,
    table: &mut Table,
    warnings: &mut Vec<SqlError>,
) -> SqlResult<()> {
    match constraint {
        TableConstraint::PrimaryKey(key) => {
            if !table.primary_key.is_empty() {
                return Err(multiple_primary_keys());
            }
            let form = keys::form(key.index_type.as_ref(), &key.index_options, warnings)?;
            table.primary_key = keys::primary(&key.columns, form, table)?;
        }
        TableConstraint::Unique(key) => {
            let form = keys::form(key.index_type.as_ref(), &key.index_options, warnings)?;
            let name = key.index_name.as_ref().or(key.name.as_ref());
            keys::push(table, name, &key.columns, Form { unique: true, ..form })?;
        }
        TableConstraint::Index(key) => {
            let form = keys::form(key.index_type.as_ref(), &key.index_options, warnings)?;
            keys::push(table, key.name.as_ref(), &key.columns, form)?;
        }
        // Behind all others: it needs an index where none of them is one for it.
        TableConstraint::ForeignKey(_) => {}
        TableConstraint::Check(check) => {
            let name = check.name.as_ref().map(|name| name.value.as_str());
            expressions::push_check(table, name, &check.expr, check.enforced, None)?;
        }
        other => return Err(unsupported(other)),
    }
    Ok(())
}

/// The primary key that every table has, and what it demands of its columns.
fn finish(table: &mut Table) -> SqlResult<()> {
    if table.columns.is_empty() {
        return Err(no_columns());
    }
    if table.columns.iter().any(|column| column.name.eq_ignore_ascii_case(ROW_NUMBER)) {
        return Err(wrong_column_name(ROW_NUMBER));
    }
    if table.primary_key.is_empty() {
        let id = table.columns.len() as ColumnId + 1;
        table.columns.push(Column {
            id,
            name: ROW_NUMBER.into(),
            ty: ColumnType::Int { width: IntWidth::Big, unsigned: false },
            nullable: false,
            default: None,
            original: None,
            auto_increment: true,
            on_update_now: false,
            hidden: true,
            comment: String::new(),
        });
        table.primary_key = vec![id];
    }
    let numbered = table.columns.iter().filter(|column| column.auto_increment).count();
    let keyed = |column: &Column| {
        table.primary_key.first() == Some(&column.id)
            || table.indexes.iter().any(|index| index.columns.first() == Some(&column.id))
    };
    let visible = table.columns.iter().filter(|c| c.auto_increment && !c.hidden);
    if visible.clone().count() > 1 || visible.clone().any(|column| !keyed(column)) {
        return Err(wrong_auto_increment());
    }
    if numbered > 1 {
        return Err(unsupported("AUTO_INCREMENT in a table without a primary key"));
    }
    let keys = table.primary_key.clone();
    for column in table.columns.iter_mut().filter(|column| keys.contains(&column.id)) {
        column.nullable = false;
        if column.default == Some(Default::Constant(Value::Null)) {
            column.default = None;
        }
    }
    keys::sort(table);
    Ok(())
}
