//! What tables a server has, and what they are made of.

use crate::class::Class;
use crate::error::{Error, Result};
use crate::expr::quoted;
use crate::schema::{Column, Table, server_class};
use crate::server::{Cells, Engine, Server, text};

/// Names of a database's tables, sorted.
pub async fn tables(server: &Server, database: &str) -> Result<Vec<String>> {
    let sql = format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = {} AND table_type = 'BASE TABLE'",
        quoted(database)
    );
    let rows = server.query("list its tables", &sql, Engine::Any).await?;
    let mut names: Vec<String> =
        rows.into_iter().map(|row| text(row.into_iter().next().flatten())).collect();
    names.sort();
    Ok(names)
}

/// A table's columns and key.
pub async fn table(
    server: &Server,
    database: &str,
    table: &str,
    ignored: &[String],
) -> Result<Table> {
    let named = format!("table_schema = {} AND table_name = {}", quoted(database), quoted(table));
    let sql = format!(
        "SELECT column_name, data_type, column_type, numeric_scale, is_nullable, collation_name \
         FROM information_schema.columns WHERE {named} ORDER BY ordinal_position"
    );
    let described = server.query("describe its columns", &sql, Engine::Any).await?;
    let name = format!("{database}.{table} on {}", server.label);
    if described.is_empty() {
        return Err(Error::Schema {
            table: name,
            cause:
                "there is no such table, or this user may not see it; check the name and the grants"
                    .into(),
        });
    }
    let mut columns = Vec::new();
    for row in described {
        columns.extend(column(&name, row, ignored)?);
    }
    let sql = format!(
        "SELECT column_name FROM information_schema.statistics \
         WHERE {named} AND index_name = 'PRIMARY' ORDER BY seq_in_index"
    );
    let key = server.query("describe its key", &sql, Engine::Any).await?;
    let key = key.into_iter().map(|row| text(row.into_iter().next().flatten())).collect();
    Ok(Table { name, columns, key })
}

fn column(table: &str, row: Cells, ignored: &[String]) -> Result<Option<Column>> {
    let mut cells = row.into_iter();
    let mut next = || cells.next().flatten().map(|cell| text(Some(cell)));
    let (name, data_type, type_name) = (next(), next(), next());
    let (scale, nullable, collation) = (next(), next(), next());
    let (name, data_type) = (name.unwrap_or_default(), data_type.unwrap_or_default());
    if ignored.iter().any(|other| other.eq_ignore_ascii_case(&name)) {
        return Ok(None);
    }
    let scale = scale.and_then(|scale| scale.parse().ok()).unwrap_or(0);
    let Some((class, is_cast)) = server_class(&data_type, scale, collation.as_deref()) else {
        return Err(Error::Schema {
            table: table.to_owned(),
            cause: format!(
                "column {name} is of type {data_type}, which has no common text; leave it out with --ignore-columns {name}"
            ),
        });
    };
    Ok(Some(Column {
        name,
        // A CHAR of bytes is a BINARY.
        class: if data_type == "char" && collation.as_deref() == Some("binary") {
            Class::Binary
        } else {
            class
        },
        type_name: type_name.unwrap_or(data_type).to_lowercase(),
        nullable: nullable.as_deref() != Some("NO"),
        collation,
        is_cast,
    }))
}

/// Whether a table can be read from columns now.
pub async fn has_columns(server: &Server, database: &str, table: &str) -> Result<bool> {
    let sql = format!(
        "SELECT available FROM information_schema.columnar_replica WHERE table_schema = {} AND table_name = {}",
        quoted(database),
        quoted(table)
    );
    let rows = server.query("list columnar replicas", &sql, Engine::Any).await?;
    let cell = rows.into_iter().next().and_then(|row| row.into_iter().next().flatten());
    Ok(matches!(text(cell).to_lowercase().as_str(), "1" | "yes" | "true"))
}
