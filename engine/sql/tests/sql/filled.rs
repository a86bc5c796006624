//! CREATE TABLE … SELECT beyond what a script shows: types of columns, parameters, failures, interruptions.

use std::time::Duration;

use sql::engine::Engine;
use tokio_util::sync::CancellationToken;

use super::harness::{done, engine, in_database, rows};

/// How long a test waits for what must happen.
const TIMEOUT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn columns_are_what_the_query_shows() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    let source = "CREATE TABLE s (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, n VARCHAR(20) NOT NULL DEFAULT 'x' \
                  COMMENT 'who', at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) \
                  ON UPDATE CURRENT_TIMESTAMP(3), g INT AS (2 + 3) STORED)";
    done(&mut one, source).await.unwrap();
    done(&mut one, "INSERT INTO s (id) VALUES (7)").await.unwrap();
    let create = "CREATE TABLE c SELECT id, n, at, g, NULL AS u, UPPER(n) AS t, 'abc' AS w, CAST(n AS BINARY) AS b FROM s";
    assert_eq!(done(&mut one, create).await.unwrap().affected_rows, 1);
    let columns = "SELECT column_name, column_type FROM information_schema.columns \
                   WHERE table_schema = 'd' AND table_name = 'c' ORDER BY ordinal_position";
    let expected = [
        "id|int unsigned",
        "n|varchar(20)",
        "at|timestamp(3)",
        "g|int",
        "u|varbinary(0)",
        "t|longtext",
        "w|varchar(3)",
        "b|longblob",
    ];
    assert_eq!(rows(&mut one, columns).await.unwrap(), expected);
    let shown = rows(&mut one, "SHOW CREATE TABLE c").await.unwrap().join("");
    assert!(
        shown.contains("COMMENT 'who'") && shown.contains("DEFAULT CURRENT_TIMESTAMP(3)"),
        "{shown}"
    );
    for not_kept in ["AUTO_INCREMENT", "ON UPDATE", "GENERATED", "PRIMARY KEY"] {
        assert!(!shown.contains(not_kept), "{not_kept}: {shown}");
    }
    // As in MySQL, a number that was given is zero where it is not.
    done(&mut one, "INSERT INTO c (g, t, w, b) VALUES (1, 't', 'w', 'b')").await.unwrap();
    let found = rows(&mut one, "SELECT id, n, w FROM c ORDER BY id").await.unwrap();
    assert_eq!(found, ["0|x|w", "7|x|abc"]);
}

#[tokio::test]
async fn a_table_is_filled_with_parameters_and_by_views() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE s (id INT PRIMARY KEY, v INT)").await.unwrap();
    done(&mut one, "INSERT INTO s VALUES (1, 10), (2, 20), (3, 30)").await.unwrap();
    done(&mut one, "PREPARE q FROM 'CREATE TABLE p SELECT id, ? AS w FROM s WHERE id > ?'")
        .await
        .unwrap();
    done(&mut one, "SET @a = 'ab', @b = 1").await.unwrap();
    done(&mut one, "EXECUTE q USING @a, @b").await.unwrap();
    let found = rows(&mut one, "SELECT id, w FROM p ORDER BY id").await.unwrap();
    assert_eq!(found, ["2|ab", "3|ab"]);
    done(&mut one, "CREATE VIEW shown AS SELECT v FROM s WHERE id < 3").await.unwrap();
    done(&mut one, "CREATE TABLE f AS SELECT v AS n FROM shown").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT n FROM f ORDER BY n").await.unwrap(), ["10", "20"]);
    let taken = done(&mut one, "CREATE TABLE shown SELECT 1 AS a").await.unwrap_err();
    assert_eq!(taken.code, 1050);
    let no_database = done(&mut one, "CREATE TABLE nowhere.t SELECT 1 AS a").await.unwrap_err();
    assert_eq!(no_database.code, 1049);
    let named = done(&mut one, "CREATE TEMPORARY TABLE t SELECT 1 AS a").await.unwrap_err();
    assert_eq!(named.code, 1235);
    let named = done(&mut one, "CREATE TABLE t IGNORE SELECT 1 AS a").await.unwrap_err();
    assert_eq!(named.code, 1235);
    let named = "CREATE TEMPORARY TABLE IF NOT EXISTS s SELECT 1 AS a";
    assert_eq!(done(&mut one, named).await.unwrap_err().code, 1235);
    // Names of columns may have quotes, doubled and behind a backslash.
    done(&mut one, "CREATE TABLE q SELECT 7 AS `a````b`, 8 AS `x\\``, y`").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT * FROM q").await.unwrap(), ["7|8"]);
    let absent = rows(&mut one, "SHOW TABLES LIKE 't'").await.unwrap();
    assert!(absent.is_empty(), "{absent:?}");
}

#[tokio::test]
async fn the_name_is_free_again_after_a_failure() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE s (id INT PRIMARY KEY, v INT)").await.unwrap();
    done(&mut one, "INSERT INTO s VALUES (1, 10), (2, 10)").await.unwrap();
    for _ in 0..2 {
        let twice = done(&mut one, "CREATE TABLE c (PRIMARY KEY (v)) SELECT * FROM s").await;
        assert_eq!(twice.unwrap_err().code, 1062);
        let catalog = engine.storage().catalog().await.unwrap();
        assert!(catalog.table_named("d", "c").is_none());
    }
    assert!(!one.in_transaction());
    done(&mut one, "CREATE TABLE c SELECT * FROM s").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT COUNT(*) FROM c").await.unwrap(), ["2"]);
}

async fn has_table(engine: &Engine, name: &str) -> bool {
    engine.storage().catalog().await.unwrap().table_named("d", name).is_some()
}

#[tokio::test]
async fn an_interrupted_statement_leaves_no_table() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE s (id INT PRIMARY KEY)").await.unwrap();
    let values: Vec<String> = (0..300).map(|id| format!("({id})")).collect();
    done(&mut one, &format!("INSERT INTO s VALUES {}", values.join(","))).await.unwrap();
    let cancel = CancellationToken::new();
    let token = cancel.clone();
    let making = tokio::spawn(async move {
        // More rows than anybody can count.
        let create = "CREATE TABLE c SELECT COUNT(*) AS n FROM s AS p JOIN s AS q JOIN s AS r JOIN s AS t JOIN s AS u";
        let made = one.execute(create.as_bytes(), &token).await;
        made.err().map(|error| error.code)
    });
    let there = async {
        while !has_table(&engine, "c").await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, there).await.unwrap();
    cancel.cancel();
    let code = tokio::time::timeout(TIMEOUT, making).await.unwrap().unwrap();
    assert_eq!(code, Some(1317));
    assert!(!has_table(&engine, "c").await);
}
