//! What a query means, over a table in memory.

use std::sync::Arc;

use arrow::datatypes::DataType;
use async_trait::async_trait;
use binder::short::{is_chain, short_state};
use binder::{
    PlannedSelect, QueryContext, ResolvedTable, TableResolver, plan_query, planning_schema,
    query_of, session_state_builder,
};
use datafusion::datasource::MemTable;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionConfig;
use functions::value::value_at;
use types::columns::ColumnsBuilder;
use types::{ColumnType, Decimal, IntWidth, Table, Value};
use values::coerce::text;
use values::error::SqlResult;

use crate::tables::column;

fn table() -> Table {
    let int = ColumnType::Int { width: IntWidth::Int, unsigned: false };
    Table {
        id: 7,
        version: 1,
        database: "d".into(),
        name: "T".into(),
        columns: vec![
            column(1, "Id", int),
            column(2, "price", ColumnType::Decimal { precision: 10, scale: 2 }),
            column(3, "name", ColumnType::Varchar(20)),
            column(4, "day", ColumnType::Date),
            column(5, "_isobar_rowid", int),
        ],
        primary_key: vec![1],
        indexes: vec![],
        columnar_replicas: 0,
        comment: String::new(),
        dropped: Vec::new(),
        checks: Vec::new(),
    }
}

struct One;

#[async_trait]
impl TableResolver for One {
    async fn resolve(&self, database: &str, name: &str) -> SqlResult<ResolvedTable> {
        assert_eq!((database, name), ("d", "t"));
        let table = table();
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let mut builder = ColumnsBuilder::new(&table, &all).unwrap();
        for (id, cents, name, day) in
            [(1, 150, Some("a"), 0), (2, 250, None, 1), (3, 301, Some("B"), 31)]
        {
            let price = Value::Decimal(Decimal { unscaled: cents, scale: 2 });
            let name = name.map_or(Value::Null, |n| Value::String(n.into()));
            builder.push(&[Value::Int(id), price, name, Value::Date(day), Value::Int(id)]).unwrap();
        }
        let arrays = builder.finish().unwrap().columns().to_vec();
        let schema = planning_schema(&table);
        let batch = arrow::record_batch::RecordBatch::try_new(schema.clone(), arrays).unwrap();
        let provider = Arc::new(MemTable::try_new(schema, vec![vec![batch]]).unwrap());
        Ok(ResolvedTable { provider, table: Some(Arc::new(table)) })
    }
}

fn query_context() -> QueryContext {
    QueryContext {
        database: "d".into(),
        now_us: 1_700_000_000_123_456,
        time_zone: "+00:00".into(),
        sql_mode: String::new(),
        user: "root@localhost".into(),
        connection_id: 9,
        ..QueryContext::default()
    }
}

async fn run(sql: &str) -> SqlResult<(Vec<String>, Vec<String>)> {
    let state = session_state_builder(SessionConfig::new().with_target_partitions(2)).build();
    let planned = plan_query(&query_of(sql)?, &query_context(), &state, &One).await?;
    let rows = rows_of(&planned, &state, sql).await?;
    // Rules that the planner of short reads leaves out must not change what a query means.
    if is_chain(&planned.plan)? {
        let short = rows_of(&planned, &short_state(&state), sql).await?;
        assert_eq!(short, rows, "{sql}, planned as a short read");
    }
    Ok((planned.columns.into_iter().map(|c| c.name).collect(), rows))
}

async fn rows_of(
    planned: &PlannedSelect,
    state: &SessionState,
    sql: &str,
) -> SqlResult<Vec<String>> {
    let plan = state.create_physical_plan(&planned.plan).await?;
    let batches = collect(plan, state.task_ctx()).await?;
    let mut rows = Vec::new();
    for batch in batches {
        for (column, described) in batch.columns().iter().zip(&planned.columns) {
            if let Some(ty) = described.ty {
                assert_eq!(*column.data_type(), types::columns::arrow_type(ty), "{sql}");
            }
        }
        for row in 0..batch.num_rows() {
            let cells: SqlResult<Vec<String>> =
                batch.columns().iter().map(|c| value_at(c, row).map(text)).collect();
            rows.push(cells?.join("|"));
        }
    }
    Ok(rows)
}

#[tokio::test]
async fn what_is_more_than_a_chain_over_one_table_is_not_a_short_read() {
    let state = session_state_builder(SessionConfig::new().with_target_partitions(2)).build();
    for (sql, chain) in [
        ("SELECT 1 + 1", true),
        ("SELECT DISTINCT name FROM t WHERE id > 1 ORDER BY name LIMIT 2", true),
        ("SELECT day, COUNT(*) FROM t AS u GROUP BY day HAVING COUNT(*) > 1", true),
        ("SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.id", false),
        ("SELECT id FROM t UNION ALL SELECT id FROM t", false),
        ("SELECT id FROM t WHERE id IN (SELECT id FROM t)", false),
        ("SELECT (SELECT MAX(id) FROM t)", false),
        ("SELECT RANK() OVER (ORDER BY id) FROM t", false),
    ] {
        let planned =
            plan_query(&query_of(sql).unwrap(), &query_context(), &state, &One).await.unwrap();
        assert_eq!(is_chain(&planned.plan).unwrap(), chain, "{sql}");
    }
}

#[tokio::test]
async fn a_query_means_what_it_means_in_mysql() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "SELECT * FROM t ORDER BY id",
            "Id,price,name,day",
            &["1|1.50|a|1970-01-01", "2|2.50|NULL|1970-01-02", "3|3.01|B|1970-02-01"],
        ),
        ("SELECT `ID`, Name FROM T WHERE ID = '2'", "ID,Name", &["2|NULL"]),
        (
            "SELECT 7/2, 7 DIV 2, 7 % 0, 1/0, -7 MOD 3",
            "7 / 2,7 DIV 2,7 % 0,1 / 0,-7 % 3",
            &["3.5000|3|NULL|NULL|-1"],
        ),
        (
            "SELECT SUM(id), AVG(price), COUNT(*) FROM t",
            "SUM(id),AVG(price),COUNT(*)",
            &["6|2.336667|3"],
        ),
        ("SELECT name FROM t ORDER BY name", "name", &["NULL", "B", "a"]),
        ("SELECT name FROM t ORDER BY name DESC", "name", &["a", "B", "NULL"]),
        ("SELECT id FROM t ORDER BY id LIMIT 1, 1", "id", &["2"]),
        ("SELECT id FROM t WHERE name <=> NULL", "id", &["2"]),
        ("SELECT id FROM t WHERE id AND name = \"B\"", "id", &["3"]),
        (
            "SELECT '3 apples' + 1, 'x' = 0, '10' > 9, NULL = NULL, 1 = 1.0, !1",
            "'3 apples' + 1,'x' = 0,'10' > 9,NULL = NULL,1 = 1.0,!1",
            &["4|1|1|NULL|1|0"],
        ),
        (
            "SELECT id FROM t WHERE day BETWEEN '1970-01-02' AND '1970-12-31' ORDER BY 1",
            "id",
            &["2", "3"],
        ),
        (
            "SELECT day + INTERVAL 1 MONTH, DATE_FORMAT(day, '%Y/%m'), YEAR(day) y FROM t WHERE id = 1",
            "day + INTERVAL 1 MONTH,DATE_FORMAT(day, '%Y/%m'),y",
            &["1970-02-01|1970/01|1970"],
        ),
        (
            "SELECT IF(id > 1, 'big', 'small') k, COUNT(*) c FROM t GROUP BY k HAVING c > 1 ORDER BY k",
            "k,c",
            &["big|2"],
        ),
        (
            "SELECT CASE id WHEN 1 THEN 'one' ELSE 2 END FROM t WHERE id < 3 ORDER BY id",
            "CASE id WHEN 1 THEN 'one' ELSE 2 END",
            &["one", "2"],
        ),
        (
            "SELECT CAST(price AS DECIMAL(12,1)), ROUND(price, 1), FLOOR(price) FROM t WHERE id = 3",
            "CAST(price AS DECIMAL(12,1)),ROUND(price, 1),FLOOR(price)",
            &["3.0|3.0|3"],
        ),
        (
            "SELECT CONCAT('a', NULL), CONCAT_WS('-', 'a', NULL, 'b'), IFNULL(NULL, 5), COALESCE(NULL, 1.5, 2)",
            "CONCAT('a', NULL),CONCAT_WS('-', 'a', NULL, 'b'),IFNULL(NULL, 5),COALESCE(NULL, 1.5, 2)",
            &["NULL|a-b|5|1.5"],
        ),
        (
            "SELECT NOW(5), CURTIME(5), UTC_TIME(3)",
            "NOW(5),CURTIME(5),UTC_TIME(3)",
            &["2023-11-14 22:13:20.123450|22:13:20.123450|22:13:20.123000"],
        ),
        (
            "SELECT NOW(), CURDATE(), DATABASE(), CONNECTION_ID()",
            "NOW(),CURDATE(),DATABASE(),CONNECTION_ID()",
            &["2023-11-14 22:13:20|2023-11-14|d|9"],
        ),
        (
            "SELECT a.id, b.id FROM t a JOIN t b ON a.id = b.id + 1 ORDER BY 1",
            "id,id",
            &["2|1", "3|2"],
        ),
        (
            "WITH x AS (SELECT id AS n FROM t) SELECT MAX(n) FROM x WHERE n IN (SELECT id FROM t WHERE price < 3)",
            "MAX(n)",
            &["2"],
        ),
        (
            "SELECT (1, 2) = (1, 2), 5 BETWEEN 1 AND 3, 1 XOR 1, 2 || 0",
            "(1, 2) = (1, 2),5 BETWEEN 1 AND 3,1 XOR 1,2 || 0",
            &["1|0|0|1"],
        ),
        ("SELECT 1, 1, id, id FROM t WHERE id IN (1, '1', 1.0)", "1,1,id,id", &["1|1|1|1"]),
        ("SELECT DISTINCT price > 2 AS p FROM t ORDER BY p", "p", &["0", "1"]),
        (
            "SELECT id, ROW_NUMBER() OVER (ORDER BY id DESC) FROM t ORDER BY id LIMIT 1",
            "id,ROW_NUMBER() OVER (ORDER BY id DESC)",
            &["1|3"],
        ),
        (
            "SELECT name FROM t WHERE name LIKE 'A%' OR name LIKE 'B_' OR name LIKE 'B'",
            "name",
            &["B"],
        ),
        (
            "SELECT price * id, price + 0.001, id * 2 FROM t WHERE id = 3",
            "price * id,price + 0.001,id * 2",
            &["9.03|3.011|6"],
        ),
        (
            "SELECT COUNT(DISTINCT name), GROUP_CONCAT(id ORDER BY id DESC SEPARATOR ';') FROM t",
            "COUNT(DISTINCT name),GROUP_CONCAT(id ORDER BY id DESC SEPARATOR ';')",
            &["2|3;2;1"],
        ),
    ];
    let mut wrong = Vec::new();
    for (sql, names, rows) in cases {
        match run(sql).await {
            Ok((n, r)) if n.join(",") == *names && r == *rows => {}
            Ok((n, r)) => wrong.push(format!("{sql}\n   {}\n   {r:?}", n.join(","))),
            Err(error) => wrong.push(format!("{sql}\n   {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The types of a query's columns in its plan.
async fn types_of(sql: &str) -> Vec<DataType> {
    let state = session_state_builder(SessionConfig::new().with_target_partitions(2)).build();
    let planned =
        plan_query(&query_of(sql).unwrap(), &query_context(), &state, &One).await.unwrap();
    planned.plan.schema().fields().iter().map(|field| field.data_type().clone()).collect()
}

/// TPC-H's Q1 is counted in 128 bits, whatever 256 would have room for.
#[tokio::test]
async fn narrow_decimals_stay_narrow() {
    let table = "(SELECT CAST(price AS DECIMAL(15,2)) AS price, CAST(id AS DECIMAL(15,2)) AS tax FROM t) AS l";
    let lines = format!(
        "SELECT 1 - tax, price * (1 - tax), price * (1 - tax) * (1 + tax), price / tax, price % tax, -price, \
         ROUND(price * tax, 1), ABS(price), COALESCE(price, tax, 0) FROM {table}"
    );
    let sizes = [(22, 2), (37, 4), (38, 6), (21, 6), (15, 2), (15, 2), (28, 1), (15, 2), (21, 2)];
    let narrow = sizes.map(|(precision, scale)| DataType::Decimal128(precision, scale));
    assert_eq!(types_of(&lines).await, narrow);
    let q1 = format!(
        "SELECT SUM(tax), SUM(price), SUM(price * (1 - tax)), SUM(price * (1 - tax) * (1 + tax)), AVG(price), \
         MAX(price), COUNT(*) FROM {table} GROUP BY tax"
    );
    let sizes = [(37, 2), (37, 2), (38, 4), (38, 6), (38, 6), (15, 2)];
    let mut narrow =
        sizes.map(|(precision, scale)| DataType::Decimal128(precision, scale)).to_vec();
    narrow.push(DataType::Int64);
    assert_eq!(types_of(&q1).await, narrow);
}

/// What has more than 38 digits takes what it meets along, and no more.
#[tokio::test]
async fn wide_decimals_are_wide_where_they_must_be() {
    let table = "(SELECT CAST(price AS DECIMAL(40,10)) AS n, CAST(id AS DECIMAL(65,30)) AS f, price FROM t) AS l";
    let sql = format!(
        "SELECT n + price, n * price, price / n, n % 2, ROUND(n, 1), FLOOR(n), FLOOR(f * 0), SUM(n), AVG(n), n > f, \
         n DIV 3, -n FROM {table} GROUP BY n, price, f"
    );
    let wide = DataType::Decimal256;
    let expected = [
        wide(41, 10),
        wide(50, 12),
        DataType::Decimal128(24, 6),
        wide(40, 10),
        DataType::Decimal128(32, 1),
        DataType::Decimal128(31, 0),
        wide(47, 0),
        wide(62, 10),
        wide(66, 14),
        DataType::Int64,
        DataType::Int64,
        wide(40, 10),
    ];
    assert_eq!(types_of(&sql).await, expected);
}

#[tokio::test]
async fn a_wrong_query_has_mysqls_error() {
    for (sql, code) in [
        ("SELECT nope FROM t", 1054),
        ("SELECT id FROM t a, t b", 1052),
        ("SELECT nope(1)", 1305),
        ("SELECT 9223372036854775807 + 1", 1690),
        ("SELECT id FROM t WHERE day = 'noday'", 1525),
        ("SELECT FROM", 1064),
        ("SELECT MATCH(name) AGAINST ('x') FROM t", 1235),
        ("SELECT name COLLATE utf8mb4_general_ci FROM t", 1235),
        ("SELECT * FROM (SELECT 1)", 1248),
        ("SELECT (1,2) = (1,2,3)", 1241),
    ] {
        let error = run(sql).await.map(|_| ()).unwrap_err();
        assert_eq!(error.code, code, "{sql}: {error}");
    }
}
