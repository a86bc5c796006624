//! Reads of the past whose clock a test moves: `tidb_read_staleness`, how stale an answer was, and what keeps it readable.

use sql::engine::Engine;
use sql::session::Session;

use super::harness::{done, engine_in_step, in_database, rows};

/// A table with one row, which changes after a while.
async fn changed(engine: &Engine) -> Session {
    let mut session = in_database(engine).await;
    for sql in ["CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 10)"] {
        done(&mut session, sql).await.unwrap();
    }
    pass(engine, 3_000).await;
    done(&mut session, "UPDATE t SET v = 20").await.unwrap();
    session
}

/// Lets so many milliseconds pass.
async fn pass(engine: &Engine, millis: u64) {
    for _ in 0..millis {
        engine.storage().timestamp().await.unwrap();
    }
}

async fn staleness(session: &mut Session) -> u64 {
    let shown = rows(session, "SHOW STATUS LIKE 'Isobar_last_query_staleness_ms'").await.unwrap();
    shown[0].rsplit('|').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_session_reads_what_was_there_so_many_seconds_ago() {
    let engine = engine_in_step();
    let mut session = changed(&engine).await;
    let all = "SELECT SUM(v) FROM t";
    assert_eq!(rows(&mut session, all).await.unwrap(), ["20"]);
    assert!(staleness(&mut session).await < 1_000);
    done(&mut session, "SET tidb_read_staleness = '-1'").await.unwrap();
    for select in [all, "SELECT v FROM t WHERE id = 1", "SELECT v FROM t WHERE v > 0 ORDER BY v"] {
        assert_eq!(rows(&mut session, select).await.unwrap(), ["10"], "{select}");
        let stale = staleness(&mut session).await;
        assert!((1_000..1_100).contains(&stale), "{stale}: {select}");
    }
    done(&mut session, "SELECT v FROM t INTO @v").await.unwrap();
    assert_eq!(rows(&mut session, "SELECT @v").await.unwrap(), ["10"]);
    // A time that is named goes first; transactions, and statements that write or lock, read the present.
    let named = "SELECT SUM(v) FROM t AS OF TIMESTAMP NOW(3) - INTERVAL 2 SECOND";
    assert_eq!(rows(&mut session, named).await.unwrap(), ["10"]);
    assert!(staleness(&mut session).await >= 2_000);
    assert_eq!(rows(&mut session, "SELECT v FROM t FOR UPDATE").await.unwrap(), ["20"]);
    done(&mut session, "UPDATE t SET v = v + 1 WHERE v = 20").await.unwrap();
    done(&mut session, "BEGIN").await.unwrap();
    assert_eq!(rows(&mut session, all).await.unwrap(), ["21"]);
    done(&mut session, "COMMIT").await.unwrap();
    pass(&engine, 1_100).await;
    assert_eq!(rows(&mut session, all).await.unwrap(), ["21"]);
    done(&mut session, "SET tidb_read_staleness = 0").await.unwrap();
    assert_eq!(rows(&mut session, all).await.unwrap(), ["21"]);
    assert!(staleness(&mut session).await < 1_000);
}

#[tokio::test]
async fn a_time_that_versions_hardly_outlive_is_held_by_a_lease() {
    let engine = engine_in_step();
    let mut session = changed(&engine).await;
    let held = "SELECT COUNT(*) FROM information_schema.snapshot_leases WHERE owner LIKE '%as of timestamp'";
    let past = "START TRANSACTION READ ONLY AS OF TIMESTAMP NOW(3) - INTERVAL 1 SECOND";
    done(&mut session, past).await.unwrap();
    assert_eq!(rows(&mut session, held).await.unwrap(), ["0"], "ten minutes are long enough");
    done(&mut session, "COMMIT").await.unwrap();
    done(&mut session, "SET GLOBAL tidb_gc_life_time = '2s'").await.unwrap();
    done(&mut session, past).await.unwrap();
    assert_eq!(rows(&mut session, held).await.unwrap(), ["1"]);
    assert_eq!(rows(&mut session, "SELECT v FROM t").await.unwrap(), ["10"]);
    done(&mut session, "COMMIT").await.unwrap();
}

#[tokio::test]
async fn what_changes_nothing_for_readers_leaves_the_past_readable() {
    let engine = engine_in_step();
    let mut session = changed(&engine).await;
    done(&mut session, "SET @then = NOW(3) - INTERVAL 1 SECOND").await.unwrap();
    let past = "SELECT v FROM t AS OF TIMESTAMP @then";
    for harmless in ["CREATE INDEX i ON t (v)", "ALTER TABLE t COMMENT = 'x'", "DROP INDEX i ON t"]
    {
        done(&mut session, harmless).await.unwrap();
        assert_eq!(rows(&mut session, past).await.unwrap(), ["10"], "{harmless}");
    }
    for other in [
        "ALTER TABLE t ADD COLUMN w INT",
        "ALTER TABLE t RENAME COLUMN v TO x",
        "ALTER TABLE t DROP COLUMN w",
        "ALTER TABLE t RENAME COLUMN x TO v",
    ] {
        done(&mut session, "SET @then = NOW(3)").await.unwrap();
        pass(&engine, 10).await;
        done(&mut session, other).await.unwrap();
        let error = rows(&mut session, "SELECT * FROM t AS OF TIMESTAMP @then").await.unwrap_err();
        assert_eq!(error.code, 1412, "{other}: {error}");
        // Not so for who reads at a snapshot, or within a transaction that began before.
        pass(&engine, 10).await;
        done(&mut session, "SET @then = NOW(3)").await.unwrap();
        rows(&mut session, "SELECT * FROM t AS OF TIMESTAMP @then").await.unwrap();
    }
}

#[tokio::test]
async fn times_stand_in_nothing_that_writes() {
    let engine = engine_in_step();
    let mut session = changed(&engine).await;
    for wrong in [
        "DELETE FROM t AS OF TIMESTAMP NOW(3)",
        "UPDATE t AS OF TIMESTAMP NOW(3) SET v = 1",
        "CREATE TABLE u AS SELECT * FROM t AS OF TIMESTAMP NOW(3)",
        "CREATE VIEW w AS SELECT * FROM t AS OF TIMESTAMP NOW(3)",
        // sqlparser's own form, which is none of ours.
        "DELETE FROM t TIMESTAMP AS OF NOW(3)",
        "UPDATE t TIMESTAMP AS OF NOW(3) SET v = 1",
    ] {
        let error = done(&mut session, wrong).await.unwrap_err();
        assert_eq!(error.code, 1235, "{wrong}: {error}");
    }
    assert_eq!(rows(&mut session, "SELECT v FROM t").await.unwrap(), ["20"]);
}
