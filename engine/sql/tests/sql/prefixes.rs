//! Indexes of prefixes: that they are used, that they lead to the rows that a scan finds, what they
//! keep unique, and how they are described. What MariaDB answers likewise is in
//! `tests/scripts/indexes.slt`.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use sql::session::Session;

use super::harness::{done, engine, in_database, rows};

/// The last line of EXPLAIN.
async fn way(one: &mut Session, sql: &str) -> String {
    rows(one, &format!("EXPLAIN {sql}")).await.unwrap().pop().unwrap()
}

#[tokio::test]
async fn ranges_of_prefixes_are_widened() {
    let mut one = in_database(&engine()).await;
    let table = "CREATE TABLE a (id INT PRIMARY KEY, s TEXT, n INT, UNIQUE KEY by_s (s(2), n))";
    done(&mut one, table).await.unwrap();
    let many = "INSERT INTO a VALUES (1, 'aé', 1), (2, 'aéb', 2), (3, 'aéc', 3), (4, 'a', 1), \
                (5, '', 1), (6, NULL, 1), (7, 'b', 1)";
    done(&mut one, many).await.unwrap();
    for (condition, found) in [
        ("s = 'aéb'", "2"),
        ("s = 'aé'", "1"),
        ("s = 'aéb' AND n = 2", "2"),
        ("s = 'aéb' AND n = 3", ""),
        ("s > 'aéb'", "3 7"),
        ("s >= 'aéb'", "2 3 7"),
        ("s < 'aéb'", "1 4 5"),
        ("s <= 'aéb'", "1 2 4 5"),
        ("s > 'aé'", "2 3 7"),
        ("s < 'aé'", "4 5"),
        ("s > 'aé' AND s < 'aéc'", "2"),
        ("s IN ('aéb', 'aéc', 'aéd')", "2 3"),
        ("s IS NULL", "6"),
        ("s = ''", "5"),
    ] {
        let sql = format!("SELECT id FROM a WHERE {condition}");
        let mut ids = rows(&mut one, &sql).await.unwrap();
        ids.sort();
        assert_eq!(ids.join(" "), found, "{sql}");
        let way = way(&mut one, &sql).await;
        assert!(way.contains("1 range(s) of index by_s"), "{sql}: {way}");
    }
}

#[tokio::test]
async fn of_two_indexes_the_one_of_whole_values_is_read() {
    let mut one = in_database(&engine()).await;
    let table = "CREATE TABLE a (id INT PRIMARY KEY, s VARCHAR(9), UNIQUE KEY p (s(1)), KEY w (s))";
    done(&mut one, table).await.unwrap();
    done(&mut one, "INSERT INTO a VALUES (1, 'ab'), (2, 'b')").await.unwrap();
    let sql = "SELECT id FROM a WHERE s = 'ab'";
    assert!(way(&mut one, sql).await.contains("index w"));
    assert_eq!(rows(&mut one, sql).await.unwrap(), ["1"]);
    // A unique prefix is no key that a value can be looked up by.
    done(&mut one, "DROP INDEX w ON a").await.unwrap();
    let sql = "SELECT id FROM a WHERE s = 'ax'";
    assert!(way(&mut one, sql).await.contains("1 range(s) of index p"));
    assert!(rows(&mut one, sql).await.unwrap().is_empty());
    for (value, found) in [("ab", vec!["1"]), ("b", vec!["2"]), ("a", vec![])] {
        let sql = format!("SELECT id FROM a WHERE s = '{value}'");
        assert_eq!(rows(&mut one, &sql).await.unwrap(), found);
    }
    assert_eq!(
        done(&mut one, "UPDATE a SET s = 'z' WHERE s = 'ax'").await.unwrap().affected_rows,
        0
    );
    assert_eq!(done(&mut one, "DELETE FROM a WHERE s = 'ax'").await.unwrap().affected_rows, 0);
    done(&mut one, "BEGIN").await.unwrap();
    let sql = "SELECT id FROM a WHERE s = 'ax' FOR UPDATE";
    assert!(rows(&mut one, sql).await.unwrap().is_empty());
    done(&mut one, "COMMIT").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT s FROM a ORDER BY id").await.unwrap(), ["ab", "b"]);
}

#[tokio::test]
async fn a_duplicate_names_the_prefix() {
    let mut one = in_database(&engine()).await;
    let table = "CREATE TABLE a (id INT PRIMARY KEY, s TEXT, n INT, UNIQUE KEY uk (s(3), n))";
    done(&mut one, table).await.unwrap();
    done(&mut one, "INSERT INTO a VALUES (1, 'äbcd', 5), (2, 'x', 5)").await.unwrap();
    let wrong = "Duplicate entry 'äbc-5' for key 'a.uk'";
    for sql in [
        "INSERT INTO a VALUES (3, 'äbcz', 5)",
        "UPDATE a SET s = 'äbc' WHERE id = 2",
        "INSERT INTO a VALUES (2, 'y', 1) ON DUPLICATE KEY UPDATE s = 'äbc?'",
    ] {
        let error = done(&mut one, sql).await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (1062, wrong), "{sql}");
    }
    done(&mut one, "INSERT INTO a VALUES (4, 'zz1', 1), (5, 'zz2', 1)").await.unwrap();
    let error = done(&mut one, "CREATE UNIQUE INDEX late ON a (s(2))").await.unwrap_err();
    assert_eq!(error.message, "Duplicate entry 'zz' for key 'a.late'");
}

#[tokio::test]
async fn keys_are_shown_as_they_were_defined() {
    let mut one = in_database(&engine()).await;
    let table = "CREATE TABLE a (id INT PRIMARY KEY, s VARCHAR(20), p TEXT, v VARBINARY(9), n INT, \
                 UNIQUE KEY us (s(10)), KEY pn (p(5) DESC, n), KEY nd (n DESC), KEY vv (v(9)), \
                 KEY hid (n, v(2)) COMMENT 'x' INVISIBLE)";
    done(&mut one, table).await.unwrap();
    let keys = "  PRIMARY KEY (`id`),\n  UNIQUE KEY `us` (`s`(10)),\n  \
                KEY `pn` (`p`(5) DESC,`n`),\n  KEY `nd` (`n` DESC),\n  KEY `vv` (`v`),\n  \
                KEY `hid` (`n`,`v`(2)) /*!80000 INVISIBLE */\n)";
    let shown = rows(&mut one, "SHOW CREATE TABLE a").await.unwrap().join("\n");
    assert!(shown.contains(keys), "{shown}");
    let text = shown.split_once('|').map_or("", |(_, text)| text.trim()).to_owned();
    // Table, Non_unique, Key_name, Seq_in_index, Column_name, Collation, …, Sub_part, …, Visible.
    let listed = rows(&mut one, "SHOW INDEX FROM a").await.unwrap();
    let listed: Vec<String> = listed
        .iter()
        .map(|row| {
            let cells: Vec<&str> = row.split('|').collect();
            [2, 3, 4, 5, 7, 13].map(|at| cells[at]).join(" ")
        })
        .collect();
    let expected = [
        "PRIMARY 1 id A NULL YES",
        "us 1 s A 10 YES",
        "pn 1 p D 5 YES",
        "pn 2 n A NULL YES",
        "nd 1 n D NULL YES",
        "vv 1 v A NULL YES",
        "hid 1 n A NULL NO",
        "hid 2 v A 2 NO",
    ];
    assert_eq!(listed, expected);
    let described = "SELECT INDEX_NAME, SEQ_IN_INDEX, COLUMN_NAME, COLLATION, SUB_PART, IS_VISIBLE \
                     FROM information_schema.statistics WHERE TABLE_NAME = 'a'";
    let described: Vec<String> =
        rows(&mut one, described).await.unwrap().iter().map(|row| row.replace('|', " ")).collect();
    assert_eq!(described, expected);
    // The statement that was shown makes the same table, as LIKE does.
    done(&mut one, "CREATE TABLE b LIKE a").await.unwrap();
    let like = rows(&mut one, "SHOW CREATE TABLE b").await.unwrap().join("\n");
    assert!(like.contains(keys), "{like}");
    done(&mut one, "DROP TABLE a").await.unwrap();
    done(&mut one, &text).await.unwrap();
    assert_eq!(rows(&mut one, "SHOW CREATE TABLE a").await.unwrap().join("\n"), shown);
    // A column that comes in another one's place takes its parts over, as far as they are parts still.
    for (change, key) in [
        ("MODIFY p MEDIUMTEXT NOT NULL", "KEY `pn` (`p`(5) DESC,`n`)"),
        ("MODIFY p VARCHAR(5)", "KEY `pn` (`p` DESC,`n`)"),
        ("MODIFY s VARCHAR(30) NOT NULL", "KEY `us` (`s`(10))"),
        ("MODIFY v BIGINT", "KEY `hid` (`n`,`v`) /*!80000 INVISIBLE */"),
    ] {
        done(&mut one, &format!("ALTER TABLE a {change}")).await.unwrap();
        let shown = rows(&mut one, "SHOW CREATE TABLE a").await.unwrap().join("\n");
        assert!(shown.contains(key), "{change}: {shown}");
    }
}

#[tokio::test]
async fn an_invisible_index_is_kept_and_not_read() {
    let mut one = in_database(&engine()).await;
    let table = "CREATE TABLE a (id INT PRIMARY KEY, v INT, w INT, UNIQUE KEY by_v (v) INVISIBLE)";
    done(&mut one, table).await.unwrap();
    done(&mut one, "INSERT INTO a VALUES (1, 10, 1), (2, 20, 1)").await.unwrap();
    for (change, value, path) in [
        ("ALTER TABLE a COMMENT = 'x'", "20", "full scan"),
        ("ALTER TABLE a ALTER INDEX BY_V VISIBLE", "20", "1 range(s) of index by_v"),
        ("ALTER TABLE a ALTER INDEX by_v INVISIBLE, ADD COLUMN x INT", "20", "full scan"),
        ("ALTER TABLE a MODIFY v VARCHAR(9)", "'20'", "full scan"),
        ("ALTER TABLE a ALTER INDEX by_v VISIBLE, RENAME COLUMN w TO y", "'20'", "index by_v"),
    ] {
        done(&mut one, change).await.unwrap();
        let sql = format!("SELECT id FROM a WHERE v = {value}");
        let way = way(&mut one, &sql).await;
        assert!(way.contains(path), "{change}: {way}");
        assert_eq!(rows(&mut one, &sql).await.unwrap(), ["2"], "{change}");
        let taken = done(&mut one, "INSERT INTO a (id, v) VALUES (3, 20)").await.unwrap_err();
        assert_eq!(taken.code, 1062, "{change}");
    }
    for (sql, code) in [
        ("ALTER TABLE a ALTER INDEX nosuch INVISIBLE", 1176),
        ("ALTER TABLE a ALTER INDEX PRIMARY INVISIBLE", 3522),
        ("CREATE TABLE b (id INT, PRIMARY KEY (id) INVISIBLE)", 3522),
        ("CREATE TABLE b (s VARCHAR(9), PRIMARY KEY (s(2)))", 1235),
        ("CREATE TABLE b (s VARCHAR(9), PRIMARY KEY (s DESC))", 1235),
        ("CREATE TABLE b (s VARCHAR(9), KEY (lower(s)))", 1235),
        ("CREATE TABLE b (s VARCHAR(9), KEY (s t))", 1064),
        ("CREATE TABLE b (s VARCHAR(900), KEY (s(769)))", 1071),
        ("CREATE TABLE b (s VARCHAR(500), t VARCHAR(500), KEY (s, t))", 1071),
        ("CREATE TABLE b (id INT PRIMARY KEY, s TEXT UNIQUE)", 1170),
        ("CREATE TABLE b (s TEXT, KEY (s(99999999999999999999)))", 1089),
    ] {
        assert_eq!(done(&mut one, sql).await.unwrap_err().code, code, "{sql}");
    }
    done(&mut one, "CREATE TABLE b (s VARCHAR(768) PRIMARY KEY, t TEXT, KEY (t(768)))")
        .await
        .unwrap();
}

const LETTERS: [&str; 6] = ["a", "b", "é", "🦀", " ", "z"];

fn text(random: &mut StdRng) -> String {
    let length = random.random_range(0..5);
    (0..length).map(|_| *LETTERS.choose(random).unwrap()).collect()
}

/// A literal of a column: NULL at times.
fn literal(random: &mut StdRng, column: &str) -> String {
    match column {
        _ if random.random_bool(0.08) => "NULL".into(),
        "n" => random.random_range(0..3u8).to_string(),
        "b" => {
            let length = random.random_range(1..4);
            let bytes: String =
                (0..length).map(|_| *["00", "01", "7F", "FF"].choose(random).unwrap()).collect();
            format!("X'{bytes}'")
        }
        _ => format!("'{}'", text(random)),
    }
}

fn comparison(random: &mut StdRng, column: &str) -> String {
    let mut value = || literal(random, column);
    let (one, two, three) = (value(), value(), value());
    match random.random_range(0..9) {
        0..=1 => format!("{column} = {one}"),
        2 => format!("{column} IN ({one}, {two}, {three})"),
        3 => format!("{column} BETWEEN {one} AND {two}"),
        4 => format!("({column} = {one} OR {column} = {two})"),
        5 => format!("{column} IS NULL"),
        6 => format!("{column} > {one} AND {column} <= {two}"),
        _ => format!("{column} {} {one}", ["<", "<=", ">", ">="].choose(random).unwrap()),
    }
}

/// The same random rows under indexes of prefixes and under none: whatever is asked, and whatever
/// is written by a condition, comes to the same.
#[tokio::test]
async fn what_indexes_of_prefixes_find_is_what_a_scan_finds() {
    let mut random = StdRng::seed_from_u64(20_261_122);
    let mut one = in_database(&engine()).await;
    let columns = "id INT PRIMARY KEY, s VARCHAR(9), p TEXT, b BLOB, n INT";
    let keys = "KEY by_s (s(2)), KEY by_p (p(1), n), KEY by_b (b(2) DESC), KEY by_n (n, s(1))";
    done(&mut one, &format!("CREATE TABLE k ({columns}, {keys})")).await.unwrap();
    done(&mut one, &format!("CREATE TABLE f ({columns})")).await.unwrap();
    let mut used: BTreeMap<&str, u32> = BTreeMap::new();
    for step in 0..400 {
        let column = *["s", "p", "b"].choose(&mut random).unwrap();
        let mut condition = comparison(&mut random, column);
        if random.random_bool(0.4) {
            condition = format!("{condition} AND {}", comparison(&mut random, "n"));
        }
        let (id, value) = (random.random_range(0..120), literal(&mut random, column));
        let write = match random.random_range(0..8) {
            0 => format!("DELETE FROM # WHERE {condition}"),
            1 => format!("UPDATE # SET {column} = {value} WHERE {condition}"),
            2 => format!("UPDATE # SET n = 1 WHERE {condition}"),
            3 => format!("UPDATE # SET {column} = {value} WHERE id = {id}"),
            _ => {
                let [s, p, b, n] = ["s", "p", "b", "n"].map(|c| literal(&mut random, c));
                format!("REPLACE INTO # VALUES ({id}, {s}, {p}, {b}, {n})")
            }
        };
        let by_index = done(&mut one, &write.replace('#', "k")).await.unwrap().affected_rows;
        let by_scan = done(&mut one, &write.replace('#', "f")).await.unwrap().affected_rows;
        assert_eq!(by_index, by_scan, "step {step}: {write}");
        let sql = format!("SELECT id, s, p, HEX(b), n FROM # WHERE {condition} ORDER BY id");
        let by_index = rows(&mut one, &sql.replace('#', "k")).await.unwrap();
        let by_scan = rows(&mut one, &sql.replace('#', "f")).await.unwrap();
        assert_eq!(by_index, by_scan, "step {step}: {sql}");
        let way = way(&mut one, &sql.replace('#', "k")).await;
        for index in ["by_s", "by_p", "by_b", "by_n"] {
            *used.entry(index).or_default() += u32::from(way.contains(index));
        }
    }
    assert!(used.values().all(|times| *times > 20), "{used:?}");
    // Made anew over the rows that are there, one leads to all of them.
    done(&mut one, "DROP INDEX by_s ON k").await.unwrap();
    done(&mut one, "CREATE INDEX again ON k (s(1))").await.unwrap();
    for letter in LETTERS {
        let sql = format!("SELECT id FROM # WHERE s >= '{letter}' AND s < '{letter}~' ORDER BY id");
        assert!(way(&mut one, &sql.replace('#', "k")).await.contains("index again"));
        let by_index = rows(&mut one, &sql.replace('#', "k")).await.unwrap();
        assert_eq!(by_index, rows(&mut one, &sql.replace('#', "f")).await.unwrap(), "{sql}");
    }
}

/// Random writes to a unique prefix, beside a map that says which row has which.
#[tokio::test]
async fn a_unique_prefix_is_one_rows() {
    let mut random = StdRng::seed_from_u64(7);
    let mut one = in_database(&engine()).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, s TEXT, UNIQUE KEY uk (s(2)))")
        .await
        .unwrap();
    let mut model: BTreeMap<u32, String> = BTreeMap::new();
    let prefix = |text: &str| text.chars().take(2).collect::<String>();
    let (mut refused, mut written) = (0, 0);
    for step in 0..800 {
        let (id, value) = (random.random_range(0..25u32), text(&mut random));
        let owner = model.iter().find(|(_, s)| prefix(s) == prefix(&value)).map(|(id, _)| *id);
        let (sql, allowed) = match random.random_range(0..6) {
            0 => (format!("DELETE FROM a WHERE id = {id}"), true),
            1 => (format!("DELETE FROM a WHERE s = '{value}'"), true),
            2 => {
                let free = !model.contains_key(&id) || owner.is_none_or(|owner| owner == id);
                (format!("UPDATE a SET s = '{value}' WHERE id = {id}"), free)
            }
            3 => (format!("REPLACE INTO a VALUES ({id}, '{value}')"), true),
            _ => {
                let free = !model.contains_key(&id) && owner.is_none();
                (format!("INSERT INTO a VALUES ({id}, '{value}')"), free)
            }
        };
        match done(&mut one, &sql).await {
            Ok(_) => assert!(allowed, "step {step}: {sql}"),
            Err(error) => assert!(!allowed && error.code == 1062, "step {step}: {sql}: {error}"),
        }
        if !allowed {
            refused += 1;
            continue;
        }
        written += 1;
        match &sql[..6] {
            "DELETE" if sql.contains("id =") => _ = model.remove(&id),
            "DELETE" => model.retain(|_, s| *s != value),
            "UPDATE" if !model.contains_key(&id) => {}
            "REPLAC" => {
                model.retain(|_, s| prefix(s) != prefix(&value));
                model.insert(id, value.clone());
            }
            _ => _ = model.insert(id, value.clone()),
        }
        let found = rows(&mut one, "SELECT id, s FROM a ORDER BY id").await.unwrap();
        let expected: Vec<String> = model.iter().map(|(id, s)| format!("{id}|{s}")).collect();
        assert_eq!(found, expected, "step {step}: {sql}");
        let sql = format!("SELECT id FROM a WHERE s = '{value}'");
        let owner = model.iter().find(|(_, s)| **s == value).map(|(id, _)| id.to_string());
        assert_eq!(
            rows(&mut one, &sql).await.unwrap(),
            Vec::from_iter(owner),
            "step {step}: {sql}"
        );
    }
    assert!(refused > 50 && written > 200, "{refused} refused, {written} written");
}
