//! No text of the libraries that plan and run queries reaches a client: whatever is refused is refused in our words.
//!
//! Over all statements of the scripts, over generated queries, and over every type in every place where a query may have
//! one. What a statement answers is no matter here.

use std::path::{Path, PathBuf};

use sql::session::Session;

use super::harness::{done, engine, in_database, run};

/// Texts that only those libraries' errors have; one a line.
const MARKS: &str = include_str!("../../../../tests/scripts/library_marks.txt");
/// Queries of tests/differential's grammar: `python tests/differential/grammar.py 12 50`.
const GENERATED: &str = include_str!("../generated.sql");

/// A column of every type, each with two values.
const COLUMNS: [(&str, &str, &str, &str); 22] = [
    ("ti", "TINYINT", "1", "-1"),
    ("bu", "BIGINT UNSIGNED", "18446744073709551615", "0"),
    ("n", "INT", "1", "2"),
    ("de", "DECIMAL(8,2)", "1.50", "-1"),
    ("dw", "DECIMAL(40,10)", "1.5", "9999999999999999999999999"),
    ("f", "FLOAT", "1.5", "0"),
    ("do", "DOUBLE", "1.5", "1e300"),
    ("c", "CHAR(8)", "'1.5'", "'a'"),
    ("v", "VARCHAR(40)", "'2020-02-29'", "'a'"),
    ("t", "TEXT", "'x'", "''"),
    ("bi", "BINARY(4)", "'1'", "X'00ff'"),
    ("vb", "VARBINARY(20)", "'1'", "X'00ff'"),
    ("bl", "BLOB", "'1'", "X'00ff'"),
    ("da", "DATE", "'2020-02-29'", "'1999-12-31'"),
    ("dt", "DATETIME(3)", "'2020-02-29 12:34:56.789'", "'1999-12-31'"),
    ("ts", "TIMESTAMP NULL", "'2020-02-29 12:34:56'", "'1999-12-31'"),
    ("tm", "TIME(2)", "'12:34:56.78'", "'-01:00:00'"),
    ("y", "YEAR", "2020", "1999"),
    ("e", "ENUM('x','a')", "'x'", "'a'"),
    ("st", "SET('x','a')", "'x,a'", "''"),
    ("b", "BIT(9)", "b'1'", "b'101'"),
    ("j", "JSON", "'[1]'", "'{\"a\":1}'"),
];

/// Places for one column, `{a}`.
const PLACES: [&str; 34] = [
    "SELECT DISTINCT {a} FROM m ORDER BY {a} DESC",
    "SELECT DISTINCT {a} IS TRUE, {a} IS NULL FROM m",
    "SELECT DISTINCT -{a} FROM m",
    "SELECT {a}, COUNT(*) FROM m GROUP BY {a} HAVING MIN({a}) IS NOT NULL",
    "SELECT {a} IS TRUE, COUNT(*) FROM m GROUP BY 1",
    "SELECT {a}, COUNT(*) FROM m GROUP BY {a} WITH ROLLUP",
    "SELECT RANK() OVER (ORDER BY {a}) FROM m",
    "SELECT SUM(id) OVER (PARTITION BY {a} ORDER BY {a} DESC) FROM m",
    "SELECT SUM(id) OVER (ORDER BY {a} RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM m",
    "SELECT SUM(id) OVER (ORDER BY {a} RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW) FROM m",
    "SELECT LAG({a}) OVER (ORDER BY id), FIRST_VALUE({a}) OVER (ORDER BY {a}), LEAD({a}, 1, {a}) OVER (ORDER BY id) FROM m",
    "SELECT SUM({a}) OVER (ORDER BY id), AVG({a}) OVER (), MAX({a}) OVER (ORDER BY id) FROM m",
    "SELECT MIN({a}), MAX({a}) FROM m",
    "SELECT SUM({a}), AVG({a}) FROM m",
    "SELECT STD({a}), VAR_SAMP({a}) FROM m",
    "SELECT BIT_OR({a}), BIT_AND({a}) FROM m",
    "SELECT SUM(DISTINCT {a}), AVG(DISTINCT {a}) FROM m",
    "SELECT g, COUNT(DISTINCT {a}) FROM m GROUP BY g HAVING SUM(de) >= 1",
    "SELECT COUNT(DISTINCT {a}), SUM(n), MAX(da) FROM m",
    "SELECT COUNT(DISTINCT {a}, n) FROM m",
    "SELECT GROUP_CONCAT({a} ORDER BY {a} SEPARATOR ';'), GROUP_CONCAT(DISTINCT {a}) FROM m",
    "SELECT JSON_ARRAYAGG({a}), JSON_OBJECTAGG(id, {a}) FROM m",
    "SELECT {a} FROM m UNION SELECT {a} FROM o ORDER BY 1",
    "SELECT {a} FROM m INTERSECT SELECT {a} FROM o",
    "SELECT m.id FROM m JOIN o USING ({a})",
    "SELECT id, (SELECT {a} FROM o WHERE o.id >= m.id ORDER BY o.id LIMIT 1) FROM m",
    "SELECT id, (SELECT MAX(o.{a}) FROM o WHERE o.{a} <= m.{a}) FROM m",
    "SELECT id FROM m WHERE EXISTS (SELECT 1 FROM o WHERE o.{a} = m.{a} OR o.id = m.id)",
    "SELECT id FROM m WHERE {a} > ALL (SELECT {a} FROM o) OR {a} = ANY (SELECT {a} FROM o)",
    "UPDATE m SET {a} = (SELECT o.{a} FROM o WHERE o.id >= m.id ORDER BY o.id LIMIT 1)",
    "INSERT INTO o SELECT * FROM m ON DUPLICATE KEY UPDATE {a} = VALUES({a})",
    "SELECT {a} FROM m WHERE {a} LIKE '1%' OR {a} REGEXP 'a' OR NOT {a}",
    "SELECT CAST({a} AS SIGNED), CAST({a} AS DECIMAL(9,3)), CAST({a} AS CHAR), CAST({a} AS DATE), CAST({a} AS TIME) FROM m",
    "WITH RECURSIVE r AS (SELECT {a} AS x, 1 AS z FROM m UNION ALL SELECT {a}, z + 1 FROM m JOIN r ON z < 3 AND r.x = m.{a}) SELECT * FROM r",
];

/// Places for two.
const PAIRS: [&str; 15] = [
    "SELECT id FROM m WHERE {a} = {b} OR {a} < {b} OR {a} <=> {b}",
    "SELECT id FROM m WHERE {a} IN (SELECT {b} FROM o)",
    "SELECT id FROM m WHERE {a} NOT IN (SELECT {b} FROM o WHERE o.id = m.id)",
    "SELECT id, {a} IN (SELECT {b} FROM o) FROM m",
    "SELECT {a} FROM m UNION ALL SELECT {b} FROM o",
    "SELECT {a} FROM m EXCEPT SELECT {b} FROM o",
    "SELECT CASE WHEN id > 1 THEN {a} ELSE {b} END FROM m",
    "SELECT IF(id > 1, {a}, {b}), COALESCE({a}, {b}), NULLIF({a}, {b}) FROM m",
    "SELECT {a} + {b}, {a} * {b}, {a} DIV 2, {a} % 3 FROM m",
    "SELECT GREATEST({a}, {b}), LEAST({a}, {b}) FROM m",
    "SELECT id FROM m WHERE {a} BETWEEN {b} AND {a} OR {a} IN ({b}, 1, 'x')",
    "SELECT m.id FROM m LEFT JOIN o ON m.{a} = o.{b}",
    "SELECT id FROM m WHERE {a} = (SELECT MAX(o.{b}) FROM o WHERE o.id <= m.id)",
    "SELECT CASE {a} WHEN {b} THEN 1 WHEN NULL THEN 2 END, CONCAT({a}, {b}), FIELD({a}, {b}) FROM m",
    "SELECT COUNT(DISTINCT {a}), SUM({b}), MAX({b}) FROM m GROUP BY g",
];

fn scripts(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "slt")).collect();
    found.sort();
    assert!(!found.is_empty(), "{}", folder.display());
    found
}

/// Statements that were run, and messages with a library's text.
#[derive(Default)]
struct Tally {
    statements: usize,
    refused: usize,
    wrong: Vec<String>,
}

impl Tally {
    async fn run(&mut self, session: &mut Session, sql: &str) {
        self.statements += 1;
        let Err(error) = run(session, sql).await else { return };
        self.refused += usize::from(error.code == 1105);
        if let Some(mark) = MARKS.lines().find(|mark| error.message.contains(mark)) {
            self.wrong.push(format!("{sql}\n    {error}\n    (has '{mark}')"));
        } else if error.code == 1105 && std::env::var_os("SHOW_REFUSED").is_some() {
            println!("{sql}\n    {error}");
        }
    }

    fn check(self, least: usize) {
        println!("{} statements, {} refused with 1105", self.statements, self.refused);
        assert!(self.statements >= least, "only {} statements", self.statements);
        assert!(self.wrong.is_empty(), "{}:\n{}", self.wrong.len(), self.wrong.join("\n"));
    }
}

/// Runs a test with the stack that the server's threads have.
fn with_stack<F: Future<Output = ()>>(work: impl FnOnce() -> F + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let thread = std::thread::Builder::new().stack_size(syntax::parser::chains::STACK);
    let done = thread.spawn(move || runtime.block_on(work())).unwrap().join();
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn scripts_show_no_text_of_a_library() {
    with_stack(|| async {
        let mut tally = Tally::default();
        let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        for folder in [own.join("tests/scripts"), own.join("../../tests/scripts")] {
            for file in scripts(&folder) {
                let mut session = in_database(&engine()).await;
                let text = std::fs::read_to_string(file).unwrap();
                for record in text.split("\n\n") {
                    let lines = record.lines().filter(|line| !line.starts_with('#'));
                    let lines: Vec<_> = lines.skip_while(|line| line.is_empty()).collect();
                    if let Some((first, rest)) = lines.split_first()
                        && (first.starts_with("statement") || first.starts_with("query"))
                    {
                        let sql = rest.iter().take_while(|line| **line != "----");
                        let sql = sql.copied().collect::<Vec<_>>().join("\n");
                        tally.run(&mut session, &sql).await;
                    }
                }
                session.close().await;
            }
        }
        tally.check(3000);
    });
}

#[test]
fn generated_queries_show_no_text_of_a_library() {
    with_stack(|| async {
        let mut tally = Tally::default();
        let mut session = in_database(&engine()).await;
        for sql in GENERATED.lines().filter(|line| !line.starts_with("--") && !line.is_empty()) {
            tally.run(&mut session, sql).await;
        }
        tally.check(500);
    });
}

async fn tables(session: &mut Session) {
    let columns = COLUMNS.iter().map(|(name, ty, ..)| format!("`{name}` {ty}"));
    let columns = columns.collect::<Vec<_>>().join(", ");
    let values = |pick: fn(&(&str, &str, &'static str, &'static str)) -> &'static str| {
        COLUMNS.iter().map(pick).collect::<Vec<_>>().join(", ")
    };
    let (ones, others) = (values(|column| column.2), values(|column| column.3));
    let nulls = vec!["NULL"; COLUMNS.len()].join(", ");
    for table in ["m", "o"] {
        done(session, &format!("CREATE TABLE {table} (id INT PRIMARY KEY, g INT, {columns})"))
            .await
            .unwrap();
        let rows = format!("(1, 1, {ones}), (2, 1, {others}), (3, 2, {nulls})");
        done(session, &format!("INSERT INTO {table} VALUES {rows}")).await.unwrap();
    }
}

#[test]
fn every_type_in_every_place_shows_no_text_of_a_library() {
    with_stack(|| async {
        let mut tally = Tally::default();
        let mut session = in_database(&engine()).await;
        tables(&mut session).await;
        for (name, ..) in COLUMNS {
            for place in PLACES {
                done(&mut session, "BEGIN").await.unwrap();
                tally.run(&mut session, &place.replace("{a}", &format!("`{name}`"))).await;
                done(&mut session, "ROLLBACK").await.unwrap();
            }
        }
        tally.check(600);
    });
}

#[test]
fn every_pair_of_types_shows_no_text_of_a_library() {
    with_stack(|| async {
        let mut tally = Tally::default();
        let mut session = in_database(&engine()).await;
        tables(&mut session).await;
        for (one, ..) in COLUMNS {
            for (other, ..) in COLUMNS {
                for place in PAIRS {
                    let sql = place.replace("{a}", &format!("`{one}`"));
                    tally.run(&mut session, &sql.replace("{b}", &format!("`{other}`"))).await;
                }
            }
        }
        tally.check(7000);
    });
}
