//! The tables of golden scripts: `d.t` and `d.u`, and one like those of information_schema, whose texts compare without case.

use std::sync::Arc;

use async_trait::async_trait;
use binder::{ResolvedTable, TableResolver, caseless, planning_constraints, planning_schema};
use datafusion::datasource::MemTable;
use types::labels::Labels;
use types::{Column, ColumnType, IntWidth, Table};
use values::error::{SqlResult, no_table};

const INT: ColumnType = ColumnType::Int { width: IntWidth::Int, unsigned: false };

/// The columns of a table; its first is the primary key.
fn columns(database: &str, name: &str) -> Option<Vec<(&'static str, ColumnType)>> {
    Some(match (database, name) {
        ("d", "t") => vec![
            ("id", INT),
            ("n", ColumnType::Int { width: IntWidth::Big, unsigned: true }),
            ("price", ColumnType::Decimal { precision: 10, scale: 2 }),
            ("x", ColumnType::Double),
            ("name", ColumnType::Varchar(20)),
            ("day", ColumnType::Date),
            ("at", ColumnType::DateTime(3)),
            ("born", ColumnType::Year),
            ("size", ColumnType::Enum(Labels::parse("'s','m','l'")?)),
            ("_row", ColumnType::Int { width: IntWidth::Big, unsigned: false }),
        ],
        ("d", "u") => vec![
            ("id", INT),
            ("t_id", INT),
            ("doc", ColumnType::Json),
            ("span", ColumnType::Time(0)),
            ("stamp", ColumnType::Timestamp(0)),
            ("bits", ColumnType::Varbinary(8)),
        ],
        ("information_schema", "names") => {
            vec![("name", ColumnType::Varchar(64)), ("size", INT)]
        }
        _ => return None,
    })
}

/// A column; one that is called `id` is not null, and one whose name begins with `_` is hidden.
pub(crate) fn column(id: u32, name: &str, ty: ColumnType) -> Column {
    Column {
        id,
        name: name.into(),
        ty,
        nullable: name != "id",
        default: None,
        original: None,
        auto_increment: false,
        on_update_now: false,
        hidden: name.starts_with('_'),
        comment: String::new(),
    }
}

fn table(database: &str, name: &str) -> Option<Table> {
    let column = |(id, (name, ty))| column(id, name, ty);
    Some(Table {
        id: 7,
        version: 1,
        database: database.into(),
        name: name.into(),
        columns: (1..).zip(columns(database, name)?).map(column).collect(),
        primary_key: vec![1],
        indexes: vec![],
        columnar_replicas: 0,
        comment: String::new(),
        dropped: Vec::new(),
        checks: Vec::new(),
    })
}

pub(crate) struct Tables;

#[async_trait]
impl TableResolver for Tables {
    async fn resolve(&self, database: &str, name: &str) -> SqlResult<ResolvedTable> {
        let table = table(database, name).ok_or_else(|| no_table(database, name))?;
        let schema = planning_schema(&table);
        let schema = if database == "d" { schema } else { caseless(&schema) };
        let provider = MemTable::try_new(schema, vec![vec![]; 2])?;
        let provider = provider.with_constraints(planning_constraints(&table));
        Ok(ResolvedTable { provider: Arc::new(provider), table: Some(Arc::new(table)) })
    }
}
