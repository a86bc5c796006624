//! The types of the columns of WITH ROLLUP as clients get them: the same as without.

use types::ColumnType;

use super::harness::{Answer, done, engine, in_database, run};

/// Type and fixed digits of each column.
async fn columns(
    session: &mut sql::session::Session,
    sql: &str,
) -> Vec<(Option<ColumnType>, Option<u8>)> {
    match run(session, sql).await.unwrap() {
        Answer::Rows(columns, _) => columns.into_iter().map(|c| (c.ty, c.decimals)).collect(),
        Answer::Done(_) => panic!("no rows: {sql}"),
    }
}

#[tokio::test]
async fn totals_change_no_type_and_no_digits() {
    let mut one = in_database(&engine()).await;
    let table = "CREATE TABLE t (id INT PRIMARY KEY, g INT, d DOUBLE, n INT, p DECIMAL(6,2), \
                 m DATETIME(3), k DATETIME, s TIME(1), y YEAR, e ENUM('a', 'b'))";
    done(&mut one, table).await.unwrap();
    for (shown, by) in [
        ("g, MAX(d), COUNT(DISTINCT n)", "g"),
        ("g, COUNT(n), MAX(d), MAX(ROUND(d, 1)), SUM(d)", "g"),
        ("MAX(d), g, n, COUNT(*), MIN(n), MAX(p)", "g, n"),
        ("d, COUNT(*), MAX(n)", "d"),
        ("g, d, MAX(n), MAX(d)", "g, d"),
        ("g, ROUND(d, 1), COUNT(*), MAX(d)", "g, ROUND(d, 1)"),
        ("g, MAX(k), MAX(m), MAX(k)", "g"),
        ("m, k, MAX(k), MAX(s), MAX(m)", "m, k"),
        ("k, m, MAX(m), MAX(s)", "k, m"),
        ("g, y, MAX(n), MAX(y), MAX(g)", "g, y"),
        ("g, e, MAX(e), COUNT(*)", "g, e"),
        ("g, AVG(n), SUM(p), MIN(d), GROUP_CONCAT(n)", "g"),
    ] {
        let sql = format!("SELECT {shown} FROM t GROUP BY {by}");
        let plain = columns(&mut one, &sql).await;
        assert_eq!(columns(&mut one, &format!("{sql} WITH ROLLUP")).await, plain, "{sql}");
        let sql = format!("SELECT * FROM (SELECT {} FROM t GROUP BY {by}", named(shown));
        let plain = columns(&mut one, &format!("{sql}) x")).await;
        assert_eq!(columns(&mut one, &format!("{sql} WITH ROLLUP) x")).await, plain, "{sql}");
    }
}

/// A select list whose columns have names of their own.
fn named(shown: &str) -> String {
    let mut depth = 0;
    let mut items = vec![String::new()];
    for c in shown.chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        match (c, depth) {
            (',', 0) => items.push(String::new()),
            _ => items.last_mut().unwrap().push(c),
        }
    }
    let items = items.iter().enumerate().map(|(at, item)| format!("{item} AS c{at}"));
    items.collect::<Vec<_>>().join(", ")
}
