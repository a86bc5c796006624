//! SHOW CREATE TABLE: a description as the statement that makes it again.
//!
//! What it prints, run under the default sql_mode, makes the same table.

use types::{Column, ColumnId, ColumnType, Default, ForeignKey, Index, OnParent, Table, Value};

/// CREATE TABLE that makes a table like this one, with these foreign keys; `next_number` is the next of AUTO_INCREMENT.
pub fn show_create(table: &Table, keys: &[ForeignKey], next_number: Option<u64>) -> String {
    let name_of = |id: &ColumnId| table.column(*id).map(|c| quote(&c.name)).unwrap_or_default();
    let visible = table.columns.iter().filter(|column| !column.hidden);
    let mut lines: Vec<String> = visible.map(column_line).collect();
    let hidden = |id: &ColumnId| table.column(*id).is_some_and(|c| c.hidden);
    if !table.primary_key.iter().any(hidden) {
        let names: Vec<String> = table.primary_key.iter().map(name_of).collect();
        lines.push(format!("  PRIMARY KEY ({})", names.join(",")));
    }
    let whole = |index: &&Index| index.is_public() && !index.columns.iter().any(hidden);
    for index in table.indexes.iter().filter(whole) {
        let unique = if index.unique { "UNIQUE " } else { "" };
        let part = |id: &ColumnId| {
            let prefix = index.prefix(*id).map(|length| format!("({length})")).unwrap_or_default();
            let order = if index.is_descending(*id) { " DESC" } else { "" };
            format!("{}{prefix}{order}", name_of(id))
        };
        let parts = index.columns.iter().map(part).collect::<Vec<_>>().join(",");
        let invisible = if index.visible { "" } else { " /*!80000 INVISIBLE */" };
        lines.push(format!("  {unique}KEY {} ({parts}){invisible}", quote(&index.name)));
    }
    lines.extend(keys.iter().map(|key| format!("  {}", key_clause(key, &table.database))));
    for check in &table.checks {
        let (name, expression) = (quote(&check.name), &check.expression);
        let enforced = if check.enforced { "" } else { " /*!80016 NOT ENFORCED */" };
        lines.push(format!("  CONSTRAINT {name} CHECK ({expression}){enforced}"));
    }
    let number = match next_number {
        Some(number @ 2..) => format!(" AUTO_INCREMENT={number}"),
        _ => String::new(),
    };
    let mut text = format!(
        "CREATE TABLE {} (\n{}\n) ENGINE=InnoDB{number} DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin",
        quote(&table.name),
        lines.join(",\n")
    );
    if !table.comment.is_empty() {
        text.push_str(&format!(" COMMENT={}", quoted(&table.comment)));
    }
    text
}

/// A foreign key as SHOW CREATE TABLE and errors write it, of a table in a database.
pub fn key_clause(key: &ForeignKey, database: &str) -> String {
    let list =
        |names: &[String]| names.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ");
    let (parent_database, parent) = &key.parent;
    let mut of = quote(parent);
    if !parent_database.eq_ignore_ascii_case(database) {
        of = format!("{}.{of}", quote(parent_database));
    }
    let mut text = format!(
        "CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {of} ({})",
        quote(&key.name),
        list(&key.columns),
        list(&key.referenced)
    );
    for (on, action) in [("DELETE", key.on_delete), ("UPDATE", key.on_update)] {
        if action != OnParent::NoAction {
            text.push_str(&format!(" ON {on} {action}"));
        }
    }
    text
}

/// A table as errors of foreign keys name it.
pub fn qualified(table: &Table) -> String {
    format!("{}.{}", quote(&table.database), quote(&table.name))
}

/// A column as its line of CREATE TABLE.
fn column_line(column: &Column) -> String {
    let mut line = format!("  {} {}", quote(&column.name), column.ty);
    if let Some((expression, stored)) = column.generated() {
        let kind = if stored { "STORED" } else { "VIRTUAL" };
        line.push_str(&format!(" GENERATED ALWAYS AS ({expression}) {kind}"));
    }
    if !column.nullable {
        line.push_str(" NOT NULL");
    } else if matches!(column.ty, ColumnType::Timestamp(_)) {
        line.push_str(" NULL");
    }
    match &column.default {
        // MySQL names no NULL as the default of a BLOB or TEXT, but of JSON.
        Some(Default::Constant(Value::Null))
            if matches!(column.ty, ColumnType::Blob(_) | ColumnType::Text(_)) => {}
        Some(Default::Constant(Value::Null)) => line.push_str(" DEFAULT NULL"),
        Some(Default::Constant(value)) => {
            line.push_str(&format!(" DEFAULT {}", default_literal(value, column.ty)));
        }
        Some(Default::CurrentTimestamp) => {
            line.push_str(&format!(" DEFAULT {}", now_of(column.ty)))
        }
        Some(Default::Generated { .. } | Default::Converted { .. }) | None => {}
    }
    if column.on_update_now {
        line.push_str(&format!(" ON UPDATE {}", now_of(column.ty)));
    }
    if column.auto_increment {
        line.push_str(" AUTO_INCREMENT");
    }
    if !column.comment.is_empty() {
        line.push_str(&format!(" COMMENT {}", quoted(&column.comment)));
    }
    line
}

/// A name in backquotes.
fn quote(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A text in quotes that reads back as itself.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''").replace('\n', "\\n"))
}

/// A default as SHOW CREATE TABLE writes it. Bytes that are no text are hexadecimal, so that the
/// statement can be run again.
fn default_literal(value: &Value, ty: ColumnType) -> String {
    match value {
        Value::UInt(n) if matches!(ty, ColumnType::Bit(_)) => format!("b'{n:b}'"),
        Value::UInt(n) if ty == ColumnType::Year => format!("'{n:04}'"),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains(char::is_control) => quoted(text),
            _ => bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02X}")),
        },
        other => quoted(&other.to_string()),
    }
}

/// CURRENT_TIMESTAMP with the fraction that a type has.
pub fn now_of(ty: ColumnType) -> String {
    match ty {
        ColumnType::DateTime(digits @ 1..) | ColumnType::Timestamp(digits @ 1..) => {
            format!("CURRENT_TIMESTAMP({digits})")
        }
        _ => "CURRENT_TIMESTAMP".into(),
    }
}
