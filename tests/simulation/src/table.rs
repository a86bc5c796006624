//! The table of all histories, its changes, its keys and what its rows say.

use std::sync::Arc;

use types::{
    Column, ColumnId, ColumnType, Default, IntWidth, Row, Table, TableId, Value, key, row,
};

pub(crate) const DATABASE: &str = "d";
pub(crate) const NAME: &str = "t";

const BIG: ColumnType = ColumnType::Int { width: IntWidth::Big, unsigned: false };
const ID: ColumnId = 1;
const NUMBER: ColumnId = 2;
const TEXT: ColumnId = 3;

fn column(id: ColumnId, name: &str, ty: ColumnType, nullable: bool) -> Column {
    Column {
        id,
        name: name.into(),
        ty,
        nullable,
        default: None,
        original: None,
        auto_increment: false,
        on_update_now: false,
        hidden: false,
        comment: String::new(),
    }
}

/// `t (id bigint primary key, number bigint, text varchar(8000))`.
pub(crate) fn first(columnar_replicas: u8) -> Table {
    Table {
        id: 0,
        version: 0,
        database: DATABASE.into(),
        name: NAME.into(),
        columns: vec![
            column(ID, "id", BIG, false),
            column(NUMBER, "number", BIG, true),
            column(TEXT, "text", ColumnType::Varchar(8_000), true),
        ],
        primary_key: vec![ID],
        indexes: Vec::new(),
        columnar_replicas,
        comment: String::new(),
        dropped: Vec::new(),
        checks: Vec::new(),
    }
}

/// The next version: one more column with a default of its own.
pub(crate) fn wider(table: &Table) -> Table {
    let mut next = Table { version: table.version + 1, ..table.clone() };
    let original = Some(Value::Int(i64::from(next.version)));
    let added = column(100 + next.version, &format!("n{}", next.version), BIG, true);
    let default = Some(Default::Constant(Value::Int(-1)));
    next.columns.push(Column { default, original, ..added });
    next
}

/// The next version without the column that was added first, if one was.
pub(crate) fn narrower(table: &Table) -> Option<Table> {
    let at = table.columns.iter().position(|column| column.id > TEXT)?;
    let mut next = Table { version: table.version + 1, ..table.clone() };
    next.columns.remove(at);
    Some(next)
}

/// What a row says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub number: i64,
    pub text: String,
}

pub(crate) fn key_of(table: TableId, id: i64) -> Vec<u8> {
    key::record(table, &[Value::Int(id)])
}

/// A row's bytes under a description.
pub(crate) fn encode(table: &Table, id: i64, said: &Said) -> Vec<u8> {
    let cell = |column: &Column| match column.id {
        ID => Value::Int(id),
        TEXT => Value::String(said.text.clone()),
        _ => Value::Int(said.number),
    };
    row::encode(table, &table.columns.iter().map(cell).collect::<Row>())
}

/// Every version of the table that was seen.
#[derive(Clone, std::default::Default)]
pub(crate) struct Schemas(std::collections::BTreeMap<u32, Arc<Table>>);

impl Schemas {
    pub(crate) fn note(&mut self, table: &Table) {
        self.0.entry(table.version).or_insert_with(|| Arc::new(table.clone()));
    }

    fn written(&self, bytes: &[u8]) -> Result<&Arc<Table>, String> {
        let version = row::version(bytes).map_err(|error| error.to_string())?;
        self.0.get(&version).ok_or_else(|| format!("a row of version {version}, which nobody made"))
    }

    /// What a stored row says.
    pub(crate) fn said(&self, bytes: &[u8]) -> Result<Said, String> {
        let table = self.written(bytes)?;
        let cells = row::decode(table, bytes).map_err(|error| error.to_string())?;
        let mut said = Said::default();
        for (column, cell) in table.columns.iter().zip(cells) {
            match (column.id, cell) {
                (NUMBER, Value::Int(number)) => said.number = number,
                (TEXT, Value::String(text)) => said.text = text,
                _ => {}
            }
        }
        Ok(said)
    }

    /// A stored row as a newer description shows it.
    pub(crate) fn shown(&self, newest: &Table, bytes: &[u8]) -> Result<Row, String> {
        let old = self.written(bytes)?;
        let cells = row::decode(old, bytes).map_err(|error| error.to_string())?;
        let cell = |column: &Column| match (old.position(column.id), &column.original) {
            (Some(at), _) => cells.get(at).cloned().unwrap_or(Value::Null),
            (None, Some(value)) => value.clone(),
            (None, None) => Value::Null,
        };
        Ok(newest.columns.iter().map(cell).collect())
    }
}
