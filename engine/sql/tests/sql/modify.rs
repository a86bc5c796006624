//! Columns whose type changes under writers, some of them on a node one version behind, and changes
//! that fail, are killed or left half done.

use sql::engine::Engine;
use sql::session::{AbandonedChanges, Session};
use tokio_util::sync::CancellationToken;

use super::harness::{done, engine, in_database, rows};
use super::lagging::{Cluster, Steps, two_nodes};

/// The columns of `a`, hidden ones too.
async fn columns(engine: &Engine) -> Vec<String> {
    let catalog = engine.storage().catalog().await.unwrap();
    let table = catalog.table_named("d", "a").unwrap();
    table.columns.iter().map(|column| format!("{} {}", column.name, column.ty)).collect()
}

/// At every version of the change, the node behind writes by the type that it knows, or has to
/// try again: it never takes a value that it cannot know for another, and loses none.
#[tokio::test]
async fn a_node_one_version_behind_keeps_to_the_type_that_it_knows() {
    let steps = Steps::new();
    let (engine, lagging) = two_nodes(Some(steps.clone()));
    steps.go_on(1);
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, v INT NOT NULL, w INT)").await.unwrap();
    steps.arrive().await;
    let mut two = in_database(&engine).await;
    let mut behind = in_database(&lagging).await;
    done(&mut two, "INSERT INTO a VALUES (1, 1, 1), (2, 2, NULL), (4, 4, 4)").await.unwrap();
    let altering = tokio::spawn(async move {
        done(&mut one, "ALTER TABLE a MODIFY w VARCHAR(10) FIRST").await.map(drop)
    });
    // Hidden, and known to the newest only.
    steps.arrive().await;
    done(&mut two, "UPDATE a SET w = 10 WHERE id = 1").await.unwrap();
    done(&mut behind, "UPDATE a SET v = 20 WHERE id = 2").await.unwrap();
    let beyond = done(&mut behind, "UPDATE a SET w = 11 WHERE id = 1").await.unwrap_err();
    assert_eq!(beyond.code, 1213, "{beyond}");
    steps.go_on(1);
    // Known to both.
    steps.arrive().await;
    done(&mut behind, "UPDATE a SET w = 12 WHERE id = 1").await.unwrap();
    done(&mut behind, "INSERT INTO a VALUES (3, 3, 3)").await.unwrap();
    assert_eq!(done(&mut two, "UPDATE a SET w = 'x'").await.unwrap_err().code, 1366);
    steps.go_on(1);
    // In its place.
    steps.arrive().await;
    let all = "SELECT * FROM a ORDER BY id";
    assert_eq!(rows(&mut two, all).await.unwrap(), ["12|1|1", "NULL|2|20", "3|3|3", "4|4|4"]);
    done(&mut behind, "UPDATE a SET w = 13 WHERE id = 3").await.unwrap();
    done(&mut two, "UPDATE a SET w = 'text' WHERE id = 1").await.unwrap();
    for change in ["UPDATE a SET w = 14 WHERE id = 1", "UPDATE a SET v = 14 WHERE id = 1"] {
        assert_eq!(done(&mut behind, change).await.unwrap_err().code, 1213, "{change}");
    }
    done(&mut two, "INSERT INTO a VALUES ('five', 5, 5)").await.unwrap();
    let beyond = rows(&mut behind, "SELECT w FROM a WHERE id = 5 FOR UPDATE").await.unwrap_err();
    assert_eq!(beyond.code, 1213, "{beyond}");
    let found = ["text|1|1", "NULL|2|20", "13|3|3", "4|4|4", "five|5|5"];
    assert_eq!(rows(&mut two, all).await.unwrap(), found);
    steps.go_on(1);
    altering.await.unwrap().unwrap();
}

/// A number that is wider than a node's description is nothing that it may read as another one.
#[tokio::test]
async fn a_node_one_version_behind_refuses_numbers_that_it_has_no_room_for() {
    let steps = Steps::new();
    let (engine, lagging) = two_nodes(Some(steps.clone()));
    steps.go_on(1);
    let mut one = in_database(&engine).await;
    let create = "CREATE TABLE a (id INT PRIMARY KEY, v INT, d DECIMAL(4,2))";
    done(&mut one, create).await.unwrap();
    steps.arrive().await;
    let mut two = in_database(&engine).await;
    let mut behind = in_database(&lagging).await;
    let altering = tokio::spawn(async move {
        let change = "ALTER TABLE a MODIFY id BIGINT, MODIFY v BIGINT, MODIFY d DECIMAL(9,2)";
        done(&mut one, change).await.map(drop)
    });
    steps.arrive().await;
    let wide = "INSERT INTO a VALUES (1, 3000000000, 1), (2, 2, 12345.67), (3, 3, 3)";
    done(&mut two, wide).await.unwrap();
    for id in 1..3 {
        let change = format!("UPDATE a SET v = 0 WHERE id = {id}");
        assert_eq!(done(&mut behind, &change).await.unwrap_err().code, 1213, "{change}");
    }
    done(&mut behind, "UPDATE a SET v = 4 WHERE id = 3").await.unwrap();
    steps.go_on(1);
    altering.await.unwrap().unwrap();
    let found = ["1|3000000000|1.00", "2|2|12345.67", "3|4|3.00"];
    assert_eq!(rows(&mut two, "SELECT * FROM a ORDER BY id").await.unwrap(), found);
}

/// Writers of two nodes count in a column that becomes a text and a number again and again: no
/// count is lost, and none is done twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_lose_nothing_while_a_column_changes_its_type() {
    let (engine, lagging) = two_nodes(None);
    let mut one = in_database(&engine).await;
    let create = "CREATE TABLE a (id INT PRIMARY KEY, v INT NOT NULL, w INT, KEY by_v (v))";
    done(&mut one, create).await.unwrap();
    let many: Vec<String> = (0..400).map(|n| format!("({n}, 0, {n})")).collect();
    done(&mut one, &format!("INSERT INTO a VALUES {}", many.join(","))).await.unwrap();
    done(&mut one, "ALTER TABLE a SET COLUMNAR REPLICA 1").await.unwrap();
    let stop = CancellationToken::new();
    let mut writers = Vec::new();
    for writer in 0..4u32 {
        let node = if writer % 2 == 0 { &engine } else { &lagging };
        writers.push(tokio::spawn(count_on(in_database(node).await, writer, stop.clone())));
    }
    for change in
        ["v VARCHAR(20) NOT NULL", "v DECIMAL(12,3) NOT NULL FIRST", "v INT NOT NULL"].repeat(4)
    {
        done(&mut one, &format!("ALTER TABLE a MODIFY {change}")).await.unwrap();
        tokio::task::yield_now().await;
    }
    stop.cancel();
    let mut counted = 0;
    for writer in writers {
        counted += writer.await.unwrap();
    }
    assert!(counted > 0);
    assert_eq!(rows(&mut one, "SELECT SUM(v) FROM a").await.unwrap(), [counted.to_string()]);
    for v in 0..6 {
        let by_index = format!("SELECT id FROM a WHERE v = {v} ORDER BY id");
        let by_scan = format!("SELECT id FROM a WHERE v + 0 = {v} ORDER BY id");
        let found = rows(&mut one, &by_index).await.unwrap();
        assert_eq!(found, rows(&mut one, &by_scan).await.unwrap());
    }
    let kept = "SELECT COUNT(*) FROM a WHERE w = id";
    assert_eq!(rows(&mut one, kept).await.unwrap(), ["400"]);
    assert_eq!(columns(&engine).await, ["v int", "id int", "w int"]);
}

/// Adds one to rows until it is stopped; how often it did.
async fn count_on(mut session: Session, seed: u32, stop: CancellationToken) -> u64 {
    let (mut n, mut counted) = (seed, 0);
    while !stop.is_cancelled() {
        n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let id = (n >> 8) % 400;
        match done(&mut session, &format!("UPDATE a SET v = v + 1 WHERE id = {id}")).await {
            Ok(_) => counted += 1,
            Err(error) => assert!(matches!(error.code, 1213 | 1412), "{error}"),
        }
    }
    counted
}

/// Of rows from before, the new column has no values: who reads at an older snapshot gets an error.
#[tokio::test]
async fn an_older_snapshot_fails_once_a_type_was_changed() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, v INT)").await.unwrap();
    done(&mut one, "INSERT INTO a VALUES (1, 1)").await.unwrap();
    let mut two = in_database(&engine).await;
    done(&mut two, "BEGIN").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT * FROM a").await.unwrap(), ["1|1"]);
    done(&mut one, "ALTER TABLE a MODIFY v VARCHAR(9)").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT * FROM a").await.unwrap_err().code, 1412);
    done(&mut two, "ROLLBACK").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT * FROM a").await.unwrap(), ["1|1"]);
}

/// A statement that is killed while it waits for a row, and one that meets a value that does not
/// convert: of neither anything stays.
#[tokio::test]
async fn a_change_that_does_not_end_is_taken_back() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, s VARCHAR(9))").await.unwrap();
    done(&mut one, "INSERT INTO a VALUES (1, '1'), (2, '2')").await.unwrap();
    let mut two = in_database(&engine).await;
    done(&mut two, "BEGIN").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT id FROM a WHERE id = 2 FOR UPDATE").await.unwrap(), ["2"]);
    let cancel = CancellationToken::new();
    let killed = cancel.clone();
    let altering = tokio::spawn(async move {
        let altered = one.execute(b"ALTER TABLE a MODIFY s INT", &killed).await.map(drop);
        (one, altered)
    });
    let hidden = async {
        while columns(&engine).await.len() < 3 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), hidden).await.unwrap();
    cancel.cancel();
    let (mut one, altered) = altering.await.unwrap();
    assert_eq!(altered.unwrap_err().code, 1317);
    assert_eq!(columns(&engine).await, ["id int", "s varchar(9)"]);
    done(&mut two, "ROLLBACK").await.unwrap();
    done(&mut two, "INSERT INTO a VALUES (3, 'three')").await.unwrap();
    let wrong = done(&mut one, "ALTER TABLE a MODIFY s INT").await.unwrap_err();
    assert_eq!((wrong.code, wrong.message.contains("'s' at row 3")), (1366, true), "{wrong}");
    assert_eq!(columns(&engine).await, ["id int", "s varchar(9)"]);
    assert_eq!(rows(&mut two, "SELECT s FROM a ORDER BY id").await.unwrap(), ["1", "2", "three"]);
    done(&mut one, "ALTER TABLE a MODIFY s VARCHAR(5)").await.unwrap();
}

/// A node that dies in the midst: the table is as it was for readers; what is written must fit both
/// types, until the change is ended.
#[tokio::test]
async fn a_change_that_is_left_half_done_is_ended_by_who_watches() {
    let steps = Steps::new();
    let cluster = Cluster::new();
    let (dying, engine) = (cluster.node(Some(steps.clone()), 0), cluster.node(None, 0));
    let mut two = in_database(&engine).await;
    done(&mut two, "CREATE TABLE a (id INT PRIMARY KEY, s VARCHAR(9))").await.unwrap();
    done(&mut two, "INSERT INTO a VALUES (1, '1')").await.unwrap();
    let mut one = in_database(&dying).await;
    let alter = tokio::spawn(async move {
        done(&mut one, "ALTER TABLE a MODIFY s INT NOT NULL").await.map(drop)
    });
    steps.arrive().await;
    steps.go_on(1);
    steps.arrive().await;
    alter.abort();
    assert!(alter.await.unwrap_err().is_cancelled());
    assert_eq!(columns(&engine).await.len(), 3);
    assert_eq!(rows(&mut two, "SELECT * FROM a").await.unwrap(), ["1|1"]);
    done(&mut two, "INSERT INTO a VALUES (2, '2')").await.unwrap();
    let wrong = done(&mut two, "INSERT INTO a VALUES (3, 'three')").await.unwrap_err();
    assert_eq!((wrong.code, wrong.message.contains("column 's'")), (1366, true), "{wrong}");
    assert_eq!(done(&mut two, "UPDATE a SET s = NULL").await.unwrap_err().code, 1048);
    // Without anybody's asking, too; not at once.
    let mut watch = AbandonedChanges::new(engine.clone());
    watch.look().await.unwrap();
    watch.look().await.unwrap();
    assert_eq!(columns(&engine).await.len(), 3);
    let watching = async {
        while columns(&engine).await.len() == 3 {
            watch.look().await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let watching = tokio::time::timeout(std::time::Duration::from_secs(20), watching);
    cluster.minutes_pass(watching).await.unwrap();
    assert_eq!(columns(&engine).await, ["id int", "s varchar(9)"]);
    done(&mut two, "INSERT INTO a VALUES (3, 'three'), (4, NULL)").await.unwrap();
    assert_eq!(rows(&mut two, "SELECT s FROM a").await.unwrap(), ["1", "2", "three", "NULL"]);
}

/// The same without anybody who looks: the next change finds it.
#[tokio::test]
async fn a_change_that_is_left_half_done_is_ended_by_the_next_one() {
    let steps = Steps::new();
    let cluster = Cluster::new();
    let (dying, engine) = (cluster.node(Some(steps.clone()), 0), cluster.node(None, 0));
    let mut two = in_database(&engine).await;
    done(&mut two, "CREATE TABLE a (id INT PRIMARY KEY, s VARCHAR(9))").await.unwrap();
    done(&mut two, "INSERT INTO a VALUES (1, '1'), (2, '2')").await.unwrap();
    let mut one = in_database(&dying).await;
    let alter = tokio::spawn(async move {
        done(&mut one, "ALTER TABLE a MODIFY s INT NOT NULL").await.map(drop)
    });
    steps.arrive().await;
    alter.abort();
    assert!(alter.await.unwrap_err().is_cancelled());
    let next = done(&mut two, "ALTER TABLE a ADD COLUMN c INT DEFAULT 4");
    cluster.minutes_pass(next).await.unwrap();
    assert_eq!(columns(&engine).await, ["id int", "s varchar(9)", "c int"]);
    done(&mut two, "INSERT INTO a VALUES (3, 'three', 3), (4, NULL, 4)").await.unwrap();
    let found = ["1|1|4", "2|2|4", "3|three|3", "4|NULL|4"];
    assert_eq!(rows(&mut two, "SELECT * FROM a ORDER BY id").await.unwrap(), found);
}
