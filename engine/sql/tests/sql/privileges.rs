//! What users may do: sessions of several users over one store.

use sql::engine::Engine;
use sql::session::{Session, SessionInfo};

use super::harness::{done, engine, in_database, rows, run};

/// A session of somebody who comes from 10.0.0.9.
pub fn session_of(engine: &Engine, user: &str) -> Session {
    let (user, host) = (user.to_owned(), "10.0.0.9".to_owned());
    Session::new(engine.clone(), SessionInfo { id: 2, user, host, found_rows: false })
}

/// Two databases with tables, a view of each kind, and the user `ann` with nothing.
async fn prepared() -> (Engine, Session) {
    let engine = engine();
    let mut root = in_database(&engine).await;
    for sql in [
        "CREATE TABLE t (id INT PRIMARY KEY, a INT)",
        "CREATE TABLE u (id INT PRIMARY KEY, b INT)",
        "CREATE TABLE secret (id INT PRIMARY KEY, a INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "INSERT INTO u VALUES (1, 1)",
        "INSERT INTO secret VALUES (1, 42)",
        "CREATE VIEW shown AS SELECT a FROM secret",
        "CREATE SQL SECURITY INVOKER VIEW own AS SELECT a FROM secret",
        "CREATE DATABASE e",
        "CREATE TABLE e.w (id INT PRIMARY KEY)",
        "CREATE USER 'ann'@'%'",
    ] {
        done(&mut root, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    (engine, root)
}

/// The error of a statement, as its number and text; empty if there is none.
async fn refusal(session: &mut Session, sql: &str) -> String {
    match run(session, sql).await {
        Ok(_) => String::new(),
        Err(error) => format!("{} {}", error.code, error.message),
    }
}

#[tokio::test]
async fn who_has_nothing_may_do_nothing() {
    let (engine, _root) = prepared().await;
    let mut ann = session_of(&engine, "ann");
    for (sql, wanted) in [
        ("SELECT a FROM d.t", "1142 SELECT command denied to user 'ann'@'10.0.0.9' for table 't'"),
        (
            "SELECT (SELECT MAX(a) FROM d.secret)",
            "1142 SELECT command denied to user 'ann'@'10.0.0.9' for table 'secret'",
        ),
        ("WITH x AS (SELECT a FROM d.secret) SELECT * FROM x", "1142 SELECT"),
        ("SELECT 1 WHERE EXISTS (SELECT 1 FROM d.t)", "1142 SELECT"),
        ("SELECT a FROM d.t UNION SELECT 1", "1142 SELECT"),
        ("TABLE d.t", "1142 SELECT"),
        ("SELECT * FROM d.shown", "1142 SELECT"),
        ("SELECT a INTO @x FROM d.secret", "1142 SELECT"),
        ("SET @x = (SELECT a FROM d.secret)", "1142 SELECT"),
        ("DO (SELECT a FROM d.secret)", "1142 SELECT"),
        ("EXPLAIN SELECT a FROM d.t", "1142 SELECT"),
        ("EXPLAIN DELETE FROM d.t", "1142 DELETE"),
        ("PREPARE s FROM 'SELECT a FROM d.t'", "1142 SELECT"),
        ("SELECT * FROM d.nothing", "1142 SELECT"),
        (
            "INSERT INTO d.t VALUES (9, 9)",
            "1142 INSERT command denied to user 'ann'@'10.0.0.9' for table 't'",
        ),
        ("REPLACE INTO d.t VALUES (9, 9)", "1142 INSERT, DELETE"),
        ("INSERT INTO d.t VALUES (9, 9) ON DUPLICATE KEY UPDATE a = 1", "1142 INSERT, UPDATE"),
        ("UPDATE d.t SET a = 1", "1142 UPDATE"),
        ("DELETE FROM d.t", "1142 DELETE"),
        ("TRUNCATE TABLE d.t", "1142 DROP"),
        ("LOAD DATA LOCAL INFILE 'x' INTO TABLE d.t", "1142 INSERT command"),
        ("LOAD DATA LOCAL INFILE 'x' REPLACE INTO TABLE d.t", "1142 INSERT, DELETE command"),
        (
            "CREATE TABLE d.n (id INT PRIMARY KEY)",
            "1142 CREATE command denied to user 'ann'@'10.0.0.9' for table 'n'",
        ),
        ("CREATE TABLE d.n LIKE d.t", "1142 SELECT"),
        ("CREATE TABLE d.n AS SELECT a FROM d.t", "1142 SELECT"),
        ("CREATE TABLE d.n SELECT 1 AS a", "1142 INSERT, CREATE"),
        ("CHECK TABLE d.t", "1142 SELECT command"),
        ("ADMIN CHECK TABLE d.t", "1142 SELECT command"),
        ("ANALYZE TABLE d.t", "1142 SELECT, INSERT"),
        ("OPTIMIZE TABLE d.t", "1142 SELECT, INSERT"),
        ("LOCK TABLES d.t READ", "1142 SELECT, LOCK TABLES"),
        ("ALTER DATABASE d CHARACTER SET utf8mb4", "1044"),
        ("DROP TABLE d.t", "1142 DROP"),
        ("DROP VIEW d.shown", "1142 DROP"),
        ("CREATE INDEX i ON d.t (a)", "1142 INDEX"),
        ("DROP INDEX i ON d.t", "1142 INDEX"),
        ("ALTER TABLE d.t ADD COLUMN c INT", "1142 ALTER"),
        ("ALTER TABLE d.t SET COLUMNAR REPLICA 1", "1142 ALTER"),
        ("SPLIT TABLE d.t REGIONS 2", "1142 ALTER"),
        ("RENAME TABLE d.t TO d.n", "1142 DROP, ALTER"),
        ("CREATE VIEW d.x AS SELECT 1 AS a", "1142 CREATE VIEW"),
        ("CREATE DATABASE f", "1044 Access denied for user 'ann'@'%' to database 'f'"),
        ("DROP DATABASE e", "1044 Access denied for user 'ann'@'%' to database 'e'"),
        ("USE d", "1044 Access denied for user 'ann'@'%' to database 'd'"),
        ("USE nowhere", "1044"),
        ("SHOW TABLES FROM d", "1044"),
        ("SHOW TABLE STATUS FROM d", "1044"),
        ("SHOW CREATE DATABASE d", "1044"),
        ("SHOW COLUMNS FROM d.t", "1142 SELECT"),
        ("DESCRIBE d.t", "1142 SELECT"),
        ("SHOW INDEX FROM d.t", "1142 SELECT"),
        ("SHOW CREATE TABLE d.t", "1142 SHOW"),
        ("SHOW CREATE VIEW d.shown", "1142 SELECT, SHOW VIEW"),
        (
            "SHOW GRANTS FOR root@localhost",
            "1044 Access denied for user 'ann'@'%' to database 'mysql'",
        ),
        ("SELECT * FROM mysql.user", "1142 SELECT"),
        ("SELECT * FROM information_schema.cluster_info", "1227"),
        (
            "CREATE RESOURCE GROUP g RU_PER_SEC = 1",
            "1227 Access denied; you need (at least one of) the SUPER or RESOURCE_GROUP_ADMIN privilege(s) for this operation",
        ),
        ("ALTER RESOURCE GROUP default RU_PER_SEC = 1", "1227"),
        ("DROP RESOURCE GROUP g", "1227"),
        ("ALTER USER ann RESOURCE GROUP `default`", "1227"),
        (
            "CREATE USER x",
            "1227 Access denied; you need (at least one of) the CREATE USER privilege(s) for this operation",
        ),
        ("DROP USER root@localhost", "1227"),
        ("ALTER USER root@localhost IDENTIFIED BY ''", "1227"),
        ("SET PASSWORD FOR root@localhost = ''", "1227"),
        (
            "SET GLOBAL max_connections = 5",
            "1227 Access denied; you need (at least one of) the SUPER or SYSTEM_VARIABLES_ADMIN privilege(s) for this operation",
        ),
        ("SET GLOBAL tidb_gc_life_time = '1h'", "1227"),
        ("SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED", "1227"),
        (
            "FLUSH PRIVILEGES",
            "1227 Access denied; you need (at least one of) the RELOAD privilege(s) for this operation",
        ),
        (
            "GRANT SELECT ON *.* TO ann",
            "1045 Access denied for user 'ann'@'%' (using password: YES)",
        ),
        ("GRANT SELECT ON d.* TO ann", "1044"),
        ("GRANT SELECT ON d.t TO ann", "1142 SELECT, GRANT"),
        ("REVOKE SELECT ON d.t FROM root@localhost", "1142 SELECT, GRANT"),
        ("REVOKE ALL PRIVILEGES, GRANT OPTION FROM root@localhost", "1227"),
    ] {
        let error = refusal(&mut ann, sql).await;
        assert!(error.starts_with(wanted), "{sql}: {error}");
    }
    let who = rows(&mut ann, "SELECT USER(), CURRENT_USER(), CURRENT_USER").await.unwrap();
    assert_eq!(who, ["ann@10.0.0.9|ann@%|ann@%"]);
    for sql in [
        "SELECT 1 FROM dual",
        "BEGIN",
        "COMMIT",
        "SET @x = 1",
        "SET NAMES utf8mb4",
        "SET autocommit = 1",
        "SHOW DATABASES",
        "SHOW VARIABLES LIKE 'x'",
        "SHOW PROCESSLIST",
        "SHOW GRANTS",
        "SHOW GRANTS FOR ann",
        "SHOW WARNINGS",
        "USE information_schema",
        "SELECT COUNT(*) FROM information_schema.tables",
        "SHOW TABLES FROM information_schema",
        "SET PASSWORD = ''",
    ] {
        assert_eq!(refusal(&mut ann, sql).await, "", "{sql}");
    }
}

#[tokio::test]
async fn what_is_granted_counts_from_the_next_statement_on() {
    let (engine, mut root) = prepared().await;
    let mut ann = session_of(&engine, "ann");
    assert!(refusal(&mut ann, "SELECT a FROM d.t").await.starts_with("1142"));
    done(&mut root, "GRANT SELECT ON d.t TO ann").await.unwrap();
    assert_eq!(rows(&mut ann, "SELECT a FROM d.t ORDER BY a").await.unwrap(), ["1", "2"]);
    assert!(refusal(&mut ann, "SELECT b FROM d.u").await.starts_with("1142"));
    assert!(refusal(&mut ann, "SELECT t.a FROM d.t JOIN d.u USING (id)").await.starts_with("1142"));
    done(&mut ann, "USE d").await.unwrap();
    assert!(refusal(&mut ann, "DELETE FROM t").await.starts_with("1142 DELETE"));
    // A statement that was prepared is looked at each time.
    let prepared = ann.prepare(b"SELECT a FROM t WHERE id = ?").await.unwrap();
    done(&mut ann, "PREPARE s FROM 'SELECT a FROM t'").await.unwrap();
    done(&mut root, "REVOKE SELECT ON d.t FROM ann").await.unwrap();
    let cancel = tokio_util::sync::CancellationToken::new();
    let run = ann.execute_prepared(prepared.id, vec![types::Value::Int(1)], &cancel).await;
    assert_eq!(run.map(|_| ()).unwrap_err().code, 1142);
    assert!(refusal(&mut ann, "EXECUTE s").await.starts_with("1142"));
    assert_eq!(ann.prepare(b"SELECT a FROM t").await.map(|_| ()).unwrap_err().code, 1142);
    done(&mut root, "GRANT SELECT ON *.* TO ann").await.unwrap();
    assert_eq!(rows(&mut ann, "EXECUTE s").await.unwrap().len(), 2);
    // Who is no user any more may do nothing.
    done(&mut root, "DROP USER ann").await.unwrap();
    assert!(refusal(&mut ann, "SELECT a FROM d.t").await.starts_with("1142"));
}

#[tokio::test]
async fn writes_need_what_they_read_too() {
    let (engine, mut root) = prepared().await;
    let mut ann = session_of(&engine, "ann");
    done(&mut root, "GRANT INSERT, UPDATE, DELETE ON d.t TO ann").await.unwrap();
    done(&mut ann, "USE d").await.unwrap();
    for sql in [
        "INSERT INTO t VALUES (9, 9)",
        "REPLACE INTO t VALUES (9, 10)",
        "INSERT INTO t VALUES (9, 9) ON DUPLICATE KEY UPDATE a = 11",
        "UPDATE t SET a = 1",
        "UPDATE t SET a = DEFAULT",
    ] {
        assert_eq!(refusal(&mut ann, sql).await, "", "{sql}");
    }
    for sql in [
        "UPDATE t SET a = a + 1",
        "UPDATE t SET a = 1 WHERE id = 9",
        "UPDATE t SET a = 1 ORDER BY id LIMIT 1",
        "DELETE FROM t WHERE id = 9",
        "INSERT INTO t SELECT id + 50, a FROM secret",
        "INSERT INTO t VALUES (10, (SELECT a FROM secret))",
        "INSERT INTO t VALUES (9, 9) ON DUPLICATE KEY UPDATE a = (SELECT MAX(a) FROM secret)",
        "UPDATE t SET a = (SELECT MAX(a) FROM secret)",
        "UPDATE t JOIN secret USING (id) SET t.a = secret.a",
        "DELETE t FROM t JOIN secret USING (id)",
    ] {
        assert!(refusal(&mut ann, sql).await.starts_with("1142 SELECT"), "{sql}");
    }
    done(&mut root, "GRANT SELECT ON d.* TO ann").await.unwrap();
    for (sql, wanted) in [
        ("UPDATE t JOIN u USING (id) SET t.a = 5", ""),
        ("UPDATE t JOIN u USING (id) SET a = 5", ""),
        ("UPDATE t x JOIN u y USING (id) SET x.a = 6", ""),
        (
            "UPDATE t JOIN u USING (id) SET u.b = 5",
            "1142 UPDATE command denied to user 'ann'@'10.0.0.9' for table 'u'",
        ),
        ("UPDATE t JOIN u USING (id) SET a = 5, b = 5", "1142 UPDATE"),
        ("UPDATE t x JOIN u t USING (id) SET t.b = 6", "1142 UPDATE"),
        ("DELETE t FROM t JOIN u USING (id) WHERE t.id = 77", ""),
        ("DELETE x FROM t x JOIN u y USING (id) WHERE x.id = 77", ""),
        ("DELETE y FROM t x JOIN u y USING (id)", "1142 DELETE"),
        ("DELETE t, u FROM t JOIN u USING (id)", "1142 DELETE"),
        ("DELETE FROM u USING t JOIN u USING (id)", "1142 DELETE"),
        ("SELECT * FROM t FOR UPDATE", ""),
        ("SELECT * FROM u FOR UPDATE", "1142 SELECT with locking clause command denied"),
        ("SELECT * FROM u FOR SHARE", ""),
    ] {
        let error = refusal(&mut ann, sql).await;
        assert!(
            if wanted.is_empty() { error.is_empty() } else { error.starts_with(wanted) },
            "{sql}: {error}"
        );
    }
}

#[tokio::test]
async fn definitions_need_their_own() {
    let (engine, mut root) = prepared().await;
    let mut ann = session_of(&engine, "ann");
    done(&mut root, "GRANT CREATE ON d.* TO ann").await.unwrap();
    done(&mut ann, "USE d").await.unwrap();
    assert_eq!(refusal(&mut ann, "CREATE TABLE n (id INT PRIMARY KEY, a INT)").await, "");
    assert!(refusal(&mut ann, "DROP TABLE n").await.starts_with("1142 DROP"));
    assert!(refusal(&mut ann, "CREATE DATABASE f").await.starts_with("1044"));
    done(&mut root, "GRANT INDEX ON d.n TO ann").await.unwrap();
    assert_eq!(refusal(&mut ann, "CREATE INDEX i ON n (a)").await, "");
    assert!(refusal(&mut ann, "ALTER TABLE n COMMENT = 'x'").await.starts_with("1142 ALTER"));
    done(&mut root, "GRANT ALTER ON d.n TO ann").await.unwrap();
    assert_eq!(refusal(&mut ann, "ALTER TABLE n COMMENT = 'x'").await, "");
    assert!(refusal(&mut ann, "ALTER TABLE n RENAME TO m").await.starts_with("1142 DROP"));
    assert!(refusal(&mut ann, "RENAME TABLE n TO m").await.starts_with("1142 DROP"));
    done(&mut root, "GRANT DROP ON d.n TO ann").await.unwrap();
    assert!(refusal(&mut ann, "RENAME TABLE n TO m").await.starts_with("1142 INSERT"));
    done(&mut root, "GRANT INSERT ON d.m TO ann").await.unwrap_err();
    done(&mut root, "GRANT INSERT, CREATE ON d.m TO ann").await.unwrap();
    assert_eq!(refusal(&mut ann, "RENAME TABLE n TO m").await, "");
    done(&mut root, "GRANT CREATE, DROP ON `f\\_%`.* TO ann").await.unwrap();
    assert_eq!(refusal(&mut ann, "CREATE DATABASE f_1").await, "");
    assert!(refusal(&mut ann, "CREATE DATABASE f1").await.starts_with("1044"));
    assert_eq!(refusal(&mut ann, "DROP DATABASE f_1").await, "");
}

#[tokio::test]
async fn views_are_read_with_their_definers_rights() {
    let (engine, mut root) = prepared().await;
    let mut ann = session_of(&engine, "ann");
    for sql in [
        "GRANT SELECT ON d.shown TO ann",
        "GRANT SELECT ON d.own TO ann",
        "GRANT SELECT, CREATE VIEW ON e.* TO ann",
        "GRANT SELECT ON d.t TO ann",
        "CREATE USER bob",
        "GRANT SELECT ON e.* TO bob",
    ] {
        done(&mut root, sql).await.unwrap();
    }
    assert_eq!(rows(&mut ann, "SELECT a FROM d.shown").await.unwrap(), ["42"]);
    assert!(refusal(&mut ann, "SELECT a FROM d.own").await.starts_with("1356"));
    assert_eq!(rows(&mut root, "SELECT a FROM d.own").await.unwrap(), ["42"]);
    // A view shows no more than its definer may read.
    assert!(
        refusal(&mut ann, "CREATE VIEW e.x AS SELECT a FROM d.secret")
            .await
            .starts_with("1142 SELECT")
    );
    done(&mut ann, "CREATE VIEW e.x AS SELECT a FROM d.t").await.unwrap();
    let bobs = refusal(&mut ann, "CREATE DEFINER = bob VIEW e.y AS SELECT 1 AS a").await;
    assert!(bobs.starts_with("1227"), "{bobs}");
    let alter = "ALTER VIEW e.x AS SELECT id AS a FROM d.t";
    assert!(refusal(&mut ann, alter).await.starts_with("1142 DROP"));
    let mut bob = session_of(&engine, "bob");
    assert_eq!(rows(&mut bob, "SELECT a FROM e.x ORDER BY a").await.unwrap(), ["1", "2"]);
    assert!(refusal(&mut bob, "SHOW CREATE VIEW e.x").await.starts_with("1142 SHOW VIEW"));
    done(&mut root, "REVOKE SELECT ON d.t FROM ann").await.unwrap();
    assert!(refusal(&mut bob, "SELECT a FROM e.x").await.starts_with("1356"));
    done(&mut root, "DROP USER ann").await.unwrap();
    assert!(refusal(&mut bob, "SELECT a FROM e.x").await.starts_with("1449"));
}

#[tokio::test]
async fn lists_show_what_one_may_see() {
    let (engine, mut root) = prepared().await;
    let mut ann = session_of(&engine, "ann");
    done(&mut root, "GRANT INSERT ON d.t TO ann").await.unwrap();
    done(&mut root, "GRANT SELECT ON d.shown TO ann").await.unwrap();
    let of = "FROM information_schema";
    for (sql, wanted) in [
        ("SHOW DATABASES", "d information_schema"),
        ("SHOW TABLES FROM d", "shown t"),
        (format!("SELECT SCHEMA_NAME {of}.schemata ORDER BY 1").as_str(), "d information_schema"),
        (
            format!("SELECT TABLE_NAME {of}.tables WHERE TABLE_TYPE <> 'SYSTEM VIEW'").as_str(),
            "t shown",
        ),
        (format!("SELECT DISTINCT TABLE_NAME {of}.columns ORDER BY 1").as_str(), "shown t"),
        (format!("SELECT DISTINCT TABLE_NAME {of}.statistics").as_str(), "t"),
        (format!("SELECT DISTINCT TABLE_NAME {of}.key_column_usage").as_str(), "t"),
        (format!("SELECT DISTINCT TABLE_NAME {of}.table_constraints").as_str(), "t"),
        (format!("SELECT TABLE_NAME {of}.views").as_str(), "shown"),
        (format!("SELECT DISTINCT GRANTEE {of}.user_privileges").as_str(), "'ann'@'%'"),
        (format!("SELECT TABLE_NAME {of}.table_privileges ORDER BY 1").as_str(), "shown t"),
    ] {
        assert_eq!(rows(&mut ann, sql).await.unwrap().join(" "), wanted, "{sql}");
    }
    assert!(refusal(&mut ann, "SHOW COLUMNS FROM d.u").await.starts_with("1142"));
    for sql in
        ["SHOW COLUMNS FROM d.t", "DESCRIBE d.t", "SHOW CREATE TABLE d.t", "SHOW INDEX FROM d.t"]
    {
        assert_eq!(refusal(&mut ann, sql).await, "", "{sql}");
    }
    done(&mut root, "GRANT SHOW DATABASES ON *.* TO ann").await.unwrap();
    let databases = rows(&mut ann, "SHOW DATABASES").await.unwrap().join(" ");
    assert_eq!(databases, "d e information_schema mysql");
    assert!(refusal(&mut ann, "USE e").await.starts_with("1044"));
    done(&mut root, "GRANT SELECT ON mysql.* TO ann").await.unwrap();
    let users = format!("SELECT COUNT(DISTINCT GRANTEE) {of}.user_privileges");
    assert_eq!(rows(&mut ann, &users).await.unwrap(), ["3"]);
    assert_eq!(refusal(&mut ann, "SHOW GRANTS FOR root@localhost").await, "");
}

#[tokio::test]
async fn privileges_are_given_on_by_who_may() {
    let (engine, mut root) = prepared().await;
    let mut ann = session_of(&engine, "ann");
    done(&mut root, "CREATE USER bob").await.unwrap();
    done(&mut root, "GRANT SELECT ON d.* TO ann WITH GRANT OPTION").await.unwrap();
    assert_eq!(refusal(&mut ann, "GRANT SELECT ON d.* TO bob").await, "");
    assert_eq!(refusal(&mut ann, "GRANT SELECT ON d.t TO bob").await, "");
    assert!(refusal(&mut ann, "GRANT INSERT ON d.* TO bob").await.starts_with("1044"));
    assert!(refusal(&mut ann, "GRANT INSERT ON d.t TO bob").await.starts_with("1142 INSERT"));
    assert!(refusal(&mut ann, "GRANT SELECT ON `_`.* TO bob").await.starts_with("1044"));
    assert!(refusal(&mut ann, "GRANT SELECT ON e.* TO bob").await.starts_with("1044"));
    assert!(refusal(&mut ann, "GRANT SELECT ON *.* TO ann").await.starts_with("1045"));
    assert_eq!(refusal(&mut ann, "REVOKE SELECT ON d.* FROM bob").await, "");
    let shown = rows(&mut root, "SHOW GRANTS FOR bob").await.unwrap();
    assert_eq!(shown, ["GRANT USAGE ON *.* TO `bob`@`%`", "GRANT SELECT ON `d`.`t` TO `bob`@`%`"]);
    // ALL on everything does not include GRANT OPTION.
    done(&mut root, "GRANT ALL ON *.* TO ann").await.unwrap();
    assert_eq!(rows(&mut ann, "SELECT a FROM d.secret").await.unwrap(), ["42"]);
    assert!(refusal(&mut ann, "GRANT SELECT ON *.* TO bob").await.starts_with("1045"));
    // Who makes users does not become who may do everything.
    done(&mut root, "REVOKE ALL PRIVILEGES, GRANT OPTION FROM ann").await.unwrap();
    done(&mut root, "GRANT CREATE USER ON *.* TO ann").await.unwrap();
    assert_eq!(refusal(&mut ann, "CREATE USER eve IDENTIFIED BY 'x'").await, "");
    assert_eq!(refusal(&mut ann, "ALTER USER eve IDENTIFIED BY 'y'").await, "");
    for sql in [
        "ALTER USER root@localhost IDENTIFIED BY 'mine'",
        "SET PASSWORD FOR root@localhost = 'mine'",
        "DROP USER root@localhost",
        "REVOKE ALL PRIVILEGES, GRANT OPTION FROM root@localhost",
        "ALTER USER eve IDENTIFIED BY 'z', root@localhost IDENTIFIED BY 'mine'",
    ] {
        assert!(refusal(&mut ann, sql).await.starts_with("1227"), "{sql}");
    }
    assert_eq!(refusal(&mut ann, "DROP USER eve").await, "");
}

#[tokio::test]
async fn a_resource_group_is_left_by_whoever_may() {
    let (engine, mut root) = prepared().await;
    for sql in [
        "CREATE RESOURCE GROUP rg1 RU_PER_SEC = 1000",
        "CREATE RESOURCE GROUP rg2 RU_PER_SEC = 1000",
        "ALTER USER ann RESOURCE GROUP rg1",
    ] {
        done(&mut root, sql).await.unwrap();
    }
    let group = "SELECT CURRENT_RESOURCE_GROUP()";
    let hinted = "SELECT /*+ RESOURCE_GROUP(rg2) */ CURRENT_RESOURCE_GROUP()";
    let mut ann = session_of(&engine, "ann");
    assert_eq!(rows(&mut ann, group).await.unwrap(), ["rg1"]);
    for sql in ["SET RESOURCE GROUP rg2", "SET RESOURCE GROUP `default`"] {
        assert!(refusal(&mut ann, sql).await.contains("RESOURCE_GROUP_USER"), "{sql}");
    }
    assert_eq!(rows(&mut ann, hinted).await.unwrap(), ["rg1"]);
    let warning = rows(&mut ann, "SHOW WARNINGS").await.unwrap();
    assert!(warning[0].contains("1227"), "{warning:?}");
    done(&mut ann, "SET RESOURCE GROUP rg1").await.unwrap();
    assert!(!refusal(&mut root, "GRANT RESOURCE_GROUP_USER ON d.* TO ann").await.is_empty());
    done(&mut root, "GRANT RESOURCE_GROUP_USER ON *.* TO ann").await.unwrap();
    done(&mut ann, "SET RESOURCE GROUP rg2").await.unwrap();
    assert_eq!(rows(&mut ann, group).await.unwrap(), ["rg2"]);
    assert!(refusal(&mut ann, "DROP RESOURCE GROUP rg2").await.starts_with("1227"));
    done(&mut root, "GRANT RESOURCE_GROUP_ADMIN ON *.* TO ann").await.unwrap();
    done(&mut ann, "ALTER RESOURCE GROUP rg2 RU_PER_SEC = 5").await.unwrap();
    // Nor does a session stay in the group of a statement that it prepares, or may not.
    for sql in
        ["SELECT /*+ RESOURCE_GROUP(rg1) */ 1", "SELECT /*+ RESOURCE_GROUP(rg1) */ a FROM d.secret"]
    {
        _ = ann.prepare(sql.as_bytes()).await;
        assert_eq!(rows(&mut ann, group).await.unwrap(), ["rg2"], "{sql}");
    }
    // Sessions that are there keep the group that they began with.
    done(&mut root, "ALTER USER ann RESOURCE GROUP rg2").await.unwrap();
    let mut other = session_of(&engine, "ann");
    assert_eq!(rows(&mut other, group).await.unwrap(), ["rg2"]);
    assert_eq!(rows(&mut ann, hinted).await.unwrap(), ["rg2"]);
}
