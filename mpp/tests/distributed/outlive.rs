//! What happens to a table between planning and reading: the tickets of before give the rows of
//! their snapshot, each once, from wherever these are by now.

use std::sync::Arc;

use arrow_flight::{FlightInfo, Ticket};
use mpp::ticket::{Ticket as Sealed, Work};
use serde_json::{Value as Json, json};
use tonic::Code;
use txn::{Fact, WriteKind};
use types::{ColumnType, Decimal, IntWidth, Region, Table, Timestamp, Value, key, row};

use crate::cluster::{Cluster, KEY, ROOT, client_of, get, info, refusal, shown};
use crate::data::{Order, cluster, column, orders, orders_table};

/// Region of `orders` that nodes 13 and 12 hold.
const SHARED: u64 = 704;

async fn planned(cluster: &Cluster, columns: &[&str], filter: Json) -> FlightInfo {
    let scan = json!({ "scan": {
        "database": "d", "table": "orders", "columns": columns, "filter": filter } });
    info(&mut cluster.client(11).await, scan).await.unwrap()
}

/// The rows of every ticket, each from the first of its locations that answers; and the rows of
/// every ticket from a node that nothing was planned for.
async fn read(cluster: &Cluster, info: &FlightInfo) -> [Vec<String>; 2] {
    let (mut named, mut other) = (Vec::new(), Vec::new());
    for endpoint in &info.endpoint {
        let ticket = endpoint.ticket.clone().unwrap();
        let mut answer = None;
        for location in &endpoint.location {
            let address = location.uri.strip_prefix("grpc://").unwrap();
            if std::net::TcpStream::connect(address).is_err() {
                continue;
            }
            let mut client = client_of(&location.uri, ROOT).await;
            answer = Some(get(&mut client, ticket.clone()).await.unwrap().1);
            break;
        }
        named.extend(answer.expect("a location that answers"));
        let mut client = cluster.client(11).await;
        other.extend(get(&mut client, ticket).await.unwrap().1);
    }
    [shown(&named), shown(&other)]
}

fn wanted(keep: impl Fn(&Order) -> bool) -> Vec<String> {
    let kept = orders().into_iter().filter(|order| keep(order));
    let mut rows: Vec<String> = kept.map(|o| format!("{}|{}", o.id, o.amount_text())).collect();
    rows.sort();
    rows
}

impl Order {
    fn amount_text(&self) -> String {
        let sign = if self.amount < 0 { "-" } else { "" };
        format!("{sign}{}.{:02}", self.amount.abs() / 100, self.amount.abs() % 100)
    }
}

/// Everybody's log names a schema, and then a row under it that no ticket of before may show.
fn goes_on_with(cluster: &Cluster, table: &Table, late: &types::Row) {
    let late_key = key::record(table.id, &late[..1]);
    cluster.append(table.id, |region: &Region| {
        let mut facts = vec![Fact::Schema(Box::new(table.clone()))];
        if region.contains(&late_key) {
            facts.push(Fact::Write {
                key: late_key.clone(),
                commit_ts: Timestamp(1 << 41),
                kind: WriteKind::Put,
                row: Some(row::encode(table, late)),
                replaces: None,
            });
        }
        facts
    });
    cluster.alter(|tables| {
        for known in tables.iter_mut().filter(|known| known.id == table.id) {
            *known = Arc::new(table.clone());
        }
    });
}

/// A row of `orders` with number `id`, cut or lengthened to a table's columns.
fn late_row(table: &Table, id: i64) -> types::Row {
    let of = |column: &types::Column| match (column.id, column.ty) {
        (1, _) => Value::Int(id),
        (_, ColumnType::Decimal { scale, .. }) => {
            Value::Decimal(Decimal { unscaled: 123_456_789_012, scale })
        }
        (_, ColumnType::Int { unsigned: false, .. }) => Value::Int(1),
        (_, ColumnType::Int { unsigned: true, .. }) => Value::UInt(1),
        (_, ColumnType::Date) => Value::Date(1),
        (_, ColumnType::DateTime(_)) => Value::DateTime(1),
        (_, ColumnType::Timestamp(_)) => Value::Timestamp(1),
        (_, ColumnType::Double) => Value::Double(1.0),
        _ => Value::String("late".into()),
    };
    table.columns.iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_split_leaves_every_row_in_one_ticket() {
    let cluster = cluster().await;
    let filter = json!({ "op": ">=", "column": "id", "value": { "int": "90" } });
    let all = planned(&cluster, &["id", "amount"], Json::Null).await;
    let some = planned(&cluster, &["id", "amount"], filter).await;
    assert_eq!(all.endpoint.len(), 3);
    cluster.split(12, 702, 250, 790);
    cluster.split(12, 790, 300, 791);
    for rows in read(&cluster, &all).await {
        assert_eq!(rows, wanted(|_| true));
    }
    for rows in read(&cluster, &some).await {
        assert_eq!(rows, wanted(|order| order.id >= 90));
    }
}

/// What an ALTER TABLE is called, and what it does.
type Change = (&'static str, fn(&mut Table));

#[tokio::test(flavor = "multi_thread")]
async fn another_description_changes_no_row() {
    let changes: [Change; 5] = [
        ("a comment", |table| table.comment = "of another kind".into()),
        ("another name", |table| table.name = "bills".into()),
        ("a new column", |table| {
            let mut added = column(90, "added", ColumnType::Varchar(9), true);
            added.original = Some(Value::String("was not there".into()));
            table.columns.push(added);
        }),
        ("a column dropped", |table| {
            let at = table.position(3).unwrap();
            let gone = table.columns.remove(at);
            table.dropped.push(gone);
        }),
        ("a wider column", |table| {
            table.columns[2].ty = ColumnType::Decimal { precision: 30, scale: 2 };
        }),
    ];
    for (what, change) in changes {
        let cluster = cluster().await;
        let filter = json!({ "op": "<", "column": "amount", "value": { "decimal": "70.00" } });
        let all = planned(&cluster, &["id", "amount"], Json::Null).await;
        let some = planned(&cluster, &["id", "amount"], filter).await;
        let mut table = orders_table();
        table.version += 1;
        change(&mut table);
        goes_on_with(&cluster, &table, &late_row(&table, 1_000));
        for rows in read(&cluster, &all).await {
            assert_eq!(rows, wanted(|_| true), "{what}");
        }
        for rows in read(&cluster, &some).await {
            assert_eq!(rows, wanted(|order| order.amount < 7_000), "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_of_another_type_in_its_place_is_not_taken_for_it() {
    let cluster = cluster().await;
    let all = planned(&cluster, &["id", "amount"], Json::Null).await;
    let mut table = orders_table();
    table.version += 1;
    let gone = table.columns[2].clone();
    let ty = ColumnType::Int { width: IntWidth::Big, unsigned: false };
    table.columns[2] = column(91, "amount", ty, true);
    table.dropped.push(gone);
    goes_on_with(&cluster, &table, &late_row(&table, 1_000));
    for rows in read(&cluster, &all).await {
        assert_eq!(rows, wanted(|_| true));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_names_all_replicas_and_any_of_them_serves_it() {
    let mut cluster = cluster().await;
    let all = planned(&cluster, &["id", "amount"], Json::Null).await;
    let [.., last] = all.endpoint.as_slice() else { panic!("no endpoints") };
    let servers = [13, 12, 11].map(|node| format!("grpc://{}", cluster.node(node).flight));
    let named: Vec<String> = last.location.iter().map(|location| location.uri.clone()).collect();
    assert_eq!(named, servers, "the chosen node, the other replica, and who has nothing of it");
    let metadata: Json = serde_json::from_slice(&last.app_metadata).unwrap();
    assert_eq!(metadata, json!({ "replicas": 2 }));
    cluster.nodes.get_mut(&13).unwrap().kill();
    for rows in read(&cluster, &all).await {
        assert_eq!(rows, wanted(|_| true));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_moved_is_read_where_it_is() {
    let cluster = cluster().await;
    let all = planned(&cluster, &["id", "amount"], Json::Null).await;
    // Node 13 still believes that it holds the region.
    for rows in read(&cluster, &all).await {
        assert_eq!(rows, wanted(|_| true));
    }
    cluster.leave(13, SHARED).await;
    for rows in read(&cluster, &all).await {
        assert_eq!(rows, wanted(|_| true));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_whose_last_replica_is_gone_is_a_typed_error() {
    let cluster = cluster().await;
    let all = planned(&cluster, &["id"], Json::Null).await;
    cluster.leave(13, SHARED).await;
    cluster.leave(12, SHARED).await;
    let ticket = all.endpoint[2].ticket.clone().unwrap();
    let (code, message) = refusal(get(&mut cluster.client(12).await, ticket).await);
    assert_eq!(code, Code::Unavailable);
    assert!(message.starts_with("ISOBAR-UNAVAILABLE"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_table_is_read_until_it_is_collected() {
    let cluster = cluster().await;
    let all = planned(&cluster, &["id", "amount"], Json::Null).await;
    let table = orders_table();
    cluster.drop_table(table.id);
    for rows in read(&cluster, &all).await {
        assert_eq!(rows, wanted(|_| true));
    }
    let scan = json!({ "scan": { "database": "d", "table": "orders", "columns": ["id"] } });
    let (_, message) = refusal(info(&mut cluster.client(11).await, scan).await);
    assert!(message.starts_with("ISOBAR-NOT_FOUND"), "{message}");
    cluster.collect().await;
    for endpoint in all.endpoint {
        let ticket = endpoint.ticket.unwrap();
        let (code, message) = refusal(get(&mut cluster.client(12).await, ticket).await);
        assert_eq!(code, Code::FailedPrecondition);
        assert!(message.starts_with("ISOBAR-TABLE_CHANGED: table d.orders"), "{message}");
    }
}

/// A ticket for other ranges than those that were planned, sealed as the cluster would.
fn with_ranges(ticket: &Ticket, change: impl Fn(&mut Vec<mpp::ticket::KeyRange>)) -> Ticket {
    let mut opened = Sealed::open(&ticket.ticket, &KEY, 0).unwrap();
    let Work::Scan(scan) = &mut opened.work else { panic!("no scan") };
    change(&mut scan.ranges);
    Ticket::new(opened.seal(&KEY).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_that_are_no_regions_are_refused_not_rounded() {
    let cluster = cluster().await;
    let all = planned(&cluster, &["id"], Json::Null).await;
    let ticket = all.endpoint[0].ticket.clone().unwrap();
    let twice = with_ranges(&ticket, |ranges| ranges.push(ranges[0].clone()));
    let middle = key::record(7, &[Value::Int(10)]);
    let short = with_ranges(&ticket, |ranges| ranges[0].1 = middle.clone());
    let late = with_ranges(&ticket, |ranges| ranges[0].0 = middle.clone());
    for wrong in [twice, short, late] {
        let (_, message) = refusal(get(&mut cluster.client(11).await, wrong).await);
        assert!(message.starts_with("ISOBAR-STALE_REGION"), "{message}");
    }
    let mut client = cluster.client(11).await;
    assert_eq!(shown(&get(&mut client, ticket).await.unwrap().1).len(), 150);
}
