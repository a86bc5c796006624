//! Columns that come and go under writers, some of them on a node one version behind.

use std::time::Duration;

use sql::engine::Engine;
use sql::session::Session;
use tokio_util::sync::CancellationToken;
use values::error::SqlResult;

use super::harness::{done, engine, in_database, rows};
use super::lagging::{Cluster, Steps, two_nodes};

/// At every version of the change, the newest node sets the column and the one behind changes
/// another one of the same row: neither may lose what the other wrote.
#[tokio::test]
async fn a_node_one_version_behind_carries_along_the_columns_it_does_not_show() {
    let steps = Steps::new();
    let (engine, lagging) = two_nodes(Some(steps.clone()));
    steps.go_on(1);
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, v INT NOT NULL, w INT NOT NULL)")
        .await
        .unwrap();
    steps.arrive().await;
    let mut two = in_database(&engine).await;
    let mut behind = in_database(&lagging).await;
    done(&mut two, "INSERT INTO a VALUES (1, 1, 1), (2, 2, 2)").await.unwrap();
    let altering = tokio::spawn(async move {
        done(&mut one, "ALTER TABLE a ADD COLUMN c INT NOT NULL DEFAULT 5").await.unwrap();
        done(&mut one, "ALTER TABLE a DROP COLUMN w").await.unwrap();
        one
    });
    // Hidden: nobody sets it. Both nodes read each other's rows, also under locks.
    steps.arrive().await;
    assert_eq!(done(&mut two, "UPDATE a SET c = 6").await.unwrap_err().code, 1054);
    done(&mut two, "UPDATE a SET v = 10 WHERE id = 1").await.unwrap();
    done(&mut behind, "UPDATE a SET w = 10 WHERE id = 1").await.unwrap();
    done(&mut behind, "INSERT INTO a VALUES (3, 3, 3)").await.unwrap();
    let read = "SELECT * FROM a WHERE id = 1 FOR UPDATE";
    assert_eq!(rows(&mut behind, read).await.unwrap(), ["1|10|10"]);
    steps.go_on(1);
    // Shown: the newest sets it, and the one behind keeps it.
    steps.arrive().await;
    done(&mut two, "UPDATE a SET c = 6 WHERE id <> 2").await.unwrap();
    done(&mut behind, "UPDATE a SET v = 20").await.unwrap();
    done(&mut behind, "INSERT INTO a VALUES (4, 4, 4)").await.unwrap();
    let all = "SELECT id, v, w, c FROM a ORDER BY id";
    let found = rows(&mut two, all).await.unwrap();
    assert_eq!(found, ["1|20|10|6", "2|20|2|5", "3|20|3|6", "4|4|4|5"]);
    steps.go_on(1);
    // Being dropped: hidden for the newest, which carries it along for the one behind.
    steps.arrive().await;
    done(&mut two, "UPDATE a SET v = 30 WHERE id = 1").await.unwrap();
    done(&mut two, "INSERT INTO a (id, v, c) VALUES (5, 5, 5)").await.unwrap();
    assert_eq!(rows(&mut behind, all).await.unwrap()[0], "1|30|10|6");
    done(&mut behind, "UPDATE a SET w = w + 1 WHERE id IN (1, 5)").await.unwrap();
    assert_eq!(rows(&mut behind, all).await.unwrap()[4], "5|5|1|5");
    steps.go_on(1);
    // Gone: rows hold it still, and nobody shows it.
    steps.arrive().await;
    done(&mut two, "UPDATE a SET v = 40 WHERE id = 5").await.unwrap();
    done(&mut behind, "UPDATE a SET c = 7 WHERE id = 5").await.unwrap();
    let found = rows(&mut two, "SELECT * FROM a").await.unwrap();
    assert_eq!(found, ["1|30|6", "2|20|5", "3|20|6", "4|4|5", "5|40|7"]);
    steps.go_on(1);
    altering.await.unwrap();
}

/// Rows that carry a sum of their own: whatever columns come and go, no update may lose another.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_lose_nothing_while_columns_come_and_go() {
    let (engine, lagging) = two_nodes(None);
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, v INT NOT NULL)").await.unwrap();
    let many: Vec<String> = (0..40).map(|n| format!("({n}, 0)")).collect();
    done(&mut one, &format!("INSERT INTO a VALUES {}", many.join(","))).await.unwrap();
    done(&mut one, "ALTER TABLE a SET COLUMNAR REPLICA 1").await.unwrap();
    let stop = CancellationToken::new();
    let mut writers = Vec::new();
    for writer in 0..4u32 {
        let node = if writer % 2 == 0 { &engine } else { &lagging };
        writers.push(tokio::spawn(count_on(in_database(node).await, writer, stop.clone())));
    }
    for n in 0..15 {
        done(&mut one, &format!("ALTER TABLE a ADD COLUMN c{n} INT NOT NULL DEFAULT {n}"))
            .await
            .unwrap();
        let set = format!("UPDATE a SET c{n} = 1000 WHERE id % 2 = 0");
        while done(&mut one, &set).await.is_err_and(|error| error.code == 1213) {}
        tokio::task::yield_now().await;
        let found = format!("SELECT COUNT(*) FROM a WHERE c{n} <> IF(id % 2 = 0, 1000, {n})");
        assert_eq!(rows(&mut one, &found).await.unwrap(), ["0"]);
        done(&mut one, &format!("ALTER TABLE a DROP COLUMN c{n}")).await.unwrap();
    }
    stop.cancel();
    let mut counted = 0;
    for writer in writers {
        counted += writer.await.unwrap();
    }
    assert!(counted > 0);
    assert_eq!(rows(&mut one, "SELECT SUM(v) FROM a").await.unwrap(), [counted.to_string()]);
}

/// Adds one to rows until it is stopped; how often it did.
async fn count_on(mut session: Session, seed: u32, stop: CancellationToken) -> u64 {
    let (mut n, mut counted) = (seed, 0);
    while !stop.is_cancelled() {
        n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let id = (n >> 8) % 40;
        match done(&mut session, &format!("UPDATE a SET v = v + 1 WHERE id = {id}")).await {
            Ok(_) => counted += 1,
            Err(error) => assert_eq!(error.code, 1213, "{error}"),
        }
    }
    counted
}

/// An older snapshot is read under the newest description: columns added since read as they do for
/// all rows that lack them, dropped ones are gone.
#[tokio::test]
async fn an_older_snapshot_shows_the_newest_columns() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, v INT, w INT)").await.unwrap();
    done(&mut one, "INSERT INTO a VALUES (1, 1, 1)").await.unwrap();
    let mut two = in_database(&engine).await;
    done(&mut two, "BEGIN").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT * FROM a").await.unwrap(), ["1|1|1"]);
    done(&mut one, "ALTER TABLE a ADD COLUMN c INT DEFAULT 3, DROP COLUMN v").await.unwrap();
    done(&mut one, "UPDATE a SET c = 4, w = 2").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT * FROM a").await.unwrap(), ["1|1|3"]);
    // Its own rows are written by the description it first wrote by.
    assert_eq!(rows(&mut two, "SELECT v FROM a").await.unwrap_err().code, 1054);
    done(&mut two, "ROLLBACK").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT * FROM a").await.unwrap(), ["1|2|4"]);
}

/// A transaction that has written by a description that is two versions old cannot commit.
#[tokio::test]
async fn a_transaction_from_before_the_change_has_to_try_again() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, v INT)").await.unwrap();
    done(&mut one, "INSERT INTO a VALUES (1, 1)").await.unwrap();
    let mut two = in_database(&engine).await;
    done(&mut two, "BEGIN").await.unwrap();
    done(&mut two, "INSERT INTO a VALUES (2, 2)").await.unwrap();
    done(&mut one, "ALTER TABLE a ADD COLUMN c INT DEFAULT 3").await.unwrap();
    assert_eq!(done(&mut two, "COMMIT").await.unwrap_err().code, 1213);
    assert_eq!(rows(&mut two, "SELECT * FROM a").await.unwrap(), ["1|1|3"]);
}

/// Whether a table has columns that are not shown.
async fn has_hidden(engine: &Engine, table: &str) -> bool {
    let catalog = engine.storage().catalog().await.unwrap();
    catalog.table_named("d", table).unwrap().columns.iter().any(|column| column.hidden)
}

/// While a column is hidden, it is no part of any `*`, and other changes of the columns wait.
#[tokio::test]
async fn changes_of_one_table_come_one_after_the_other() {
    let steps = Steps::new();
    let cluster = Cluster::new();
    let (slow, engine) = (cluster.node(Some(steps.clone()), 0), cluster.node(None, 0));
    let mut reader = in_database(&engine).await;
    let create = "CREATE TABLE a (id INT PRIMARY KEY, v INT, w INT, UNIQUE KEY by_w (w))";
    done(&mut reader, create).await.unwrap();
    done(&mut reader, "CREATE TABLE b (id INT PRIMARY KEY, k INT)").await.unwrap();
    done(&mut reader, "INSERT INTO a VALUES (1, 1, 1)").await.unwrap();
    done(&mut reader, "INSERT INTO b VALUES (1, 7)").await.unwrap();
    let mut one = in_database(&slow).await;
    let first = tokio::spawn(async move {
        done(&mut one, "ALTER TABLE a ADD COLUMN c INT DEFAULT 3").await.map(drop)
    });
    steps.arrive().await;
    let mut others = Vec::new();
    for change in ["RENAME COLUMN v TO x", "ADD COLUMN e INT DEFAULT 5, DROP COLUMN w"] {
        let mut two = in_database(&engine).await;
        let change = format!("ALTER TABLE a {change}");
        others.push(tokio::spawn(async move { done(&mut two, &change).await.map(drop) }));
    }
    for (query, found) in [
        ("SELECT * FROM a", "1|1|1"),
        ("SELECT a.* FROM a JOIN b ON a.id = b.id", "1|1|1"),
        ("SELECT b.* FROM a JOIN b ON a.id = b.id", "1|7"),
        ("SELECT * FROM a JOIN b ON a.id = b.id", "1|1|1|1|7"),
        ("SELECT * FROM a x, a y", "1|1|1|1|1|1"),
        ("SELECT d.a.*, k FROM b JOIN a USING (id)", "1|1|1|7"),
    ] {
        assert_eq!(rows(&mut reader, query).await.unwrap(), [found], "{query}");
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(others.iter().all(|other| !other.is_finished()));
    // What does not touch the columns need not wait.
    done(&mut reader, "ALTER TABLE a SET COLUMNAR REPLICA 1").await.unwrap();
    steps.go_on(10);
    first.await.unwrap().unwrap();
    for other in others {
        other.await.unwrap().unwrap();
    }
    assert_eq!(rows(&mut reader, "SELECT id, x, c, e FROM a").await.unwrap(), ["1|1|3|5"]);
    assert_eq!(rows(&mut reader, "SELECT * FROM a").await.unwrap()[0].split('|').count(), 4);
    assert!(!has_hidden(&engine, "a").await);
}

/// A node that dies between the two versions of a change: what it was adding is not added, what it
/// was dropping is dropped, by the next change.
#[tokio::test]
async fn what_is_left_half_done_is_ended_by_the_next_change() {
    let steps = Steps::new();
    let cluster = Cluster::new();
    let (dying, engine) = (cluster.node(Some(steps.clone()), 0), cluster.node(None, 0));
    let mut two = in_database(&engine).await;
    let create = "CREATE TABLE a (id INT PRIMARY KEY, v INT, w INT, UNIQUE KEY by_w (w))";
    done(&mut two, create).await.unwrap();
    done(&mut two, "INSERT INTO a VALUES (1, 1, 1)").await.unwrap();
    let mut one = in_database(&dying).await;
    let alter = tokio::spawn(async move {
        let change =
            "ALTER TABLE a RENAME COLUMN v TO x, ADD COLUMN c INT DEFAULT 3, DROP COLUMN w";
        done(&mut one, change).await.map(drop)
    });
    steps.arrive().await;
    alter.abort();
    assert!(alter.await.unwrap_err().is_cancelled());
    assert_eq!(rows(&mut two, "SELECT * FROM a").await.unwrap(), ["1|1"]);
    assert!(has_hidden(&engine, "a").await);
    let refused = import_target(&mut two).await.unwrap_err();
    assert!(refused.message.contains("ALTER TABLE"), "{refused}");
    let next = done(&mut two, "ALTER TABLE a ADD COLUMN c INT DEFAULT 4, ADD COLUMN w INT");
    cluster.minutes_pass(next).await.unwrap();
    assert_eq!(rows(&mut two, "SELECT id, v, c, w FROM a").await.unwrap(), ["1|1|4|NULL"]);
    assert!(!has_hidden(&engine, "a").await);
    import_target(&mut two).await.unwrap();
}

async fn import_target(session: &mut Session) -> SqlResult<()> {
    session.import_target("d", "a", None).await.map(drop)
}

/// Whose change was taken for given up gets an error, and changes nothing any more.
#[tokio::test]
async fn who_was_given_up_cannot_go_on() {
    let steps = Steps::new();
    let cluster = Cluster::new();
    let (slow, engine) = (cluster.node(Some(steps.clone()), 0), cluster.node(None, 0));
    let mut two = in_database(&engine).await;
    done(&mut two, "CREATE TABLE a (id INT PRIMARY KEY, v INT)").await.unwrap();
    done(&mut two, "INSERT INTO a VALUES (1, 1)").await.unwrap();
    let mut one = in_database(&slow).await;
    let alter = tokio::spawn(async move {
        done(&mut one, "ALTER TABLE a ADD COLUMN c INT DEFAULT 3, COMMENT = 'c'").await.map(drop)
    });
    steps.arrive().await;
    let next = done(&mut two, "ALTER TABLE a ADD COLUMN e INT DEFAULT 5");
    cluster.minutes_pass(next).await.unwrap();
    steps.go_on(10);
    assert_eq!(alter.await.unwrap().unwrap_err().code, 1412);
    assert_eq!(rows(&mut two, "SELECT * FROM a").await.unwrap(), ["1|1|5"]);
    let catalog = engine.storage().catalog().await.unwrap();
    assert_eq!(catalog.table_named("d", "a").unwrap().comment, "");
    assert!(!has_hidden(&engine, "a").await);
}
