//! Advisory locks of sessions, on one node and on two: who has them, who waits, and what ends them.

use std::time::Duration;

use execution::reply::Reply;
use sql::engine::Engine;
use sql::session::{Session, SessionInfo};
use storage::memory::MemoryStorage;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::{ColumnType, IntWidth, Value};
use values::error::SqlError;

use super::harness::{Answer, done, engine, engine_over, rows, run, warnings};

const BIGINT: ColumnType = ColumnType::Int { width: IntWidth::Big, unsigned: false };

fn session(engine: &Engine, id: u64) -> Session {
    let (user, host) = ("root".into(), "127.0.0.1".into());
    Session::new(engine.clone(), SessionInfo { id, user, host, found_rows: false })
}

/// Two sessions of one node.
fn two() -> (Session, Session) {
    let engine = engine();
    (session(&engine, 1), session(&engine, 2))
}

async fn one(session: &mut Session, sql: &str) -> String {
    let mut rows = rows(session, sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    assert_eq!(rows.len(), 1, "{sql}");
    rows.remove(0)
}

async fn error(session: &mut Session, sql: &str) -> (u16, String) {
    match run(session, sql).await {
        Ok(_) => panic!("{sql} went through"),
        Err(error) => (error.code, error.message),
    }
}

async fn code(session: &mut Session, sql: &str) -> u16 {
    error(session, sql).await.0
}

/// Asks until the answer is as wanted, a bounded time.
async fn until(session: &mut Session, sql: &str, wanted: &str) {
    let mut last = String::new();
    for _ in 0..500 {
        last = one(session, sql).await;
        if last == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{sql} is {last} for ever, not {wanted}");
}

type Later = JoinHandle<(Session, Result<Vec<String>, SqlError>)>;

/// A statement in the background, which must be waiting soon.
async fn later(mut session: Session, sql: &'static str, cancel: CancellationToken) -> Later {
    let task = tokio::spawn(async move {
        let answer = match session.execute(sql.as_bytes(), &cancel).await {
            Ok(Reply::Done(_)) => Ok(Vec::new()),
            Ok(_) => Ok(vec!["rows".to_owned()]),
            Err(error) => Err(error),
        };
        (session, answer)
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!task.is_finished(), "{sql} did not wait");
    task
}

async fn joined(task: Later) -> (Session, Result<Vec<String>, SqlError>) {
    tokio::time::timeout(Duration::from_secs(20), task).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_lock_excludes_others_until_it_is_released_as_often_as_it_was_taken() {
    let (mut a, mut b) = two();
    assert_eq!(one(&mut a, "SELECT IS_FREE_LOCK('x'), IS_USED_LOCK('x')").await, "1|NULL");
    assert_eq!(one(&mut a, "SELECT RELEASE_LOCK('x')").await, "NULL");
    assert_eq!(one(&mut a, "SELECT GET_LOCK('x', 10)").await, "1");
    // Whatever the case of its letters; another name is another lock.
    assert_eq!(one(&mut a, "SELECT GET_LOCK('X', 0), GET_LOCK('y', 0)").await, "1|1");
    let seen = "SELECT GET_LOCK('x', 0), RELEASE_LOCK('X'), IS_FREE_LOCK('x'), IS_USED_LOCK('x')";
    assert_eq!(one(&mut b, seen).await, "0|0|0|1");
    assert_eq!(one(&mut a, "SELECT IS_USED_LOCK('x') = CONNECTION_ID()").await, "1");
    assert_eq!(one(&mut a, "SELECT RELEASE_LOCK('x')").await, "1");
    assert_eq!(one(&mut b, "SELECT GET_LOCK('x', 0)").await, "0", "it was taken twice");
    assert_eq!(one(&mut a, "SELECT RELEASE_LOCK('x')").await, "1");
    assert_eq!(one(&mut b, "SELECT GET_LOCK('x', 0)").await, "1");
    assert_eq!(one(&mut a, "SELECT RELEASE_LOCK('x')").await, "0");
    assert_eq!(one(&mut a, "SELECT GET_LOCK('z', 0), GET_LOCK('y', 0)").await, "1|1");
    assert_eq!(one(&mut a, "SELECT RELEASE_ALL_LOCKS()").await, "3");
    assert_eq!(one(&mut a, "SELECT RELEASE_ALL_LOCKS()").await, "0");
    let free = "SELECT IS_FREE_LOCK('x'), IS_FREE_LOCK('y'), IS_FREE_LOCK('z')";
    assert_eq!(one(&mut a, free).await, "0|1|1");
}

#[tokio::test]
async fn locks_have_no_part_in_transactions_and_end_with_the_session() {
    let (mut a, mut b) = two();
    done(&mut a, "BEGIN").await.unwrap();
    assert_eq!(one(&mut a, "SELECT GET_LOCK('x', 1)").await, "1");
    for end in ["COMMIT", "ROLLBACK", "CREATE DATABASE d"] {
        done(&mut a, end).await.unwrap();
        assert_eq!(one(&mut b, "SELECT GET_LOCK('x', 0)").await, "0", "{end}");
    }
    a.reset().await;
    assert_eq!(one(&mut b, "SELECT GET_LOCK('x', 0)").await, "1", "COM_RESET_CONNECTION");
    b.close().await;
    assert_eq!(one(&mut a, "SELECT GET_LOCK('x', 0)").await, "1", "closed");
    let mut c = session(&engine(), 3);
    assert_eq!(one(&mut c, "SELECT GET_LOCK('x', 0)").await, "1", "another cluster");
}

#[tokio::test]
async fn what_a_session_held_that_was_dropped_is_free_soon() {
    let (mut a, mut b) = two();
    assert_eq!(one(&mut a, "SELECT GET_LOCK('x', 1), GET_LOCK('y', 1)").await, "1|1");
    drop(a);
    until(&mut b, "SELECT IS_FREE_LOCK('x') + IS_FREE_LOCK('y')", "2").await;
}

#[tokio::test]
async fn who_waits_is_granted_in_order() {
    let engine = engine();
    let mut a = session(&engine, 1);
    done(&mut a, "DO GET_LOCK('x', 1)").await.unwrap();
    let never = CancellationToken::new();
    let b = later(session(&engine, 2), "DO GET_LOCK('x', 60)", never.clone()).await;
    let c = later(session(&engine, 3), "SET @got = GET_LOCK('x', -1)", never).await;
    done(&mut a, "DO RELEASE_LOCK('x')").await.unwrap();
    let (mut b, answer) = joined(b).await;
    answer.unwrap();
    assert_eq!(one(&mut a, "SELECT IS_USED_LOCK('x')").await, "2");
    assert!(!c.is_finished(), "two sessions have one lock");
    assert_eq!(one(&mut a, "SELECT GET_LOCK('x', 0)").await, "0", "it is not before who waits");
    b.close().await;
    let (mut c, answer) = joined(c).await;
    answer.unwrap();
    assert_eq!(one(&mut c, "SELECT @got, IS_USED_LOCK('x')").await, "1|3");
}

#[tokio::test]
async fn a_wait_ends_with_its_time_and_with_kill() {
    let (mut a, mut b) = two();
    done(&mut a, "DO GET_LOCK('x', 0)").await.unwrap();
    let began = std::time::Instant::now();
    // Half a second is a whole one, as MySQL rounds.
    assert_eq!(one(&mut b, "SELECT GET_LOCK('x', 0.5)").await, "0");
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(one(&mut b, "SELECT GET_LOCK('x', 0.4), GET_LOCK('x', NULL)").await, "0|0");
    assert!(began.elapsed() < Duration::from_secs(9));
    let kill = CancellationToken::new();
    let task = later(b, "DO GET_LOCK('x', -5)", kill.clone()).await;
    kill.cancel();
    let (mut b, answer) = joined(task).await;
    assert_eq!(answer.unwrap_err().code, 1317);
    // It waits no longer: the lock is not given to it nor kept for it, and it may ask again.
    done(&mut a, "DO RELEASE_LOCK('x')").await.unwrap();
    until(&mut a, "SELECT GET_LOCK('x', 0)", "1").await;
    done(&mut a, "DO RELEASE_LOCK('x')").await.unwrap();
    assert_eq!(one(&mut b, "SELECT GET_LOCK('x', 5)").await, "1");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(one(&mut a, "SELECT IS_USED_LOCK('x')").await, "2", "given back behind its back");
}

#[tokio::test]
async fn a_circle_of_sessions_is_reported() {
    let (mut a, mut b) = two();
    done(&mut a, "DO GET_LOCK('x', 0)").await.unwrap();
    done(&mut b, "DO GET_LOCK('y', 0)").await.unwrap();
    let task = later(a, "DO GET_LOCK('y', 60)", CancellationToken::new()).await;
    assert_eq!(code(&mut b, "SELECT GET_LOCK('x', 60)").await, 3058);
    assert_eq!(one(&mut b, "SELECT IS_USED_LOCK('y')").await, "2", "it keeps what it has");
    assert_eq!(one(&mut b, "SELECT RELEASE_LOCK('y')").await, "1");
    let (mut a, answer) = joined(task).await;
    answer.unwrap();
    assert_eq!(one(&mut a, "SELECT RELEASE_ALL_LOCKS()").await, "2");
}

#[tokio::test]
async fn sessions_of_two_nodes_exclude_each_other_and_do_not_look_alike() {
    let storage = MemoryStorage::new();
    let node = |number| engine_over(storage.clone()).with_node(number);
    let (mut a, mut b) = (session(&node(1_000), 5), session(&node(1_001), 5));
    assert_eq!(one(&mut a, "SELECT GET_LOCK('x', 0)").await, "1");
    assert_eq!(one(&mut b, "SELECT GET_LOCK('x', 0), RELEASE_LOCK('x')").await, "0|0");
    assert_eq!(one(&mut a, "SELECT IS_USED_LOCK('x')").await, "5");
    let there = (1_000_u64 << 32 | 5).to_string();
    assert_eq!(one(&mut b, "SELECT IS_USED_LOCK('x')").await, there);
    assert_eq!(one(&mut b, "SELECT IS_USED_LOCK('x') = CONNECTION_ID()").await, "0");
}

#[tokio::test]
async fn names_and_arguments_are_checked_as_mysql_does() {
    let (mut a, mut b) = two();
    let long = "é".repeat(64);
    for good in ["'x y '", "7", "CONCAT('a', 1 + 1)", &format!("'{long}'")] {
        assert_eq!(one(&mut a, &format!("SELECT GET_LOCK({good}, 0)")).await, "1", "{good}");
        assert_eq!(one(&mut b, &format!("SELECT IS_FREE_LOCK({good})")).await, "0", "{good}");
    }
    for (call, wrong, text) in [
        ("GET_LOCK('', 0)", 3057, "Incorrect user-level lock name ''."),
        ("GET_LOCK(NULL, 0)", 3057, "Incorrect user-level lock name 'NULL'."),
        ("RELEASE_LOCK('')", 3057, "Incorrect user-level lock name ''."),
        ("IS_FREE_LOCK(NULL)", 3057, "Incorrect user-level lock name 'NULL'."),
        ("IS_USED_LOCK(NULL)", 3057, "Incorrect user-level lock name 'NULL'."),
    ] {
        assert_eq!(
            error(&mut a, &format!("SELECT {call}")).await,
            (wrong, text.to_owned()),
            "{call}"
        );
    }
    assert_eq!(code(&mut a, &format!("SELECT GET_LOCK('{long}x', 0)")).await, 4163);
    for call in ["GET_LOCK('x')", "RELEASE_LOCK()", "RELEASE_ALL_LOCKS(1)", "IS_FREE_LOCK('a','b')"]
    {
        assert_eq!(code(&mut a, &format!("SELECT {call}")).await, 1582, "{call}");
    }
}

#[tokio::test]
async fn calls_run_once_where_they_may_stand_and_are_refused_elsewhere() {
    let (mut a, mut b) = two();
    for (sql, answer) in [
        ("SELECT GET_LOCK('x', 1) AS l, CONNECTION_ID()", "1|1"),
        ("SELECT GET_LOCK('x', 1) = 1 FROM DUAL LIMIT 1", "1"),
        ("SELECT COALESCE(GET_LOCK('x', 1), 0), IF(GET_LOCK('x', 1) = 1, 'yes', 'no')", "1|yes"),
        ("SELECT @n := 'x', @l := GET_LOCK(@n, 1), IS_USED_LOCK(@n)", "x|1|1"),
        ("SELECT RELEASE_ALL_LOCKS()", "5"),
        // In the order in which they are written, pauses among them.
        (
            "SELECT GET_LOCK('z', 0), IS_FREE_LOCK('z'), SLEEP(0), RELEASE_LOCK('z'), IS_FREE_LOCK('z')",
            "1|0|0|1|1",
        ),
        ("SELECT RELEASE_ALL_LOCKS()", "0"),
    ] {
        assert_eq!(one(&mut a, sql).await, answer, "{sql}");
    }
    done(&mut a, "SET @l = (SELECT GET_LOCK('x', 0))").await.unwrap();
    assert_eq!(one(&mut a, "SELECT @l").await, "1");
    done(&mut a, "DO (SELECT RELEASE_LOCK('x'))").await.unwrap();
    done(&mut a, "CREATE DATABASE d").await.unwrap();
    done(&mut a, "CREATE TABLE d.t (id INT PRIMARY KEY)").await.unwrap();
    done(&mut a, "INSERT INTO d.t VALUES (1), (2)").await.unwrap();
    for sql in [
        "SELECT GET_LOCK('x', 0) FROM d.t",
        "SELECT id FROM d.t WHERE GET_LOCK('x', 0)",
        "SELECT GET_LOCK('x', 0) WHERE 1 = 0",
        "SELECT GET_LOCK('x', 0) UNION SELECT 1",
        "SELECT * FROM (SELECT GET_LOCK('x', 0)) AS q",
        "SELECT (SELECT GET_LOCK('x', 0))",
        "SELECT 0 AND GET_LOCK('x', 0)",
        "SELECT 1 OR GET_LOCK('x', 0)",
        "SELECT IF(0, GET_LOCK('x', 0), 2)",
        "SELECT COALESCE(1, GET_LOCK('x', 0))",
        "SELECT CASE WHEN 1 THEN 2 ELSE GET_LOCK('x', 0) END",
        "SELECT GET_LOCK(GET_LOCK('x', 0), 0)",
        "INSERT INTO d.t VALUES (GET_LOCK('x', 0) + 5)",
        "INSERT INTO d.t SELECT GET_LOCK('x', 0) + 5",
        "INSERT INTO d.t SET id = GET_LOCK('x', 0) + 5",
        "UPDATE d.t SET id = id + 10 WHERE GET_LOCK('x', 0)",
        "DELETE FROM d.t WHERE GET_LOCK('x', 0)",
    ] {
        assert_eq!(code(&mut a, sql).await, 1235, "{sql}");
        assert_eq!(one(&mut b, "SELECT IS_FREE_LOCK('x')").await, "1", "{sql}");
    }
    assert_eq!(rows(&mut a, "SELECT COUNT(*) FROM d.t").await.unwrap(), ["2"]);
    rows(&mut a, "EXPLAIN SELECT GET_LOCK('x', 0)").await.unwrap();
    assert_eq!(one(&mut b, "SELECT IS_FREE_LOCK('x')").await, "1", "EXPLAIN has run it");
    assert!(warnings(&mut b).await.is_empty());
}

#[tokio::test]
async fn a_prepared_call_runs_when_it_is_executed_and_is_a_bigint() {
    let (mut a, mut b) = two();
    let prepared = a.prepare(b"SELECT GET_LOCK(?, ?)").await.unwrap();
    assert_eq!(prepared.parameters, 2);
    assert_eq!(prepared.columns[0].ty, Some(BIGINT));
    assert_eq!(one(&mut b, "SELECT IS_FREE_LOCK('p')").await, "1", "preparing has run it");
    let cancel = CancellationToken::new();
    let values = vec![Value::String("p".into()), Value::Int(10)];
    match a.execute_prepared(prepared.id, values, &cancel).await.unwrap() {
        Reply::Rows { columns, .. } => assert_eq!(columns[0].ty, Some(BIGINT)),
        _ => panic!("no rows"),
    }
    assert_eq!(one(&mut b, "SELECT IS_USED_LOCK('p')").await, "1");
    let Answer::Rows(columns, _) = run(&mut b, "SELECT GET_LOCK('p', 0), 1").await.unwrap() else {
        panic!("no rows");
    };
    assert_eq!(columns[0].name, "GET_LOCK('p', 0)");
}
