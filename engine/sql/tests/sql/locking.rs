//! Rows that transactions lock: who waits, who gives way, and what each of them sees.

use std::time::Duration;

use sql::engine::Engine;
use sql::session::Session;
use tokio::task::JoinHandle;
use values::error::SqlError;

use super::harness::{Answer, Rows, done, engine, in_database, rows, run};

/// A table of four rows with an index on one column and a unique one on another.
async fn stock() -> (Engine, Session, Session) {
    let engine = engine();
    let mut one = in_database(&engine).await;
    let table = "CREATE TABLE s (id INT PRIMARY KEY, n INT, kind INT, code INT, \
                 KEY by_kind (kind), UNIQUE KEY by_code (code))";
    done(&mut one, table).await.unwrap();
    let values = "INSERT INTO s VALUES (1, 10, 1, 100), (2, 20, 1, 200), (3, 30, 2, 300), \
                  (4, 40, 2, 400)";
    done(&mut one, values).await.unwrap();
    let two = in_database(&engine).await;
    (engine, one, two)
}

/// Runs statements that must go through.
pub async fn all(session: &mut Session, statements: &[&str]) {
    for sql in statements {
        run(session, sql).await.map(|_| ()).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
}

/// The number of the error that a statement must meet.
pub async fn code(session: &mut Session, sql: &str) -> u16 {
    match run(session, sql).await {
        Ok(_) => panic!("{sql} went through"),
        Err(error) => error.code,
    }
}

/// A statement in the background, with its session.
pub type Later = JoinHandle<(Session, Result<Rows, SqlError>)>;

/// A statement in the background, which must be waiting soon.
pub async fn later(mut session: Session, sql: &'static str) -> Later {
    let task = tokio::spawn(async move {
        let answer = run(&mut session, sql).await.map(|answer| match answer {
            Answer::Rows(_, rows) => rows,
            Answer::Done(_) => Vec::new(),
        });
        (session, answer)
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!task.is_finished(), "{sql} did not wait");
    task
}

/// The end of such a statement.
pub async fn joined(task: Later) -> (Session, Result<Rows, SqlError>) {
    tokio::time::timeout(Duration::from_secs(20), task).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_writer_waits_and_sees_what_the_one_before_did() {
    for wait in [
        "UPDATE s SET n = n + 5 WHERE id = 1",
        "UPDATE s SET n = n + 5 WHERE kind = 1 AND n < 15",
        "UPDATE s SET n = n + 5 WHERE code = 100",
    ] {
        let (_engine, mut one, mut two) = stock().await;
        all(&mut one, &["BEGIN", "SELECT * FROM s WHERE id = 1 FOR UPDATE"]).await;
        all(&mut two, &["BEGIN", "SELECT n FROM s WHERE id = 1"]).await;
        let task = later(two, wait).await;
        all(&mut one, &["UPDATE s SET n = n + 1 WHERE id = 1", "COMMIT"]).await;
        let (mut two, answer) = joined(task).await;
        answer.unwrap();
        assert_eq!(rows(&mut two, "SELECT n FROM s WHERE id = 1").await.unwrap(), ["16"]);
        done(&mut two, "COMMIT").await.unwrap();
        assert_eq!(rows(&mut one, "SELECT n FROM s WHERE id = 1").await.unwrap(), ["16"], "{wait}");
    }
}

#[tokio::test]
async fn what_no_longer_matches_when_it_is_locked_is_not_changed() {
    let (_engine, mut one, mut two) = stock().await;
    all(&mut one, &["BEGIN", "UPDATE s SET kind = 9 WHERE id = 2"]).await;
    done(&mut two, "BEGIN").await.unwrap();
    let task = later(two, "DELETE FROM s WHERE kind = 1").await;
    done(&mut one, "COMMIT").await.unwrap();
    let (mut two, answer) = joined(task).await;
    answer.unwrap();
    done(&mut two, "COMMIT").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT id FROM s ORDER BY id").await.unwrap(), ["2", "3", "4"]);
}

#[tokio::test]
async fn plain_reads_keep_their_snapshot_and_locking_reads_see_the_present() {
    let (_engine, mut one, mut two) = stock().await;
    all(&mut one, &["BEGIN", "SELECT n FROM s WHERE id = 1"]).await;
    done(&mut two, "UPDATE s SET n = 11 WHERE id = 1").await.unwrap();
    for (sql, seen) in [
        ("SELECT n FROM s WHERE id = 1", "10"),
        ("SELECT n FROM s WHERE id = 1 FOR UPDATE", "11"),
        ("SELECT n FROM s WHERE id = 1 LOCK IN SHARE MODE", "11"),
        ("SELECT n + 0 FROM s WHERE id = 1 FOR SHARE", "11"),
        ("SELECT SUM(n) FROM s WHERE kind = 1 FOR UPDATE", "31"),
        ("SELECT n FROM s WHERE id = 1", "10"),
    ] {
        assert_eq!(rows(&mut one, sql).await.unwrap(), [seen], "{sql}");
    }
    all(&mut one, &["UPDATE s SET n = n * 2 WHERE id = 1", "COMMIT"]).await;
    assert_eq!(rows(&mut one, "SELECT n FROM s WHERE id = 1").await.unwrap(), ["22"]);
}

#[tokio::test]
async fn of_two_that_wait_for_each_other_one_is_rolled_back() {
    let (_engine, mut one, mut two) = stock().await;
    all(&mut one, &["BEGIN", "UPDATE s SET n = 1 WHERE id = 1"]).await;
    all(&mut two, &["BEGIN", "UPDATE s SET n = 2 WHERE id = 2"]).await;
    let task = later(one, "UPDATE s SET n = 1 WHERE id = 2").await;
    let error = run(&mut two, "UPDATE s SET n = 2 WHERE id = 1").await.err().unwrap();
    assert_eq!((error.code, &error.sqlstate), (1213, b"40001"));
    assert!(!two.in_transaction());
    let (mut one, answer) = joined(task).await;
    answer.unwrap();
    done(&mut one, "COMMIT").await.unwrap();
    assert_eq!(
        rows(&mut two, "SELECT n FROM s ORDER BY id").await.unwrap(),
        ["1", "1", "30", "40"]
    );
}

#[tokio::test]
async fn a_wait_that_takes_too_long_ends_the_statement_only() {
    let (engine, mut one, mut two) = stock().await;
    all(&mut one, &["BEGIN", "DELETE FROM s WHERE id = 1"]).await;
    assert_eq!(code(&mut two, "SET innodb_lock_wait_timeout = 0").await, 1231);
    all(&mut two, &["SET innodb_lock_wait_timeout = 1", "BEGIN"]).await;
    done(&mut two, "UPDATE s SET n = 21 WHERE id = 2").await.unwrap();
    assert_eq!(code(&mut two, "UPDATE s SET n = n + 1 WHERE kind = 1").await, 1205);
    assert!(two.in_transaction());
    assert_eq!(code(&mut two, "SELECT * FROM s FOR UPDATE NOWAIT").await, 3572);
    // A single statement waits as well.
    let mut three = in_database(&engine).await;
    done(&mut three, "SET innodb_lock_wait_timeout = 1").await.unwrap();
    assert_eq!(code(&mut three, "UPDATE s SET n = 0 WHERE id = 1").await, 1205);
    done(&mut two, "COMMIT").await.unwrap();
    done(&mut one, "ROLLBACK").await.unwrap();
    assert_eq!(
        rows(&mut one, "SELECT n FROM s ORDER BY id").await.unwrap(),
        ["10", "21", "30", "40"]
    );
}

#[tokio::test]
async fn locked_rows_are_skipped_on_request() {
    let (_engine, mut one, mut two) = stock().await;
    all(&mut one, &["BEGIN", "SELECT * FROM s WHERE id IN (1, 3) FOR UPDATE"]).await;
    done(&mut two, "BEGIN").await.unwrap();
    for (sql, seen) in [
        ("SELECT id FROM s ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED", vec!["2"]),
        ("SELECT id FROM s WHERE id = 3 FOR UPDATE SKIP LOCKED", vec![]),
        ("SELECT id, n * 2 FROM s ORDER BY id DESC FOR UPDATE SKIP LOCKED", vec!["4|80", "2|40"]),
        ("SELECT COUNT(*) FROM s FOR SHARE SKIP LOCKED", vec!["2"]),
    ] {
        assert_eq!(rows(&mut two, sql).await.unwrap(), seen, "{sql}");
    }
}

#[tokio::test]
async fn rows_are_shared_by_those_who_only_share_them() {
    for share in [
        "SELECT * FROM s WHERE id = 1 FOR SHARE",
        "SELECT * FROM s WHERE code = 100 LOCK IN SHARE MODE",
        "SELECT n + 0 FROM s WHERE kind = 1 AND n < 15 FOR SHARE",
        "SELECT id FROM s WHERE id = 1 FOR SHARE NOWAIT",
    ] {
        let (engine, mut one, mut two) = stock().await;
        all(&mut one, &["BEGIN", share]).await;
        all(&mut two, &["BEGIN", share]).await;
        let mut three = in_database(&engine).await;
        done(&mut three, "BEGIN").await.unwrap();
        let alone = "SELECT * FROM s WHERE id = 1 FOR UPDATE NOWAIT";
        assert_eq!(code(&mut three, alone).await, 3572, "{share}");
        // Who shares it and changes it as well waits for the other.
        let task = later(one, "UPDATE s SET n = n + 1 WHERE id = 1").await;
        done(&mut two, "COMMIT").await.unwrap();
        let (mut one, answer) = joined(task).await;
        answer.unwrap();
        done(&mut one, "COMMIT").await.unwrap();
        let now = "SELECT n FROM s WHERE id = 1 FOR UPDATE NOWAIT";
        assert_eq!(rows(&mut three, now).await.unwrap(), ["11"], "{share}");
    }
    // With FOR UPDATE among the clauses, everything is.
    let (_engine, mut one, mut two) = stock().await;
    let both = "SELECT a.id FROM s a JOIN s b ON a.id = b.id WHERE a.id = 1 \
                FOR SHARE OF a FOR UPDATE OF b";
    all(&mut one, &["BEGIN", both]).await;
    done(&mut two, "BEGIN").await.unwrap();
    assert_eq!(code(&mut two, "SELECT id FROM s WHERE id = 1 FOR SHARE NOWAIT").await, 3572);
}

#[tokio::test]
async fn joined_rows_are_locked_table_by_table() {
    let (_engine, mut one, mut two) = stock().await;
    all(
        &mut one,
        &[
            "CREATE TABLE k (kind INT PRIMARY KEY, name VARCHAR(9))",
            "INSERT INTO k VALUES (1, 'a')",
        ],
    )
    .await;
    let join = "SELECT s.id, k.name FROM s LEFT JOIN k ON s.kind = k.kind WHERE s.id > 1 \
                ORDER BY s.id FOR UPDATE";
    done(&mut one, "BEGIN").await.unwrap();
    assert_eq!(rows(&mut one, join).await.unwrap(), ["2|a", "3|NULL", "4|NULL"]);
    done(&mut two, "BEGIN").await.unwrap();
    for (sql, held) in [
        ("SELECT * FROM k FOR UPDATE NOWAIT", true),
        ("SELECT * FROM s WHERE id = 2 FOR UPDATE NOWAIT", true),
        ("SELECT * FROM s WHERE id = 1 FOR UPDATE NOWAIT", false),
    ] {
        assert_eq!(run(&mut two, sql).await.is_err(), held, "{sql}");
    }
    all(&mut two, &["ROLLBACK"]).await;
    all(&mut one, &["ROLLBACK", "BEGIN"]).await;
    let of = "SELECT * FROM s JOIN k ON s.kind = k.kind WHERE s.id = 2 FOR UPDATE OF k";
    assert_eq!(rows(&mut one, of).await.unwrap().len(), 1);
    done(&mut two, "BEGIN").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT n FROM s FOR UPDATE NOWAIT").await.unwrap().len(), 4);
    assert_eq!(code(&mut two, "SELECT * FROM k FOR UPDATE NOWAIT").await, 3572);
    assert_eq!(code(&mut two, "SELECT * FROM k FOR UPDATE OF s").await, 3568);
}

#[tokio::test]
async fn a_duplicate_is_reported_by_the_statement_and_unique_values_are_waited_for() {
    let (_engine, mut one, mut two) = stock().await;
    all(&mut one, &["BEGIN", "INSERT INTO s VALUES (5, 50, 3, 500)"]).await;
    assert_eq!(code(&mut one, "INSERT INTO s VALUES (6, 60, 3, 400)").await, 1062);
    assert_eq!(code(&mut one, "UPDATE s SET code = 100 WHERE id = 2").await, 1062);
    done(&mut one, "UPDATE s SET code = 101 WHERE id = 1").await.unwrap();
    done(&mut two, "BEGIN").await.unwrap();
    // The other may still go: then there is no duplicate.
    let task = later(two, "INSERT INTO s VALUES (7, 70, 3, 500)").await;
    done(&mut one, "ROLLBACK").await.unwrap();
    let (mut two, answer) = joined(task).await;
    answer.unwrap();
    done(&mut two, "DELETE FROM s WHERE id = 1").await.unwrap();
    // What a row leaves is free once it is gone.
    done(&mut one, "BEGIN").await.unwrap();
    let task = later(one, "INSERT INTO s VALUES (8, 80, 3, 100)").await;
    done(&mut two, "COMMIT").await.unwrap();
    let (mut one, answer) = joined(task).await;
    answer.unwrap();
    assert_eq!(code(&mut one, "INSERT INTO s VALUES (9, 90, 3, 500)").await, 1062);
    done(&mut one, "COMMIT").await.unwrap();
    let codes = rows(&mut one, "SELECT id, code FROM s ORDER BY id").await.unwrap();
    assert_eq!(codes, ["2|200", "3|300", "4|400", "7|500", "8|100"]);
}

#[tokio::test]
async fn a_statement_of_its_own_waits_for_rows_that_are_held() {
    let (_engine, mut one, two) = stock().await;
    all(&mut one, &["BEGIN", "UPDATE s SET n = n + 1 WHERE id = 1"]).await;
    let task = later(two, "UPDATE s SET n = n + 1 WHERE id = 1").await;
    done(&mut one, "COMMIT").await.unwrap();
    let (mut two, answer) = joined(task).await;
    answer.unwrap();
    assert_eq!(rows(&mut two, "SELECT n FROM s WHERE id = 1").await.unwrap(), ["12"]);
}

#[tokio::test]
async fn locks_outlive_a_savepoint_and_end_with_the_transaction() {
    let (_engine, mut one, mut two) = stock().await;
    all(&mut one, &["SET autocommit = 0", "SAVEPOINT a", "UPDATE s SET n = 0 WHERE id = 1"]).await;
    all(&mut one, &["ROLLBACK TO a"]).await;
    done(&mut two, "BEGIN").await.unwrap();
    assert_eq!(code(&mut two, "SELECT * FROM s WHERE id = 1 FOR UPDATE NOWAIT").await, 3572);
    one.close().await;
    assert_eq!(
        rows(&mut two, "SELECT n FROM s WHERE id = 1 FOR UPDATE NOWAIT").await.unwrap(),
        ["10"]
    );
}

#[tokio::test]
async fn a_killed_statement_stops_waiting_and_leaves_the_queue() {
    let (engine, mut one, mut two) = stock().await;
    all(&mut one, &["BEGIN", "UPDATE s SET n = 11 WHERE id = 1"]).await;
    done(&mut two, "BEGIN").await.unwrap();
    let cancel = tokio_util::sync::CancellationToken::new();
    let end = cancel.clone();
    let task = tokio::spawn(async move {
        let update = b"UPDATE s SET n = 12 WHERE id = 1";
        let answer = two.execute(update, &end).await.map(|_| ());
        (two, answer)
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    cancel.cancel();
    let (mut two, answer) =
        tokio::time::timeout(Duration::from_secs(1), task).await.unwrap().unwrap();
    assert_eq!(answer.unwrap_err().code, 1317);
    assert!(two.in_transaction());
    done(&mut two, "ROLLBACK").await.unwrap();
    done(&mut one, "COMMIT").await.unwrap();
    let mut three = in_database(&engine).await;
    all(&mut three, &["BEGIN", "SELECT * FROM s WHERE id = 1 FOR UPDATE NOWAIT"]).await;
}

/// A KILL meets a joined UPDATE where it waits for a key of its second table.
#[tokio::test]
async fn a_killed_update_of_two_tables_changes_neither() {
    for ignore in ["", "IGNORE "] {
        let (_engine, mut one, mut two) = stock().await;
        let tables = [
            "CREATE TABLE ja (id INT PRIMARY KEY, n INT)",
            "CREATE TABLE jb (id INT PRIMARY KEY, k INT UNIQUE)",
            "INSERT INTO ja VALUES (1, 10)",
            "INSERT INTO jb VALUES (1, 100)",
            "BEGIN",
            "INSERT INTO jb VALUES (2, 200)",
        ];
        all(&mut one, &tables).await;
        done(&mut two, "BEGIN").await.unwrap();
        let cancel = tokio_util::sync::CancellationToken::new();
        let end = cancel.clone();
        let update = format!("UPDATE {ignore}ja JOIN jb ON jb.id = ja.id SET n = 11, k = 200");
        let task = tokio::spawn(async move {
            let answer = two.execute(update.as_bytes(), &end).await.map(|_| ());
            (two, answer)
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!task.is_finished());
        cancel.cancel();
        let (mut two, answer) =
            tokio::time::timeout(Duration::from_secs(1), task).await.unwrap().unwrap();
        assert_eq!(answer.unwrap_err().code, 1317);
        done(&mut one, "ROLLBACK").await.unwrap();
        done(&mut two, "COMMIT").await.unwrap();
        assert_eq!(rows(&mut two, "SELECT n FROM ja").await.unwrap(), ["10"], "{ignore}");
        assert_eq!(rows(&mut two, "SELECT k FROM jb").await.unwrap(), ["100"], "{ignore}");
    }
}

#[tokio::test]
async fn what_was_waited_for_is_in_the_snapshot_that_is_read_then() {
    let (_engine, mut one, mut two) = stock().await;
    all(&mut one, &["BEGIN", "UPDATE s SET n = 11 WHERE id = 1"]).await;
    done(&mut two, "BEGIN").await.unwrap();
    let task = later(two, "SELECT n FROM s WHERE id = 1 FOR UPDATE").await;
    all(&mut one, &["UPDATE s SET n = 22 WHERE id = 2", "COMMIT"]).await;
    let (mut two, answer) = joined(task).await;
    assert_eq!(answer.unwrap(), [["11"]]);
    let sum = "SELECT SUM(n) FROM s WHERE kind = 1";
    assert_eq!(rows(&mut two, sum).await.unwrap(), ["33"]);
    done(&mut one, "UPDATE s SET n = 23 WHERE id = 2").await.unwrap();
    assert_eq!(rows(&mut two, sum).await.unwrap(), ["33"]);
}

#[tokio::test]
async fn read_committed_reads_the_present_statement_by_statement() {
    let (_engine, mut one, mut two) = stock().await;
    let read = "SELECT n FROM s WHERE id = 1";
    for (set, seen) in [
        ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", ["11", "10"]),
        ("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", ["11", "11"]),
        ("SET transaction_isolation = 'READ-COMMITTED'", ["11", "11"]),
        ("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", ["10", "10"]),
    ] {
        done(&mut one, set).await.unwrap();
        for seen in seen {
            all(&mut one, &["BEGIN", read]).await;
            done(&mut two, "UPDATE s SET n = 11 WHERE id = 1").await.unwrap();
            assert_eq!(rows(&mut one, read).await.unwrap(), [seen], "{set}");
            all(&mut one, &["UPDATE s SET n = n + 1 WHERE id = 1", "COMMIT"]).await;
            assert_eq!(rows(&mut one, read).await.unwrap(), ["12"], "{set}");
            done(&mut two, "UPDATE s SET n = 10 WHERE id = 1").await.unwrap();
        }
    }
    done(&mut one, "BEGIN").await.unwrap();
    assert_eq!(code(&mut one, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED").await, 1568);
}
