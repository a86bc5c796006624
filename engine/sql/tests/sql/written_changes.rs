//! Rows changed by their keys to what is written: they are what the same statement makes of them by way of a plan, which a
//! LIMIT takes.

use sql::session::Session;

use super::harness::{done, engine, in_database, rows};

const TABLE: &str = "CREATE TABLE t (id INT PRIMARY KEY, i INT, tiny TINYINT NOT NULL DEFAULT 7, u BIGINT UNSIGNED, \
    b BIGINT, p DECIMAL(4,2), f DOUBLE, s VARCHAR(5), bin VARBINARY(4), d DATE, dt DATETIME(2), ts TIMESTAMP NULL, \
    y YEAR, tm TIME(1), e ENUM('small', 'large'), labels SET('x', 'y'), j JSON, \
    g INT AS (i + 1), at TIMESTAMP(6) NULL ON UPDATE CURRENT_TIMESTAMP(6), UNIQUE KEY (u), \
    CHECK (i < 100))";

const VALUES: &[&str] = &[
    "NULL",
    "0",
    "1",
    "-1",
    "127",
    "128",
    "300",
    "1.005",
    "1e3",
    "99999999999",
    "18446744073709551615",
    "'7'",
    "' 8x'",
    "''",
    "'small'",
    "'LARGE'",
    "'y,x'",
    "'[1]'",
    "'2024-02-29'",
    "'2024-02-30'",
    "'2024-01-02 03:04:05.678'",
    "'12:34:56.78'",
    "20240102030405",
    "TRUE",
    "0x41",
    "b'11'",
    "x'4142434445'",
    "DATE '2024-01-02'",
    "DEFAULT",
    "'emoji 😀'",
    "(3)",
    "+4",
    "- 5",
    "-(6)",
    "2155",
    "1900",
    "id",
    "i",
    "u",
    "s",
    "i + 1",
    "i - 1",
    "u + 1",
    "u - 1",
    "u - 11",
    "b + 1",
    "b - 1",
    "tiny + 1",
    "1 + i",
    "i + 1.5",
    "i + '1'",
    "i + NULL",
    "i + TRUE",
    "t.i + 2",
    "i + id",
    "e + 1",
    "d + 1",
    "y + 1",
    "p + 1",
    "nothing + 1",
    "g + 1",
    "(i + 1)",
    "i + (1)",
    "i * 2",
    "i + 1 + 1",
    "@@sql_mode",
    "NOW(6) IS NULL",
    "(SELECT 5)",
    "CONCAT(s, 'x')",
];

const COLUMNS: &[&str] = &[
    "i", "tiny", "u", "b", "p", "f", "s", "bin", "d", "dt", "ts", "y", "tm", "e", "labels", "j",
    "g", "id", "t.i", "nothing",
];

/// What a statement does, and says; nothing of it stays.
async fn effect(session: &mut Session, sql: &str) -> String {
    done(session, "BEGIN").await.unwrap();
    let answer = match done(session, sql).await {
        Ok(done) => format!("{} {}", done.affected_rows, done.info),
        Err(error) => format!("{error}"),
    };
    let warnings = rows(session, "SHOW WARNINGS").await.unwrap();
    let held = "SELECT id, i, tiny, u, b, p, f, s, HEX(bin), d, dt, ts, y, tm, e, labels, j, g, at IS NULL FROM t ORDER BY id";
    let held = rows(session, held).await.unwrap();
    done(session, "ROLLBACK").await.unwrap();
    format!("{answer}\n{warnings:?}\n{held:#?}")
}

async fn table() -> Session {
    let mut session = in_database(&engine()).await;
    for sql in [
        TABLE,
        "INSERT INTO t (id, i, u, b, p, s, bin, d, e, labels, j, y) VALUES \
         (1, 10, 10, 9223372036854775807, 1.50, 'one', 'ab', '2020-01-01', 'small', 'x', '{\"a\": 1}', 2001), \
         (2, 98, 20, -9223372036854775808, 2.50, 'two', 'cd', '2020-01-02', 'large', 'y', '2', 2002), \
         (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), \
         (4, 4, 18446744073709551615, 4, 4, '4', '4', '2020-01-04', 1, 1, '4', 2004)",
    ] {
        done(&mut session, sql).await.unwrap();
    }
    session
}

async fn compare(session: &mut Session, statement: &str) {
    let written = effect(session, statement).await;
    let planned = effect(session, &format!("{statement} LIMIT 10")).await;
    assert_eq!(written, planned, "{statement}");
}

#[tokio::test]
async fn each_value_for_each_column() {
    for mode in ["DEFAULT", "''"] {
        let mut session = table().await;
        done(&mut session, &format!("SET sql_mode = {mode}")).await.unwrap();
        for column in COLUMNS {
            for value in VALUES {
                let statement = format!("UPDATE t SET {column} = {value} WHERE id IN (1, 2, 3, 4)");
                compare(&mut session, &statement).await;
            }
        }
    }
}

#[tokio::test]
async fn several_assignments_and_ignoring() {
    let mut session = table().await;
    for set in [
        "i = 5, i = i + 1",
        "i = i + 1, u = i + 1",
        "i = i + 1, b = b - 1",
        "u = i + 1, i = 3",
        "i = 1, i = 2",
        "s = 'x', S = 'y'",
        "tiny = NULL",
        "tiny = 1000, i = 2000",
        "i = 99",
        "i = 100",
        "s = 'too long', p = 1000",
        "at = NULL, i = 1",
        "i = i + 0",
        "id = id + 10",
        "id = 4",
        "u = 5",
        "t.i = t.i + 1, t.s = 'q'",
        "d.t.i = 1",
        "a.i = 1",
    ] {
        for rows in [
            "WHERE id = 1",
            "WHERE id IN (2, 1)",
            "WHERE u = 20",
            "WHERE (id) IN ((1), (7))",
            "WHERE id = 1 AND u = 10",
            "WHERE id = 9",
        ] {
            compare(&mut session, &format!("UPDATE t SET {set} {rows}")).await;
            compare(&mut session, &format!("UPDATE IGNORE t SET {set} {rows}")).await;
            compare(&mut session, &format!("UPDATE t SET {set} {rows} AND 1 = 1")).await;
        }
    }
    for rows in [
        "id = 1",
        "u IN (10, 20, 30)",
        "t.id = 2",
        "T.ID = 2",
        "id = 'x'",
        "id = NULL",
        "a.id = 1",
        "nothing = 1",
    ] {
        compare(&mut session, &format!("DELETE FROM t WHERE {rows}")).await;
    }
    for statement in [
        "UPDATE t AS a SET a.i = i + 1 WHERE a.id = 1",
        "UPDATE t AS a SET t.i = 1 WHERE a.id = 1",
        "UPDATE t AS a SET i = 1 WHERE t.id = 1",
    ] {
        compare(&mut session, statement).await;
    }
}
