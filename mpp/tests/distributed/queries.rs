//! Distributed queries against answers computed from the plain rows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::cluster::{query, refusal};
use crate::data::{CUSTOMERS, ORDERS, Order, cluster, orders};

fn cents(n: i64) -> String {
    format!("{}{}.{:02}", if n < 0 { "-" } else { "" }, n.abs() / 100, n.abs() % 100)
}

fn null<T: ToString>(value: &Option<T>) -> String {
    value.as_ref().map_or("NULL".to_owned(), ToString::to_string)
}

fn city(order: &Order) -> Option<String> {
    order.cust.filter(|cust| *cust < CUSTOMERS).map(|cust| format!("c{}", cust % 4))
}

fn sorted(rows: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut rows: Vec<String> = rows.into_iter().collect();
    rows.sort();
    rows
}

fn grouped<K: Ord>(key: impl Fn(&Order) -> Option<K>) -> BTreeMap<K, (usize, i64)> {
    let mut groups = BTreeMap::new();
    for order in orders() {
        if let Some(key) = key(&order) {
            let group = groups.entry(key).or_insert((0, 0));
            *group = (group.0 + 1, group.1 + order.amount);
        }
    }
    groups
}

fn cases() -> Vec<(&'static str, Vec<String>)> {
    let all = orders();
    let total = all.iter().map(|order| order.amount).sum();
    let max = all.iter().map(|order| order.big).max();
    let bought: Vec<i64> = all.iter().filter(|o| o.id < 12).filter_map(|o| o.cust).collect();
    let mut running = 0;
    let window = all.iter().filter(|o| o.id % 50 == 1).map(|o| {
        running += o.amount;
        format!("{}|{}", o.id, cents(running))
    });
    let window = sorted(window.collect::<Vec<_>>());
    vec![
        (
            "SELECT COUNT(*), SUM(amount), MAX(big) FROM orders",
            vec![format!("{ORDERS}|{}|{}", cents(total), null(&max))],
        ),
        (
            "SELECT cust, COUNT(*), SUM(amount) FROM orders GROUP BY cust",
            sorted(
                grouped(|o| Some(o.cust))
                    .into_iter()
                    .map(|(cust, (n, sum))| format!("{}|{n}|{}", null(&cust), cents(sum))),
            ),
        ),
        (
            "SELECT c.city, COUNT(*), SUM(o.amount) FROM orders o JOIN customers c \
             ON o.cust = c.cid GROUP BY c.city",
            sorted(
                grouped(city)
                    .into_iter()
                    .map(|(city, (n, sum))| format!("{city}|{n}|{}", cents(sum))),
            ),
        ),
        (
            "SELECT o.id, c.city FROM orders o LEFT JOIN customers c ON o.cust = c.cid + 10",
            sorted(all.iter().map(|o| {
                let city = o.cust.filter(|cust| (10..35).contains(cust));
                let city = city.map(|cust| format!("c{}", (cust - 10) % 4));
                format!("{}|{}", o.id, null(&city))
            })),
        ),
        (
            "SELECT cid FROM customers WHERE cid NOT IN \
             (SELECT cust FROM orders WHERE id < 12 AND cust IS NOT NULL)",
            sorted((0..CUSTOMERS).filter(|cid| !bought.contains(cid)).map(|cid| cid.to_string())),
        ),
        // A NULL in the list leaves nothing.
        ("SELECT cid FROM customers WHERE cid NOT IN (SELECT cust FROM orders)", vec![]),
        (
            "SELECT cid FROM customers c WHERE EXISTS \
             (SELECT 1 FROM orders o WHERE o.cust = c.cid AND o.id >= 450)",
            sorted((0..20).map(|cid| cid.to_string())),
        ),
        (
            "SELECT id FROM orders WHERE id < 5 UNION ALL SELECT -1 UNION ALL SELECT cid FROM \
             customers WHERE cid > 22 UNION ALL (VALUES ROW(-2), ROW(-3))",
            sorted([0, 1, 2, 3, 4, -1, 23, 24, -2, -3].map(|n| n.to_string())),
        ),
        (
            "SELECT o.id, v.n FROM orders o JOIN (SELECT 3 AS n UNION ALL SELECT 4 UNION ALL \
             SELECT 599) v ON o.id = v.n",
            sorted([3, 4, 599].map(|n| format!("{n}|{n}"))),
        ),
        (
            "SELECT COUNT(*), SUM(v.n) FROM orders o CROSS JOIN (SELECT 1 AS n UNION ALL SELECT 2) v",
            vec![format!("{}|{}", 2 * ORDERS, 3 * ORDERS)],
        ),
        (
            "SELECT COUNT(*) FROM orders o JOIN customers c ON o.id < c.cid",
            vec![format!("{}", (0..CUSTOMERS).sum::<i64>())],
        ),
        (
            "SELECT id FROM orders WHERE amount > (SELECT AVG(amount) FROM orders) AND id < 20",
            sorted(
                all.iter()
                    .filter(|o| o.id < 20 && o.amount * ORDERS > total)
                    .map(|o| o.id.to_string()),
            ),
        ),
        (
            "SELECT SUM((SELECT MAX(cid) FROM customers)), COUNT((SELECT MAX(cid) FROM customers)) FROM orders",
            vec![format!("{}|{ORDERS}", 24 * ORDERS)],
        ),
        (
            "SELECT COUNT(*) FROM customers GROUP BY cid > (SELECT AVG(cid) FROM customers)",
            vec!["12".into(), "13".into()],
        ),
        (
            "SELECT cid FROM customers ORDER BY ABS(cid - (SELECT MAX(cid) - 4 FROM customers)) LIMIT 1",
            vec!["20".into()],
        ),
        (
            "SELECT cid, SUM((SELECT MIN(id) + 2 FROM orders)) OVER (ORDER BY cid) FROM customers WHERE cid < 3",
            vec!["0|2".into(), "1|4".into(), "2|6".into()],
        ),
        // Branches that end in one task, beside scans.
        (
            "SELECT id FROM orders WHERE id < 3 UNION ALL SELECT COUNT(*) FROM customers UNION ALL \
             (SELECT cid FROM customers ORDER BY cid DESC LIMIT 1)",
            sorted([0, 1, 2, CUSTOMERS, CUSTOMERS - 1].map(|n| n.to_string())),
        ),
        (
            "SELECT cid FROM customers WHERE cid < 2 UNION ALL SELECT SUM(column_0) FROM (VALUES ROW(1), ROW(2)) v \
             UNION ALL SELECT c.cid FROM customers c JOIN orders o ON o.id = c.cid WHERE c.cid > 23",
            vec!["0".into(), "1".into(), "24".into(), "3".into()],
        ),
        (
            "SELECT c.cid FROM customers c LEFT JOIN customers d ON c.cid > d.cid + 22 UNION ALL SELECT -id FROM orders WHERE id = 7",
            sorted((0..CUSTOMERS).chain([24, -7]).map(|n| n.to_string())),
        ),
        (
            "SELECT cid FROM customers WHERE cid <= ANY (SELECT id FROM orders WHERE id < 2) UNION ALL SELECT cid FROM customers WHERE cid > 23",
            vec!["0".into(), "1".into(), "24".into()],
        ),
        // An aggregate of no rows, and of rows that no table has, is one row, however many tasks there are.
        (
            "SELECT cid, (SELECT COUNT(0) FROM orders WHERE 'x' IS NULL) FROM customers WHERE cid < 2",
            vec!["0|0".into(), "1|0".into()],
        ),
        (
            "SELECT cid, n FROM customers, (SELECT COUNT(*) AS n FROM (VALUES ROW(1), ROW(2)) v) c WHERE cid < 2",
            vec!["0|2".into(), "1|2".into()],
        ),
        (
            "SELECT cid, SUM((SELECT MIN(id) + 2 FROM orders)) FROM customers WHERE cid < 2 GROUP BY cid WITH ROLLUP",
            vec!["0|2".into(), "1|2".into(), "NULL|4".into()],
        ),
        // The join that has no row for a row must know the value of the query in its condition.
        (
            "SELECT cid FROM customers c WHERE NOT EXISTS \
             (SELECT 1 FROM nothing n RIGHT JOIN orders o ON n.id = o.id WHERE c.cid < (SELECT MAX(cid) - 1 FROM customers))",
            vec!["23".into(), "24".into()],
        ),
        ("SELECT COUNT(*), MAX(city) FROM customers", vec![format!("{CUSTOMERS}|c3")]),
        ("SELECT COUNT(*) FROM nothing", vec!["0".to_owned()]),
        ("SELECT n.id, c.cid FROM nothing n JOIN customers c ON n.id = c.cid", vec![]),
        (
            "SELECT id FROM orders ORDER BY id DESC LIMIT 3",
            vec!["597".into(), "598".into(), "599".into()],
        ),
        ("SELECT id, SUM(amount) OVER (ORDER BY id) FROM orders WHERE id % 50 = 1", window),
        ("SELECT COUNT(DISTINCT cust), COUNT(DISTINCT name) FROM orders", vec!["20|13".to_owned()]),
        (
            "WITH big AS (SELECT cust, COUNT(*) AS n FROM orders GROUP BY cust) \
             SELECT a.cust, b.n FROM big a JOIN big b ON a.cust = b.cust WHERE a.cust < 3",
            sorted(
                grouped(|o| o.cust.filter(|c| *c < 3))
                    .into_iter()
                    .map(|(cust, (n, _))| format!("{cust}|{n}")),
            ),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_answer_what_the_rows_say() {
    let cluster = cluster().await;
    let mut wrong = Vec::new();
    for (sql, expected) in cases() {
        for node in [11, 13] {
            match query(&cluster, node, sql).await {
                Ok(rows) if rows == expected => {}
                Ok(rows) => wrong.push(format!("{sql}\n  got  {rows:?}\n  want {expected:?}")),
                Err(error) => wrong.push(format!("{sql}\n  {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// MySQL has no FULL JOIN: if the planner takes it, the answer must be right.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_join_is_right_or_refused() {
    let cluster = cluster().await;
    let condition_and_count = [
        // Each of 14 small orders with a customer of its number, and the others alone.
        ("o.cust = c.cid", {
            let matched = orders().iter().filter(|o| city(o).is_some()).count() as i64;
            let alone = (0..CUSTOMERS).filter(|cid| *cid >= 20).count() as i64;
            matched + (ORDERS - matched) + alone
        }),
        ("o.id < c.cid", (0..CUSTOMERS).sum::<i64>() + (ORDERS - (CUSTOMERS - 1)) + 1),
    ];
    for (condition, count) in condition_and_count {
        let sql = format!("SELECT COUNT(*) FROM orders o FULL JOIN customers c ON {condition}");
        match query(&cluster, 12, &sql).await {
            Ok(rows) => assert_eq!(rows, [count.to_string()], "{sql}"),
            Err(error) => {
                let (_, message) = refusal::<()>(Err(error));
                assert!(message.starts_with("ISOBAR-"), "{message}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_takes_any_rows() {
    let cluster = cluster().await;
    assert_eq!(query(&cluster, 12, "SELECT id FROM orders LIMIT 5").await.unwrap().len(), 5);
    assert_eq!(query(&cluster, 12, "SELECT id FROM orders LIMIT 700").await.unwrap().len(), 600);
}

#[tokio::test(flavor = "multi_thread")]
async fn recursion_is_refused_over_tables_and_right_without() {
    let cluster = cluster().await;
    let count = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) \
                 SELECT n FROM r";
    match query(&cluster, 11, count).await {
        Ok(rows) => assert_eq!(rows, ["1", "2", "3", "4", "5"]),
        Err(error) => assert!(refusal::<()>(Err(error)).1.starts_with("ISOBAR-UNSUPPORTED")),
    }
    for over in [
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT r.n + 1 FROM r JOIN customers c \
         ON c.cid = r.n WHERE n < 5) SELECT n FROM r",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) \
         SELECT COUNT(*) FROM r JOIN orders o ON o.id = r.n",
        "SELECT COUNT(*) FROM orders WHERE id IN (WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL \
         SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r)",
    ] {
        let (code, message) = refusal(query(&cluster, 11, over).await);
        assert!(message.starts_with("ISOBAR-UNSUPPORTED"), "{message}");
        assert_eq!(code, tonic::Code::Unimplemented);
    }
}

/// `customers` is whole on node 12: there its queries are not distributed, elsewhere they are, and
/// both answer the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_whose_regions_are_all_here_is_not_distributed() {
    let cluster = cluster().await;
    for sql in [
        "SELECT city, COUNT(*), MAX(cid) FROM customers GROUP BY city ORDER BY city",
        "SELECT a.cid, b.city FROM customers a JOIN customers b ON a.cid = b.cid + 1 WHERE b.cid < 9",
        "SELECT cid FROM customers WHERE cid NOT IN (SELECT cid + 5 FROM customers)",
        "SELECT COUNT(*) FROM customers WHERE cid = (SELECT MAX(cid) FROM customers)",
    ] {
        let here = sorted(query(&cluster, 12, sql).await.unwrap());
        let there = sorted(query(&cluster, 11, sql).await.unwrap());
        assert!(!here.is_empty());
        assert_eq!(here, there, "{sql}");
        for (node, distributed) in [(12, false), (11, true)] {
            let body = serde_json::json!({ "query": sql, "database": "d", "analyze": false });
            let action = arrow_flight::Action::new("explain", body.to_string());
            let mut client = cluster.client(node).await;
            let plan: Vec<bytes::Bytes> =
                futures::TryStreamExt::try_collect(client.do_action(action).await.unwrap())
                    .await
                    .unwrap();
            let plan = String::from_utf8_lossy(&plan.concat()).into_owned();
            assert!(plan.contains("ColumnarScanExec"), "{plan}");
            assert_eq!(plan.contains("DistributedExec"), distributed, "{plan}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_count_costs_this_much() {
    let cluster = cluster().await;
    let mut taken: Vec<Duration> = Vec::new();
    for _ in 0..20 {
        let begun = Instant::now();
        assert_eq!(query(&cluster, 11, "SELECT COUNT(*) FROM orders").await.unwrap(), ["600"]);
        taken.push(begun.elapsed());
    }
    taken.sort();
    println!("a distributed count of 600 rows on 3 nodes: median of 20 {:?}", taken[10]);
    assert!(taken[10] < Duration::from_secs(5));
}
