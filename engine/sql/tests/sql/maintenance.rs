//! ANALYZE, CHECK, OPTIMIZE and LOCK TABLES: what each finds, and what each leaves alone.

use std::sync::Arc;

use sql::engine::Engine;
use storage::Pair;
use types::{Table, Value, key};

use super::harness::{done, engine, in_database, rows, warnings};

/// Table `t` of database `d`, as the catalog has it.
async fn described(engine: &Engine) -> Arc<Table> {
    let catalog = engine.storage().catalog().await.unwrap();
    catalog.table_named("d", "t").unwrap().clone()
}

/// Puts a pair into the store, or takes its key away, as no statement does.
async fn tamper(engine: &Engine, table: &Arc<Table>, (key, row): Pair, put: bool) {
    let mut transaction = engine.storage().begin().await.unwrap();
    match put {
        true => transaction.put(table, key, row).unwrap(),
        false => transaction.delete(table, key).unwrap(),
    }
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn a_check_finds_rows_without_entries_and_entries_without_rows() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    let create = "CREATE TABLE t (id INT PRIMARY KEY, v INT, u INT, KEY by_v (v) INVISIBLE, \
                  UNIQUE KEY by_u (u))";
    done(&mut one, create).await.unwrap();
    done(&mut one, "INSERT INTO t VALUES (1, 5, 7), (2, 5, NULL), (3, NULL, 9)").await.unwrap();
    let ok = ["d.t|check|status|OK"];
    assert_eq!(rows(&mut one, "CHECK TABLE t EXTENDED").await.unwrap(), ok);
    done(&mut one, "ADMIN CHECK TABLE t").await.unwrap();
    let table = described(&engine).await;
    let entry = |at: usize, row: [i64; 3]| {
        key::index_entry(&table, &table.indexes[at], &row.map(Value::Int)).unwrap()
    };
    for at in [0, 1] {
        let name = &table.indexes[at].name;
        let (own, nobodys) = (entry(at, [1, 5, 7]), entry(at, [4, 6, 8]));
        tamper(&engine, &table, own.clone(), false).await;
        let found = rows(&mut one, "CHECK TABLE t").await.unwrap();
        let lacks = format!("d.t|check|error|Index '{name}' lacks the entry of a row");
        assert_eq!(found, [lacks.as_str(), "d.t|check|error|Corrupt"]);
        let error = done(&mut one, "ADMIN CHECK TABLE t").await.unwrap_err();
        assert!(error.code == 8223 && error.message.contains(name), "{error}");
        tamper(&engine, &table, own, true).await;
        tamper(&engine, &table, nobodys.clone(), true).await;
        let found = rows(&mut one, "CHECK TABLE t").await.unwrap();
        let more = format!("d.t|check|error|Index '{name}' contains 4 entries, should be 3");
        assert_eq!(found, [more.as_str(), "d.t|check|error|Corrupt"]);
        tamper(&engine, &table, nobodys, false).await;
        assert_eq!(rows(&mut one, "CHECK TABLE t").await.unwrap(), ok);
    }
    // The entry of a unique index leads to another row.
    let astray = (entry(0, [1, 5, 7]).0, entry(0, [2, 5, 7]).1);
    tamper(&engine, &table, astray, true).await;
    let found = rows(&mut one, "CHECK TABLE t").await.unwrap();
    assert_eq!(found[0], "d.t|check|error|Index 'by_u' lacks the entry of a row");
}

#[tokio::test]
async fn whole_tables_are_looked_after_as_far_as_there_is_anything_to_do() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    done(&mut one, "CREATE VIEW v AS SELECT id FROM t").await.unwrap();
    for (task, op) in [("ANALYZE LOCAL", "analyze"), ("OPTIMIZE NO_WRITE_TO_BINLOG", "optimize")] {
        let shown = rows(&mut one, &format!("{task} TABLE t, Nothing, v")).await.unwrap();
        assert!(shown[0].starts_with(&format!("d.t|{op}|note|")), "{shown:?}");
        let rest = [
            format!("d.t|{op}|status|OK"),
            format!("d.Nothing|{op}|Error|Table 'd.Nothing' doesn't exist"),
            format!("d.Nothing|{op}|status|Operation failed"),
            format!("d.v|{op}|Error|'d.v' is not BASE TABLE"),
            format!("d.v|{op}|status|Operation failed"),
        ];
        assert_eq!(shown[1..], rest);
    }
    let missing = rows(&mut one, "CHECK TABLES nothing").await.unwrap();
    assert_eq!(missing[0], "d.nothing|check|Error|Table 'd.nothing' doesn't exist");
    assert_eq!(done(&mut one, "ADMIN CHECK TABLE nothing").await.unwrap_err().code, 1146);
    for refused in
        ["ANALYZE TABLE t UPDATE HISTOGRAM ON id", "ADMIN CHECK INDEX t i", "REPAIR TABLE t"]
    {
        assert_eq!(done(&mut one, refused).await.unwrap_err().code, 1235, "{refused}");
    }
    // They end a transaction.
    done(&mut one, "BEGIN").await.unwrap();
    done(&mut one, "INSERT INTO t VALUES (1)").await.unwrap();
    rows(&mut one, "CHECK TABLE t").await.unwrap();
    done(&mut one, "ROLLBACK").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT id FROM t").await.unwrap(), ["1"]);
}

#[tokio::test]
async fn lock_tables_is_refused_unless_it_is_known_to_do_nothing() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    let lock = "LOCK TABLES t WRITE, t AS x READ LOCAL, d.t y LOW_PRIORITY WRITE";
    let refused = done(&mut one, lock).await.unwrap_err();
    assert!(refused.code == 1235 && refused.message.contains("tidb_enable_noop_functions"));
    done(&mut one, "UNLOCK TABLES").await.unwrap();
    for (set, shown) in [("1", "ON"), ("'warn'", "WARN"), ("OFF", "OFF"), ("ON", "ON")] {
        done(&mut one, &format!("SET tidb_enable_noop_functions = {set}")).await.unwrap();
        let is = rows(&mut one, "SELECT @@tidb_enable_noop_functions").await.unwrap();
        assert_eq!(is, [shown]);
    }
    let wrong = done(&mut one, "SET tidb_enable_noop_functions = 'maybe'").await.unwrap_err();
    assert_eq!(wrong.code, 1231);
    // Accepted, it ends a transaction.
    done(&mut one, "BEGIN").await.unwrap();
    done(&mut one, "INSERT INTO t VALUES (1)").await.unwrap();
    done(&mut one, lock).await.unwrap();
    assert!(warnings(&mut one).await.is_empty());
    done(&mut one, "ROLLBACK").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT id FROM t").await.unwrap(), ["1"]);
    assert_eq!(done(&mut one, "LOCK TABLES nothing READ").await.unwrap_err().code, 1146);
    assert_eq!(done(&mut one, "LOCK TABLES t").await.unwrap_err().code, 1064);
    done(&mut one, "SET tidb_enable_noop_functions = WARN").await.unwrap();
    done(&mut one, "LOCK TABLE t READ").await.unwrap();
    let warned = warnings(&mut one).await;
    assert!(warned.len() == 1 && warned[0].starts_with("Warning|1235|"), "{warned:?}");
    // For sessions to come.
    done(&mut one, "SET GLOBAL tidb_enable_noop_functions = ON").await.unwrap();
    let mut two = in_database(&engine).await;
    done(&mut two, "LOCK TABLES t READ").await.unwrap();
}

#[tokio::test]
async fn a_database_is_altered_to_what_it_is() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    for same in [
        "ALTER DATABASE d CHARACTER SET utf8mb4",
        "ALTER SCHEMA DEFAULT CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin",
        "ALTER DATABASE d ENCRYPTION = 'N'",
    ] {
        done(&mut one, same).await.unwrap();
    }
    for (other, code) in [
        ("ALTER DATABASE nothing CHARACTER SET utf8mb4", 1049),
        ("ALTER DATABASE d CHARACTER SET latin1", 1115),
        ("ALTER DATABASE d COLLATE utf8mb4_general_ci", 1273),
        ("ALTER DATABASE d READ ONLY = 1", 1235),
        ("ALTER DATABASE d", 1064),
    ] {
        assert_eq!(done(&mut one, other).await.unwrap_err().code, code, "{other}");
    }
}
