//! Sessions: transactions, conflicts, snapshots, prepared statements, cancelling.

use execution::reply::Reply;
use futures::StreamExt;
use sql::session::Session;
use tokio_util::sync::CancellationToken;
use types::Value;

use super::harness::{done, engine, in_database, rows, session, warnings};

async fn accounts() -> (sql::engine::Engine, Session) {
    let engine = engine();
    let mut session = in_database(&engine).await;
    done(&mut session, "CREATE TABLE a (id INT PRIMARY KEY, v INT)").await.unwrap();
    done(&mut session, "INSERT INTO a VALUES (1, 10), (2, 20)").await.unwrap();
    (engine, session)
}

#[tokio::test]
async fn a_transaction_sees_its_own_writes_and_nobody_else_does() {
    let (engine, mut one) = accounts().await;
    let mut two = in_database(&engine).await;
    done(&mut one, "BEGIN").await.unwrap();
    done(&mut one, "UPDATE a SET v = 11 WHERE id = 1").await.unwrap();
    done(&mut one, "INSERT INTO a VALUES (3, 30)").await.unwrap();
    done(&mut one, "DELETE FROM a WHERE v = 20").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT * FROM a ORDER BY id").await.unwrap(), ["1|11", "3|30"]);
    assert_eq!(rows(&mut one, "SELECT v FROM a WHERE id = 1").await.unwrap(), ["11"]);
    assert_eq!(rows(&mut two, "SELECT * FROM a ORDER BY id").await.unwrap(), ["1|10", "2|20"]);
    done(&mut one, "ROLLBACK").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT SUM(v) FROM a").await.unwrap(), ["30"]);
    done(&mut one, "START TRANSACTION").await.unwrap();
    done(&mut one, "UPDATE a SET v = v + 1").await.unwrap();
    done(&mut one, "COMMIT").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT SUM(v) FROM a").await.unwrap(), ["32"]);
}

#[tokio::test]
async fn a_transaction_reads_one_snapshot() {
    let (engine, mut one) = accounts().await;
    let mut two = in_database(&engine).await;
    done(&mut one, "SET autocommit = 0").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT v FROM a WHERE id = 1").await.unwrap(), ["10"]);
    done(&mut two, "UPDATE a SET v = 99 WHERE id = 1").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT v FROM a WHERE id = 1").await.unwrap(), ["10"]);
    done(&mut one, "COMMIT").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT v FROM a WHERE id = 1").await.unwrap(), ["99"]);
}

#[tokio::test]
async fn the_second_of_two_optimistic_writers_conflicts_at_commit() {
    let (engine, mut one) = accounts().await;
    let mut two = in_database(&engine).await;
    done(&mut one, "BEGIN OPTIMISTIC").await.unwrap();
    done(&mut one, "UPDATE a SET v = 1 WHERE id = 1").await.unwrap();
    done(&mut two, "UPDATE a SET v = 2 WHERE id = 1").await.unwrap();
    let error = done(&mut one, "COMMIT").await.unwrap_err();
    assert_eq!((error.code, &error.sqlstate), (1213, b"40001"));
    assert!(!one.in_transaction());
    assert_eq!(rows(&mut one, "SELECT v FROM a WHERE id = 1").await.unwrap(), ["2"]);
}

#[tokio::test]
async fn a_failed_statement_takes_back_only_itself() {
    let (_engine, mut one) = accounts().await;
    done(&mut one, "BEGIN").await.unwrap();
    done(&mut one, "INSERT INTO a VALUES (3, 30)").await.unwrap();
    let error = done(&mut one, "INSERT INTO a VALUES (4, 40), (2, 0)").await.unwrap_err();
    assert_eq!(error.message, "Duplicate entry '2' for key 'a.PRIMARY'");
    let error = done(&mut one, "INSERT INTO a VALUES (5, 50), (5, 51)").await.unwrap_err();
    assert_eq!(error.code, 1062);
    done(&mut one, "COMMIT").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT id FROM a ORDER BY id").await.unwrap(), ["1", "2", "3"]);
}

#[tokio::test]
async fn autocommit_statements_repeat_themselves_until_they_win() {
    let (engine, _) = accounts().await;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let mut session = in_database(&engine).await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                done(&mut session, "UPDATE a SET v = v + 1 WHERE id = 1").await.unwrap();
                tokio::task::yield_now().await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let mut session = in_database(&engine).await;
    assert_eq!(rows(&mut session, "SELECT v FROM a WHERE id = 1").await.unwrap(), ["50"]);
}

#[tokio::test]
async fn a_token_shows_what_was() {
    let (engine, mut one) = accounts().await;
    let token = rows(&mut one, "SELECT isobar_snapshot('10m')").await.unwrap().remove(0);
    assert!(token.starts_with("isobar1-"), "{token}");
    done(&mut one, "DELETE FROM a").await.unwrap();
    let mut two = in_database(&engine).await;
    done(&mut two, &format!("SET isobar_snapshot = '{token}'")).await.unwrap();
    assert_eq!(rows(&mut two, "SELECT COUNT(*), SUM(v) FROM a").await.unwrap(), ["2|30"]);
    assert_eq!(rows(&mut two, "SELECT v FROM a WHERE id = 2").await.unwrap(), ["20"]);
    assert_eq!(done(&mut two, "INSERT INTO a VALUES (7, 7)").await.unwrap_err().code, 1792);
    let leases = rows(&mut two, "SELECT owner FROM information_schema.snapshot_leases").await;
    assert_eq!(leases.unwrap(), ["root@127.0.0.1"]);
    done(&mut two, "SET isobar_snapshot = ''").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT COUNT(*) FROM a").await.unwrap(), ["0"]);
    let forged = format!("SET isobar_snapshot = '{}0'", &token[..token.len() - 1]);
    assert_eq!(done(&mut two, &forged).await.unwrap_err().code, 1231);
    assert_eq!(rows(&mut two, "SELECT isobar_snapshot('x')").await.unwrap_err().code, 1210);
}

#[tokio::test]
async fn a_token_is_renewed_and_released_by_who_holds_it() {
    let (engine, mut one) = accounts().await;
    let take = "SELECT isobar_snapshot('1m', 'nightly job')";
    let token = rows(&mut one, take).await.unwrap().remove(0);
    let leases = "SELECT owner, expires_at FROM information_schema.snapshot_leases";
    let before = rows(&mut one, leases).await.unwrap().remove(0);
    assert!(before.starts_with("root@127.0.0.1 nightly job|"), "{before}");
    let mut two = in_database(&engine).await;
    done(&mut two, &format!("SET @token = '{token}'")).await.unwrap();
    let renewed = rows(&mut two, "SELECT isobar_renew(@token, '10m0s') > 0").await.unwrap();
    assert_eq!(renewed, ["1"]);
    let after = rows(&mut one, leases).await.unwrap().remove(0);
    assert!(after > before, "{before} {after}");
    let code = |error: values::error::SqlError| error.code;
    for (wrong, expected) in [
        ("SELECT isobar_renew('forged')", 1210),
        ("SELECT isobar_renew(@token, '25h')", 1210),
        ("SELECT isobar_release()", 1582),
    ] {
        assert_eq!(rows(&mut two, wrong).await.map_err(code), Err(expected), "{wrong}");
    }
    assert_eq!(rows(&mut two, "SELECT isobar_release(@token)").await.unwrap(), ["1"]);
    assert_eq!(rows(&mut one, leases).await.unwrap(), Vec::<String>::new());
    let lost = rows(&mut two, "SELECT isobar_renew(@token)").await;
    assert_eq!(lost.map_err(code), Err(9006));
    assert_eq!(rows(&mut two, "SELECT isobar_release(@token)").await.unwrap(), ["1"]);
}

#[tokio::test]
async fn the_life_of_versions_can_be_set_and_has_bounds() {
    let (_, mut one) = accounts().await;
    let shown = "SELECT life_ms FROM information_schema.garbage_collection";
    assert_eq!(rows(&mut one, shown).await.unwrap(), ["600000"]);
    done(&mut one, "SET GLOBAL tidb_gc_life_time = '1h30m'").await.unwrap();
    assert_eq!(rows(&mut one, shown).await.unwrap(), ["5400000"]);
    for wrong in ["'0s'", "'999h'", "'soon'"] {
        let set = format!("SET GLOBAL tidb_gc_life_time = {wrong}");
        assert!(done(&mut one, &set).await.is_err(), "{wrong}");
    }
    done(&mut one, "SET GLOBAL tidb_gc_life_time = DEFAULT").await.unwrap();
    assert_eq!(rows(&mut one, shown).await.unwrap(), ["600000"]);
}

#[tokio::test]
async fn a_snapshot_is_not_read_through_what_is_younger() {
    let (engine, mut one) = accounts().await;
    let token = rows(&mut one, "SELECT isobar_snapshot('10m')").await.unwrap().remove(0);
    let mut open = in_database(&engine).await;
    done(&mut open, "BEGIN").await.unwrap();
    assert_eq!(rows(&mut open, "SELECT COUNT(*) FROM a").await.unwrap(), ["2"]);
    done(&mut one, "CREATE UNIQUE INDEX by_v ON a (v)").await.unwrap();
    let mut two = in_database(&engine).await;
    done(&mut two, &format!("SET isobar_snapshot = '{token}'")).await.unwrap();
    for session in [&mut one, &mut two, &mut open] {
        assert_eq!(rows(session, "SELECT id FROM a WHERE v = 20").await.unwrap(), ["2"]);
        assert_eq!(rows(session, "SELECT SUM(id) FROM a WHERE v >= 20").await.unwrap(), ["2"]);
    }
    let updated = done(&mut open, "UPDATE a SET v = 21 WHERE v = 20").await.unwrap();
    assert_eq!(updated.affected_rows, 1);
    done(&mut one, "DROP TABLE a").await.unwrap();
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, v INT)").await.unwrap();
    for query in ["SELECT COUNT(*) FROM a", "SELECT v FROM a WHERE id = 1"] {
        for session in [&mut two, &mut open] {
            let error = rows(session, query).await.unwrap_err();
            assert_eq!(error.code, 1412, "{error}");
            assert!(error.message.contains("'d.a'"), "{error}");
        }
    }
    done(&mut two, "SET isobar_snapshot = ''").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT COUNT(*) FROM a").await.unwrap(), ["0"]);
}

#[tokio::test]
async fn a_snapshot_is_not_read_by_names_that_are_younger() {
    let (engine, mut one) = accounts().await;
    done(&mut one, "CREATE TABLE other (id INT PRIMARY KEY, v INT)").await.unwrap();
    done(&mut one, "INSERT INTO other VALUES (7, 70)").await.unwrap();
    let token = rows(&mut one, "SELECT isobar_snapshot('10m')").await.unwrap().remove(0);
    let mut two = in_database(&engine).await;
    done(&mut two, &format!("SET isobar_snapshot = '{token}'")).await.unwrap();
    let mut open = in_database(&engine).await;
    done(&mut open, "BEGIN").await.unwrap();
    assert_eq!(rows(&mut open, "SELECT COUNT(*) FROM a").await.unwrap(), ["2"]);
    done(&mut one, "RENAME TABLE a TO spare, other TO a, spare TO other").await.unwrap();
    done(&mut one, "CREATE TABLE b (id INT PRIMARY KEY)").await.unwrap();
    done(&mut one, "ALTER TABLE b RENAME TO c").await.unwrap();
    for session in [&mut two, &mut open] {
        for (query, expected) in [
            ("SELECT COUNT(*) FROM a", 1412),
            ("SELECT v FROM a WHERE id = 1", 1412),
            ("SELECT v FROM other WHERE id = 7", 1412),
            ("SELECT * FROM c", 1412),
            ("SELECT * FROM b", 1146),
        ] {
            assert_eq!(rows(session, query).await.unwrap_err().code, expected, "{query}");
        }
    }
    // Who locks rows reads the present, and so does who comes later.
    assert_eq!(rows(&mut open, "SELECT v FROM a FOR UPDATE").await.unwrap(), ["70"]);
    assert_eq!(rows(&mut one, "SELECT v FROM a").await.unwrap(), ["70"]);
    done(&mut open, "COMMIT").await.unwrap();
    assert_eq!(rows(&mut open, "SELECT SUM(v) FROM other").await.unwrap(), ["30"]);
    // Another spelling is the same name.
    let token = rows(&mut one, "SELECT isobar_snapshot('10m')").await.unwrap().remove(0);
    done(&mut one, "ALTER TABLE a RENAME TO A").await.unwrap();
    done(&mut two, &format!("SET isobar_snapshot = '{token}'")).await.unwrap();
    assert_eq!(rows(&mut two, "SELECT v FROM a").await.unwrap(), ["70"]);
}

#[tokio::test]
async fn prepared_statements_take_values() {
    let (_engine, mut one) = accounts().await;
    let cancel = CancellationToken::new();
    let insert = one.prepare(b"INSERT INTO a VALUES (?, ?)").await.unwrap();
    assert_eq!((insert.parameters, insert.columns.len()), (2, 0));
    let values = vec![Value::Int(3), Value::String("30".into())];
    one.execute_prepared(insert.id, values, &cancel).await.map(|_| ()).unwrap();
    let select = one.prepare(b"SELECT id, v FROM a WHERE v > ? ORDER BY id LIMIT ?").await.unwrap();
    assert_eq!(select.columns.len(), 2);
    let values = vec![Value::Int(15), Value::Int(5)];
    let Reply::Rows { mut batches, .. } =
        one.execute_prepared(select.id, values, &cancel).await.unwrap()
    else {
        panic!("no rows");
    };
    let mut count = 0;
    while let Some(batch) = batches.next().await {
        count += batch.unwrap().num_rows();
    }
    assert_eq!(count, 2);
    let tricky = one.prepare(b"SELECT ?").await.unwrap();
    assert_eq!(tricky.columns[0].name, "?");
    let text = Value::String("it's \\ \"q\"".into());
    let Reply::Rows { mut batches, .. } =
        one.execute_prepared(tricky.id, vec![text.clone()], &cancel).await.unwrap()
    else {
        panic!("no rows");
    };
    let batch = batches.next().await.unwrap().unwrap();
    assert_eq!(functions::value::value_at(batch.column(0), 0).unwrap(), text);
    one.close_prepared(tricky.id);
    let gone = one.execute_prepared(tricky.id, vec![], &cancel).await.map(|_| ()).unwrap_err();
    assert_eq!(gone.code, 1243);
}

/// More rows than a plan runs ahead of its reader: the last ones are read after the writes.
#[tokio::test]
async fn rows_of_a_cursor_are_those_of_its_beginning() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE c (id INT PRIMARY KEY, k INT, v INT, KEY by_k (k))")
        .await
        .unwrap();
    let first: Vec<String> = (1..=1_024).map(|n| format!("({n}, 1, 5)")).collect();
    done(&mut one, &format!("INSERT INTO c VALUES {}", first.join(","))).await.unwrap();
    for n in 0..6 {
        let double = format!("INSERT INTO c SELECT id + {}, 1, 5 FROM c", 1_024 << n);
        done(&mut one, &double).await.unwrap();
    }
    let cancel = CancellationToken::new();
    done(&mut one, "BEGIN").await.unwrap();
    done(&mut one, "INSERT INTO c VALUES (70000, 1, 5)").await.unwrap();
    for by in ["k = ?", "id > ?"] {
        let select = format!("SELECT id, v FROM c WHERE {by}");
        let select = one.prepare(select.as_bytes()).await.unwrap();
        let opened = one.open_prepared(select.id, vec![Value::Int(1)], &cancel).await.unwrap();
        let Reply::Rows { mut batches, .. } = opened else { panic!("no rows") };
        let mut read = vec![batches.next().await.unwrap().unwrap()];
        done(&mut one, "UPDATE c SET v = 6 WHERE id IN (65000, 70000)").await.unwrap();
        done(&mut one, "DELETE FROM c WHERE id = 65001").await.unwrap();
        done(&mut one, "INSERT INTO c VALUES (70001, 1, 7)").await.unwrap();
        while let Some(batch) = batches.next().await {
            read.push(batch.unwrap());
        }
        let count: usize = read.iter().map(|batch| batch.num_rows()).sum();
        assert_eq!(count, if by == "k = ?" { 65_537 } else { 65_536 }, "{by}");
        for batch in &read {
            for at in 0..batch.num_rows() {
                let value = functions::value::value_at(batch.column(1), at).unwrap();
                assert_eq!(value, Value::Int(5), "{by}");
            }
        }
        // As any other reading sees it by now.
        let now = "SELECT COUNT(*), SUM(v = 6), SUM(v = 7) FROM c WHERE id > 60000";
        assert_eq!(rows(&mut one, now).await.unwrap(), ["5537|2|1"]);
        for undo in ["DELETE FROM c WHERE id = 70001", "UPDATE c SET v = 5 WHERE v = 6"] {
            done(&mut one, undo).await.unwrap();
        }
        done(&mut one, "INSERT INTO c VALUES (65001, 1, 5)").await.unwrap();
    }
}

#[tokio::test]
async fn warnings_of_rows_are_counted_as_the_rows_are_computed() {
    let (_engine, mut one) = accounts().await;
    done(&mut one, "CREATE TABLE w (id INT PRIMARY KEY, n INT)").await.unwrap();
    done(&mut one, "INSERT INTO w VALUES (1, 0), (2, 5), (3, 0)").await.unwrap();
    let cancel = CancellationToken::new();
    let sql = b"SELECT id, 10 / n, 1 / 0 FROM w";
    let Reply::Rows { mut batches, warnings: count, .. } = one.execute(sql, &cancel).await.unwrap()
    else {
        panic!("no rows");
    };
    // The constant is computed when the query is planned, the rows whenever their threads come to it.
    assert!((1..=3).contains(&count.now()));
    while let Some(batch) = batches.next().await {
        batch.unwrap();
    }
    assert_eq!(count.now(), 3);
    assert_eq!(warnings(&mut one).await, ["Warning|1365|Division by 0"; 3]);
    // What is only described or explained warns of nothing.
    one.prepare(sql).await.unwrap();
    assert_eq!(warnings(&mut one).await.len(), 3);
    rows(&mut one, "EXPLAIN SELECT 1 / 0").await.unwrap();
    assert!(warnings(&mut one).await.is_empty());
}

#[tokio::test]
async fn a_cancelled_query_ends_with_1317() {
    let (_engine, mut one) = accounts().await;
    let cancel = CancellationToken::new();
    let Reply::Rows { mut batches, .. } =
        one.execute(b"SELECT * FROM a x, a y, a z", &cancel).await.unwrap()
    else {
        panic!("no rows");
    };
    cancel.cancel();
    let mut last = None;
    while let Some(batch) = batches.next().await {
        last = Some(batch);
    }
    assert_eq!(last.unwrap().unwrap_err().code, 1317);
    let error = one.execute(b"SELECT 1", &cancel).await.map(|_| ()).unwrap_err();
    assert_eq!(error.code, 1317);
}

#[tokio::test]
async fn times_follow_the_sessions_zone() {
    let (_engine, mut one) = accounts().await;
    done(&mut one, "CREATE TABLE z (id INT PRIMARY KEY, at TIMESTAMP, d DATETIME)").await.unwrap();
    done(&mut one, "SET time_zone = '+02:00'").await.unwrap();
    done(&mut one, "INSERT INTO z VALUES (1, '2024-06-01 12:00:00', '2024-06-01 12:00:00')")
        .await
        .unwrap();
    // The wire shows TIMESTAMP in the session's zone; here it is in UTC.
    assert_eq!(
        rows(&mut one, "SELECT at, d FROM z").await.unwrap(),
        ["2024-06-01 10:00:00|2024-06-01 12:00:00"]
    );
    let count =
        "SELECT COUNT(*) FROM z WHERE at = '2024-06-01 12:00:00' AND at = d AND HOUR(at) = 12";
    assert_eq!(rows(&mut one, count).await.unwrap(), ["1"]);
}

#[tokio::test]
async fn explain_says_which_engine_and_which_way() {
    let (_engine, mut one) = accounts().await;
    done(&mut one, "CREATE INDEX by_v ON a (v)").await.unwrap();
    for (sql, way) in [
        ("SELECT id FROM a WHERE v = 20", "1 range(s) of index by_v"),
        ("SELECT v FROM a WHERE id IN (1, 2)", "2 primary key point(s)"),
        ("SELECT v FROM a WHERE id > 1", "1 primary key range(s)"),
        ("SELECT v FROM a WHERE v + 1 = 2", "full scan"),
    ] {
        let lines = rows(&mut one, &format!("EXPLAIN {sql}")).await.unwrap();
        assert_eq!(lines[0], "d.a: rows (no columnar node serves this SQL node)");
        assert!(lines.last().unwrap().contains(way), "{sql}: {lines:?}");
    }
    let lines = rows(&mut one, "EXPLAIN ANALYZE SELECT SUM(v) FROM a").await.unwrap();
    assert!(lines.iter().any(|line| line.starts_with("1 rows in ")), "{lines:?}");
}

#[tokio::test]
async fn bytes_find_their_index_and_defaults_read_back() {
    let (_engine, mut one) = accounts().await;
    let table = "CREATE TABLE b (id INT PRIMARY KEY, v VARBINARY(8), n BIT(8) DEFAULT b'101', \
                 y YEAR DEFAULT 0, KEY by_v (v))";
    done(&mut one, table).await.unwrap();
    done(&mut one, "INSERT INTO b (id, v) VALUES (1, '12'), (2, X'35FF')").await.unwrap();
    done(&mut one, "SET @x = UNHEX('35FF')").await.unwrap();
    for condition in ["v = @x", "v = _binary X'35FF'", "v = X'35FF'", "v >= @x AND n > 0"] {
        let sql = format!("SELECT id FROM b WHERE {condition}");
        assert_eq!(rows(&mut one, &sql).await.unwrap(), ["2"], "{sql}");
        let lines = rows(&mut one, &format!("EXPLAIN {sql}")).await.unwrap();
        assert!(lines.last().unwrap().contains("range(s) of index by_v"), "{sql}: {lines:?}");
    }
    let shown = rows(&mut one, "SHOW CREATE TABLE b").await.unwrap().join("\n");
    assert!(shown.contains("DEFAULT b'101'") && shown.contains("DEFAULT '0000'"), "{shown}");
    let text = shown.split_once('|').map_or("", |(_, text)| text.trim());
    done(&mut one, "DROP TABLE b").await.unwrap();
    done(&mut one, text).await.unwrap();
    done(&mut one, "INSERT INTO b (id) VALUES (1)").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT n + y FROM b").await.unwrap(), ["5"]);
}

#[tokio::test]
async fn rows_read_for_update_by_an_optimistic_transaction_are_checked() {
    let (engine, mut one) = accounts().await;
    let mut two = in_database(&engine).await;
    done(&mut one, "SET tidb_txn_mode = 'optimistic'").await.unwrap();
    done(&mut one, "BEGIN").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT v FROM a WHERE id = 1 FOR UPDATE").await.unwrap(), ["10"]);
    done(&mut one, "UPDATE a SET v = 0 WHERE id = 2").await.unwrap();
    done(&mut two, "UPDATE a SET v = 2 WHERE id = 1").await.unwrap();
    assert_eq!(done(&mut one, "COMMIT").await.unwrap_err().code, 1213);
}

#[tokio::test]
async fn lists_of_whole_keys_are_looked_up_and_held() {
    let (engine, mut one) = accounts().await;
    let mut two = in_database(&engine).await;
    done(
        &mut one,
        "CREATE TABLE p (a INT, b VARCHAR(5), v INT, PRIMARY KEY (a, b), UNIQUE KEY (v))",
    )
    .await
    .unwrap();
    done(&mut one, "INSERT INTO p VALUES (1, 'x', 1), (1, 'y', 2), (2, 'x', 3), (2, 'y', 4)")
        .await
        .unwrap();
    for (condition, expected) in [
        ("(a, b) IN ((1, 'y'), (2, 'x'), (1, 'y'), (3, 'x'))", vec!["2", "3"]),
        ("(b, a) IN (('y', 1), ('x', 2))", vec!["2", "3"]),
        ("((a, b) = (2, 'y'))", vec!["4"]),
        ("(v) IN (4, 4, 1)", vec!["1", "4"]),
        // Not a list of whole keys: planned, with the same meaning.
        ("(a, b) IN ((1, 'y'), (2, NULL))", vec!["2"]),
        ("(a, v) IN ((1, 2), (2, 2))", vec!["2"]),
        ("(a, b) IN (('1', 'y'))", vec!["2"]),
        ("(a, b) NOT IN ((1, 'x'), (1, 'y'), (2, 'x'))", vec!["4"]),
        ("(a, a) IN ((1, 1)) AND b = 'x'", vec!["1"]),
    ] {
        let mut found =
            rows(&mut one, &format!("SELECT v FROM p WHERE {condition}")).await.unwrap();
        found.sort();
        assert_eq!(found, expected, "{condition}");
    }
    done(&mut one, "BEGIN OPTIMISTIC").await.unwrap();
    let held = "SELECT v FROM p WHERE (a, b) IN ((1, 'x'), (2, 'x')) FOR UPDATE";
    assert_eq!(rows(&mut one, held).await.unwrap(), ["1", "3"]);
    let changed = "UPDATE p SET v = v + 10 WHERE (a, b) IN ((1, 'y'), (2, 'y'))";
    done(&mut one, changed).await.unwrap();
    done(&mut two, "UPDATE p SET v = 9 WHERE a = 2 AND b = 'x'").await.unwrap();
    assert_eq!(done(&mut one, "COMMIT").await.unwrap_err().code, 1213);
    done(&mut one, "DELETE FROM p WHERE (a, b) IN ((1, 'x'), (1, 'y'))").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT v FROM p ORDER BY a, b").await.unwrap(), ["9", "4"]);
}

async fn code(session: &mut Session, sql: &str) -> u16 {
    done(session, sql).await.map(|_| 0).unwrap_or_else(|error| error.code)
}

#[tokio::test]
async fn settings_for_everybody_are_read_and_taken_by_new_sessions() {
    let (engine, mut one) = accounts().await;
    let all = ["@@global.innodb_lock_wait_timeout", "@@innodb_lock_wait_timeout"];
    let both = format!("SELECT {}, {}", all[0], all[1]);
    assert_eq!(rows(&mut one, &both).await.unwrap(), ["50|50"]);
    done(&mut one, "SET GLOBAL innodb_lock_wait_timeout = 7").await.unwrap();
    // Sessions that are there keep what they began with.
    assert_eq!(rows(&mut one, &both).await.unwrap(), ["7|50"]);
    let mut two = session(&engine);
    assert_eq!(rows(&mut two, &both).await.unwrap(), ["7|7"]);
    done(&mut two, "SET innodb_lock_wait_timeout = 3").await.unwrap();
    assert_eq!(rows(&mut two, &both).await.unwrap(), ["7|3"]);
    done(&mut two, "SET innodb_lock_wait_timeout = DEFAULT").await.unwrap();
    assert_eq!(rows(&mut two, &both).await.unwrap(), ["7|7"]);
    let show = "VARIABLES LIKE 'innodb%timeout'";
    let shown = "innodb_lock_wait_timeout";
    assert_eq!(rows(&mut one, &format!("SHOW {show}")).await.unwrap(), [format!("{shown}|50")]);
    assert_eq!(
        rows(&mut one, &format!("SHOW GLOBAL {show}")).await.unwrap(),
        [format!("{shown}|7")]
    );
    assert!(done(&mut one, "SET GLOBAL innodb_lock_wait_timeout = 0").await.is_err());
    done(&mut one, "SET GLOBAL innodb_lock_wait_timeout = DEFAULT").await.unwrap();
    assert_eq!(rows(&mut one, &both).await.unwrap(), ["50|50"]);

    done(&mut one, "SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED").await.unwrap();
    let level = "SELECT @@tx_isolation, @@global.transaction_isolation";
    assert_eq!(rows(&mut one, level).await.unwrap(), ["REPEATABLE-READ|READ-COMMITTED"]);
    let mut three = session(&engine);
    assert_eq!(rows(&mut three, level).await.unwrap(), ["READ-COMMITTED|READ-COMMITTED"]);

    // No session has these of its own: everybody sees them at once.
    let detect = "SELECT @@innodb_deadlock_detect, @@global.innodb_deadlock_detect";
    assert_eq!(rows(&mut two, detect).await.unwrap(), ["1|1"]);
    done(&mut one, "SET GLOBAL innodb_deadlock_detect = OFF").await.unwrap();
    assert_eq!(rows(&mut two, detect).await.unwrap(), ["0|0"]);
    assert_eq!(code(&mut two, "SET innodb_deadlock_detect = ON").await, 1229);
    done(&mut one, "SET @@global.innodb_deadlock_detect = 1").await.unwrap();
    let life = "SELECT @@tidb_gc_life_time, @@global.tidb_gc_life_time";
    assert_eq!(rows(&mut two, life).await.unwrap(), ["10m0s|10m0s"]);
    done(&mut one, "SET GLOBAL tidb_gc_life_time = '90m'").await.unwrap();
    assert_eq!(rows(&mut two, life).await.unwrap(), ["1h30m0s|1h30m0s"]);
    let show = "SHOW VARIABLES LIKE 'tidb_gc%'";
    assert_eq!(rows(&mut two, show).await.unwrap(), ["tidb_gc_life_time|1h30m0s"]);
    assert_eq!(code(&mut two, "SET tidb_gc_life_time = '1h'").await, 1229);
    // What changes the meaning of statements belongs to sessions.
    assert_eq!(code(&mut one, "SET GLOBAL sql_mode = ''").await, 1235);
    assert_eq!(code(&mut one, "SET GLOBAL no_such_thing = 1").await, 1193);
}
