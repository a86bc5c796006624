//! The tables of these tests, and their rows as plain values.

use types::{ClusterVersion, Column, ColumnId, ColumnType, Decimal, IntWidth, Row, Table, Value};

use crate::cluster::{Cluster, Content};

/// Rows of `orders`.
pub const ORDERS: i64 = 600;
/// Rows of `customers`.
pub const CUSTOMERS: i64 = 25;

pub fn column(id: ColumnId, name: &str, ty: ColumnType, nullable: bool) -> Column {
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

pub fn table(id: u64, name: &str, columns: Vec<Column>) -> Table {
    Table {
        id,
        version: 1,
        database: "d".into(),
        name: name.into(),
        columns,
        primary_key: vec![1],
        indexes: Vec::new(),
        columnar_replicas: 1,
        comment: String::new(),
        dropped: Vec::new(),
        checks: Vec::new(),
    }
}

pub const BIG: ColumnType = ColumnType::Int { width: IntWidth::Big, unsigned: false };

/// A row of `orders`, as Rust values.
#[derive(Clone, Debug)]
pub struct Order {
    pub id: i64,
    pub cust: Option<i64>,
    /// Hundredths.
    pub amount: i64,
    pub name: Option<String>,
    pub day: i32,
    pub at: i64,
    pub score: f64,
    pub big: u64,
}

pub fn orders() -> Vec<Order> {
    (0..ORDERS)
        .map(|id| Order {
            id,
            cust: (id % 7 != 0).then_some(id % 20),
            amount: id * 37 % 10_000 - 2_000,
            name: (id % 11 != 0).then(|| format!("n{}", id % 13)),
            day: 18_000 + (id % 30) as i32,
            at: id * 1_000_000,
            score: id as f64 / 4.0 - 20.0,
            big: u64::MAX - id as u64,
        })
        .collect()
}

fn order_row(order: &Order) -> Row {
    vec![
        Value::Int(order.id),
        order.cust.map_or(Value::Null, Value::Int),
        Value::Decimal(Decimal { unscaled: order.amount.into(), scale: 2 }),
        order.name.clone().map_or(Value::Null, Value::String),
        Value::Date(order.day),
        Value::DateTime(order.at),
        Value::Timestamp(order.at),
        Value::Double(order.score),
        Value::UInt(order.big),
    ]
    .into_iter()
    .collect()
}

pub fn orders_table() -> Table {
    let columns = vec![
        column(1, "id", BIG, false),
        column(2, "cust", BIG, true),
        column(3, "amount", ColumnType::Decimal { precision: 12, scale: 2 }, false),
        column(4, "Name", ColumnType::Varchar(20), true),
        column(5, "day", ColumnType::Date, false),
        column(6, "at", ColumnType::DateTime(6), false),
        column(7, "seen", ColumnType::Timestamp(6), false),
        column(8, "score", ColumnType::Double, false),
        column(9, "big", ColumnType::Int { width: IntWidth::Big, unsigned: true }, false),
    ];
    table(7, "orders", columns)
}

/// Customer `cid` lives in `c{cid % 4}`.
pub fn customers_table() -> Table {
    let columns =
        vec![column(1, "cid", BIG, false), column(2, "city", ColumnType::Varchar(20), true)];
    table(8, "customers", columns)
}

pub fn nothing_table() -> Table {
    table(9, "nothing", vec![column(1, "id", BIG, false), column(2, "v", BIG, true)])
}

/// `orders` spread 3:1:1 (its last region also on node 12), `customers` only on node 12,
/// `nothing` on node 11.
pub async fn cluster() -> Cluster {
    cluster_at(types::version::CURRENT).await
}

/// The same, of a cluster of this version.
pub async fn cluster_at(version: ClusterVersion) -> Cluster {
    let customers = (0..CUSTOMERS).map(|cid| {
        vec![Value::Int(cid), Value::String(format!("c{}", cid % 4))].into_iter().collect()
    });
    let contents = vec![
        Content {
            table: orders_table(),
            rows: orders().iter().map(order_row).collect(),
            regions: vec![
                (0, vec![11]),
                (50, vec![11]),
                (100, vec![12]),
                (400, vec![11]),
                (450, vec![13, 12]),
            ],
        },
        Content {
            table: customers_table(),
            rows: customers.collect(),
            regions: vec![(0, vec![12])],
        },
        Content { table: nothing_table(), rows: Vec::new(), regions: vec![(0, vec![11])] },
    ];
    Cluster::start_at(version, contents).await
}

/// A table of one region on node 11 whose scan takes many batches.
pub async fn wide_cluster(rows: i64) -> Cluster {
    let columns =
        vec![column(1, "id", BIG, false), column(2, "pad", ColumnType::Varchar(200), false)];
    let pad = "x".repeat(100);
    let row = |id| vec![Value::Int(id), Value::String(pad.clone())].into_iter().collect();
    Cluster::start(vec![Content {
        table: table(10, "wide", columns),
        rows: (0..rows).map(row).collect(),
        regions: vec![(0, vec![11])],
    }])
    .await
}
