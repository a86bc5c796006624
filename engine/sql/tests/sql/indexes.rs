//! Indexes that come into being under writers and readers (online schema change, after F1).

use std::collections::BTreeMap;
use std::time::Duration;

use placement::api::CatalogChange;
use sql::engine::Engine;
use sql::session::{AbandonedChanges, Session};
use tokio_util::sync::CancellationToken;
use types::{Index, IndexState, Table, Timestamp};

use super::harness::{done, engine, in_database, rows};
use super::lagging::{Cluster, Steps, two_nodes};

const PUBLIC: IndexState = IndexState::Public { since: Timestamp::ZERO };

async fn accounts() -> (Engine, Session) {
    let engine = engine();
    let mut session = in_database(&engine).await;
    done(&mut session, "CREATE TABLE a (id INT PRIMARY KEY, v INT)").await.unwrap();
    (engine, session)
}

/// Puts the unique index `by_v` of `a` into a state, as a CREATE INDEX on another node does.
async fn enter(engine: &Engine, state: IndexState) {
    let catalog = engine.storage().catalog().await.unwrap();
    let mut table = Table::clone(catalog.table_named("d", "a").unwrap());
    table.version += 1;
    match table.indexes.first_mut() {
        Some(index) => index.state = state,
        None => {
            let (columns, parts) = (vec![table.columns[1].id], BTreeMap::new());
            let name = "by_v".to_owned();
            let index = Index { id: 1, name, columns, parts, unique: true, visible: true, state };
            table.indexes.push(index);
        }
    }
    engine.storage().change(CatalogChange::AlterTable(Box::new(table))).await.unwrap();
}

#[tokio::test]
async fn a_delete_only_index_gets_no_entries_and_loses_those_it_has() {
    let (engine, mut one) = accounts().await;
    let entries = "SELECT id FROM a WHERE v IN (5, 6, 7, 8)";
    enter(&engine, IndexState::WriteOnly).await;
    done(&mut one, "INSERT INTO a VALUES (1, 5), (2, 6), (3, 7)").await.unwrap();
    enter(&engine, IndexState::DeleteOnly).await;
    done(&mut one, "DELETE FROM a WHERE id = 1").await.unwrap();
    done(&mut one, "UPDATE a SET v = 8 WHERE id = 2").await.unwrap();
    done(&mut one, "INSERT INTO a VALUES (4, 5)").await.unwrap();
    enter(&engine, PUBLIC).await;
    assert_eq!(rows(&mut one, entries).await.unwrap(), ["3"]);
    done(&mut one, "INSERT INTO a VALUES (5, 6)").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT id FROM a WHERE v = 6").await.unwrap(), ["5"]);
}

#[tokio::test]
async fn while_a_unique_index_is_filled_in_a_row_takes_away_only_its_own_entry() {
    let (engine, mut one) = accounts().await;
    done(&mut one, "INSERT INTO a VALUES (1, 5), (3, 6)").await.unwrap();
    enter(&engine, IndexState::WriteOnly).await;
    done(&mut one, "INSERT INTO a VALUES (2, 5), (4, 6)").await.unwrap();
    done(&mut one, "DELETE FROM a WHERE id = 1").await.unwrap();
    done(&mut one, "UPDATE a SET v = 7 WHERE id = 3").await.unwrap();
    let taken = done(&mut one, "INSERT INTO a VALUES (9, 5)").await.unwrap_err();
    assert_eq!(taken.code, 1062);
    enter(&engine, PUBLIC).await;
    for (v, id) in [(5, "2"), (6, "4"), (7, "3")] {
        let found = rows(&mut one, &format!("SELECT id FROM a WHERE v = {v}")).await.unwrap();
        assert_eq!(found, [id]);
    }
}

#[tokio::test]
async fn a_snapshot_from_before_an_index_does_not_read_it() {
    let (engine, mut one) = accounts().await;
    done(&mut one, "INSERT INTO a VALUES (1, 5), (2, 6)").await.unwrap();
    let mut two = in_database(&engine).await;
    done(&mut one, "BEGIN").await.unwrap();
    for kind in ["INDEX", "UNIQUE INDEX"] {
        done(&mut two, &format!("CREATE {kind} by_v ON a (v)")).await.unwrap();
        assert_eq!(rows(&mut one, "SELECT id FROM a WHERE v = 5").await.unwrap(), ["1"]);
        assert_eq!(rows(&mut two, "SELECT id FROM a WHERE v = 5").await.unwrap(), ["1"]);
        let way = rows(&mut two, "EXPLAIN SELECT id FROM a WHERE v >= 5").await.unwrap().join(" ");
        assert!(way.contains("by_v"), "{way}");
        done(&mut two, "DROP INDEX by_v ON a").await.unwrap();
    }
}

/// A list of keys is looked up, whatever other lists and choices stand beside it.
#[tokio::test]
async fn lists_of_keys_are_looked_up_beside_other_lists() {
    let mut one = in_database(&engine()).await;
    done(&mut one, "CREATE TABLE k (u BIGINT UNSIGNED PRIMARY KEY, b INT, s VARCHAR(5))")
        .await
        .unwrap();
    for (condition, points) in [
        ("u IN (1, 2) AND (b = 1 OR s = 'a')", 2),
        ("u IN (1, 2, 3, 4) AND b IN (1, 2, 3, 4)", 4),
        ("u IN (1, 2, 3, 4) AND u IN (2, 3, 4, 5)", 3),
        ("u IN (1, 2, 3, NULL) AND b NOT IN (1, 2, 3, 4)", 3),
        ("u IN (1 + 1, 2, 3, 5) AND b IN (1, 2, 3, 4)", 3),
    ] {
        let explain = format!("EXPLAIN SELECT u FROM k WHERE {condition}");
        let lines = rows(&mut one, &explain).await.unwrap();
        let way = format!("{points} primary key point(s)");
        assert!(lines.last().unwrap().contains(&way), "{condition}: {lines:?}");
    }
}

#[tokio::test]
async fn an_index_that_cannot_be_filled_in_is_taken_back() {
    let (engine, mut one) = accounts().await;
    done(&mut one, "INSERT INTO a VALUES (1, 5), (2, 5)").await.unwrap();
    let error = done(&mut one, "CREATE UNIQUE INDEX by_v ON a (v)").await.unwrap_err();
    assert_eq!(error.code, 1062);
    let catalog = engine.storage().catalog().await.unwrap();
    assert!(catalog.table_named("d", "a").unwrap().indexes.is_empty());
    done(&mut one, "CREATE INDEX by_v ON a (v)").await.unwrap();
    let error = done(&mut one, "CREATE INDEX by_v ON a (id)").await.unwrap_err();
    assert_eq!(error.code, 1061);
}

/// At every version of an index in the making, rows that one node writes and the other, which knows
/// the version before only, takes away again: nothing of them may stay behind.
#[tokio::test]
async fn no_entry_of_a_row_stays_that_a_node_one_version_behind_deletes() {
    let steps = Steps::new();
    let (engine, lagging) = two_nodes(Some(steps.clone()));
    steps.go_on(1);
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, v INT)").await.unwrap();
    steps.arrive().await;
    let mut two = in_database(&engine).await;
    let making = tokio::spawn(async move {
        done(&mut one, "CREATE UNIQUE INDEX by_v ON a (v)").await.unwrap();
    });
    let mut behind = in_database(&lagging).await;
    for _ in 0..4 {
        steps.arrive().await;
        done(&mut two, "INSERT INTO a VALUES (1, 10), (2, 20)").await.unwrap();
        done(&mut behind, "DELETE FROM a WHERE id = 1").await.unwrap();
        done(&mut behind, "UPDATE a SET v = 30 WHERE id = 2").await.unwrap();
        done(&mut two, "DELETE FROM a").await.unwrap();
        steps.go_on(1);
    }
    making.await.unwrap();
    done(&mut two, "INSERT INTO a VALUES (5, 10), (6, 20), (7, 30)").await.unwrap();
    for (v, id) in [(10, "5"), (20, "6"), (30, "7")] {
        let found = rows(&mut two, &format!("SELECT id FROM a WHERE v = {v}")).await.unwrap();
        assert_eq!(found, [id]);
    }
}

/// Writers of two nodes that go on while an index is made, one of them a version behind: afterwards
/// it must lead to the same rows as a scan.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_index_made_under_writers_misses_nothing() {
    let (engine, lagging) = two_nodes(None);
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, v INT)").await.unwrap();
    let many: Vec<String> = (10..400).map(|n| format!("({n}, {})", n % 7)).collect();
    done(&mut one, &format!("INSERT INTO a VALUES {}", many.join(","))).await.unwrap();
    done(&mut one, "ALTER TABLE a SET COLUMNAR REPLICA 1").await.unwrap();
    let stop = CancellationToken::new();
    let mut writers = Vec::new();
    for writer in 0..4u32 {
        let node = if writer % 2 == 0 { &engine } else { &lagging };
        writers.push(tokio::spawn(write_on(in_database(node).await, writer, stop.clone())));
    }
    for _ in 0..20 {
        done(&mut one, "CREATE INDEX by_v ON a (v)").await.unwrap();
        for v in 0..7 {
            let by_index = format!("SELECT id FROM a WHERE v = {v} ORDER BY id");
            let by_scan = format!("SELECT id FROM a WHERE v + 0 = {v} ORDER BY id");
            done(&mut one, "BEGIN").await.unwrap();
            let (index, scan) = (rows(&mut one, &by_index).await, rows(&mut one, &by_scan).await);
            done(&mut one, "COMMIT").await.unwrap();
            assert_eq!(index.unwrap(), scan.unwrap());
        }
        done(&mut one, "DROP INDEX by_v ON a").await.unwrap();
    }
    stop.cancel();
    for writer in writers {
        writer.await.unwrap();
    }
}

/// A node that dies in the midst: writers have to keep a unique index that nobody reads, until it is
/// taken back. That is not done while there are signs of life.
#[tokio::test]
async fn an_index_that_is_left_half_done_is_taken_back_by_who_watches() {
    let steps = Steps::new();
    let cluster = Cluster::new();
    let (dying, engine) = (cluster.node(Some(steps.clone()), 0), cluster.node(None, 0));
    let mut two = in_database(&engine).await;
    done(&mut two, "CREATE TABLE a (id INT PRIMARY KEY, v INT)").await.unwrap();
    done(&mut two, "INSERT INTO a VALUES (1, 5)").await.unwrap();
    let mut one = in_database(&dying).await;
    let create =
        tokio::spawn(
            async move { done(&mut one, "CREATE UNIQUE INDEX by_v ON a (v)").await.map(drop) },
        );
    for _ in 0..2 {
        steps.arrive().await;
        steps.go_on(1);
    }
    steps.arrive().await;
    let owner = &engine.storage().leases().await.unwrap()[0].owner;
    create.abort();
    assert!(create.await.unwrap_err().is_cancelled());
    done(&mut two, "INSERT INTO a VALUES (2, 6)").await.unwrap();
    assert_eq!(done(&mut two, "INSERT INTO a VALUES (3, 6)").await.unwrap_err().code, 1062);

    let mut watch = AbandonedChanges::new(engine.clone());
    let looks = async {
        for _ in 0..60 {
            engine.storage().take_lease(None, Duration::from_secs(60), owner).await.unwrap();
            watch.look().await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    cluster.minutes_pass(looks).await;
    assert_eq!(indexes(&engine, "a").await, 1);
    let looks = async {
        while indexes(&engine, "a").await == 1 {
            watch.look().await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let looks = tokio::time::timeout(Duration::from_secs(20), looks);
    cluster.minutes_pass(looks).await.unwrap();
    done(&mut two, "INSERT INTO a VALUES (3, 6)").await.unwrap();
    let refused = done(&mut two, "CREATE UNIQUE INDEX by_v ON a (v)").await.unwrap_err();
    assert_eq!(refused.code, 1062, "{refused}");
    assert_eq!(indexes(&engine, "a").await, 0);
}

/// How many indexes a table has, complete or not.
async fn indexes(engine: &Engine, table: &str) -> usize {
    let catalog = engine.storage().catalog().await.unwrap();
    catalog.table_named("d", table).unwrap().indexes.len()
}

/// Changes rows of `a` at random until it is stopped.
pub async fn write_on(mut session: Session, seed: u32, stop: CancellationToken) {
    let mut n = seed;
    while !stop.is_cancelled() {
        n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (id, v) = (10 + (n >> 8) % 400, (n >> 20) % 7);
        let statement = match n >> 30 {
            0 => format!("DELETE FROM a WHERE id = {id}"),
            1 => format!("INSERT INTO a VALUES ({id}, {v})"),
            _ => format!("UPDATE a SET v = {v} WHERE id = {id}"),
        };
        match done(&mut session, &statement).await {
            Ok(_) => {}
            Err(error) => assert!(matches!(error.code, 1062 | 1213), "{error}"),
        }
    }
}
