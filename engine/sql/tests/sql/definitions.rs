//! CHECK and generated columns under writers, some of them on a node one version behind, and on
//! ways into a table that scripts cannot go.

use execution::reply::Reply;
use sql::session::Session;
use tokio_util::sync::CancellationToken;
use types::Value;

use super::harness::{done, engine, in_database, rows};
use super::lagging::{Steps, two_nodes};

async fn load(session: &mut Session, sql: &str, file: &str) -> Result<u64, u16> {
    let cancel = CancellationToken::new();
    let Reply::LocalInfile { .. } = session.execute(sql.as_bytes(), &cancel).await.unwrap() else {
        panic!("{sql} wanted no file")
    };
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let file = file.to_owned().into_bytes();
    tokio::spawn(async move { sender.send(Ok(file.into())).await });
    match session.load_data(receiver, &cancel).await {
        Ok(Reply::Done(done)) => Ok(done.affected_rows),
        Ok(_) => panic!("a load answered rows"),
        Err(error) => Err(error.code),
    }
}

/// A check that stands was kept by every row when it came to stand, and is kept by every writer:
/// also by those who knew the version before it when its rows were looked at.
#[tokio::test]
async fn no_writer_slips_a_row_past_a_check_that_is_being_added() {
    let steps = Steps::new();
    let (engine, lagging) = two_nodes(Some(steps.clone()));
    steps.go_on(1);
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, v INT)").await.unwrap();
    steps.arrive().await;
    let mut behind = in_database(&lagging).await;
    done(&mut one, "INSERT INTO a VALUES (1, 1)").await.unwrap();
    let altering = tokio::spawn(async move {
        let altered = done(&mut one, "ALTER TABLE a ADD CONSTRAINT p CHECK (v > 0)").await;
        (one, altered)
    });
    // Known to the newest node, and not to the one behind.
    steps.arrive().await;
    let mut two = in_database(&engine).await;
    let refused = done(&mut two, "INSERT INTO a VALUES (2, -2)").await.unwrap_err();
    assert_eq!(refused.code, 3819);
    done(&mut behind, "INSERT INTO a VALUES (3, 3)").await.unwrap();
    steps.go_on(2);
    let (_, altered) = altering.await.unwrap();
    altered.unwrap();
    let refused = done(&mut behind, "INSERT INTO a VALUES (4, -4)").await.unwrap_err();
    assert_eq!(refused.code, 3819);
    assert_eq!(rows(&mut two, "SELECT COUNT(*) FROM a WHERE v <= 0").await.unwrap(), ["0"]);
}

/// A row that was written by a node behind, while the check came, is found; then the check goes.
#[tokio::test]
async fn a_check_that_a_row_breaks_is_taken_back() {
    let steps = Steps::new();
    let (engine, lagging) = two_nodes(Some(steps.clone()));
    steps.go_on(1);
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, v INT)").await.unwrap();
    steps.arrive().await;
    let mut behind = in_database(&lagging).await;
    let altering = tokio::spawn(async move {
        let altered = done(&mut one, "ALTER TABLE a ADD CONSTRAINT p CHECK (v > 0)").await;
        (one, altered)
    });
    steps.arrive().await;
    done(&mut behind, "INSERT INTO a VALUES (1, -1)").await.unwrap();
    steps.go_on(3);
    let (mut one, altered) = altering.await.unwrap();
    assert_eq!(altered.unwrap_err().code, 3819);
    done(&mut one, "INSERT INTO a VALUES (2, -2)").await.unwrap();
}

/// Whoever writes while a generated column is added, and whatever version he knows: in the end each
/// row has its own value.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_generated_column_is_right_in_every_row_after_it_was_added_under_writers() {
    let (engine, lagging) = two_nodes(None);
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, v INT NOT NULL)").await.unwrap();
    let many: Vec<String> = (0..60).map(|n| format!("({n}, {n})")).collect();
    done(&mut one, &format!("INSERT INTO a VALUES {}", many.join(","))).await.unwrap();
    done(&mut one, "ALTER TABLE a SET COLUMNAR REPLICA 1").await.unwrap();
    let stop = CancellationToken::new();
    let mut writers = Vec::new();
    for writer in 0..4u32 {
        let node = if writer % 2 == 0 { &engine } else { &lagging };
        writers.push(tokio::spawn(write_on(in_database(node).await, writer, stop.clone())));
    }
    for n in 0..8 {
        let add = format!("ALTER TABLE a ADD COLUMN g{n} INT AS (v * {n} + 1) STORED NOT NULL");
        done(&mut one, &add).await.unwrap();
        let wrong = format!("SELECT COUNT(*) FROM a WHERE g{n} <> v * {n} + 1");
        assert_eq!(rows(&mut one, &wrong).await.unwrap(), ["0"]);
    }
    stop.cancel();
    let mut written = 0;
    for writer in writers {
        written += writer.await.unwrap();
    }
    assert!(written > 0);
    let wrong = "SELECT COUNT(*) FROM a WHERE g2 <> v * 2 + 1 OR g7 <> v * 7 + 1";
    assert_eq!(rows(&mut one, wrong).await.unwrap(), ["0"]);
}

/// Changes and adds rows until it is stopped; how often it did.
async fn write_on(mut session: Session, writer: u32, stop: CancellationToken) -> u64 {
    let (mut n, mut written) = (writer, 0);
    while !stop.is_cancelled() {
        n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let id = (n >> 8) % 60;
        let sql = match n >> 31 {
            0 => format!("UPDATE a SET v = v + 1 WHERE id = {id}"),
            _ => format!("REPLACE INTO a (id, v) VALUES ({}, {id})", 100 + writer * 100 + id),
        };
        match done(&mut session, &sql).await {
            Ok(_) => written += 1,
            Err(error) => assert_eq!(error.code, 1213, "{error}"),
        }
        tokio::task::yield_now().await;
    }
    written
}

#[tokio::test]
async fn rows_of_files_that_break_a_check_are_left_out() {
    let mut one = in_database(&engine()).await;
    let table = "CREATE TABLE f (id INT PRIMARY KEY, a INT CHECK (a > 0), b INT AS (a * 2) STORED)";
    done(&mut one, table).await.unwrap();
    let sql = "LOAD DATA LOCAL INFILE 'f' INTO TABLE f FIELDS TERMINATED BY ',' (id, a)";
    let many: String = (1..6_000).map(|n| format!("{n},{n}\n")).collect();
    assert_eq!(load(&mut one, sql, &format!("{many}6000,0\n")).await, Ok(5_999));
    let shown = rows(&mut one, "SHOW WARNINGS").await.unwrap();
    assert!(shown.len() == 1 && shown[0].starts_with("Warning|3819|"), "{shown:?}");
    let sums = "SELECT SUM(a), SUM(b) FROM f";
    assert_eq!(rows(&mut one, sums).await.unwrap(), ["17997000|35994000"]);
    let all = "LOAD DATA LOCAL INFILE 'f' INTO TABLE f FIELDS TERMINATED BY ','";
    assert_eq!(load(&mut one, all, "7000,1,2\n").await, Err(3105));
}

#[tokio::test]
async fn imported_rows_are_held_against_checks_and_get_their_generated_columns() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    let table = "CREATE TABLE f (id INT PRIMARY KEY, a INT CHECK (a > 0), b INT AS (a * 2) STORED, KEY (b))";
    done(&mut one, table).await.unwrap();
    let columns = ["id".to_owned(), "a".to_owned()];
    let target = one.import_target("d", "f", Some(&columns)).await.unwrap();
    let row = |id, a| vec![Some(Value::Int(id)), Some(Value::Int(a))];
    let refused = one.import_rows(&target, vec![row(1, 1), row(2, 0)]).err().unwrap();
    assert_eq!(refused.code, 3819);
    let imported = one.import_rows(&target, vec![row(1, 5)]).unwrap();
    let (_, stored) = &imported.rows[0][0];
    let values = types::row::decode(&target.table, stored).unwrap();
    assert_eq!(values, [Value::Int(1), Value::Int(5), Value::Int(10)]);
    // A record and an entry of the key over the generated column.
    assert_eq!(imported.rows[0].len(), 2);
}

/// One session plans what it holds rows against once for each version of the table.
#[tokio::test]
async fn a_session_goes_by_the_newest_checks() {
    let engine = engine();
    let mut one = in_database(&engine).await;
    let mut two = in_database(&engine).await;
    done(&mut one, "CREATE TABLE a (v INT, CONSTRAINT p CHECK (v < 10))").await.unwrap();
    done(&mut two, "INSERT INTO a VALUES (9)").await.unwrap();
    assert_eq!(done(&mut two, "INSERT INTO a VALUES (10)").await.unwrap_err().code, 3819);
    done(&mut one, "ALTER TABLE a DROP CHECK p").await.unwrap();
    done(&mut two, "INSERT INTO a VALUES (10)").await.unwrap();
    done(&mut one, "ALTER TABLE a ADD CONSTRAINT p CHECK (v <= 10)").await.unwrap();
    assert_eq!(done(&mut two, "INSERT INTO a VALUES (11)").await.unwrap_err().code, 3819);
    // A TIMESTAMP is compared in the session's time zone, as WHERE compares it.
    let table = "CREATE TABLE z (t TIMESTAMP, CHECK (t < '2024-01-02 00:00:00'))";
    done(&mut one, table).await.unwrap();
    done(&mut one, "SET time_zone = '+00:00'").await.unwrap();
    done(&mut one, "INSERT INTO z VALUES ('2024-01-01 23:00:00')").await.unwrap();
    done(&mut one, "SET time_zone = '+02:00'").await.unwrap();
    // The same instant, on the day after.
    let late = "INSERT INTO z VALUES ('2024-01-02 01:00:00')";
    assert_eq!(done(&mut one, late).await.unwrap_err().code, 3819);
}
