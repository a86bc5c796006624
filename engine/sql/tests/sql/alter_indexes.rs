//! ALTER TABLE that adds indexes beside columns and other indexes: under writers, some of them on a
//! node one version behind, and where it fails, is killed or left half done.

use std::time::Duration;

use sql::engine::Engine;
use sql::session::{AbandonedChanges, Session};
use tokio_util::sync::CancellationToken;

use super::harness::{done, engine, in_database, rows};
use super::indexes::write_on;
use super::lagging::{Cluster, Steps, two_nodes};

/// The columns and the indexes of `a`, also those that are not shown.
async fn shape(engine: &Engine) -> (Vec<String>, Vec<String>) {
    let catalog = engine.storage().catalog().await.unwrap();
    let table = catalog.table_named("d", "a").unwrap();
    let columns = table.columns.iter().map(|column| column.name.clone()).collect();
    let indexes = table.indexes.iter().map(|index| {
        let columns = index.columns.iter().map(|id| table.column(*id).unwrap().name.as_str());
        let state = if index.is_public() { "" } else { " in the making" };
        format!("{}({}){state}", index.name, columns.collect::<Vec<_>>().join(","))
    });
    (columns, indexes.collect())
}

/// `a` with three rows, of which two have the same `w`.
async fn table(session: &mut Session) {
    let create = "CREATE TABLE a (id INT PRIMARY KEY, v INT, w INT, KEY by_v (v), KEY by_w (w), KEY old (id))";
    done(session, create).await.unwrap();
    done(session, "INSERT INTO a VALUES (1, 10, 5), (2, 20, 5), (3, 30, 6)").await.unwrap();
}

/// A duplicate in the last of the new indexes: whatever else the statement does is not done either.
#[tokio::test]
async fn of_a_change_whose_last_index_fails_nothing_stays() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    table(&mut one).await;
    let before = shape(&engine).await;
    for change in [
        "ADD COLUMN c INT NOT NULL DEFAULT 7, ADD INDEX by_c (c), ADD UNIQUE by_w2 (w)",
        "ADD COLUMN c INT NOT NULL DEFAULT 7, ADD UNIQUE by_vc (v, c), ADD UNIQUE by_c (c)",
        "ADD COLUMN c INT NOT NULL DEFAULT 7 UNIQUE",
        "DROP INDEX by_v, DROP INDEX old, ADD INDEX by_v (v, w), ADD UNIQUE old (w)",
        "RENAME INDEX by_v TO by_w2, ADD UNIQUE by_v (w)",
        "DROP COLUMN v, ADD UNIQUE (w)",
        "DROP COLUMN v, ADD COLUMN v INT DEFAULT 1, ADD INDEX by_v (v), ADD UNIQUE (w)",
        "MODIFY v BIGINT FIRST, COMMENT = 'c', ADD INDEX (v, w), ADD UNIQUE (w)",
        "RENAME COLUMN v TO x, RENAME TO b, ADD INDEX (x), ADD UNIQUE (w)",
    ] {
        let error = done(&mut one, &format!("ALTER TABLE a {change}")).await.unwrap_err();
        assert_eq!(error.code, 1062, "{change}: {error}");
        assert!(!error.message.contains("_isobar"), "{change}: {error}");
        assert_eq!(shape(&engine).await, before, "{change}");
    }
    assert!(engine.storage().leases().await.unwrap().is_empty());
    let found = rows(&mut one, "SELECT * FROM a WHERE v = 20").await.unwrap();
    assert_eq!(found, ["2|20|5"]);
    done(&mut one, "UPDATE a SET w = 7 WHERE id = 2").await.unwrap();
    let change = "DROP COLUMN v, ADD COLUMN c INT NOT NULL DEFAULT 7 FIRST, DROP INDEX by_w, \
                  ADD UNIQUE by_w (w), ADD INDEX (c, w), RENAME INDEX old TO older";
    done(&mut one, &format!("ALTER TABLE a {change}")).await.unwrap();
    let (columns, mut indexes) = shape(&engine).await;
    indexes.sort();
    assert_eq!(columns, ["c", "id", "w"]);
    assert_eq!(indexes, ["by_w(w)", "c(c,w)", "older(id)"]);
    assert_eq!(rows(&mut one, "SELECT id FROM a WHERE c = 7 AND w = 7").await.unwrap(), ["2"]);
    let taken = done(&mut one, "INSERT INTO a VALUES (1, 9, 7)").await.unwrap_err();
    assert!(taken.code == 1062 && taken.message.contains("'a.by_w'"), "{taken}");
}

/// A statement that is killed while it waits for a row.
#[tokio::test]
async fn a_killed_change_leaves_neither_column_nor_index() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    table(&mut one).await;
    let before = shape(&engine).await;
    let mut two = in_database(&engine).await;
    done(&mut two, "BEGIN").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT id FROM a WHERE id = 2 FOR UPDATE").await.unwrap(), ["2"]);
    for change in ["ADD COLUMN c INT, ADD INDEX (c)", "DROP COLUMN v, ADD INDEX (w, id)"] {
        let cancel = CancellationToken::new();
        let killed = cancel.clone();
        let change = format!("ALTER TABLE a {change}");
        let altering = tokio::spawn(async move {
            let altered = one.execute(change.as_bytes(), &killed).await.map(drop);
            (one, altered)
        });
        let begun = async {
            while shape(&engine).await == before {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), begun).await.unwrap();
        assert_eq!(rows(&mut two, "SELECT * FROM a WHERE v = 30").await.unwrap(), ["3|30|6"]);
        let listed = rows(&mut two, "SHOW CREATE TABLE a").await.unwrap().join(" ");
        assert!(!listed.contains("(`w`,`id`)") && listed.contains("`by_v`"), "{listed}");
        cancel.cancel();
        let (session, altered) = altering.await.unwrap();
        assert_eq!(altered.unwrap_err().code, 1317);
        assert_eq!(shape(&engine).await, before);
        one = session;
    }
    done(&mut two, "ROLLBACK").await.unwrap();
    done(&mut one, "ALTER TABLE a ADD COLUMN c INT, ADD INDEX (c)").await.unwrap();
}

/// A node that dies in the midst: its columns and its indexes are taken back together, by the next
/// change or by who watches.
#[tokio::test]
async fn what_is_left_half_done_is_taken_back_with_its_indexes() {
    for watched in [false, true] {
        for change in [
            "ADD COLUMN c INT DEFAULT 3, ADD UNIQUE (v), ADD INDEX (c, w)",
            "DROP INDEX by_v, ADD UNIQUE by_v (v), DROP COLUMN w",
        ] {
            left_half_done(watched, change).await;
        }
    }
}

async fn left_half_done(watched: bool, change: &str) {
    let steps = Steps::new();
    let cluster = Cluster::new();
    let (dying, engine) = (cluster.node(Some(steps.clone()), 0), cluster.node(None, 0));
    let mut two = in_database(&engine).await;
    table(&mut two).await;
    let before = shape(&engine).await;
    let mut one = in_database(&dying).await;
    let alter = format!("ALTER TABLE a {change}");
    let alter = tokio::spawn(async move { done(&mut one, &alter).await.map(drop) });
    for _ in 0..2 {
        steps.arrive().await;
        steps.go_on(1);
    }
    steps.arrive().await;
    alter.abort();
    assert!(alter.await.unwrap_err().is_cancelled());
    // Nobody sees any of it; writers keep the unique index already.
    assert_eq!(rows(&mut two, "SELECT * FROM a WHERE v = 20").await.unwrap(), ["2|20|5"]);
    done(&mut two, "INSERT INTO a VALUES (4, 40, 6)").await.unwrap();
    assert_eq!(done(&mut two, "INSERT INTO a VALUES (5, 40, 6)").await.unwrap_err().code, 1062);
    let mut watch = AbandonedChanges::new(engine.clone());
    watch.look().await.unwrap();
    let left = shape(&engine).await;
    assert!(left.1.len() > before.1.len(), "{left:?}");
    let changing = engine.storage().catalog().await.unwrap();
    let changing = changing.table_named("d", "a").unwrap().is_changing();
    let taken_back = async {
        // Indexes alone are in nobody's way: only who watches takes them back.
        if !watched && changing {
            done(&mut two, "ALTER TABLE a ALTER COLUMN v SET DEFAULT 9").await.unwrap();
        }
        while shape(&engine).await != before {
            assert!(watched || !changing);
            watch.look().await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let taken_back = tokio::time::timeout(Duration::from_secs(20), taken_back);
    cluster.minutes_pass(taken_back).await.unwrap();
    done(&mut two, "INSERT INTO a VALUES (5, 40, 6)").await.unwrap();
    done(&mut two, "DELETE FROM a WHERE id = 5").await.unwrap();
    done(&mut two, &format!("ALTER TABLE a {change}")).await.unwrap();
    assert_eq!(rows(&mut two, "SELECT id FROM a WHERE v = 40").await.unwrap(), ["4"]);
}

/// A change that fails takes back its own indexes only.
#[tokio::test]
async fn an_index_that_somebody_else_makes_is_left_alone() {
    let steps = Steps::new();
    let cluster = Cluster::new();
    let (slow, engine) = (cluster.node(Some(steps.clone()), 0), cluster.node(None, 0));
    let mut two = in_database(&engine).await;
    table(&mut two).await;
    let mut one = in_database(&slow).await;
    let making =
        tokio::spawn(
            async move { done(&mut one, "CREATE INDEX others ON a (w, v)").await.map(drop) },
        );
    steps.arrive().await;
    let change = "ALTER TABLE a ADD COLUMN c INT, ADD INDEX (c), ADD UNIQUE (w)";
    assert_eq!(done(&mut two, change).await.unwrap_err().code, 1062);
    let change = "ALTER TABLE a DROP INDEX by_v, ADD INDEX by_v (v, id), ADD COLUMN c INT";
    done(&mut two, change).await.unwrap();
    steps.go_on(10);
    making.await.unwrap().unwrap();
    let (columns, mut indexes) = shape(&engine).await;
    indexes.sort();
    assert_eq!(columns, ["id", "v", "w", "c"]);
    assert_eq!(indexes, ["by_v(v,id)", "by_w(w)", "old(id)", "others(w,v)"]);
}

/// At every version of the change, rows that one node writes and the other, which knows the version
/// before only, takes away again: no entry of them stays.
#[tokio::test]
async fn no_entry_of_a_row_stays_that_a_node_one_version_behind_deletes() {
    let steps = Steps::new();
    let (engine, lagging) = two_nodes(Some(steps.clone()));
    steps.go_on(1);
    let mut one = in_database(&engine).await;
    let create = "CREATE TABLE a (id INT PRIMARY KEY, v INT, w INT, UNIQUE KEY by_v (v))";
    done(&mut one, create).await.unwrap();
    steps.arrive().await;
    let mut two = in_database(&engine).await;
    let altering = tokio::spawn(async move {
        let change = "ALTER TABLE a ADD COLUMN c INT NOT NULL DEFAULT 5, DROP INDEX by_v, \
                      ADD UNIQUE by_v (c, v), ADD UNIQUE (w)";
        done(&mut one, change).await.unwrap();
    });
    let mut behind = in_database(&lagging).await;
    // The fifth says the same again: nobody is left who knows of the index that went.
    for version in 0..5 {
        steps.arrive().await;
        let new = "INSERT INTO a (id, v, w) VALUES (1, 10, 1), (2, 20, 2)";
        done(&mut two, new).await.unwrap();
        if version >= 3 {
            done(&mut two, "UPDATE a SET c = 6").await.unwrap();
        }
        done(&mut behind, "DELETE FROM a WHERE id = 1").await.unwrap();
        done(&mut behind, "UPDATE a SET v = 30, w = 3 WHERE id = 2").await.unwrap();
        done(&mut two, "DELETE FROM a").await.unwrap();
        steps.go_on(1);
    }
    altering.await.unwrap();
    for c in [5, 6] {
        let new = format!("INSERT INTO a VALUES (1, 10, 1, {c}), (2, 20, 2, {c}), (3, 30, 3, {c})");
        done(&mut two, &new).await.unwrap();
        let found = format!("SELECT id FROM a WHERE c = {c} AND v = 30");
        assert_eq!(rows(&mut two, &found).await.unwrap(), ["3"]);
        done(&mut two, "DELETE FROM a").await.unwrap();
    }
}

/// Writers of two nodes that go on while indexes come and are replaced: afterwards they lead to the
/// same rows as a scan.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn indexes_made_together_under_writers_miss_nothing() {
    let (engine, lagging) = two_nodes(None);
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, v INT)").await.unwrap();
    // The node that lags knows the table one change later.
    done(&mut one, "CREATE TABLE b (id INT PRIMARY KEY)").await.unwrap();
    let many: Vec<String> = (10..400).map(|n| format!("({n}, {})", n % 7)).collect();
    done(&mut one, &format!("INSERT INTO a VALUES {}", many.join(","))).await.unwrap();
    let stop = CancellationToken::new();
    let mut writers = Vec::new();
    for writer in 0..4u32 {
        let node = if writer % 2 == 0 { &engine } else { &lagging };
        writers.push(tokio::spawn(write_on(in_database(node).await, writer, stop.clone())));
    }
    for _ in 0..8 {
        for change in [
            "ADD INDEX by_v (v), ADD UNIQUE both_of_them (v, id)",
            "DROP INDEX by_v, DROP INDEX both_of_them, ADD UNIQUE by_v (v, id)",
            "RENAME INDEX by_v TO other, ADD INDEX by_v (v)",
            "DROP INDEX other, DROP INDEX by_v",
        ] {
            done(&mut one, &format!("ALTER TABLE a {change}")).await.unwrap();
            for v in 0..7 {
                let by_index = format!("SELECT id FROM a WHERE v = {v} ORDER BY id");
                let by_scan = format!("SELECT id FROM a WHERE v + 0 = {v} ORDER BY id");
                done(&mut one, "BEGIN").await.unwrap();
                let (index, scan) =
                    (rows(&mut one, &by_index).await, rows(&mut one, &by_scan).await);
                done(&mut one, "COMMIT").await.unwrap();
                assert_eq!(index.unwrap(), scan.unwrap(), "{change}");
            }
        }
    }
    stop.cancel();
    for writer in writers {
        writer.await.unwrap();
    }
}
