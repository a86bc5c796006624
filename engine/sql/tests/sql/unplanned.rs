//! Queries that rows answer without a plan give what a plan gives.

use sql::session::Session;
use values::column::ResultColumn;

use super::harness::{Answer, done, engine, in_database, rows, run};

/// Numbers that follow from a seed (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u64) as usize]
    }
}

async fn unplanned(session: &mut Session) -> u64 {
    let shown = rows(session, "SHOW STATUS LIKE 'Isobar_unplanned_queries'").await.unwrap();
    shown[0].split('|').nth(1).unwrap().parse().unwrap()
}

async fn tables() -> Session {
    let mut session = in_database(&engine()).await;
    for sql in [
        "CREATE TABLE t (id INT PRIMARY KEY, n BIGINT, u INT UNSIGNED, s VARCHAR(10), c CHAR(4), \
         d DATE, p DECIMAL(8,2), e ENUM('b', 'a'), KEY (n), KEY sn (s, n))",
        "CREATE TABLE k (a INT, b VARCHAR(4), n BIGINT UNSIGNED, PRIMARY KEY (a, b))",
    ] {
        done(&mut session, sql).await.unwrap();
    }
    let mut chance = Chance(7);
    for at in 0..300i64 {
        let or_null = |chance: &mut Chance, value: String| match chance.below(6) {
            0 => "NULL".to_owned(),
            _ => value,
        };
        let n = format!("{}", chance.below(40) as i64 - 20);
        let (n, u) = (or_null(&mut chance, n), chance.below(30).to_string());
        let text = chance.of(&["''", "'a'", "'A'", "'ab'", "'a '", "'ä'", "'zz'"]).to_owned();
        let (s, u) = (or_null(&mut chance, text), or_null(&mut chance, u));
        let d = format!("'2024-01-{:02}'", 1 + chance.below(28));
        let label = format!("{}", 1 + chance.below(2));
        let e = or_null(&mut chance, label);
        let row = format!("({}, {n}, {u}, {s}, 'c{}', {d}, {at}.25, {e})", at - 100, at % 7);
        done(&mut session, &format!("INSERT INTO t VALUES {row}")).await.unwrap();
    }
    for a in 0..20 {
        for b in ["x", "y", "Z"] {
            let row = format!("({a}, '{b}', {})", 18_446_744_073_709_551_615u64 - a);
            done(&mut session, &format!("INSERT INTO k VALUES {row}")).await.unwrap();
        }
    }
    session
}

fn condition(chance: &mut Chance) -> String {
    let (low, more) = (chance.below(300) as i64 - 110, chance.below(80) as i64);
    let text = chance.of(&["''", "'a'", "'A'", "'ab'", "'a '", "'ä'", "'b'"]);
    let operator = chance.of(&["=", "<", "<=", ">", ">=", "<>", "<=>"]);
    match chance.below(9) {
        0..=2 => format!("id BETWEEN {low} AND {}", low + more),
        3 => format!("id {operator} {low}"),
        4 => format!("n {operator} {}", low % 20),
        5 => format!("s {operator} {text}"),
        6 => format!("{} {operator} u", more % 30),
        7 => format!("n IN ({}, {}, {})", low % 20, more % 20, -more % 20),
        _ => format!("s = {text} AND n >= {}", low % 20),
    }
}

/// A query, and whether its order is that of all its rows.
fn query(chance: &mut Chance) -> (String, bool) {
    let where_ = match chance.below(3) {
        0 => format!("{} AND {}", condition(chance), condition(chance)),
        _ => condition(chance),
    };
    let shown = chance.of(&["*", "id, s", "s, n, id", "c, d, p, e, u, id"]);
    let limit = chance.of(&["", " LIMIT 5", " LIMIT 3, 7", " LIMIT 0"]);
    match chance.below(7) {
        0 => (format!("SELECT {shown} FROM t WHERE {where_}"), false),
        1 => (format!("SELECT {shown} FROM t WHERE {where_} ORDER BY id{limit}"), true),
        2 => (format!("SELECT {shown} FROM t WHERE {where_} ORDER BY s DESC, id{limit}"), true),
        3 => (format!("SELECT {shown} FROM t WHERE {where_} ORDER BY d, n, id DESC{limit}"), true),
        4 => (format!("SELECT DISTINCT s, n FROM t WHERE {where_} ORDER BY s, n{limit}"), true),
        5 => (format!("SELECT DISTINCT c FROM t WHERE {where_}"), false),
        _ => (
            format!(
                "SELECT COUNT(*), COUNT(n), SUM(n), SUM(u), MIN(s), MAX(d), MIN(n), MAX(u) FROM t WHERE {where_}"
            ),
            true,
        ),
    }
}

async fn asked(session: &mut Session, sql: &str) -> (Vec<ResultColumn>, Vec<Vec<String>>) {
    match run(session, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")) {
        Answer::Rows(columns, rows) => (columns, rows),
        Answer::Done(_) => panic!("{sql} answered no rows"),
    }
}

/// Asks queries, each beside one that a plan answers; how many were answered without one.
async fn compare(session: &mut Session, seed: u64, queries: usize) -> u64 {
    let mut chance = Chance(seed);
    let before = unplanned(session).await;
    for _ in 0..queries {
        let (sql, ordered) = query(&mut chance);
        let planned = sql.replace(" WHERE ", " WHERE 1 = 1 AND ");
        let (columns, mut right) = asked(session, &planned).await;
        // The first ones of a shape are planned, too.
        for _ in 0..4 {
            let (named, mut got) = asked(session, &sql).await;
            assert_eq!(named, columns, "{sql}");
            if !ordered {
                got.sort();
                right.sort();
            }
            assert_eq!(got, right, "{sql}");
        }
    }
    unplanned(session).await - before
}

#[tokio::test]
async fn rows_answer_what_a_plan_does() {
    let mut session = tables().await;
    let count = compare(&mut session, 11, 400).await;
    assert!(count > 300, "only {count} queries were answered without a plan");
}

/// Rows that are ordered by a part of what is shown are not next to their equals.
#[tokio::test]
async fn each_row_is_shown_once_whatever_their_order() {
    let mut session = tables().await;
    let sql = |where_: &str| {
        format!("SELECT DISTINCT s, c FROM t WHERE {where_}id BETWEEN -90 AND 190 ORDER BY c, c")
    };
    let (_, mut right) = asked(&mut session, &sql("1 = 1 AND ")).await;
    right.sort();
    let before = unplanned(&mut session).await;
    for _ in 0..4 {
        let (_, mut got) = asked(&mut session, &sql("")).await;
        got.sort();
        assert_eq!(got, right);
    }
    assert!(unplanned(&mut session).await > before);
}

#[tokio::test]
async fn rows_of_an_open_transaction_are_seen_without_a_plan() {
    let mut session = tables().await;
    for sql in [
        "BEGIN",
        "DELETE FROM t WHERE id BETWEEN 20 AND 40",
        "UPDATE t SET s = 'ab', n = n + 1 WHERE id < 0",
        "UPDATE t SET id = id + 1000 WHERE n = 3",
        "INSERT INTO t SELECT id + 500, n, u, s, c, d, p, e FROM t WHERE id BETWEEN 50 AND 60",
    ] {
        done(&mut session, sql).await.unwrap();
    }
    let count = compare(&mut session, 12, 150).await;
    assert!(count > 80, "only {count} queries were answered without a plan");
    done(&mut session, "ROLLBACK").await.unwrap();
    compare(&mut session, 13, 50).await;
}

#[tokio::test]
async fn which_queries_need_no_plan() {
    let mut session = tables().await;
    for (sql, without) in [
        ("SELECT s FROM t WHERE id BETWEEN 1 AND 9", true),
        ("SELECT SUM(n) FROM t WHERE id BETWEEN 1 AND 9", true),
        ("SELECT s FROM t WHERE id BETWEEN 1 AND 9 ORDER BY s", true),
        ("SELECT DISTINCT s FROM t WHERE id BETWEEN 1 AND 9 ORDER BY s", true),
        ("SELECT b FROM k WHERE a = 3", true),
        ("SELECT n FROM k WHERE a = 3 AND b > 'A' ORDER BY a, b LIMIT 2", true),
        ("SELECT id FROM t ORDER BY id LIMIT 5", true),
        ("SELECT MIN(b), MAX(n) FROM k WHERE a = 3", true),
        // A whole table, or what is not compared as it is stored.
        ("SELECT s FROM t WHERE c = 'c1'", false),
        ("SELECT id FROM t ORDER BY s LIMIT 5", false),
        ("SELECT s FROM t WHERE id > 1.5 AND id < 3.5", false),
        ("SELECT id FROM t WHERE n = '3'", false),
        ("SELECT id FROM t WHERE id = 3 AND e = 'a'", false),
        ("SELECT id + 1 FROM t WHERE id BETWEEN 1 AND 9", false),
        ("SELECT SUM(p) FROM t WHERE id BETWEEN 1 AND 9", false),
        ("SELECT id FROM t WHERE id BETWEEN 1 AND 9 ORDER BY e", false),
        ("SELECT s, COUNT(*) FROM t WHERE id BETWEEN 1 AND 9 GROUP BY s", false),
        ("SELECT t.id FROM t JOIN k ON k.a = t.id WHERE t.id BETWEEN 1 AND 9", false),
    ] {
        for _ in 0..3 {
            asked(&mut session, sql).await;
        }
        let before = unplanned(&mut session).await;
        asked(&mut session, sql).await;
        assert_eq!(unplanned(&mut session).await > before, without, "{sql}");
    }
}

/// A range of more rows than are looked at without a plan.
#[tokio::test]
async fn many_rows_take_a_plan() {
    let mut session = in_database(&engine()).await;
    done(&mut session, "CREATE TABLE m (id INT PRIMARY KEY, n INT)").await.unwrap();
    let values: Vec<String> = (0..12_000).map(|at| format!("({at}, {})", at % 100)).collect();
    for some in values.chunks(2_000) {
        done(&mut session, &format!("INSERT INTO m VALUES {}", some.join(","))).await.unwrap();
    }
    let sum = |low: i64| format!("SELECT COUNT(*), SUM(n) FROM m WHERE id >= {low}");
    for _ in 0..3 {
        assert_eq!(rows(&mut session, &sum(11_900)).await.unwrap(), ["100|4950"]);
    }
    let before = unplanned(&mut session).await;
    assert_eq!(rows(&mut session, &sum(11_800)).await.unwrap(), ["200|9900"]);
    assert_eq!(unplanned(&mut session).await, before + 1);
    assert_eq!(rows(&mut session, &sum(1_000)).await.unwrap(), ["11000|544500"]);
    assert_eq!(unplanned(&mut session).await, before + 1);
}

/// Rows of more bytes than are held without a plan.
#[tokio::test]
async fn large_rows_take_a_plan() {
    let mut session = in_database(&engine()).await;
    done(&mut session, "CREATE TABLE l (id INT PRIMARY KEY, s MEDIUMTEXT)").await.unwrap();
    for at in 0..12 {
        let sql = format!("INSERT INTO l VALUES ({at}, REPEAT('x', 1000000))");
        done(&mut session, &sql).await.unwrap();
    }
    let whole = |low: i64| format!("SELECT id, s FROM l WHERE id >= {low}");
    for _ in 0..3 {
        assert_eq!(rows(&mut session, &whole(10)).await.unwrap().len(), 2);
    }
    let before = unplanned(&mut session).await;
    assert_eq!(rows(&mut session, &whole(10)).await.unwrap().len(), 2);
    assert_eq!(unplanned(&mut session).await, before + 1);
    assert_eq!(rows(&mut session, &whole(0)).await.unwrap().len(), 12);
    assert_eq!(unplanned(&mut session).await, before + 1);
}
