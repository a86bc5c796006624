//! Foreign keys beside other sessions: who waits for whom, and that no row is left without its parent.

use placement::api::{CatalogChange, KeyChange};
use sql::engine::Engine;
use sql::session::Session;
use storage::Storage;
use storage::memory::MemoryStorage;
use types::{ForeignKey, OnParent};

use super::harness::{done, engine, engine_over, in_database, rows};
use super::locking::{all, code, joined, later};
use super::privileges::session_of;

/// Two sessions over a parent of two rows and a child without any.
async fn family() -> (Engine, Session, Session) {
    let engine = engine();
    let mut one = in_database(&engine).await;
    for sql in [
        "CREATE TABLE parent (id INT PRIMARY KEY, code INT UNIQUE, n INT)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, code INT, FOREIGN KEY (p) REFERENCES parent (id), \
         FOREIGN KEY (code) REFERENCES parent (code) ON DELETE CASCADE ON UPDATE CASCADE)",
        "INSERT INTO parent VALUES (1, 10, 0), (2, 20, 0)",
    ] {
        done(&mut one, sql).await.unwrap();
    }
    let two = in_database(&engine).await;
    (engine, one, two)
}

#[tokio::test]
async fn a_parent_that_is_ended_beside_a_new_child_waits_and_finds_it() {
    for (begin, child) in [
        ("BEGIN", "INSERT INTO child VALUES (1, 1, NULL)"),
        ("BEGIN OPTIMISTIC", "INSERT INTO child VALUES (1, 1, NULL)"),
    ] {
        for ends in
            ["DELETE FROM parent WHERE id = 1", "UPDATE parent SET id = 3 WHERE n = 0 AND id < 2"]
        {
            let (_engine, mut one, two) = family().await;
            all(&mut one, &[begin, child]).await;
            let task = later(two, ends).await;
            all(&mut one, &["COMMIT"]).await;
            let (_, answer) = joined(task).await;
            assert_eq!(answer.unwrap_err().code, 1451, "{ends}");
        }
    }
}

#[tokio::test]
async fn a_cascade_takes_a_child_along_that_came_while_it_waited() {
    let (_engine, mut one, two) = family().await;
    all(&mut one, &["BEGIN", "INSERT INTO child VALUES (1, NULL, 10)"]).await;
    let task = later(two, "UPDATE parent SET code = 11 WHERE id = 1").await;
    all(&mut one, &["COMMIT"]).await;
    joined(task).await.1.unwrap();
    assert_eq!(rows(&mut one, "SELECT code FROM child").await.unwrap(), ["11"]);
}

#[tokio::test]
async fn a_child_waits_for_its_parent_that_is_being_ended() {
    let (_engine, mut one, two) = family().await;
    all(&mut one, &["BEGIN", "DELETE FROM parent WHERE id = 1"]).await;
    let task = later(two, "INSERT INTO child VALUES (1, 1, NULL)").await;
    all(&mut one, &["COMMIT"]).await;
    assert_eq!(joined(task).await.1.unwrap_err().code, 1452);
}

#[tokio::test]
async fn children_of_one_parent_do_not_wait_for_each_other() {
    let (_engine, mut one, mut two) = family().await;
    all(&mut one, &["BEGIN", "INSERT INTO child VALUES (1, 1, 10)"]).await;
    all(&mut two, &["BEGIN", "INSERT INTO child VALUES (2, 1, 10)", "COMMIT"]).await;
    all(&mut one, &["COMMIT"]).await;
    assert_eq!(rows(&mut two, "SELECT COUNT(*) FROM child").await.unwrap(), ["2"]);
}

#[tokio::test]
async fn a_parent_that_an_optimistic_transaction_has_read_before_it_changed_is_a_conflict() {
    let (_engine, mut one, mut two) = family().await;
    all(&mut one, &["BEGIN OPTIMISTIC", "SELECT * FROM parent"]).await;
    all(
        &mut two,
        &["INSERT INTO child VALUES (1, NULL, 10)", "UPDATE parent SET code = 30 WHERE id = 1"],
    )
    .await;
    assert_eq!(code(&mut one, "DELETE FROM parent WHERE id = 1").await, 1213);
    assert_eq!(rows(&mut two, "SELECT code FROM child").await.unwrap(), ["30"]);
}

#[tokio::test]
async fn who_knew_nothing_of_a_key_that_is_there_cannot_commit() {
    for before in ["INSERT INTO loose VALUES (1, 9)", "DELETE FROM parent WHERE id = 1"] {
        let (_engine, mut one, mut two) = family().await;
        all(
            &mut one,
            &["CREATE TABLE loose (id INT PRIMARY KEY, p INT)", "INSERT INTO loose VALUES (5, 1)"],
        )
        .await;
        // Nobody waits for these: their locks are not taken before the commit.
        all(&mut one, &["BEGIN OPTIMISTIC", before]).await;
        all(&mut two, &["ALTER TABLE loose ADD FOREIGN KEY (p) REFERENCES parent (id)"]).await;
        let error = code(&mut one, "COMMIT").await;
        assert!([1213, 1412].contains(&error), "{before}: {error}");
        assert_eq!(
            rows(&mut two, "SELECT COUNT(*) FROM loose l JOIN parent ON parent.id = l.p")
                .await
                .unwrap(),
            ["1"]
        );
    }
    // A table that is made with a key shuts those out who write to the one that it refers to.
    let (_engine, mut one, mut two) = family().await;
    all(&mut one, &["CREATE TABLE alone (id INT PRIMARY KEY)", "INSERT INTO alone VALUES (1)"])
        .await;
    all(&mut one, &["BEGIN OPTIMISTIC", "DELETE FROM alone WHERE id = 1"]).await;
    let made = "CREATE TABLE made (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES alone (id))";
    all(&mut two, &[made, "INSERT INTO made VALUES (1)"]).await;
    let error = code(&mut one, "COMMIT").await;
    assert!([1213, 1412].contains(&error), "{error}");
}

#[tokio::test]
async fn nothing_is_done_because_of_a_key_that_is_not_proven() {
    let store = MemoryStorage::new();
    let engine = engine_over(store.clone());
    let mut one = in_database(&engine).await;
    for sql in [
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, KEY (p))",
        "INSERT INTO parent VALUES (1), (2)",
        "INSERT INTO child VALUES (1, 1), (2, 2)",
    ] {
        done(&mut one, sql).await.unwrap();
    }
    let catalog = store.catalog().await.unwrap();
    let found =
        |name| catalog.table_named("d", name).map(|table| (table.id, table.version)).unwrap();
    let (child, keys) = (found("child"), vec!["k".to_owned()]);
    let key = ForeignKey {
        name: "k".into(),
        columns: vec!["p".into()],
        parent: ("d".into(), "parent".into()),
        referenced: vec!["id".into()],
        on_delete: OnParent::Cascade,
        on_update: OnParent::NoAction,
        proven: false,
    };
    let added = KeyChange::Add { child, keys: vec![key], parents: vec![found("parent")] };
    store.change(CatalogChange::ForeignKeys(added)).await.unwrap();
    assert_eq!(code(&mut one, "INSERT INTO child VALUES (3, 3)").await, 1452);
    assert_eq!(code(&mut one, "DELETE FROM parent WHERE id = 1").await, 1451);
    let proven = KeyChange::Prove { child: child.0, keys };
    store.change(CatalogChange::ForeignKeys(proven)).await.unwrap();
    all(&mut one, &["DELETE FROM parent WHERE id = 1"]).await;
    assert_eq!(rows(&mut one, "SELECT id FROM child").await.unwrap(), ["2"]);
}

#[tokio::test]
async fn a_user_needs_references_on_the_parent() {
    let (engine, mut one, _two) = family().await;
    all(&mut one, &["CREATE USER ann", "GRANT CREATE, ALTER, INSERT ON d.* TO ann"]).await;
    let mut ann = session_of(&engine, "ann");
    all(&mut ann, &["USE d"]).await;
    let create = "CREATE TABLE own (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES parent (id))";
    assert_eq!(code(&mut ann, create).await, 1142);
    all(&mut one, &["GRANT REFERENCES ON d.parent TO ann"]).await;
    all(&mut ann, &[create]).await;
}
