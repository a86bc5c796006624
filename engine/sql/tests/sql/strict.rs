//! Statements that write in strict mode: what their expressions meet is an error, which changes
//! nothing; where MySQL alone says so, or a script cannot ask.

use execution::reply::Reply;
use sql::session::Session;
use tokio_util::sync::CancellationToken;
use types::Value;
use values::error::SqlError;

use super::harness::{done, engine, in_database, rows, warnings};

async fn numbers() -> Session {
    let mut session = in_database(&engine()).await;
    let create = "CREATE TABLE t (id INT PRIMARY KEY, n INT, z INT, s VARCHAR(20))";
    done(&mut session, create).await.unwrap();
    let insert = "INSERT INTO t VALUES (1, 0, 0, 'abc'), (2, 20, 5, '12x'), (3, 30, 2, '7')";
    done(&mut session, insert).await.unwrap();
    session
}

fn reported(error: &SqlError) -> (u16, String, &str) {
    let state = String::from_utf8_lossy(&error.sqlstate).into_owned();
    (error.code, state, error.message.as_str())
}

async fn all(session: &mut Session) -> Vec<String> {
    rows(session, "SELECT id, n, z, s FROM t ORDER BY id").await.unwrap()
}

#[tokio::test]
async fn conditions_of_what_is_changed_or_deleted_are_strict() {
    let mut one = numbers().await;
    let before = all(&mut one).await;
    let abc = "Truncated incorrect DOUBLE value: 'abc'";
    for (sql, code, state, message) in [
        ("DELETE FROM t WHERE n = 'abc'", 1292, "22007", abc),
        ("DELETE FROM t WHERE s = 0", 1292, "22007", abc),
        ("DELETE FROM t WHERE n IN ('abc', 'def')", 1292, "22007", abc),
        ("DELETE FROM t WHERE n = 'abc' LIMIT 1", 1292, "22007", abc),
        ("DELETE a FROM t AS a JOIN t AS b ON b.id = a.id WHERE a.s = 0", 1292, "22007", abc),
        ("UPDATE t SET n = 1 WHERE s = 7", 1292, "22007", abc),
        ("UPDATE t SET n = 1 WHERE 10 / z > 1", 1365, "22012", "Division by 0"),
        ("UPDATE t SET n = 1 WHERE LN(z) > 0", 3020, "2201E", "Invalid argument for logarithm"),
        ("INSERT INTO t (id) SELECT id + 10 FROM t WHERE s > 5", 1292, "22007", abc),
        ("INSERT INTO t (id, n) SELECT 10, 1 / 0 FROM t LIMIT 1", 1365, "22012", "Division by 0"),
    ] {
        let error = done(&mut one, sql).await.expect_err(sql);
        assert_eq!(reported(&error), (code, state.to_owned(), message), "{sql}");
        assert_eq!(warnings(&mut one).await, [format!("Error|{code}|{message}")], "{sql}");
        assert_eq!(all(&mut one).await, before, "{sql}");
    }
}

#[tokio::test]
async fn what_is_computed_for_no_row_is_no_error() {
    let mut one = numbers().await;
    let before = all(&mut one).await;
    for sql in [
        "DELETE FROM t WHERE id > 100 AND n = 'abc'",
        "UPDATE t SET n = 1 / 0 WHERE id = 100",
        "UPDATE t SET n = 1 + 'abc' WHERE n = 77",
        "UPDATE t SET n = CASE WHEN z > 100 THEN 1 + 'abc' ELSE n END",
        "UPDATE t SET n = IF(z > 100 AND n = 'abc', 1, n)",
        "UPDATE t SET n = IF(z > 100, s + 0, n)",
        "UPDATE t SET n = COALESCE(n, 1 / 0)",
        "INSERT INTO t (id, n) SELECT 10, 1 / 0 FROM t WHERE n = 77",
        "INSERT INTO t (id, n) SELECT 10, 1 / 0 FROM t LIMIT 0",
        "INSERT INTO t (id, n) SELECT id + 10, 1 / z FROM t WHERE z > 100",
    ] {
        assert_eq!(done(&mut one, sql).await.expect(sql).affected_rows, 0, "{sql}");
        assert!(warnings(&mut one).await.is_empty(), "{sql}");
        assert_eq!(all(&mut one).await, before, "{sql}");
    }
    done(&mut one, "DELETE FROM t").await.unwrap();
    for sql in ["DELETE FROM t WHERE n = 'abc'", "DELETE FROM t WHERE s = 0 OR 1 / 0"] {
        assert_eq!(done(&mut one, sql).await.expect(sql).affected_rows, 0, "{sql}");
    }
}

#[tokio::test]
async fn blanks_behind_a_number_are_no_error() {
    let mut one = numbers().await;
    let sql = "UPDATE t SET n = '70\\r\\n' + CAST('7\\t' AS SIGNED) WHERE id = 3";
    assert_eq!(done(&mut one, sql).await.unwrap().affected_rows, 1);
    assert!(warnings(&mut one).await.is_empty());
    assert_eq!(rows(&mut one, "SELECT n FROM t WHERE id = 3").await.unwrap(), ["77"]);
    let error = done(&mut one, "UPDATE t SET n = '70\\nx' + 0").await.unwrap_err();
    assert_eq!(error.code, 1292);
}

#[tokio::test]
async fn behind_a_limit_nothing_is_met() {
    let mut one = numbers().await;
    // The last row alone is divided by nothing.
    let sql = "UPDATE t SET n = 10 / z ORDER BY id DESC LIMIT 2";
    assert_eq!(done(&mut one, sql).await.unwrap().affected_rows, 2);
    assert_eq!(all(&mut one).await, ["1|0|0|abc", "2|2|5|12x", "3|5|2|7"]);
    let error = done(&mut one, "UPDATE t SET n = 10 / z ORDER BY id LIMIT 2").await.unwrap_err();
    assert_eq!(error.code, 1365);
    let sql = "INSERT INTO t (id, n) SELECT id + 10, 10 / z FROM t ORDER BY id DESC LIMIT 2";
    assert_eq!(done(&mut one, sql).await.unwrap().affected_rows, 2);
    assert_eq!(all(&mut one).await.len(), 5);
}

#[tokio::test]
async fn ignore_writes_on_and_says_how_often() {
    let mut one = numbers().await;
    let reply = done(&mut one, "UPDATE IGNORE t SET n = 10 / z WHERE id IN (1, 2)").await.unwrap();
    assert_eq!((reply.affected_rows, reply.warnings), (2, 1));
    assert_eq!(reply.info, "Rows matched: 2  Changed: 2  Warnings: 1");
    let insert = "INSERT IGNORE INTO t (id, n) VALUES (3, 1), (4, 1 / 0), (5, 'x'), (6, NULL)";
    let reply = done(&mut one, insert).await.unwrap();
    assert_eq!((reply.affected_rows, reply.warnings), (3, 3));
    assert_eq!(reply.info, "Records: 4  Duplicates: 1  Warnings: 3");
    let mut said = warnings(&mut one).await;
    said.sort();
    assert_eq!(
        said,
        [
            "Warning|1062|Duplicate entry '3' for key 't.PRIMARY'",
            "Warning|1365|Division by 0",
            "Warning|1366|Incorrect integer value: 'x' for column 'n' at row 3",
        ]
    );
    let reply = done(&mut one, "DELETE IGNORE FROM t WHERE s = 0").await.unwrap();
    assert_eq!((reply.affected_rows, reply.warnings), (1, 2));
    let abc = "Warning|1292|Truncated incorrect DOUBLE value: 'abc'";
    let said = warnings(&mut one).await;
    assert_eq!(said, [abc.to_owned(), abc.replace("abc", "12x")]);
}

#[tokio::test]
async fn a_prepared_statement_is_as_strict() {
    let mut one = numbers().await;
    let before = all(&mut one).await;
    let cancel = CancellationToken::new();
    for (sql, parameters, code) in [
        ("INSERT INTO t (id, n) VALUES (?, 1), (?, 10 / ?)", vec![8, 9, 0], 1365),
        ("UPDATE t SET n = ? / z", vec![10], 1365),
        ("DELETE FROM t WHERE s = ?", vec![0], 1292),
    ] {
        let prepared = one.prepare(sql.as_bytes()).await.unwrap();
        let values = parameters.into_iter().map(Value::Int).collect();
        let Err(error) = one.execute_prepared(prepared.id, values, &cancel).await else {
            panic!("{sql} is no error");
        };
        assert_eq!(error.code, code, "{sql}");
        assert_eq!(all(&mut one).await, before, "{sql}");
    }
    let prepared = one.prepare(b"INSERT IGNORE INTO t (id, n) VALUES (?, 10 / ?)").await.unwrap();
    let values = vec![Value::Int(9), Value::Int(0)];
    let Reply::Done(done) = one.execute_prepared(prepared.id, values, &cancel).await.unwrap()
    else {
        panic!("no rows are asked for");
    };
    assert_eq!((done.affected_rows, done.warnings), (1, 1));
}

#[tokio::test]
async fn a_statement_that_is_tried_again_warns_once() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE c (id INT PRIMARY KEY, n INT, q INT)").await.unwrap();
    done(&mut one, "INSERT INTO c VALUES (1, 0, 0), (2, 0, 0)").await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let mut session = in_database(&engine).await;
        // Without IGNORE and without strict mode, an UPDATE begins without waiting for rows.
        done(&mut session, "SET sql_mode = 'ERROR_FOR_DIVISION_BY_ZERO'").await.unwrap();
        tasks.push(tokio::spawn(async move {
            for _ in 0..25 {
                // By the key, and by a plan.
                for sql in [
                    "UPDATE c SET n = n + 1, q = 1 / 0 WHERE id = 1",
                    "UPDATE c SET n = n + 1, q = 1 / (n - n) WHERE id < 2",
                ] {
                    let reply = done(&mut session, sql).await.unwrap();
                    assert_eq!((reply.affected_rows, reply.warnings), (1, 1), "{sql}");
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(rows(&mut one, "SELECT n FROM c WHERE id = 1").await.unwrap(), ["200"]);
}
