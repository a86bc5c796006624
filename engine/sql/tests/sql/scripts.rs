//! Runs every script under `tests/scripts`, each over an empty store, and reports all that is wrong.

use std::path::PathBuf;

use async_trait::async_trait;
use sql::session::Session;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};
use values::error::SqlError;

use super::harness::{Answer, engine_in_step, in_database, run};

struct Database(Session);

/// Whether a query has the same rows when it is asked again, and nothing else sees that it was.
fn is_repeatable(sql: &str) -> bool {
    let sql = sql.to_uppercase();
    let changes = [
        "RAND(",
        "UUID",
        "LOCK",
        "LAST_INSERT_ID",
        "ISOBAR_",
        "SLEEP",
        "@",
        "ROW_COUNT",
        "FOUND_ROWS",
        "WARNING",
    ];
    sql.starts_with("SELECT")
        && sql.contains("WHERE")
        && !changes.iter().any(|word| sql.contains(word))
}

#[async_trait]
impl AsyncDB for Database {
    type Error = SqlError;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, SqlError> {
        let answer = run(&mut self.0, sql).await?;
        // What was kept of a query must be what it was.
        if let Answer::Rows(_, rows) = &answer
            && is_repeatable(sql)
        {
            // The second time it is kept, the third time used.
            run(&mut self.0, sql).await?;
            let Answer::Rows(_, again) = run(&mut self.0, sql).await? else {
                panic!("{sql} has rows once, and then none");
            };
            let sorted = |rows: &[Vec<String>]| {
                let mut rows = rows.to_vec();
                rows.sort();
                rows
            };
            assert_eq!(sorted(&again), sorted(rows), "{sql}, as it was kept");
        }
        Ok(match answer {
            Answer::Done(done) => DBOutput::StatementComplete(done.affected_rows),
            Answer::Rows(columns, rows) => {
                let rows = rows
                    .into_iter()
                    .map(|row| {
                        row.into_iter()
                            .map(|cell| if cell.is_empty() { "(empty)".into() } else { cell })
                            .collect()
                    })
                    .collect();
                DBOutput::Rows { types: vec![DefaultColumnType::Any; columns.len()], rows }
            }
        })
    }

    async fn shutdown(&mut self) {
        self.0.close().await;
    }

    fn engine_name(&self) -> &str {
        "isobar"
    }
}

#[test]
fn scripts_show_what_they_say() {
    // With the stack that the server's threads have.
    let thread = std::thread::Builder::new().stack_size(syntax::parser::chains::STACK);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let done = thread.spawn(move || runtime.block_on(run_scripts())).unwrap().join();
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

async fn run_scripts() {
    let folder = std::env::var("TRY_SCRIPTS")
        .map(PathBuf::from)
        .unwrap_or(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts"));
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let mut wrong = Vec::new();
    for file in files {
        let mut runner =
            Runner::new(|| async { Ok(Database(in_database(&engine_in_step()).await)) });
        for record in sqllogictest::parse_file(&file).unwrap() {
            if let Err(error) = runner.run_async(record).await {
                wrong.push(error.display(false).to_string());
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
