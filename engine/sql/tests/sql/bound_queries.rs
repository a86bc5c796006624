//! Queries that are kept as they were bound, and used again for others that differ in literals alone.

use sql::session::Session;
use sql::session::SessionInfo;
use tokio_util::sync::CancellationToken;
use types::Value;

use super::harness::{done, engine, in_database, rows, run};

async fn counted(session: &mut Session, what: &str) -> u64 {
    let shown = format!("SHOW STATUS LIKE 'Isobar_bound_queries_{what}'");
    let shown = rows(session, &shown).await.unwrap();
    shown[0].split('|').nth(1).unwrap().parse().unwrap()
}

/// The rows of a query, and whether a kept one was used.
async fn asked(session: &mut Session, sql: &str) -> (Vec<String>, bool) {
    let before = counted(session, "hits").await;
    let rows = rows(session, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    (rows, counted(session, "hits").await > before)
}

async fn tables() -> (sql::engine::Engine, Session) {
    let engine = engine();
    let mut one = in_database(&engine).await;
    for sql in [
        "CREATE TABLE t (id INT PRIMARY KEY, n BIGINT, p DECIMAL(8,2), s VARCHAR(20), \
         d DATE, e ENUM('small', 'large'), j JSON, y YEAR)",
        "INSERT INTO t VALUES \
         (1, 10, 1.50, 'one', '2020-01-01', 'small', '{\"a\": 1}', 2001), \
         (2, 20, 2.50, 'two', '2020-01-02', 'large', '{\"a\": 2}', 2002), \
         (3, NULL, NULL, '3', '2020-01-03', NULL, '\"x\"', 2003), \
         (4, 40, 4.50, 'it''s', '2020-01-04', 'large', '3', 2004)",
        "CREATE TABLE u (id INT PRIMARY KEY, t INT, w INT)",
        "INSERT INTO u VALUES (1, 1, 5), (2, 1, 6), (3, 2, 7), (4, 9, 8)",
    ] {
        done(&mut one, sql).await.unwrap();
    }
    (engine, one)
}

/// Pairs of queries of one shape: the second is one that was kept by the first, and each has its own answer.
#[tokio::test]
async fn literals_of_one_type_are_one_query() {
    let (_, mut one) = tables().await;
    for (first, second, answer) in [
        ("SELECT id FROM t WHERE n > 15", "SELECT id FROM t WHERE n > 30", "4"),
        (
            "SELECT id FROM t WHERE n > -5 AND id < 9",
            "SELECT id FROM t WHERE n > 30 AND id < 3",
            "",
        ),
        ("SELECT id FROM t WHERE p = 1.50", "SELECT id FROM t WHERE p = 2.50", "2"),
        ("SELECT id FROM t WHERE s = 'one'", "SELECT id FROM t WHERE s = 'it''s'", "4"),
        (
            "SELECT id FROM t WHERE s <> 3 AND n = 1",
            "SELECT id FROM t WHERE s <> 3 AND n = 20",
            "2",
        ),
        ("SELECT id FROM t WHERE d = '2020-01-01'", "SELECT id FROM t WHERE d = '2020-1-3'", "3"),
        ("SELECT id FROM t WHERE d >= 20200103", "SELECT id FROM t WHERE d >= 20200104", "4"),
        ("SELECT id FROM t WHERE e = 'small'", "SELECT id FROM t WHERE e = 'large'", "2 4"),
        ("SELECT id FROM t WHERE e > 0", "SELECT id FROM t WHERE e > 1", "2 4"),
        ("SELECT id FROM t WHERE j->'$.a' = 1", "SELECT id FROM t WHERE j->'$.a' = 2", "2"),
        ("SELECT id FROM t WHERE j = 'y'", "SELECT id FROM t WHERE j = 'x'", "3"),
        (
            "SELECT id FROM t WHERE y IN (2001, 1)",
            "SELECT id FROM t WHERE y IN (2003, 2004)",
            "3 4",
        ),
        (
            "SELECT id FROM t WHERE n NOT IN (10, 20)",
            "SELECT id FROM t WHERE n NOT IN (40, 20)",
            "1",
        ),
        (
            "SELECT id FROM t WHERE NOT n BETWEEN 10 AND 20 OR s = 'a'",
            "SELECT id FROM t WHERE NOT n BETWEEN 10 AND 20 OR s = '3'",
            "3 4",
        ),
        (
            "SELECT id FROM t WHERE 5 BETWEEN 1 AND n",
            "SELECT id FROM t WHERE 5 BETWEEN 4 AND n",
            "1 2 4",
        ),
        (
            "SELECT t.id FROM t JOIN u ON u.t = t.id AND u.w > 5 WHERE t.n < 11",
            "SELECT t.id FROM t JOIN u ON u.t = t.id AND u.w > 4 WHERE t.n < 99",
            "1 1 2",
        ),
        (
            "SELECT t.id, u.id FROM t LEFT JOIN u ON u.t = t.id AND u.w = 5",
            "SELECT t.id, u.id FROM t LEFT JOIN u ON u.t = t.id AND u.w = 7",
            "1|NULL 2|3 3|NULL 4|NULL",
        ),
        (
            "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.t = t.id AND w = 7)",
            "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.t = t.id AND w = 6)",
            "1",
        ),
        (
            "SELECT id FROM t WHERE (SELECT MAX(w) FROM u WHERE u.t = t.id AND w < 9) = 7",
            "SELECT id FROM t WHERE (SELECT MAX(w) FROM u WHERE u.t = t.id AND w < 6) = 5",
            "1",
        ),
        (
            "SELECT n, COUNT(*) FROM t WHERE n = 10 GROUP BY id",
            "SELECT n, COUNT(*) FROM t WHERE n = 40 GROUP BY id",
            "40|1",
        ),
        (
            "WITH c AS (SELECT id FROM t WHERE n > 10) SELECT id FROM c WHERE id < 4",
            "WITH c AS (SELECT id FROM t WHERE n > 20) SELECT id FROM c WHERE id < 5",
            "4",
        ),
        (
            "SELECT id FROM t WHERE n = 10 UNION SELECT id FROM u WHERE w = 8",
            "SELECT id FROM t WHERE n = 20 UNION SELECT id FROM u WHERE w = 5",
            "1 2",
        ),
    ] {
        for _ in 0..2 {
            asked(&mut one, first).await;
        }
        let (mut found, kept) = asked(&mut one, second).await;
        found.sort();
        assert!(kept, "bound anew: {second}");
        assert_eq!(found.join(" "), answer, "{second}");
    }
}

/// What makes another query of a text, or may: each is bound anew, and has its own answer.
#[tokio::test]
async fn other_queries_are_bound_anew() {
    let (_, mut one) = tables().await;
    for (first, second, answer) in [
        ("SELECT id FROM t WHERE s = '3'", "SELECT id FROM t WHERE s = 3", "3"),
        ("SELECT id FROM t WHERE p > 1", "SELECT id FROM t WHERE p > 1.5", "2 4"),
        ("SELECT id FROM t WHERE p > 1.5", "SELECT id FROM t WHERE p > 2.49", "2 4"),
        ("SELECT id FROM t WHERE n > 1", "SELECT id FROM t WHERE n > 1e1", "2 4"),
        ("SELECT n = 10 FROM t WHERE id < 2", "SELECT n = 20 FROM t WHERE id < 2", "0"),
        ("SELECT ROUND(p, 1) FROM t WHERE n = 10", "SELECT ROUND(p, 0) FROM t WHERE n = 10", "2"),
        ("SELECT 'a''b' WHERE 1 = 1", "SELECT 'a''''b' WHERE 1 = 1", "a''b"),
        ("SELECT id FROM t WHERE s LIKE 't%'", "SELECT id FROM t WHERE s LIKE 'o%'", "1"),
        ("SELECT id FROM t WHERE n > 1 LIMIT 1", "SELECT id FROM t WHERE n > 11 LIMIT 2", "2 4"),
        (
            "SELECT n FROM t WHERE n > 0 ORDER BY 1 LIMIT 1",
            "SELECT n FROM t WHERE n > 0 ORDER BY -n LIMIT 1",
            "40",
        ),
        (
            "SELECT id FROM t WHERE id = NULL OR n = 1",
            "SELECT id FROM t WHERE id = 3 OR n = 1",
            "3",
        ),
    ] {
        for _ in 0..2 {
            asked(&mut one, first).await;
        }
        let (mut found, kept) = asked(&mut one, second).await;
        found.sort();
        assert!(!kept, "not bound anew: {second}");
        assert_eq!(found.join(" "), answer, "{second}");
    }
}

/// An item that is a query is called what it asks, and ORDER BY may mean it by that name.
#[tokio::test]
async fn names_of_items_keep_their_literals() {
    let (_, mut one) = tables().await;
    done(&mut one, "CREATE TABLE v (k INT PRIMARY KEY, `(SELECT 1 WHERE 1 < 2)` INT)")
        .await
        .unwrap();
    done(&mut one, "INSERT INTO v VALUES (1, 20), (2, 10)").await.unwrap();
    let query = |than: u8| {
        format!(
            "SELECT k FROM (SELECT k, (SELECT 1 WHERE 1 < {than}) FROM v \
             ORDER BY `(SELECT 1 WHERE 1 < 2)`, k LIMIT 1) AS d (k, c)"
        )
    };
    for _ in 0..3 {
        assert_eq!(asked(&mut one, &query(3)).await, (vec!["2".into()], false));
    }
    assert_eq!(asked(&mut one, &query(2)).await, (vec!["1".into()], false));
}

#[tokio::test]
async fn another_version_of_a_table_is_bound_anew() {
    let (_, mut one) = tables().await;
    let query = "SELECT * FROM u WHERE w = 5";
    for _ in 0..2 {
        assert_eq!(asked(&mut one, query).await, (vec!["1|1|5".into()], false));
    }
    assert_eq!(asked(&mut one, query).await, (vec!["1|1|5".into()], true));
    done(&mut one, "ALTER TABLE u ADD COLUMN x INT DEFAULT 9 FIRST").await.unwrap();
    assert_eq!(asked(&mut one, query).await, (vec!["9|1|1|5".into()], false));
    assert_eq!(asked(&mut one, query).await, (vec!["9|1|1|5".into()], true));
    done(&mut one, "DROP TABLE u").await.unwrap();
    assert_eq!(run(&mut one, query).await.map(drop).unwrap_err().code, 1146);
    done(&mut one, "CREATE TABLE u (w VARCHAR(5))").await.unwrap();
    done(&mut one, "INSERT INTO u VALUES ('5'), ('05x')").await.unwrap();
    assert_eq!(asked(&mut one, query).await, (vec!["5".into(), "05x".into()], false));
}

#[tokio::test]
async fn other_settings_are_bound_anew() {
    let (_, mut one) = tables().await;
    let grouped = "SELECT t, w FROM u WHERE w > 4 GROUP BY t";
    done(&mut one, "SET sql_mode = ''").await.unwrap();
    for _ in 0..2 {
        asked(&mut one, grouped).await;
    }
    assert!(asked(&mut one, grouped).await.1);
    done(&mut one, "SET sql_mode = 'ONLY_FULL_GROUP_BY'").await.unwrap();
    assert_eq!(run(&mut one, grouped).await.map(drop).unwrap_err().code, 1055);

    let unix = "SELECT UNIX_TIMESTAMP(d) FROM t WHERE n = 10";
    done(&mut one, "SET time_zone = '+00:00'").await.unwrap();
    for _ in 0..2 {
        assert_eq!(asked(&mut one, unix).await.0, ["1577836800"]);
    }
    done(&mut one, "SET time_zone = '+01:00'").await.unwrap();
    assert_eq!(asked(&mut one, unix).await, (vec!["1577833200".into()], false));

    for sql in ["CREATE DATABASE e", "USE e", "CREATE TABLE u (t INT, w INT)"] {
        done(&mut one, sql).await.unwrap();
    }
    let query = "SELECT t FROM u WHERE w = 5";
    for _ in 0..2 {
        assert_eq!(asked(&mut one, query).await, (vec![], false));
    }
    done(&mut one, "USE d").await.unwrap();
    assert_eq!(asked(&mut one, query).await, (vec!["1".into()], false));
}

#[tokio::test]
async fn what_is_of_a_moment_or_a_user_is_not_kept() {
    let (engine, mut one) = tables().await;
    done(&mut one, "CREATE USER ann").await.unwrap();
    done(&mut one, "GRANT SELECT ON d.* TO ann").await.unwrap();
    let info =
        SessionInfo { id: 2, user: "ann".into(), host: "10.0.0.9".into(), found_rows: false };
    let mut two = Session::new(engine, info);
    done(&mut two, "USE d").await.unwrap();
    for call in
        ["NOW(6)", "CURDATE()", "CURTIME()", "UNIX_TIMESTAMP()", "USER()", "CONNECTION_ID()"]
    {
        let query = format!("SELECT {call}, id FROM t WHERE n = 10");
        for _ in 0..3 {
            assert!(!asked(&mut one, &query).await.1, "{query}");
        }
        assert!(!asked(&mut two, &query).await.1, "{query}");
    }
    let whose = "SELECT CONNECTION_ID(), USER() FROM t WHERE n = 10";
    assert_eq!(rows(&mut one, whose).await.unwrap(), ["1|root@127.0.0.1"]);
    assert_eq!(rows(&mut two, whose).await.unwrap(), ["2|ann@10.0.0.9"]);
    // Nothing else of a session decides what a query is bound to.
    let plain = "SELECT id FROM t WHERE n = 10 AND s <> 'x'";
    asked(&mut one, plain).await;
    asked(&mut one, plain).await;
    assert!(asked(&mut two, plain).await.1);
}

#[tokio::test]
async fn nothing_of_a_long_query_stays() {
    let (_, mut one) = tables().await;
    let before = counted(&mut one, "kept").await;
    for length in [10_000, 20_000] {
        let query = format!("SELECT '{}' FROM t WHERE n = 10", "x".repeat(length));
        for _ in 0..3 {
            assert!(!asked(&mut one, &query).await.1);
        }
    }
    assert_eq!(counted(&mut one, "kept").await, before);
}

#[tokio::test]
async fn prepared_statements_use_what_was_kept() {
    let (_, mut one) = tables().await;
    let cancel = CancellationToken::new();
    let select = one.prepare(b"SELECT id FROM t WHERE n > ? AND s <> ?").await.unwrap();
    let before = counted(&mut one, "hits").await;
    for (n, s) in [(15, "two"), (3, ""), (0, "one"), (99, "")] {
        let values = vec![Value::Int(n), Value::String(s.into())];
        one.execute_prepared(select.id, values, &cancel).await.map(drop).unwrap();
    }
    assert_eq!(counted(&mut one, "hits").await, before + 2);
    assert!(asked(&mut one, "SELECT id FROM t WHERE n > 15 AND s <> 'it''s'").await.1);
    // A parameter of another type.
    let values = vec![Value::String("15".into()), Value::String(String::new())];
    one.execute_prepared(select.id, values, &cancel).await.map(drop).unwrap();
    assert_eq!(counted(&mut one, "hits").await, before + 3);
}
