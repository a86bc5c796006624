//! What clients write: filters, durations, tickets; and how errors travel in texts.

use std::sync::Arc;

use binder::{QueryContext, ResolvedTable, TableResolver};
use env::Random;
use mpp::actions::parse_ttl;
use mpp::error::{MppCode, MppError};
use mpp::layout::check_columns;
use mpp::request::{Command, Filter, Literal};
use mpp::ticket::{Asked, SqlTicket, Ticket, Work, fuzz_ticket};
use serde_json::json;
use types::{ColumnType, SnapshotToken, Timestamp};
use values::error::{SqlResult, no_table};

use crate::data::{column, orders_table, table};

#[test]
fn a_column_that_no_replica_holds_is_named() {
    let mut table = orders_table();
    assert_eq!(check_columns(&table), Ok(()));
    table.columns[2].ty = ColumnType::Decimal { precision: 39, scale: 2 };
    let error = check_columns(&table).unwrap_err();
    assert_eq!(error.code, MppCode::Unsupported);
    assert!(error.to_string().contains("column amount of table d.orders is decimal(39,2)"));
}

#[test]
fn durations() {
    for (text, ms) in [
        ("90s", 90_000),
        ("10m", 600_000),
        ("2h", 7_200_000),
        ("5", 5_000),
        ("250ms", 250),
        (" 1s ", 1_000),
    ] {
        assert_eq!(parse_ttl(text), Ok(ms), "{text}");
    }
    for text in [
        "",
        "0s",
        "-1s",
        "25h",
        "1d",
        "s",
        "1.5h",
        "99999999999999999999s",
        "18446744073709551615h",
    ] {
        assert_eq!(parse_ttl(text).unwrap_err().code, MppCode::Invalid, "{text}");
    }
}

#[test]
fn errors_are_found_in_texts() {
    let error = MppError::new(MppCode::StaleRegion, "region 7 was split: plan again");
    assert_eq!(MppError::find(&error.to_string()), Some(error.clone()));
    let wrapped = format!("Execution error: task 3 failed: {error}");
    assert_eq!(MppError::find(&wrapped), Some(error.clone()));
    let status = tonic::Status::from(error.clone());
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert_eq!(MppError::from(status), error);
    let planned: datafusion::error::DataFusionError = error.clone().into();
    assert_eq!(MppError::from(planned.context("somewhere")).code, error.code);
    for none in ["", "ISOBAR-", "ISOBAR-NO_SUCH: x", "ISOBAR-TIMEOUT"] {
        assert_eq!(MppError::find(none), None, "{none}");
    }
}

#[test]
fn filters_that_cannot_be_right_are_refused() {
    let table = orders_table();
    let mut deep = json!({"op": "is_null", "column": "id"});
    for _ in 0..100 {
        deep = json!({"op": "not", "arg": deep});
    }
    let wrong = [
        (json!({"op": "="}), MppCode::Invalid),
        (json!({"op": "=", "column": "id"}), MppCode::Invalid),
        (json!({"op": "=", "column": "nope", "value": {"int": "1"}}), MppCode::NotFound),
        (json!({"op": "=", "column": "id", "value": {"string": "1"}}), MppCode::Invalid),
        (json!({"op": "<", "column": "amount", "value": {"decimal": "1.2.3"}}), MppCode::Invalid),
        (json!({"op": "starts_with", "column": "Name", "value": {"int": "1"}}), MppCode::Invalid),
        (json!({"op": "not"}), MppCode::Invalid),
        (json!({"op": "like", "column": "Name"}), MppCode::Invalid),
        (deep, MppCode::Invalid),
    ];
    for (json, code) in wrong {
        let filter: Filter = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(filter.to_expr(&table).unwrap_err().code, code, "{json}");
    }
    let unreadable = [
        json!({"column": "id"}),
        json!({"op": 1}),
        json!({"op": "=", "column": "id", "value": {"int": 1}}),
        // A field that is not known might change what the filter means.
        json!({"op": "is_null", "column": "id", "negated": true}),
        json!({"op": "not", "arg": {"op": "is_null", "column": "id", "negated": true}}),
        json!({"op": "and", "args": [{"op": "is_null", "column": "id", "negated": true}]}),
    ];
    for json in unreadable {
        let command =
            json!({"scan": {"database": "d", "table": "t", "columns": [], "filter": json}});
        assert_eq!(
            Command::parse(command.to_string().as_bytes()).unwrap_err().code,
            MppCode::Invalid
        );
    }
    let right = Filter {
        op: "<".into(),
        args: vec![],
        arg: None,
        column: Some("ID".into()),
        value: Some(Literal::Int("-5".into())),
        values: vec![],
    };
    assert!(right.to_expr(&table).is_ok());
}

#[test]
fn a_literal_fits_its_column_exactly_or_is_refused() {
    let kinds = [
        ColumnType::Year,
        ColumnType::Bit(64),
        ColumnType::Float,
        ColumnType::Varbinary(9),
        ColumnType::Time(6),
        ColumnType::Json,
    ];
    let columns = (1..).zip(kinds).map(|(id, ty)| column(id, &format!("c{id}"), ty, true));
    let table = table(9, "kinds", columns.collect());
    let read = |column: u32, value: serde_json::Value| {
        let filter = json!({"op": "=", "column": format!("c{column}"), "value": value});
        let filter: Filter = serde_json::from_value(filter).unwrap();
        filter.to_expr(&table).map(|expr| expr.to_string()).map_err(|error| error.code)
    };
    let right = [
        (1, json!({"int": "2155"}), "c1 = Int64(2155)"),
        (2, json!({"int": "18446744073709551615"}), "c2 = UInt64(18446744073709551615)"),
        (3, json!({"double": 0.10000000149011612}), "c3 = Float32(0.1)"),
        (4, json!({"bytes": "AP8="}), r#"c4 = Binary("0,255")"#),
        (5, json!({"time": "-3020399000000"}), "c5 = DurationMicrosecond(\"-3020399000000\")"),
    ];
    for (column, value, expected) in right {
        assert_eq!(read(column, value.clone()), Ok(expected.to_owned()), "{value}");
    }
    let wrong = [
        (1, json!({"string": "2155"})),
        (2, json!({"bytes": "AP8="})),
        (3, json!({"double": 0.1})),
        (4, json!({"bytes": "AP8"})),
        (4, json!({"string": "x"})),
        (5, json!({"time": "00:00:01"})),
        (5, json!({"int": "1"})),
        (6, json!({"string": "1"})),
    ];
    for (column, value) in wrong {
        assert_eq!(read(column, value.clone()), Err(MppCode::Invalid), "{value}");
    }
}

fn ticket_of(query: Asked) -> Ticket {
    let work = Work::Sql(SqlTicket { query, context: Default::default() });
    let token = SnapshotToken { ts: Timestamp(7), lease: 3 };
    Ticket { work, token, expires_ms: u64::MAX, group: None }
}

struct NoTables;

#[async_trait::async_trait]
impl TableResolver for NoTables {
    async fn resolve(&self, database: &str, table: &str) -> SqlResult<ResolvedTable> {
        Err(no_table(database, table))
    }
}

fn bound_ticket() -> Ticket {
    let query =
        "SELECT CASE WHEN x IN (2, 3) THEN 'a' END FROM (SELECT 1 AS x UNION SELECT 2.5) AS t";
    let query = binder::query_of(query).unwrap();
    let context = QueryContext::default().complete(1);
    // Without tables nothing waits for anything.
    let bound = futures::executor::block_on(binder::bind(&query, &context, &NoTables)).unwrap().0;
    ticket_of(Asked::Bound { bound: Arc::new(bound) })
}

/// SQL nodes of the release before write a query's text, in format 2.
#[test]
fn tickets_of_the_release_before_are_read() {
    let body = br#"{"work":{"Sql":{"query":"SELECT 1","context":{"database":"d","catalog_version":0,"tables":[],
        "now_us":0,"time_zone":"","sql_mode":"","user":"","connection_id":0,"avoid":[]}}},
        "token":{"ts":7,"lease":3},"expires_ms":18446744073709551615}"#;
    let mut bytes = [&[2], &body[..]].concat();
    bytes.extend(types::token::sign(&[7; 32], &bytes.clone()));
    let read = Ticket::open(&bytes, &[7; 32], 0).unwrap();
    let Work::Sql(sql) = read.work else { panic!("not a query") };
    assert_eq!((sql.query, &*sql.context.database), (Asked::Text("SELECT 1".into()), "d"));
}

#[test]
fn no_bytes_break_the_ticket_reader() {
    for (seed, good) in [(2, ticket_of(Asked::Text("SELECT 1".into()))), (3, bound_ticket())] {
        break_the_reader(seed, &good.seal(&[7; 32]).unwrap());
    }
}

fn break_the_reader(seed: u64, good: &[u8]) {
    assert!(fuzz_ticket(good), "the seed itself must be readable");
    let random = Random::seeded(seed);
    let mut readable = 0;
    for _ in 0..50_000 {
        let mut bytes = good.to_vec();
        // Half of them without the tag, so that the reader behind it is reached.
        if random.chance(0.5) {
            bytes.truncate(bytes.len() - 16);
        }
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[at] = random.u64() as u8,
                1 => bytes.insert(at, random.u64() as u8),
                _ => drop(bytes.remove(at)),
            }
        }
        readable += u32::from(fuzz_ticket(&bytes));
    }
    assert!(readable > 5_000, "mutations hide the reader: {readable}");
}
