//! Scans by ticket: columns, filters, limits, and what FlightInfo says.

use serde_json::{Value, json};

use crate::cluster::{fetch, info, refusal, shown};
use crate::data::{Order, cluster, orders};

fn scan(columns: &[&str], filter: Value) -> Value {
    json!({ "scan": { "database": "d", "table": "orders", "columns": columns, "filter": filter } })
}

type Wanted = Box<dyn Fn(&Order) -> bool>;

fn compare(op: &str, column: &str, value: Value) -> Value {
    json!({ "op": op, "column": column, "value": value })
}

fn filters() -> Vec<(Value, Wanted)> {
    let small = || compare("<", "id", json!({"int": "10"}));
    let null_name = || json!({"op": "is_null", "column": "Name"});
    vec![
        (Value::Null, Box::new(|_| true)),
        (compare("=", "cust", json!({"int": "3"})), Box::new(|o| o.cust == Some(3))),
        (compare("<>", "cust", json!({"int": "3"})), Box::new(|o| o.cust.is_some_and(|c| c != 3))),
        (compare("<=>", "cust", json!({"int": "3"})), Box::new(|o| o.cust == Some(3))),
        (
            json!({"op": "not", "arg": compare("<=>", "cust", json!({"int": "3"}))}),
            Box::new(|o| o.cust != Some(3)),
        ),
        (
            json!({"op": "not", "arg": compare("=", "cust", json!({"int": "3"}))}),
            Box::new(|o| o.cust.is_some_and(|c| c != 3)),
        ),
        (small(), Box::new(|o| o.id < 10)),
        (compare("<=", "id", json!({"int": "10"})), Box::new(|o| o.id <= 10)),
        (compare(">", "amount", json!({"decimal": "50.25"})), Box::new(|o| o.amount > 5_025)),
        (compare(">=", "amount", json!({"decimal": "-19.26"})), Box::new(|o| o.amount >= -1_926)),
        (compare("<", "score", json!({"double": -1.5})), Box::new(|o| o.score < -1.5)),
        (
            compare(">", "big", json!({"int": "18446744073709551600"})),
            Box::new(|o| o.big > 18_446_744_073_709_551_600),
        ),
        (compare("=", "day", json!({"date": 18_007})), Box::new(|o| o.day == 18_007)),
        (compare("<", "at", json!({"datetime": "5000000"})), Box::new(|o| o.at < 5_000_000)),
        (
            compare(">=", "seen", json!({"timestamp": "590000000"})),
            Box::new(|o| o.at >= 590_000_000),
        ),
        (
            compare("=", "Name", json!({"string": "n5"})),
            Box::new(|o| o.name.as_deref() == Some("n5")),
        ),
        (
            compare("starts_with", "Name", json!({"string": "n1"})),
            Box::new(|o| o.name.as_ref().is_some_and(|name| name.starts_with("n1"))),
        ),
        // What would be a wildcard elsewhere.
        (compare("starts_with", "Name", json!({"string": "n_"})), Box::new(|_| false)),
        (null_name(), Box::new(|o| o.name.is_none())),
        (json!({"op": "is_not_null", "column": "Name"}), Box::new(|o| o.name.is_some())),
        (
            json!({"op": "in", "column": "cust", "values": [{"int": "1"}, {"int": "4"}]}),
            Box::new(|o| matches!(o.cust, Some(1 | 4))),
        ),
        (json!({"op": "in", "column": "cust", "values": []}), Box::new(|_| false)),
        (
            json!({"op": "and", "args": [small(), null_name()]}),
            Box::new(|o| o.id < 10 && o.name.is_none()),
        ),
        (
            json!({"op": "or", "args": [small(), null_name()]}),
            Box::new(|o| o.id < 10 || o.name.is_none()),
        ),
        (json!({"op": "and", "args": []}), Box::new(|_| true)),
        (json!({"op": "or", "args": []}), Box::new(|_| false)),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_filter_means_what_it_says() {
    let cluster = cluster().await;
    let mut client = cluster.client(13).await;
    for (filter, wanted) in filters() {
        let found = info(&mut client, scan(&["Name", "id"], filter.clone())).await.unwrap();
        let rows = shown(&fetch(found).await.unwrap());
        let mut expected: Vec<String> = orders()
            .iter()
            .filter(|order| wanted(order))
            .map(|o| format!("{}|{}", o.name.as_deref().unwrap_or("NULL"), o.id))
            .collect();
        expected.sort();
        assert_eq!(rows, expected, "{filter}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_info_names_the_owners_and_the_snapshot() {
    let cluster = cluster().await;
    let mut client = cluster.client(12).await;
    let found = info(&mut client, scan(&["id"], Value::Null)).await.unwrap();
    let mut places: Vec<String> =
        found.endpoint.iter().map(|endpoint| endpoint.location[0].uri.clone()).collect();
    places.sort();
    let mut servers: Vec<String> =
        cluster.nodes.values().map(|node| format!("grpc://{}", node.flight)).collect();
    servers.sort();
    assert_eq!(places, servers);
    assert_eq!(found.total_records, 600);
    let metadata: Value = serde_json::from_slice(&found.app_metadata).unwrap();
    let action = arrow_flight::Action::new("catalog.table", r#"{"database":"d","table":"orders"}"#);
    let answer: Vec<bytes::Bytes> =
        futures::TryStreamExt::try_collect(client.do_action(action).await.unwrap()).await.unwrap();
    let described: Value = serde_json::from_slice(&answer[0]).unwrap();
    assert_eq!(metadata["table_id"], described["table_id"]);
    assert_eq!(metadata["schema_version"], described["schema_version"]);
    assert!(metadata["read_ts"].as_str().unwrap().parse::<u64>().unwrap() > 1 << 40);
    // The token that it names is good for another request.
    let again = json!({ "scan": { "database": "d", "table": "nothing", "columns": ["id", "v"],
        "snapshot": metadata["snapshot"] } });
    let empty = info(&mut client, again).await.unwrap();
    let again: Value = serde_json::from_slice(&empty.app_metadata).unwrap();
    assert_eq!(again["read_ts"], metadata["read_ts"]);
    // Without any row there is still a schema: `fetch` checks it.
    assert_eq!(shown(&fetch(empty).await.unwrap()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_counted_without_columns_and_limited() {
    let cluster = cluster().await;
    let mut client = cluster.client(11).await;
    let filter = compare(">=", "id", json!({"int": "90"}));
    let found = info(&mut client, scan(&[], filter)).await.unwrap();
    let batches = fetch(found).await.unwrap();
    assert!(batches.iter().all(|batch| batch.num_columns() == 0));
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 510);
    let limited =
        json!({ "scan": { "database": "d", "table": "orders", "columns": ["id"], "limit": 7 } });
    let found = info(&mut client, limited).await.unwrap();
    // A limit holds for each of the three endpoints.
    assert_eq!(shown(&fetch(found).await.unwrap()).len(), 21);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_have_typed_answers() {
    let cluster = cluster().await;
    let mut client = cluster.client(11).await;
    let cases = [
        (json!({"scan": {"database": "d", "table": "gone", "columns": []}}), "ISOBAR-NOT_FOUND"),
        (scan(&["no_such"], Value::Null), "ISOBAR-NOT_FOUND"),
        (scan(&["id"], compare("=", "id", json!({"int": "x"}))), "ISOBAR-INVALID"),
        (scan(&["id"], compare("~", "id", json!({"int": "1"}))), "ISOBAR-INVALID"),
        (json!({"scan": {"database": "d"}}), "ISOBAR-INVALID"),
        (json!({"sql": {"query": "SELECT nope FROM orders", "database": "d"}}), "ISOBAR-NOT_FOUND"),
        (json!({"sql": {"query": "SELEC", "database": "d"}}), "ISOBAR-INVALID"),
        (
            json!({"sql": {"query": "SELECT 1", "snapshot": "isobar1-1-1-00"}}),
            "ISOBAR-TICKET_FORGED",
        ),
    ];
    for (command, code) in cases {
        let (_, message) = refusal(info(&mut client, command.clone()).await);
        assert!(message.starts_with(code), "{command}: {message}");
    }
}
