//! Keys as definitions describe them: their columns, prefixes and options.
//!
//! Nothing is read or written here; what an index's entries hold is `types::Index`'s to say.

use std::collections::BTreeMap;

use sqlparser::ast::{
    CreateIndex, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    IndexColumn, IndexOption, IndexType, Value,
};
use types::{Column, ColumnId, ColumnType, Index, IndexState, KeyPart, Table, Timestamp};
use values::error::{
    SqlError, SqlResult, duplicate_column, duplicate_index_name, empty_key_part, hash_index,
    index_comment, invisible_primary, key_of_json, key_too_long, key_without_length, no_key_column,
    syntax, unsupported, wrong_index_name, wrong_prefix,
};

/// Most bytes of a key, with four for each character, as in MySQL.
const LONGEST: u64 = 3_072;

/// What is said of a key besides its columns.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// UNIQUE.
    pub unique: bool,
    /// Unless it is INVISIBLE.
    pub visible: bool,
}

/// A key as it is defined.
pub struct Key {
    /// Columns, in key order.
    pub columns: Vec<ColumnId>,
    /// Prefixes and DESC.
    pub parts: BTreeMap<ColumnId, KeyPart>,
    /// The rest.
    pub form: Form,
}

impl Key {
    /// The unique key of one column.
    pub fn unique(column: ColumnId) -> Key {
        let form = Form { unique: true, visible: true };
        Key { columns: vec![column], parts: BTreeMap::new(), form }
    }
}

/// What a CREATE INDEX says of its key, and what is to be said of that; refuses what we do not have.
pub fn index_form(create: &CreateIndex) -> SqlResult<(Form, Vec<SqlError>)> {
    let forms = [
        (create.concurrently, "CREATE INDEX CONCURRENTLY"),
        (create.if_not_exists, "CREATE INDEX IF NOT EXISTS"),
        (!create.include.is_empty(), "CREATE INDEX … INCLUDE"),
        (create.predicate.is_some(), "CREATE INDEX … WHERE"),
        (!create.with.is_empty(), "CREATE INDEX … WITH"),
        (create.nulls_distinct.is_some(), "CREATE INDEX … NULLS DISTINCT"),
    ];
    if let Some((_, form)) = forms.iter().find(|(there, _)| *there) {
        return Err(unsupported(form));
    }
    let mut warnings = Vec::new();
    let form = form(create.using.as_ref(), &create.index_options, &mut warnings)?;
    Ok((Form { unique: create.unique, ..form }, warnings))
}

/// Options of a key: all are trees, and comments on them are not kept. The parser hands VISIBLE and
/// INVISIBLE on as kinds of index.
pub fn form(
    first: Option<&IndexType>,
    options: &[IndexOption],
    warnings: &mut Vec<SqlError>,
) -> SqlResult<Form> {
    let mut visible = true;
    let kinds = options.iter().filter_map(|option| match option {
        IndexOption::Using(kind) => Some(kind),
        IndexOption::Comment(_) => None,
    });
    for kind in first.into_iter().chain(kinds) {
        match kind {
            IndexType::BTree => {}
            IndexType::Hash => warnings.push(hash_index()),
            IndexType::Custom(word) if word.value.eq_ignore_ascii_case("VISIBLE") => visible = true,
            IndexType::Custom(word) if word.value.eq_ignore_ascii_case("INVISIBLE") => {
                visible = false;
            }
            other => return Err(unsupported(format!("USING {other}"))),
        }
    }
    if options.iter().any(|option| matches!(option, IndexOption::Comment(_))) {
        warnings.push(index_comment());
    }
    Ok(Form { unique: false, visible })
}

/// Columns of a primary key, by number.
pub fn primary(columns: &[IndexColumn], form: Form, table: &Table) -> SqlResult<Vec<ColumnId>> {
    if !form.visible {
        return Err(invisible_primary());
    }
    let key = key(columns, form, table)?;
    match key.parts.values().next() {
        None => Ok(key.columns),
        Some(KeyPart { prefix: Some(_), .. }) => {
            Err(unsupported("a prefix of a column in a PRIMARY KEY (rows are stored by it)"))
        }
        Some(_) => Err(unsupported("DESC in a PRIMARY KEY (rows are stored by it)")),
    }
}

/// Adds an index to a table that is being defined.
pub fn push(
    table: &mut Table,
    name: Option<&Ident>,
    columns: &[IndexColumn],
    form: Form,
) -> SqlResult<()> {
    let key = key(columns, form, table)?;
    let first = first_name(&key, table);
    let index = new_index(table, name.map(|name| name.value.clone()), &first, key)?;
    table.indexes.push(index);
    Ok(())
}

/// Puts indexes in the order in which MySQL keeps, shows and checks them: unique ones that are never NULL, other unique ones,
/// the rest.
pub fn sort(table: &mut Table) {
    let Table { columns, indexes, .. } = table;
    let may_be_null = |id: &ColumnId| columns.iter().any(|c| c.id == *id && c.nullable);
    indexes.sort_by_key(|index| match index.unique {
        true => u8::from(index.columns.iter().any(may_be_null)),
        false => 2,
    });
}

/// What a key's first column is called.
pub fn first_name(key: &Key, table: &Table) -> String {
    let first = key.columns.first().and_then(|id| table.column(*id));
    first.map(|column| column.name.clone()).unwrap_or_default()
}

/// A new index of a table, not yet part of it. `first` names it if nothing else does.
pub fn new_index(table: &Table, name: Option<String>, first: &str, key: Key) -> SqlResult<Index> {
    let taken = |name: &str| table.index_named(name).is_some();
    let name = match name {
        Some(name) if name.eq_ignore_ascii_case("PRIMARY") => {
            return Err(wrong_index_name(name));
        }
        Some(name) if taken(&name) => {
            return Err(duplicate_index_name(name));
        }
        Some(name) => name,
        None => {
            let numbered = (2..).map(|n| format!("{first}_{n}"));
            std::iter::once(first.to_owned())
                .chain(numbered)
                .find(|n| !taken(n))
                .unwrap_or_default()
        }
    };
    let Key { columns, parts, form: Form { unique, visible } } = key;
    let id = placement::api::next_index_id(table);
    let state = IndexState::Public { since: Timestamp::ZERO };
    Ok(Index { id, name, columns, parts, unique, visible, state })
}

/// A key of these columns.
pub fn key(columns: &[IndexColumn], form: Form, table: &Table) -> SqlResult<Key> {
    let mut key = Key { columns: Vec::with_capacity(columns.len()), parts: BTreeMap::new(), form };
    let mut bytes = 0;
    for column in columns {
        if let Some(behind) = &column.operator_class {
            return Err(syntax(format!("'{behind}' behind a column of a key")));
        }
        let (ident, length) = named(&column.column.expr)?;
        let found = table.column_named(&ident.value).filter(|(_, column)| !column.hidden);
        let Some((_, found)) = found else {
            return Err(no_key_column(&ident.value));
        };
        if key.columns.contains(&found.id) {
            return Err(duplicate_column(&ident.value));
        }
        let prefix = match length {
            Some(length) => prefix(found, length)?,
            None => None,
        };
        if prefix.is_none() {
            check_whole(found)?;
        }
        bytes += width(found.ty, prefix);
        let part = KeyPart { prefix, descending: column.column.options.asc == Some(false) };
        if part != KeyPart::default() {
            key.parts.insert(found.id, part);
        }
        key.columns.push(found.id);
    }
    if bytes > LONGEST { Err(too_long()) } else { Ok(key) }
}

/// The column that a part of a key names, and the length behind it, which reads as a call.
fn named(expr: &Expr) -> SqlResult<(&Ident, Option<u64>)> {
    match expr {
        Expr::Identifier(ident) => Some((ident, None)),
        Expr::Function(call) => called(call).map(|(ident, length)| (ident, Some(length))),
        _ => None,
    }
    .ok_or_else(|| unsupported(format!("index on {expr}")))
}

fn called(call: &Function) -> Option<(&Ident, u64)> {
    let [name] = &call.name.0[..] else { return None };
    let FunctionArguments::List(list) = &call.args else { return None };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(length)))] = &list.args[..] else {
        return None;
    };
    let Value::Number(digits, false) = &length.value else { return None };
    // What is beyond 64 bits is longer than any key.
    let whole = digits.bytes().all(|digit| digit.is_ascii_digit());
    Some((name.as_ident().filter(|_| whole)?, digits.parse().unwrap_or(u64::MAX)))
}

/// A prefix of a column; `None` if it is all of it.
fn prefix(column: &Column, length: u64) -> SqlResult<Option<u32>> {
    check_document(column)?;
    if length == 0 {
        return Err(empty_key_part(&column.name));
    }
    let (declared, is_open) = match column.ty {
        ColumnType::Char(n)
        | ColumnType::Varchar(n)
        | ColumnType::Binary(n)
        | ColumnType::Varbinary(n) => (n, false),
        ColumnType::Text(n) | ColumnType::Blob(n) => (n, true),
        _ => return Err(wrong_prefix()),
    };
    match u32::try_from(length) {
        Ok(length) if length == declared && !is_open => Ok(None),
        Ok(length) if length <= declared => Ok(Some(length)),
        Err(_) if declared == u32::MAX => Err(too_long()),
        _ => Err(wrong_prefix()),
    }
}

/// Refuses a column that cannot be part of a key with its whole values.
pub fn check_whole(column: &Column) -> SqlResult<()> {
    check_document(column)?;
    if matches!(column.ty, ColumnType::Text(_) | ColumnType::Blob(_)) {
        return Err(key_without_length(&column.name));
    }
    if width(column.ty, None) > LONGEST { Err(too_long()) } else { Ok(()) }
}

/// Error 3152 for a document.
fn check_document(column: &Column) -> SqlResult<()> {
    if column.ty != ColumnType::Json {
        return Ok(());
    }
    Err(key_of_json(&column.name))
}

/// What becomes of an index one of whose columns has another type now: a prefix that is no longer
/// one gives way to the whole column, as in MySQL.
pub fn refit(index: &mut Index, column: &Column) -> SqlResult<()> {
    if !index.columns.contains(&column.id) {
        return Ok(());
    }
    if let Some(part) = index.parts.get_mut(&column.id) {
        part.prefix = match part.prefix {
            Some(length) => prefix(column, length.into()).unwrap_or_default(),
            None => None,
        };
        if *part == KeyPart::default() {
            index.parts.remove(&column.id);
        }
    }
    match index.prefix(column.id) {
        Some(_) => Ok(()),
        None => check_whole(column),
    }
}

/// Bytes of a column in a key, as far as they may be many.
fn width(ty: ColumnType, prefix: Option<u32>) -> u64 {
    match ty {
        ColumnType::Char(n) | ColumnType::Varchar(n) | ColumnType::Text(n) => {
            u64::from(prefix.unwrap_or(n)) * 4
        }
        ColumnType::Binary(n) | ColumnType::Varbinary(n) | ColumnType::Blob(n) => {
            u64::from(prefix.unwrap_or(n))
        }
        ColumnType::Int { width, .. } => u64::from(width.bits() / 8),
        _ => 8,
    }
}

fn too_long() -> SqlError {
    key_too_long(LONGEST)
}
