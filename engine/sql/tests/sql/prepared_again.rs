//! A prepared query that is run again gives what a plan gives, whatever has changed between its runs.

use sql::session::Session;
use syntax::constant::expression;
use types::Value;

use super::harness::{Answer, again, done, engine, in_database, rows, run};

async fn repeated(session: &mut Session) -> u64 {
    let shown = rows(session, "SHOW STATUS LIKE 'Isobar_repeated_queries'").await.unwrap();
    shown[0].split('|').nth(1).unwrap().parse().unwrap()
}

async fn table() -> Session {
    let mut session = in_database(&engine()).await;
    let create = "CREATE TABLE t (id INT PRIMARY KEY, n BIGINT, s VARCHAR(10), d DATE, KEY (n))";
    done(&mut session, create).await.unwrap();
    for id in 0..120 {
        let n = if id % 9 == 0 { "NULL".to_owned() } else { (id % 13 - 6).to_string() };
        let row = format!("({id}, {n}, 's{}', '2024-01-{:02}')", id % 5, 1 + id % 28);
        done(&mut session, &format!("INSERT INTO t VALUES {row}")).await.unwrap();
    }
    session
}

/// A prepared query, and its text.
async fn prepared<'a>(session: &mut Session, sql: &'a str) -> (u32, &'a str) {
    (session.prepare(sql.as_bytes()).await.unwrap().id, sql)
}

async fn answer(session: &mut Session, query: (u32, &str), values: &[Value]) -> Vec<Vec<String>> {
    match again(session, query, values.to_vec()).await {
        Ok(Answer::Rows(_, rows)) => rows,
        Ok(Answer::Done(_)) => panic!("{} answered no rows", query.1),
        Err(error) => panic!("{} with {values:?}: {error}", query.1),
    }
}

/// What a plan gives for a query with its parameters written in.
async fn planned(session: &mut Session, sql: &str, values: &[Value]) -> Vec<Vec<String>> {
    let mut text = sql.replace(" WHERE ", " WHERE 1 = 1 AND ");
    for value in values {
        text = text.replacen('?', &expression(value).to_string(), 1);
    }
    match run(session, &text).await {
        Ok(Answer::Rows(_, rows)) => rows,
        other => panic!("{text}: {:?}", other.err()),
    }
}

const QUERIES: [(&str, usize); 9] = [
    ("SELECT id, s FROM t WHERE id BETWEEN ? AND ? ORDER BY id", 2),
    ("SELECT * FROM t WHERE id >= ? AND n < ? ORDER BY s DESC, id LIMIT 5", 2),
    ("SELECT DISTINCT s, n FROM t WHERE id BETWEEN ? AND ? ORDER BY s, n", 2),
    ("SELECT DISTINCT n, s, n FROM t WHERE id BETWEEN ? AND ? ORDER BY n, s, n", 2),
    ("SELECT COUNT(*), SUM(n), MIN(s), MAX(d) FROM t WHERE id BETWEEN 20 AND ?", 1),
    ("SELECT COUNT(*), SUM(n) FROM t WHERE n = ?", 1),
    ("SELECT t.id AS x FROM t WHERE n IN (?, ?, 3) AND id < 80 ORDER BY t.id", 2),
    ("SELECT x.s FROM t AS x WHERE id > ? AND s = ? ORDER BY id", 2),
    ("SELECT id FROM t WHERE n <=> ? AND id BETWEEN ? AND 100 ORDER BY id", 2),
];

#[tokio::test]
async fn each_run_gives_what_a_plan_does() {
    let mut session = table().await;
    let texts = ["s1", "s4", "", "3"];
    for (sql, count) in QUERIES {
        let query = prepared(&mut session, sql).await;
        let before = repeated(&mut session).await;
        for round in 0..40_usize {
            let value = |nth: usize| match (round * 7 + nth * 3) % 11 {
                0 if round > 10 => Value::Null,
                1 if round > 10 => Value::String(texts[round % 4].into()),
                2 if round > 10 => Value::UInt(round as u64),
                _ if sql.contains("s = ?") && nth == 1 => Value::String(texts[round % 4].into()),
                _ => Value::Int((round * 5 + nth * 40) as i64 % 110 - 8),
            };
            let values: Vec<Value> = (0..count).map(value).collect();
            let right = planned(&mut session, sql, &values).await;
            assert_eq!(answer(&mut session, query, &values).await, right, "{sql} {values:?}");
        }
        let count = repeated(&mut session).await - before;
        assert!(count > 15, "{sql} was run as known {count} times");
    }
}

/// Runs a query until its runs are known.
async fn known(session: &mut Session, query: (u32, &str), values: &[Value]) {
    for _ in 0..4 {
        answer(session, query, values).await;
    }
    let before = repeated(session).await;
    answer(session, query, values).await;
    assert_eq!(repeated(session).await, before + 1, "{} is not known", query.1);
}

/// What stands where a literal could, and is neither one nor a parameter, is another value each time.
#[tokio::test]
async fn variables_of_the_user_are_read_each_time() {
    let mut session = table().await;
    let sql = "SELECT id FROM t WHERE id BETWEEN @low AND ?";
    let query = prepared(&mut session, sql).await;
    for low in [20, 21, 22, 23, 24, 25, 26] {
        done(&mut session, &format!("SET @low = {low}")).await.unwrap();
        assert_eq!(answer(&mut session, query, &[Value::Int(26)]).await.len(), 27 - low);
    }
}

/// A hint that is none is warned of each time.
#[tokio::test]
async fn hints_are_read_each_time() {
    let mut session = table().await;
    let sql = "SELECT /*+ NO_SUCH(t) */ id FROM t WHERE id BETWEEN ? AND ?";
    let query = prepared(&mut session, sql).await;
    for _ in 0..6 {
        answer(&mut session, query, &[Value::Int(3), Value::Int(5)]).await;
        let warnings = rows(&mut session, "SHOW WARNINGS").await.unwrap();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }
}

#[tokio::test]
async fn what_changes_between_two_runs_is_seen() {
    let mut session = table().await;
    let query = prepared(&mut session, "SELECT * FROM t WHERE id BETWEEN ? AND ?").await;
    let values = [Value::Int(10), Value::Int(13)];
    known(&mut session, query, &values).await;
    // Variables.
    done(&mut session, "SET sql_select_limit = 2").await.unwrap();
    assert_eq!(answer(&mut session, query, &values).await.len(), 2);
    done(&mut session, "SET sql_select_limit = DEFAULT").await.unwrap();
    known(&mut session, query, &values).await;
    done(&mut session, "SET isobar_read_engines = 'columns'").await.unwrap();
    assert!(again(&mut session, query, values.to_vec()).await.is_err());
    done(&mut session, "SET isobar_read_engines = DEFAULT").await.unwrap();
    // Rows, those of an open transaction included.
    known(&mut session, query, &values).await;
    done(&mut session, "BEGIN").await.unwrap();
    done(&mut session, "DELETE FROM t WHERE id = 11").await.unwrap();
    done(&mut session, "UPDATE t SET s = 'own' WHERE id = 12").await.unwrap();
    let seen = answer(&mut session, query, &values).await;
    assert_eq!((seen.len(), seen[1][2].as_str()), (3, "own"));
    done(&mut session, "ROLLBACK").await.unwrap();
    assert_eq!(answer(&mut session, query, &values).await.len(), 4);
    // The table's columns, and the table.
    known(&mut session, query, &values).await;
    done(&mut session, "ALTER TABLE t ADD COLUMN z INT NOT NULL DEFAULT 7").await.unwrap();
    assert_eq!(answer(&mut session, query, &values).await[0], ["10", "4", "s0", "2024-01-11", "7"]);
    known(&mut session, query, &values).await;
    done(&mut session, "DROP TABLE t").await.unwrap();
    assert!(again(&mut session, query, values.to_vec()).await.is_err());
    done(&mut session, "CREATE TABLE t (x INT, id VARCHAR(5) PRIMARY KEY)").await.unwrap();
    done(&mut session, "INSERT INTO t VALUES (1, '11'), (2, '9'), (3, 'a')").await.unwrap();
    assert_eq!(answer(&mut session, query, &values).await, [["1", "11"]]);
}
