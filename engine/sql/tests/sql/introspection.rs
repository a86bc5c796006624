//! What clients find who look around: the labels of information_schema's columns, and definitions as MySQL 8 writes them.
//! What comparing without case gives is in `../scripts/information_schema.slt`.

use sql::session::Session;

use super::harness::{Answer, done, engine, in_database, rows, run};

async fn labels(session: &mut Session, sql: &str) -> String {
    match run(session, sql).await.unwrap() {
        Answer::Rows(columns, _) => {
            columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(" ")
        }
        Answer::Done(_) => panic!("{sql} answered no rows"),
    }
}

#[tokio::test]
async fn columns_of_information_schema_are_labelled_in_upper_case() {
    let engine = engine();
    let mut session = in_database(&engine).await;
    done(&mut session, "CREATE TABLE t (Id INT PRIMARY KEY, b INT)").await.unwrap();
    let all = "CHARACTER_SET_NAME DEFAULT_COLLATE_NAME DESCRIPTION MAXLEN";
    for (sql, wanted) in [
        ("SELECT * FROM information_schema.character_sets", all.to_owned()),
        ("SELECT c.* FROM INFORMATION_SCHEMA.Character_Sets c WHERE maxlen > 0", all.to_owned()),
        ("SELECT c.*, 1 AS One FROM information_schema.character_sets c", format!("{all} One")),
        ("SELECT * FROM (SELECT * FROM information_schema.character_sets) c", all.to_owned()),
        // As written.
        (
            "SELECT maxlen, Description, c.MAXLEN AS m FROM information_schema.character_sets c",
            "maxlen Description m".to_owned(),
        ),
        (
            "SELECT * FROM (SELECT maxlen AS longest FROM information_schema.character_sets) c",
            "longest".to_owned(),
        ),
        ("SELECT * FROM (SELECT id AS other, b FROM t) x", "other b".to_owned()),
        ("SELECT * FROM (SELECT id FROM t) x", "id".to_owned()),
        ("SELECT * FROM mysql.user", "Host User User_attributes".to_owned()),
        ("SELECT count( * ),max(b)+1 , 'lit' FROM t", "count( * ) max(b)+1 lit".to_owned()),
        ("SELECT (b), b+1 FROM t ORDER BY `b+1`", "b b+1".to_owned()),
        ("SELECT * FROM (SELECT b+1, (b) FROM t) x", "b+1 b".to_owned()),
    ] {
        assert_eq!(labels(&mut session, sql).await, wanted, "{sql}");
    }
    let described = [
        "CHARACTER_SET_NAME|varchar(512)|YES||NULL|",
        "DEFAULT_COLLATE_NAME|varchar(512)|YES||NULL|",
        "DESCRIPTION|varchar(512)|YES||NULL|",
        "MAXLEN|bigint|YES||NULL|",
    ];
    for sql in [
        "DESCRIBE information_schema.character_sets",
        "SHOW COLUMNS FROM information_schema.character_sets",
    ] {
        assert_eq!(rows(&mut session, sql).await.unwrap(), described, "{sql}");
    }
    let keys = "SHOW INDEX FROM information_schema.character_sets";
    assert!(rows(&mut session, keys).await.unwrap().is_empty());
}

#[tokio::test]
async fn names_of_users_compare_as_bytes() {
    let mut session = in_database(&engine()).await;
    for (name, wanted) in [("root", 1), ("ROOT", 0)] {
        let sql = format!("SELECT DISTINCT user FROM mysql.user WHERE user = '{name}'");
        assert_eq!(rows(&mut session, &sql).await.unwrap().len(), wanted, "{sql}");
    }
}

#[tokio::test]
async fn no_default_is_written_of_a_text_or_blob() {
    let mut session = in_database(&engine()).await;
    let create = "CREATE TABLE t (a TEXT, b BLOB, c JSON, d LONGTEXT NOT NULL, e VARCHAR(9))";
    done(&mut session, create).await.unwrap();
    let shown = rows(&mut session, "SHOW CREATE TABLE t").await.unwrap().concat();
    for line in [
        "`a` text,",
        "`b` blob,",
        "`c` json DEFAULT NULL,",
        "`d` longtext NOT NULL,",
        "`e` varchar(9) DEFAULT NULL",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
}
