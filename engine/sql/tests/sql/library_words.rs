//! What DataFusion and Arrow say in words alone, and what becomes of it.
//!
//! Each of these errors is provoked through the library itself, without our planner before it: an upgrade that words one
//! otherwise fails here, and not before clients as error 1105.

use std::sync::Arc;

use datafusion::common::Spans;
use datafusion::logical_expr::{LogicalPlan, Subquery};
use datafusion::prelude::SessionContext;
use values::error::SqlError;

/// Queries in the library's own SQL over a table `t` of two BIGINTs, `a` and `b`; the error of each, and how it begins.
const WORDED: [(&str, u16, &str); 21] = [
    ("SELECT a IN (SELECT a, b FROM t) FROM t", 1241, "Operand should contain 1 column(s)"),
    ("SELECT x.a FROM (SELECT a, b FROM t) AS x(a)", 1241, "Operand should contain 1 column(s)"),
    ("SELECT (SELECT a FROM t)", 1242, "Subquery returns more than 1 row"),
    ("SELECT a FROM t UNION ALL SELECT a, b FROM t", 1222, "The used SELECT statements"),
    ("SELECT a FROM t EXCEPT SELECT a, b FROM t", 1222, "The used SELECT statements"),
    ("SELECT a FROM t WHERE SUM(a) > 1", 1111, "Invalid use of group function"),
    ("SELECT SUM(SUM(a)) FROM t", 1111, "Invalid use of group function"),
    ("SELECT NTILE(0) OVER (ORDER BY a) FROM t", 1210, "Incorrect arguments to ntile"),
    ("SELECT a FROM t LIMIT -1", 1064, "You have an error in your SQL syntax: LIMIT and OFFSET"),
    (
        "SELECT a FROM t LIMIT 1 OFFSET -1",
        1064,
        "You have an error in your SQL syntax: LIMIT and OFFSET",
    ),
    (
        "SELECT ARRAY_AGG(DISTINCT a ORDER BY b) FROM t",
        1235,
        "This version of Isobar doesn't yet support 'GROUP_CONCAT(DISTINCT",
    ),
    (
        "SELECT DISTINCT a FROM t ORDER BY b",
        3065,
        "Expression of ORDER BY clause is not in SELECT list, references column 't.b'",
    ),
    (
        "SELECT a, b FROM t GROUP BY a",
        1055,
        "Expression of SELECT list is not in GROUP BY clause and contains nonaggregated column 't.b'",
    ),
    (
        "SELECT a FROM t GROUP BY a ORDER BY b",
        1055,
        "Expression of ORDER BY clause is not in GROUP BY clause and contains nonaggregated column 't.b'",
    ),
    ("SELECT a FROM t GROUP BY a HAVING b > 1", 1054, "Unknown column 'b' in 'having clause'"),
    ("SELECT a FROM t HAVING a > 1", 1054, "Unknown column '' in 'having clause'"),
    ("SELECT a FROM t ORDER BY 3", 1054, "Unknown column '3' in 'order clause'"),
    ("SELECT a FROM t GROUP BY 3", 1054, "Unknown column '3' in 'group statement'"),
    ("SELECT SUM(a) OVER w FROM t", 3579, "Window name 'w' is not defined."),
    (
        "SELECT CAST(a * 1000000 AS DECIMAL(4, 2)) FROM t",
        1690,
        "DECIMAL value is out of range in 'the statement'",
    ),
    (
        "SELECT * FROM t, LATERAL (SELECT t.a + 1 AS x) AS l",
        1235,
        "This version of Isobar doesn't yet support 'a subquery of this form'",
    ),
];

async fn library() -> SessionContext {
    let context = SessionContext::new();
    let made = "CREATE TABLE t (a BIGINT, b BIGINT) AS VALUES (1, 2), (3, 4)";
    context.sql(made).await.unwrap().collect().await.unwrap();
    context
}

#[tokio::test]
async fn what_the_library_says_in_words_has_a_number() {
    let context = library().await;
    for (query, code, begins) in WORDED {
        let answer = async { context.sql(query).await?.collect().await };
        let error = SqlError::from(answer.await.unwrap_err());
        assert_eq!(error.code, code, "{query}: {error}");
        assert!(error.message.starts_with(begins), "{query}: {error}");
    }
}

#[tokio::test]
async fn a_subquery_that_stays_in_a_plan_is_named() {
    let context = library().await;
    let inner = context.sql("SELECT a FROM t").await.unwrap().into_unoptimized_plan();
    let plan = LogicalPlan::Subquery(Subquery {
        subquery: Arc::new(inner),
        outer_ref_columns: Vec::new(),
        spans: Spans::new(),
    });
    let state = context.state();
    let planned = state.query_planner().create_physical_plan(&plan, &state).await;
    let error = SqlError::from(planned.unwrap_err());
    let begins = "This version of Isobar doesn't yet support 'a LATERAL table of this form";
    assert!(error.code == 1235 && error.message.starts_with(begins), "{error}");
}
