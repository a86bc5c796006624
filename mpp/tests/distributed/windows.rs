//! Windows over keys that a condition makes constant or equal to other expressions, of rows on three nodes.

use std::collections::BTreeMap;

use crate::cluster::query;
use crate::data::{Order, cluster, orders};

type Condition = (&'static str, fn(&Order) -> bool);
type Keys = (&'static str, fn(&Order) -> String);

const CONDITIONS: [Condition; 13] = [
    ("id < 100", |o| o.id < 100),
    ("cust = 3", |o| o.cust == Some(3)),
    ("cust = ABS(cust)", |o| o.cust.is_some()),
    ("ABS(cust) = cust", |o| o.cust.is_some()),
    ("cust <=> ABS(cust)", |_| true),
    ("amount = ABS(amount)", |o| o.amount >= 0),
    ("ABS(amount) = amount AND cust = 5", |o| o.amount >= 0 && o.cust == Some(5)),
    ("name = LOWER(name)", |o| o.name.is_some()),
    ("name = LOWER(name) AND cust = ABS(cust)", |o| o.name.is_some() && o.cust.is_some()),
    ("cust = 3 AND name = 'n5'", |o| o.cust == Some(3) && o.name.as_deref() == Some("n5")),
    ("cust = id", |o| o.cust == Some(o.id)),
    ("id = cust AND cust = ABS(id)", |o| o.cust == Some(o.id)),
    ("cust IS NULL", |o| o.cust.is_none()),
];

const KEYS: [Keys; 9] = [
    ("cust", |o| format!("{:?}", o.cust)),
    ("ABS(cust)", |o| format!("{:?}", o.cust)),
    ("cust, ABS(cust)", |o| format!("{:?}", o.cust)),
    ("cust, name", |o| format!("{:?}", (o.cust, &o.name))),
    ("name, cust", |o| format!("{:?}", (o.cust, &o.name))),
    ("LOWER(name)", |o| format!("{:?}", o.name)),
    ("ABS(amount), cust", |o| format!("{:?}", (o.amount.abs(), o.cust))),
    ("amount", |o| format!("{:?}", o.amount)),
    ("day, cust, name", |o| format!("{:?}", (o.day, o.cust, &o.name))),
];

/// What the query below says of rows: number, count, running sum of numbers, and the last number of each partition.
fn expected(condition: &Condition, keys: &Keys) -> Vec<String> {
    let mut partitions: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for order in orders().iter().filter(|order| condition.1(order)) {
        partitions.entry(keys.1(order)).or_default().push(order.id);
    }
    let mut rows = Vec::new();
    for ids in partitions.into_values() {
        let mut sum = 0;
        for (at, id) in ids.iter().enumerate() {
            sum += id;
            rows.push(format!("{id}|{}|{}|{sum}|{}", at + 1, ids.len(), ids[ids.len() - 1]));
        }
    }
    rows.sort();
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_found_by_keys_that_conditions_equate() {
    let cluster = cluster().await;
    let mut wrong = Vec::new();
    for condition in &CONDITIONS {
        for keys in &KEYS {
            let (shown, by) = (condition.0, keys.0);
            let sql = format!(
                "SELECT id, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY id), \
                 COUNT(*) OVER (PARTITION BY {by}), \
                 SUM(id) OVER (PARTITION BY {by} ORDER BY ABS(id), id), \
                 LAST_VALUE(id) OVER (PARTITION BY {by} ORDER BY id \
                 ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) \
                 FROM orders WHERE {shown}"
            );
            match query(&cluster, 11, &sql).await {
                Ok(rows) if rows == expected(condition, keys) => {}
                Ok(rows) => wrong.push(format!("{sql}\n  got {rows:?}")),
                Err(error) => wrong.push(format!("{sql}\n  {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_rows_outlives_windows_over_equated_keys() {
    let cluster = cluster().await;
    let mut latest: Vec<(i64, i64)> =
        orders().iter().filter_map(|o| Some((-o.cust?, o.id))).collect();
    latest.sort();
    let mut expected: Vec<String> =
        latest.iter().take(3).enumerate().map(|(at, (_, id))| format!("{id}|{}", at + 1)).collect();
    expected.sort();
    for equation in ["cust = ABS(cust)", "ABS(cust) = cust"] {
        for key in ["cust", "ABS(cust)", "cust, ABS(cust)"] {
            let sql = format!(
                "SELECT id, ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY id) FROM orders \
                 WHERE {equation} ORDER BY cust DESC, id LIMIT 3"
            );
            assert_eq!(query(&cluster, 11, &sql).await.unwrap(), expected, "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_stand_on_windows_joins_and_totals_of_equated_keys() {
    let cluster = cluster().await;
    let of_three = orders().iter().filter(|o| o.cust == Some(3)).count();
    for (sql, expected) in [
        (
            "SELECT MAX(n), MAX(m), COUNT(*) FROM (SELECT ROW_NUMBER() OVER (PARTITION BY cust ORDER BY id) n, \
             COUNT(*) OVER (PARTITION BY cust, name) m FROM orders WHERE cust = 3) d",
            format!("{of_three}|{}|{of_three}", most_of_three()),
        ),
        (
            "SELECT MAX(n), COUNT(*) FROM (SELECT ROW_NUMBER() OVER (PARTITION BY o.cust, c.cid ORDER BY o.id) n \
             FROM orders o JOIN customers c ON o.cust = c.cid WHERE c.cid = 3) d",
            format!("{of_three}|{of_three}"),
        ),
        (
            "SELECT MAX(n), COUNT(*) FROM (SELECT SUM(c) OVER (PARTITION BY cust) n FROM \
             (SELECT cust, name, COUNT(*) c FROM orders WHERE cust = 3 GROUP BY cust, name) g) d",
            format!("{of_three}|{}", names_of_three()),
        ),
    ] {
        assert_eq!(query(&cluster, 11, sql).await.unwrap(), [expected], "{sql}");
    }
}

fn by_name_of_three() -> BTreeMap<Option<String>, usize> {
    let mut names = BTreeMap::new();
    for order in orders().into_iter().filter(|o| o.cust == Some(3)) {
        *names.entry(order.name).or_insert(0) += 1;
    }
    names
}

fn most_of_three() -> usize {
    by_name_of_three().into_values().max().unwrap()
}

fn names_of_three() -> usize {
    by_name_of_three().len()
}
