//! LOAD DATA LOCAL: what of a file becomes rows, what is mended or left out, and what is said of it.

use bytes::Bytes;
use execution::reply::{Done, Reply};
use sql::session::Session;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use values::error::SqlError;

use super::harness::{done, engine, in_database, rows, warnings};
use super::lagging::Cluster;

async fn load(session: &mut Session, sql: &str, file: &str) -> Result<Done, SqlError> {
    let cancel = CancellationToken::new();
    let Reply::LocalInfile { file: name } = session.execute(sql.as_bytes(), &cancel).await? else {
        panic!("no file wanted");
    };
    assert_eq!(name, "f.csv");
    let (sender, receiver) = mpsc::channel(1024);
    for piece in file.as_bytes().chunks(7) {
        sender.send(Ok(Bytes::copy_from_slice(piece))).await.unwrap();
    }
    drop(sender);
    match session.load_data(receiver, &cancel).await? {
        Reply::Done(done) => Ok(done),
        _ => panic!("no summary"),
    }
}

/// The node is two versions behind: its rows would lack what the table has by now.
#[tokio::test]
async fn a_load_by_an_old_description_fails() {
    let cluster = Cluster::new();
    let mut one = in_database(&cluster.node(None, 0)).await;
    done(&mut one, "CREATE TABLE f (id INT PRIMARY KEY, v INT)").await.unwrap();
    done(&mut one, "ALTER TABLE f ADD COLUMN c INT DEFAULT 3").await.unwrap();
    let mut behind = in_database(&cluster.node(None, 2)).await;
    let sql = "LOAD DATA LOCAL INFILE 'f.csv' INTO TABLE f FIELDS TERMINATED BY ','";
    let error = load(&mut behind, sql, "1,1\n2,2\n").await.unwrap_err();
    assert_eq!(error.code, 1412, "{error}");
    assert_eq!(rows(&mut one, "SELECT COUNT(*) FROM f").await.unwrap(), ["0"]);
}

#[tokio::test]
async fn a_file_is_loaded_field_by_field() {
    let mut one = in_database(&engine()).await;
    done(&mut one, "CREATE TABLE f (id INT PRIMARY KEY, name VARCHAR(10), delay INT, day DATE)")
        .await
        .unwrap();
    let sql = "LOAD DATA LOCAL INFILE 'f.csv' INTO TABLE f FIELDS TERMINATED BY ',' ENCLOSED BY '\"' \
               LINES TERMINATED BY '\\n' IGNORE 1 LINES (id, name, @delay, @day) \
               SET delay = NULLIF(@delay, 'NA'), day = NULLIF(@day, 'NA')";
    let file = "id,name,delay,day\n1,plain,5,2013-01-01\n2,\"a, \"\"b\"\"\nc\",NA,NA\n3,NULL,-7,2013-12-31\n";
    let summary = load(&mut one, sql, file).await.unwrap();
    assert_eq!(
        (summary.affected_rows, summary.info.as_str()),
        (3, "Records: 3  Deleted: 0  Skipped: 0  Warnings: 0")
    );
    let stored = rows(&mut one, "SELECT * FROM f ORDER BY id").await.unwrap();
    assert_eq!(stored, ["1|plain|5|2013-01-01", "2|a, \"b\"\nc|NULL|NULL", "3|NULL|-7|2013-12-31"]);
}

/// LOCAL means IGNORE: what does not fit is mended, and says so.
#[tokio::test]
async fn what_does_not_fit_of_a_file_is_mended_with_a_warning() {
    let mut one = in_database(&engine()).await;
    done(&mut one, "CREATE TABLE f (id INT PRIMARY KEY, name VARCHAR(10), delay INT, day DATE)")
        .await
        .unwrap();
    let sql = "LOAD DATA LOCAL INFILE 'f.csv' IGNORE INTO TABLE f FIELDS TERMINATED BY ',' \
               IGNORE 1 LINES (id, name, @delay, @day) \
               SET delay = NULLIF(@delay, 'NA'), day = NULLIF(@day, 'NA')";
    for (file, records, skipped, warned) in [
        (
            "h\n4,x,1,2013-01-01\n5,y,z,2013-01-01\n",
            2,
            0,
            vec!["Warning|1366|Incorrect integer value: 'z' for column 'delay' at row 2"],
        ),
        (
            "h\n6,x,1,2013-01-01\n\n",
            2,
            0,
            vec![
                "Warning|1261|Row 2 doesn't contain data for all columns",
                "Warning|1366|Incorrect integer value: '' for column 'id' at row 2",
            ],
        ),
        (
            "h\n7,x,1,2013-13-01\n",
            1,
            0,
            vec!["Warning|1265|Data truncated for column 'day' at row 1"],
        ),
        (
            "h\n8,x,1,2013-01-01,9\n",
            1,
            0,
            vec![
                "Warning|1262|Row 1 was truncated; it contained more data than there were input columns",
            ],
        ),
        (
            "h\n9,this is too long,1,2013-01-01\n",
            1,
            0,
            vec!["Warning|1265|Data truncated for column 'name' at row 1"],
        ),
        (
            "h\n10,x,1,2013-01-01\n4,y,1,2013-01-01\n10,z,1,2013-01-01\n",
            3,
            2,
            vec![
                "Warning|1062|Duplicate entry '4' for key 'f.PRIMARY'",
                "Warning|1062|Duplicate entry '10' for key 'f.PRIMARY'",
            ],
        ),
    ] {
        let summary = load(&mut one, sql, file).await.unwrap();
        let count = warned.len();
        let info = format!("Records: {records}  Deleted: 0  Skipped: {skipped}  Warnings: {count}");
        assert_eq!((summary.info, summary.affected_rows), (info, records - skipped), "{file}");
        assert_eq!(usize::from(summary.warnings), count, "{file}");
        assert_eq!(warnings(&mut one).await, warned, "{file}");
    }
    let stored = rows(&mut one, "SELECT * FROM f ORDER BY id").await.unwrap();
    let expected = [
        "0|NULL|NULL|NULL",
        "4|x|1|2013-01-01",
        "5|y|0|2013-01-01",
        "6|x|1|2013-01-01",
        "7|x|1|NULL",
        "8|x|1|2013-01-01",
        "9|this is to|1|2013-01-01",
        "10|x|1|2013-01-01",
    ];
    assert_eq!(stored, expected);
}

#[tokio::test]
async fn rows_of_a_file_replace_others_or_are_left_out() {
    let mut one = in_database(&engine()).await;
    let table = "CREATE TABLE f (id INT PRIMARY KEY, u INT, v INT, UNIQUE KEY (u))";
    done(&mut one, table).await.unwrap();
    done(&mut one, "INSERT INTO f VALUES (1, 10, 0), (2, 20, 0), (3, 30, 0)").await.unwrap();
    let replace = "LOAD DATA LOCAL INFILE 'f.csv' REPLACE INTO TABLE f FIELDS TERMINATED BY ','";
    // The first takes the places of two rows, the second of the first.
    let summary = load(&mut one, replace, "1,20,1\n1,20,2\n4,40,2\n").await.unwrap();
    assert_eq!(
        (summary.affected_rows, summary.info.as_str()),
        (6, "Records: 3  Deleted: 3  Skipped: 0  Warnings: 0")
    );
    let all = "SELECT * FROM f ORDER BY id";
    assert_eq!(rows(&mut one, all).await.unwrap(), ["1|20|2", "3|30|0", "4|40|2"]);
    // Within a transaction, against rows that it has written itself.
    let ignore = "LOAD DATA LOCAL INFILE 'f.csv' INTO TABLE f FIELDS TERMINATED BY ','";
    done(&mut one, "BEGIN").await.unwrap();
    done(&mut one, "INSERT INTO f VALUES (5, 50, 5)").await.unwrap();
    let summary = load(&mut one, ignore, "5,51,6\n6,50,6\n7,70,6\n").await.unwrap();
    assert_eq!(summary.info, "Records: 3  Deleted: 0  Skipped: 2  Warnings: 2");
    let summary = load(&mut one, replace, "7,30,7\n").await.unwrap();
    assert_eq!(summary.info, "Records: 1  Deleted: 2  Skipped: 0  Warnings: 0");
    let both = ["1|20|2", "4|40|2", "5|50|5", "7|30|7"];
    assert_eq!(rows(&mut one, all).await.unwrap(), both);
    done(&mut one, "ROLLBACK").await.unwrap();
    assert_eq!(rows(&mut one, all).await.unwrap(), ["1|20|2", "3|30|0", "4|40|2"]);
}

#[tokio::test]
async fn a_line_may_end_in_what_separates_its_fields() {
    let mut one = in_database(&engine()).await;
    done(&mut one, "CREATE TABLE f (id INT PRIMARY KEY, name VARCHAR(10))").await.unwrap();
    let sql = "LOAD DATA LOCAL INFILE 'f.csv' INTO TABLE f FIELDS TERMINATED BY '|' LINES TERMINATED BY '|\n'";
    load(&mut one, sql, "1|a|\n2||\n3|b").await.unwrap();
    let stored = rows(&mut one, "SELECT * FROM f ORDER BY id").await.unwrap();
    assert_eq!(stored, ["1|a", "2|", "3|b"]);
    let summary = load(&mut one, sql, "4|c|\n5|d|e|\n").await.unwrap();
    assert_eq!(summary.info, "Records: 2  Deleted: 0  Skipped: 0  Warnings: 1");
    assert!(warnings(&mut one).await[0].starts_with("Warning|1262|Row 2 was truncated"));
}

#[tokio::test]
async fn a_large_file_is_loaded_by_several_transactions_and_says_so() {
    let mut one = in_database(&engine()).await;
    done(&mut one, "CREATE TABLE big (id INT PRIMARY KEY, pad VARCHAR(200))").await.unwrap();
    let file: String = (0..60_000).map(|n| format!("{n}\t{}\n", "x".repeat(120))).collect();
    let sql = "LOAD DATA LOCAL INFILE 'f.csv' INTO TABLE big";
    let cancel = CancellationToken::new();
    _ = one.execute(sql.as_bytes(), &cancel).await.unwrap();
    let (sender, receiver) = mpsc::channel(1);
    let feed = tokio::spawn(async move { sender.send(Ok(Bytes::from(file))).await });
    let Reply::Done(summary) = one.load_data(receiver, &cancel).await.unwrap() else { panic!() };
    feed.await.unwrap().unwrap();
    assert_eq!((summary.affected_rows, summary.warnings), (60_000, 1));
    let warnings = rows(&mut one, "SHOW WARNINGS").await.unwrap();
    assert!(warnings[0].contains("loaded by 2 transactions"), "{warnings:?}");
    assert_eq!(rows(&mut one, "SELECT COUNT(*), MAX(id) FROM big").await.unwrap(), ["60000|59999"]);
}
