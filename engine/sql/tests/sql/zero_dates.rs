//! Zero dates: none is kept, the error says what to write instead, and sessions whose sql_mode has no
//! NO_ZERO_DATE compare with them as with a datetime before all others.

use sql::session::Session;

use super::harness::{done, engine, in_database, rows, warnings};

/// What WordPress and dumps set.
const LENIENT: [&str; 2] = ["", "NO_AUTO_VALUE_ON_ZERO"];

async fn lenient() -> Session {
    let mut session = in_database(&engine()).await;
    let create = "CREATE TABLE t (id INT PRIMARY KEY, d DATE, dt DATETIME(3), ts TIMESTAMP NULL, KEY (d), KEY (dt))";
    done(&mut session, create).await.unwrap();
    let insert =
        "INSERT INTO t VALUES (1, '2020-01-01', '2020-01-01 10:00:00', '2020-01-01 10:00:00'),
        (2, '0001-01-01', '0001-01-01 00:00:00', '1970-01-01 00:00:01'), (3, NULL, NULL, NULL)";
    done(&mut session, insert).await.unwrap();
    session
}

#[tokio::test]
async fn zero_dates_are_before_all_datetimes_where_the_mode_allows_them() {
    let mut one = lenient().await;
    let select = |condition: &str| format!("SELECT id FROM t WHERE {condition} ORDER BY id");
    for (condition, wanted) in [
        ("d = '0000-00-00'", ""),
        ("d <> '0000-00-00'", "1 2"),
        ("'0000-00-00' < d", "1 2"),
        ("d <= '00-00-00'", ""),
        ("NOT d = '00000000'", "1 2"),
        ("d > '0000-00-00 00:00:00'", "1 2"),
        ("dt = '0000-00-00 00:00:00'", ""),
        ("dt != '0000-00-00 00:00:00.000'", "1 2"),
        ("dt BETWEEN '0000-00-00' AND '1999-12-31'", "2"),
        ("ts > '0000-00-00 00:00:00'", "1 2"),
        ("d IN ('0000-00-00', '2020-01-01')", "1"),
        ("d NOT IN ('0000-00-00')", "1 2"),
        ("d IS NULL OR d = '0000-00-00'", "3"),
        ("d = 0 OR ts = 0", ""),
    ] {
        let wanted: Vec<&str> = wanted.split_whitespace().collect();
        for mode in LENIENT {
            done(&mut one, &format!("SET sql_mode = '{mode}'")).await.unwrap();
            for zone in ["+00:00", "-11:00", "Europe/Berlin"] {
                done(&mut one, &format!("SET time_zone = '{zone}'")).await.unwrap();
                let found = rows(&mut one, &select(condition)).await.unwrap();
                assert_eq!(found, wanted, "{condition} in {zone}");
            }
        }
    }
    done(&mut one, "UPDATE t SET d = NULL WHERE d = '0000-00-00' OR d < '1900-01-01'")
        .await
        .unwrap();
    assert_eq!(rows(&mut one, &select("d IS NOT NULL")).await.unwrap(), ["1"]);
    // As in MySQL 8: neither with the mode, nor of what is no zero date.
    for (mode, condition) in [
        ("NO_ZERO_DATE", "d > '0000-00-00'"),
        ("TRADITIONAL", "dt > '0000-00-00'"),
        ("", "d > '2020-00-00'"),
        ("", "dt > '0000-00-00 10:00:00'"),
        ("", "d > '0'"),
        ("", "d > ''"),
    ] {
        done(&mut one, &format!("SET sql_mode = '{mode}'")).await.unwrap();
        let error = rows(&mut one, &select(condition)).await.expect_err(condition);
        assert_eq!(error.code, 1525, "{condition}: {}", error.message);
    }
}

#[tokio::test]
async fn a_zero_date_is_refused_by_name_in_any_mode() {
    let mut one = lenient().await;
    let before = rows(&mut one, "SELECT * FROM t ORDER BY id").await.unwrap();
    let besides = "(zero dates are not kept: write NULL or a day of the calendar)";
    for mode in LENIENT.into_iter().chain([values::sql_mode::DEFAULT]) {
        done(&mut one, &format!("SET sql_mode = '{mode}'")).await.unwrap();
        for (sql, code) in [
            (
                "CREATE TABLE p (id INT PRIMARY KEY, d DATETIME NOT NULL DEFAULT '0000-00-00 00:00:00')",
                1067,
            ),
            ("CREATE TABLE p (id INT PRIMARY KEY, d DATE NOT NULL DEFAULT '0000-00-00')", 1067),
            ("CREATE TABLE p (id INT PRIMARY KEY, d TIMESTAMP NOT NULL DEFAULT 0)", 1067),
            ("ALTER TABLE t ADD COLUMN e DATETIME NOT NULL DEFAULT '0000-00-00 00:00:00'", 1067),
            ("ALTER TABLE t ALTER COLUMN d SET DEFAULT '0000-00-00'", 1067),
            ("INSERT INTO t (id, d) VALUES (9, '2020-01-01'), (10, '0000-00-00')", 1292),
            ("INSERT INTO t (id, dt) VALUES (9, '0000-00-00 00:00:00')", 1292),
            ("INSERT INTO t (id, ts) VALUES (9, 0)", 1292),
            ("UPDATE t SET dt = '0000-00-00' WHERE id = 1", 1292),
        ] {
            let error = done(&mut one, sql).await.expect_err(sql);
            assert_eq!(error.code, code, "{sql}: {}", error.message);
            assert!(error.message.contains(besides), "{sql}: {}", error.message);
        }
        // Of other values and columns nothing is said besides.
        for sql in [
            "INSERT INTO t (id, d) VALUES (9, '2020-02-30')",
            "INSERT INTO t (id, d) VALUES (9, '0000-01-00')",
            "CREATE TABLE p (id INT PRIMARY KEY, n INT NOT NULL DEFAULT '0000-00-00')",
        ] {
            let error = done(&mut one, sql).await.expect_err(sql);
            assert!(!error.message.contains(besides), "{sql}: {}", error.message);
        }
        assert_eq!(rows(&mut one, "SELECT * FROM t ORDER BY id").await.unwrap(), before);
    }
}

#[tokio::test]
async fn ignore_stores_the_time_that_a_text_begins_with_or_null() {
    let mut one = in_database(&engine()).await;
    let create = "CREATE TABLE t (id INT PRIMARY KEY, d DATE, dt DATETIME)";
    done(&mut one, create).await.unwrap();
    for (id, text, d, dt) in [
        (1, "2020-02-30", "NULL", "NULL"),
        (2, "2020-02-30 10:00:00", "NULL", "NULL"),
        (3, "2020-01-32", "NULL", "NULL"),
        (4, "2020-01-100", "NULL", "NULL"),
        (5, "2020-01-01 25:00:00", "NULL", "NULL"),
        (6, "2020-01-01 10:70:00", "NULL", "NULL"),
        (7, "20200230101010", "NULL", "NULL"),
        (8, "0000-00-00", "NULL", "NULL"),
        (9, "0000-00-00 00:00:00", "NULL", "NULL"),
        (10, "2020-13-01", "NULL", "NULL"),
        (11, "foo", "NULL", "NULL"),
        (12, "2020-01-01x", "2020-01-01", "2020-01-01 00:00:00"),
        (13, "2020-01-01 foo", "2020-01-01", "2020-01-01 00:00:00"),
        (14, "20200101x", "2020-01-01", "2020-01-01 00:00:00"),
        (15, "2020-01-01 10:00:00 foo", "2020-01-01", "2020-01-01 10:00:00"),
        (16, "2020-01-01 10:00:00.123foo", "2020-01-01", "2020-01-01 10:00:00"),
        (17, "2020-01-01 10:00:", "2020-01-01", "2020-01-01 10:00:00"),
    ] {
        let insert = format!("INSERT IGNORE INTO t VALUES ({id}, '{text}', '{text}')");
        done(&mut one, &insert).await.unwrap();
        let warned = ["d", "dt"]
            .map(|name| format!("Warning|1265|Data truncated for column '{name}' at row 1"));
        assert_eq!(warnings(&mut one).await, warned, "{text}");
        let stored = rows(&mut one, &format!("SELECT d, dt FROM t WHERE id = {id}")).await.unwrap();
        assert_eq!(stored, [format!("{d}|{dt}")], "{text}");
    }
    // Where NULL cannot be, there is nothing to store.
    done(&mut one, "CREATE TABLE n (id INT PRIMARY KEY, d DATE NOT NULL)").await.unwrap();
    for text in ["0000-00-00", "2020-02-30"] {
        let insert = format!("INSERT IGNORE INTO n VALUES (1, '{text}')");
        assert_eq!(done(&mut one, &insert).await.expect_err(text).code, 1292);
    }
    assert_eq!(rows(&mut one, "SELECT COUNT(*) FROM n").await.unwrap(), ["0"]);
}
