//! The table of all histories, its changes, and its keys.

use types::{
    Column, ColumnId, ColumnType, Default, Epoch, IntWidth, Peer, PeerRole, Region, RegionId,
    RegionKind, Row, Table, Value, key, row,
};

pub const TABLE: u64 = 7;
/// The first region.
pub const REGION: RegionId = 10;

const BIG: ColumnType = ColumnType::Int { width: IntWidth::Big, unsigned: false };

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

/// `t (id bigint primary key, v bigint, s varchar(20))`.
pub fn first() -> Table {
    Table {
        id: TABLE,
        version: 1,
        database: "d".into(),
        name: "t".into(),
        columns: vec![
            column(1, "id", BIG, false),
            column(2, "v", BIG, true),
            column(3, "s", ColumnType::Varchar(20), true),
        ],
        primary_key: vec![1],
        indexes: Vec::new(),
        columnar_replicas: 1,
        comment: String::new(),
        dropped: Vec::new(),
        checks: Vec::new(),
    }
}

/// The next version: one more column with a default and another under a new name, or without the
/// column added last.
pub fn altered(table: &Table, narrower: bool) -> Table {
    let mut next = table.clone();
    next.version += 1;
    if narrower && next.columns.len() > 3 {
        let gone = next.columns.remove(2);
        next.dropped.push(gone);
        return next;
    }
    // What older rows read as is the default of then, and not what later rows get.
    let original = Some(Value::Int(i64::from(next.version)));
    let default = Some(Default::Constant(Value::Int(-1)));
    let added = column(10 + next.version, &format!("n{}", next.version), BIG, true);
    let added = Column { default, original, ..added };
    // ADD COLUMN … AFTER, and RENAME COLUMN of the same version.
    next.columns.insert(2, added);
    next.columns[1].name = format!("v{}", next.version);
    next
}

/// A row's bytes under a schema version.
pub fn encode(table: &Table, id: i64, v: i64) -> Vec<u8> {
    let cell = |column: &Column| match column.id {
        1 => Value::Int(id),
        3 if v % 3 == 0 => Value::Null,
        3 => Value::String(format!("s{v}")),
        _ => Value::Int(v),
    };
    row::encode(table, &table.columns.iter().map(cell).collect::<Row>())
}

/// A stored row as the newest schema shows it. `schemas` are all versions, from the first on.
pub fn decode(schemas: &[Table], newest: &Table, bytes: &[u8]) -> Row {
    let written = row::version(bytes).unwrap();
    let old = schemas.iter().find(|table| table.version == written).unwrap();
    let cells = row::decode(old, bytes).unwrap();
    let cell = |column: &Column| match (old.position(column.id), &column.original) {
        (Some(at), _) => cells[at].clone(),
        (None, Some(value)) => value.clone(),
        (None, None) => Value::Null,
    };
    newest.columns.iter().map(cell).collect()
}

/// Record key of a row; of a negative number, the key of an entry of an index. Columns hold records alone.
pub fn key_of(id: i64) -> Vec<u8> {
    match id < 0 {
        true => key::index_prefix(TABLE, 1, &[Value::Int(id)]),
        false => key::record(TABLE, &[Value::Int(id)]),
    }
}

/// The table's only region, with voters and learners on the nodes named.
pub fn region(voters: &[u64], learners: &[u64]) -> Region {
    let peer = |node: u64, role| Peer { id: REGION * 100 + node, node, role };
    let voters = voters.iter().map(|node| peer(*node, PeerRole::Voter));
    let learners = learners.iter().map(|node| peer(*node, PeerRole::Learner));
    Region {
        id: REGION,
        epoch: Epoch { version: 1, conf: 1 },
        kind: RegionKind::Table(TABLE),
        start: key::table_start(TABLE),
        end: key::records_end(TABLE),
        peers: voters.chain(learners).collect(),
    }
}
