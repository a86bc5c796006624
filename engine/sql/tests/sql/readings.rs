//! What each of the 280 statements is read as, or with which number it is refused.
//!
//! `readings.txt` was checked by eye against MySQL's and TiDB's meaning; any change of it is to be
//! checked likewise. `UPDATE_READINGS=1` writes it anew. A statement is shown with every operator in
//! parentheses, so that what binds to what can be seen, and with what a session over small tables
//! answers.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;

use sqlparser::ast::{Expr, VisitMut, VisitorMut};
use syntax::parser::parse;
use syntax::statement::Stmt;

use super::harness::{Answer, engine, in_database, run};

/// What the statements name.
const TABLES: [&str; 8] = [
    "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT, b INT, c INT, v VARCHAR(20), \
     KEY j (b), KEY i1 (c), KEY idx_a (a))",
    "CREATE TABLE t1 (id INT PRIMARY KEY, a INT, b INT)",
    "CREATE TABLE t2 (id INT PRIMARY KEY, a INT, b INT, KEY i2 (a))",
    "CREATE TABLE s (id INT PRIMARY KEY, a INT, b INT)",
    "CREATE TABLE a (x INT PRIMARY KEY, y INT)",
    "CREATE TABLE b (x INT PRIMARY KEY, z INT)",
    "CREATE TABLE 1t (1a INT PRIMARY KEY)",
    "CREATE TABLE p (id INT PRIMARY KEY)",
];

/// Every operator in parentheses.
struct Parentheses;

impl VisitorMut for Parentheses {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let operator = matches!(
            expr,
            Expr::BinaryOp { .. }
                | Expr::UnaryOp { .. }
                | Expr::Like { .. }
                | Expr::RLike { .. }
                | Expr::InList { .. }
                | Expr::InSubquery { .. }
                | Expr::Between { .. }
                | Expr::MemberOf(_)
                | Expr::IsNull(_)
                | Expr::IsNotNull(_)
                | Expr::IsTrue(_)
                | Expr::IsNotTrue(_)
                | Expr::IsUnknown(_)
                | Expr::IsNotUnknown(_)
                | Expr::AnyOp { .. }
                | Expr::AllOp { .. }
        );
        if operator {
            let inner = std::mem::replace(
                expr,
                Expr::Wildcard(sqlparser::ast::helpers::attached_token::AttachedToken::empty()),
            );
            *expr = Expr::Nested(Box::new(inner));
        }
        ControlFlow::Continue(())
    }
}

/// A statement as it was read.
fn reading(mut statement: Stmt) -> String {
    match &mut statement {
        Stmt::Query(query) => {
            _ = VisitMut::visit(query, &mut Parentheses);
            format!("Query {query}")
        }
        Stmt::SelectInto(query, names) => {
            _ = VisitMut::visit(query, &mut Parentheses);
            format!("SelectInto {names:?} {query}")
        }
        Stmt::Insert(insert) => {
            _ = VisitMut::visit(insert, &mut Parentheses);
            format!("Insert {insert}")
        }
        Stmt::Update(update) => {
            _ = VisitMut::visit(update, &mut Parentheses);
            format!("Update {update}")
        }
        Stmt::Delete(delete, _) => {
            _ = VisitMut::visit(delete, &mut Parentheses);
            format!("Delete {delete}")
        }
        Stmt::CreateTable(create) => {
            _ = VisitMut::visit(create, &mut Parentheses);
            format!("CreateTable {create}")
        }
        Stmt::CreateIndex(create) => format!("CreateIndex {create}"),
        Stmt::Explain { analyze, statement } => {
            format!("Explain analyze={analyze} {}", reading((**statement).clone()))
        }
        Stmt::Set(assignments) => {
            let mut text = "Set".to_owned();
            for one in assignments {
                let value = one.value.as_ref().map_or("DEFAULT".to_owned(), Expr::to_string);
                _ = write!(text, " {:?} = {value};", one.target);
            }
            text
        }
        other => bare(&format!("{other:?}")),
    }
}

/// What is printed of a tree without the places in the text.
fn bare(printed: &str) -> String {
    let mut out = String::new();
    let mut rest = printed;
    while let Some((before, after)) = rest.split_once(", span: Span(") {
        out.push_str(before);
        let end = after.find("))").map_or(after.len(), |end| end + 2);
        rest = after.get(end..).unwrap_or_default().trim_start_matches(')');
    }
    out + rest
}

async fn answer(statement: &str) -> String {
    let engine = engine();
    let mut session = in_database(&engine).await;
    for table in TABLES {
        run(&mut session, table).await.map(|_| ()).unwrap_or_else(|e| panic!("{table}: {e}"));
    }
    for table in ["t", "t1", "t2", "s"] {
        let rows = format!("INSERT INTO {table} (id, a, b) VALUES (1, 1, 2), (2, 3, 4)");
        run(&mut session, &rows).await.map(|_| ()).unwrap();
    }
    let answer = run(&mut session, statement);
    match tokio::time::timeout(std::time::Duration::from_secs(10), answer).await {
        Ok(Ok(Answer::Rows(columns, rows))) => {
            format!("{} rows of {} columns", rows.len(), columns.len())
        }
        Ok(Ok(Answer::Done(done))) => format!("done, {} rows", done.affected_rows),
        Ok(Err(error)) => format!("{} {}", error.code, error.message),
        Err(_) => panic!("{statement}: no answer"),
    }
}

#[tokio::test]
async fn every_statement_is_read_as_it_was_found_right() {
    let (mut parsed, mut unsupported, mut wrong) = (0, 0, 0);
    let mut now = String::new();
    for statement in include_str!("../statements.sql").lines() {
        if statement.is_empty() || statement.starts_with("##") {
            _ = writeln!(now, "{statement}");
            continue;
        }
        _ = writeln!(now, "{statement}");
        match parse(statement) {
            Ok(read) => {
                parsed += 1;
                _ = writeln!(now, "  = {}", reading(read));
                _ = writeln!(now, "  > {}", answer(statement).await);
            }
            Err(error) => {
                match error.code {
                    1235 => unsupported += 1,
                    _ => wrong += 1,
                }
                _ = writeln!(now, "  ! {} {}", error.code, error.message);
            }
        }
    }
    println!("{parsed} parsed, {unsupported} refused by name (1235), {wrong} refused otherwise");
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/readings.txt");
    if std::env::var_os("UPDATE_READINGS").is_some() {
        std::fs::write(&file, &now).unwrap();
    }
    let then = std::fs::read_to_string(&file).unwrap();
    let differ = differences(&then, &now);
    assert!(
        differ.is_empty(),
        "read otherwise than in tests/readings.txt (look at each; UPDATE_READINGS=1 writes it anew):\n{differ}"
    );
}

/// The lines of both that differ, under the statement that they belong to.
fn differences(then: &str, now: &str) -> String {
    let blocks = |text: &str| -> Vec<String> {
        let mut blocks: Vec<String> = Vec::new();
        for line in text.lines() {
            match blocks.last_mut() {
                Some(last) if line.starts_with("  ") => {
                    last.push('\n');
                    last.push_str(line);
                }
                _ => blocks.push(line.to_owned()),
            }
        }
        blocks
    };
    let (then, now) = (blocks(then), blocks(now));
    let gone = then.iter().filter(|block| !now.contains(block)).map(|block| format!("- {block}\n"));
    let come = now.iter().filter(|block| !then.contains(block)).map(|block| format!("+ {block}\n"));
    gone.chain(come).collect()
}
