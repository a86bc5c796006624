//! Queries whose columns fail: an error, and rows only where they were asked for or read little.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use execution::analytic::{Analytic, AnalyticAnswer, AnalyticQuery};
use sql::engine::Engine;
use sql::session::Session;
use types::TableId;
use types::columns::NOT_NULL;
use values::error::SqlError;

use super::harness::{Answer, done, engine, in_database, rows, run, warnings};

/// Columnar nodes that hold everything and answer nothing.
struct Broken {
    code: u16,
    queries: AtomicUsize,
}

#[async_trait]
impl Analytic for Broken {
    async fn available(&self, _: TableId) -> bool {
        true
    }

    async fn query(&self, _: AnalyticQuery) -> Result<AnalyticAnswer, SqlError> {
        self.queries.fetch_add(1, Ordering::Relaxed);
        Err(SqlError::received(self.code, *b"HY000", "no columnar node answers"))
    }

    async fn explain(&self, _: AnalyticQuery, _: bool) -> Result<Vec<String>, SqlError> {
        Err(SqlError::received(self.code, *b"HY000", "no columnar node answers"))
    }
}

/// A session beside columnar nodes that fail with this number.
async fn beside(code: u16) -> (Session, Arc<Broken>) {
    let tier = Arc::new(Broken { code, queries: AtomicUsize::new(0) });
    let engine: Engine = engine().with_analytic(tier.clone());
    (with_table(&engine).await, tier)
}

/// A session with a table of three rows that has a columnar replica.
async fn with_table(engine: &Engine) -> Session {
    let mut session = in_database(engine).await;
    for statement in [
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)",
        "ALTER TABLE t SET COLUMNAR REPLICA 1",
    ] {
        done(&mut session, statement).await.unwrap();
    }
    session
}

/// Columnar nodes that answer every query with the number 3.
struct Answering;

#[async_trait]
impl Analytic for Answering {
    async fn available(&self, _: TableId) -> bool {
        true
    }

    async fn query(&self, _: AnalyticQuery) -> Result<AnalyticAnswer, SqlError> {
        let count: ArrayRef = Arc::new(Int64Array::from(vec![3]));
        let says = [(NOT_NULL.to_owned(), String::new())];
        let field = Field::new("count", DataType::Int64, true).with_metadata(says.into());
        let schema = Arc::new(Schema::new(vec![field]));
        let batch = RecordBatch::try_new(schema, vec![count]).unwrap();
        let (schema, coordinator) = (batch.schema(), "10.0.0.7:4002".to_owned());
        let batches = Box::pin(futures::stream::iter([Ok(batch)]));
        Ok(AnalyticAnswer { schema, batches, coordinator })
    }

    async fn explain(&self, _: AnalyticQuery, _: bool) -> Result<Vec<String>, SqlError> {
        Ok(Vec::new())
    }
}

/// What SHOW STATUS says of the session's last query.
async fn last_query(session: &mut Session, what: &str) -> String {
    let show = format!("SHOW STATUS LIKE 'Isobar_last_query_{what}'");
    let row = rows(session, &show).await.unwrap().remove(0);
    row.split_once('|').unwrap().1.to_owned()
}

const SCAN: &str = "SELECT SUM(v) FROM t";

#[tokio::test]
async fn rows_are_not_scanned_where_columns_fail() {
    let (mut session, tier) = beside(9013).await;
    let error = rows(&mut session, SCAN).await.unwrap_err();
    assert_eq!(error.code, 9013, "{error}");
    for words in ["no columnar node answers", "isobar_fallback = 'rows'"] {
        assert!(error.message.contains(words), "{error}");
    }
    assert_eq!(tier.queries.load(Ordering::Relaxed), 1, "the tier tries every replica itself");
    // What the data itself is to blame for is said as it is.
    let (mut session, _) = beside(1690).await;
    let error = rows(&mut session, SCAN).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (1690, "no columnar node answers"));
}

#[tokio::test]
async fn rows_answer_by_key_and_where_they_were_asked_for() {
    let (mut session, tier) = beside(9013).await;
    assert_eq!(rows(&mut session, "SELECT v FROM t WHERE id = 2").await.unwrap(), ["20"]);
    assert_eq!(rows(&mut session, "SELECT SUM(v) FROM t WHERE id < 3").await.unwrap(), ["30"]);
    assert_eq!(tier.queries.load(Ordering::Relaxed), 0);
    // Columns first, as the hint says; but by key rows would do.
    let hinted = "SELECT /*+ READ_FROM_STORAGE(COLUMNS[t]) */ SUM(v) FROM t WHERE id < 3";
    assert_eq!(rows(&mut session, hinted).await.unwrap(), ["30"]);
    assert!(warnings(&mut session).await[0].contains("1815"));
    let hinted = "SELECT /*+ READ_FROM_STORAGE(ROWS[t]) */ SUM(v) FROM t";
    assert_eq!(rows(&mut session, hinted).await.unwrap(), ["60"]);
    for (allow, withdraw) in [
        ("SET isobar_fallback = 'rows'", "SET isobar_fallback = DEFAULT"),
        ("SET tidb_allow_fallback_to_tikv = 'tiflash'", "SET tidb_allow_fallback_to_tikv = ''"),
    ] {
        done(&mut session, allow).await.unwrap();
        assert_eq!(rows(&mut session, SCAN).await.unwrap(), ["60"]);
        assert!(warnings(&mut session).await[0].contains("answered from rows"));
        assert_eq!(last_query(&mut session, "engine").await, "rows");
        let why = "d.t: columns failed, answered from rows: no columnar node answers";
        assert_eq!(last_query(&mut session, "tables").await, why);
        done(&mut session, withdraw).await.unwrap();
        assert_eq!(rows(&mut session, SCAN).await.unwrap_err().code, 9013);
    }
    let wrong = done(&mut session, "SET isobar_fallback = 'columns'").await.unwrap_err();
    assert_eq!(wrong.code, 1231);
    done(&mut session, "SET isobar_fallback = rows").await.unwrap();
    done(&mut session, "SET isobar_read_engines = 'columns'").await.unwrap();
    assert_eq!(rows(&mut session, SCAN).await.unwrap_err().code, 9013);
}

#[tokio::test]
async fn explain_says_that_nobody_would_answer() {
    let (mut session, _) = beside(9013).await;
    let lines = rows(&mut session, "EXPLAIN SELECT SUM(v) FROM t").await.unwrap();
    assert!(lines.iter().any(|line| line.contains("columns fail with 9013")), "{lines:?}");
    let error = rows(&mut session, "EXPLAIN ANALYZE SELECT SUM(v) FROM t").await.unwrap_err();
    assert_eq!(error.code, 9013);
    done(&mut session, "SET GLOBAL isobar_fallback = 'rows'").await.unwrap();
    done(&mut session, "SET isobar_fallback = 'rows'").await.unwrap();
    let lines = rows(&mut session, "EXPLAIN ANALYZE SELECT SUM(v) FROM t").await.unwrap();
    assert!(lines.iter().any(|line| line.contains("rows answer")), "{lines:?}");
}

#[tokio::test]
async fn status_says_which_columnar_node_answered_the_last_query() {
    let engine: Engine = engine().with_analytic(Arc::new(Answering));
    let mut session = with_table(&engine).await;
    assert_eq!(rows(&mut session, "SELECT COUNT(*) FROM t").await.unwrap(), ["3"]);
    assert_eq!(last_query(&mut session, "engine").await, "columns");
    assert_eq!(last_query(&mut session, "coordinator").await, "10.0.0.7:4002");
    let why = "d.t: full scan of a table with an available columnar replica";
    assert_eq!(last_query(&mut session, "tables").await, why);
    assert!(last_query(&mut session, "wait_ms").await.parse::<u64>().is_ok());
    assert!(last_query(&mut session, "snapshot").await.parse::<u64>().is_ok());
    // One by key is answered by rows, and nothing of the one before is left.
    assert_eq!(rows(&mut session, "SELECT v FROM t WHERE id = 2").await.unwrap(), ["20"]);
    assert_eq!(last_query(&mut session, "engine").await, "rows");
    assert_eq!(last_query(&mut session, "coordinator").await, "");
    assert_eq!(last_query(&mut session, "wait_ms").await, "");
}

#[tokio::test]
async fn columns_of_a_result_are_what_the_answer_says() {
    let engine = engine().with_analytic(Arc::new(Answering));
    let mut session = with_table(&engine).await;
    let Ok(Answer::Rows(columns, _)) = run(&mut session, "SELECT COUNT(*) FROM t").await else {
        panic!("no rows");
    };
    assert_eq!((columns[0].name.as_str(), columns[0].nullable), ("COUNT(*)", false));
    // An answer to another query is none.
    assert!(run(&mut session, "SELECT COUNT(*), SUM(v) FROM t").await.is_err());
}

#[tokio::test]
async fn what_is_wrong_with_a_query_itself_comes_first() {
    let (mut session, _) = beside(9013).await;
    done(&mut session, "SET isobar_read_engines = 'columns'").await.unwrap();
    for sql in ["SELECT MAX(CAST(v AS JSON)) FROM t", "EXPLAIN SELECT MAX(CAST(v AS JSON)) FROM t"]
    {
        assert_eq!(rows(&mut session, sql).await.unwrap_err().code, 1235, "{sql}");
    }
}
