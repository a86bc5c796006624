//! What statements may hold of the memory of all queries.

use super::harness::{done, engine, in_database, rows};

#[tokio::test]
async fn rows_that_a_statement_finds_count_against_the_memory_of_queries() {
    let large = engine();
    let small = large.clone().with_memory(512 << 10);
    let mut one = in_database(&large).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, k INT, v INT, s VARCHAR(40))")
        .await
        .unwrap();
    done(&mut one, "CREATE TABLE b (id INT PRIMARY KEY)").await.unwrap();
    done(&mut one, "INSERT INTO b VALUES (1), (2)").await.unwrap();
    for part in 0..4 {
        let row = |n| format!("({n}, 1, 0, 'a text of some length')");
        let rows: Vec<String> = (part * 1_000..(part + 1) * 1_000).map(row).collect();
        done(&mut one, &format!("INSERT INTO a VALUES {}", rows.join(","))).await.unwrap();
    }
    let mut two = in_database(&small).await;
    let found = "SELECT COUNT(*), SUM(a.v) FROM b JOIN a ON a.k = b.id";
    assert_eq!(rows(&mut two, found).await.unwrap(), ["4000|0"]);
    for statement in [
        "UPDATE b JOIN a ON a.k = b.id SET a.v = a.v + 1",
        "DELETE a FROM b JOIN a ON a.k = b.id",
        "UPDATE a SET v = v + 1 WHERE k > 0",
        "DELETE FROM a WHERE k > 0",
    ] {
        let error = done(&mut two, statement).await.unwrap_err();
        assert_eq!(error.code, 8175, "{statement}: {error}");
    }
    assert_eq!(rows(&mut two, found).await.unwrap(), ["4000|0"]);
    let updated = done(&mut one, "UPDATE b JOIN a ON a.k = b.id SET a.v = a.v + 1").await.unwrap();
    assert_eq!(updated.affected_rows, 4_000);
    // What was counted is given back.
    let few = "UPDATE b JOIN a ON a.k = b.id SET a.v = 2 WHERE a.id < 100";
    assert_eq!(done(&mut two, few).await.unwrap().affected_rows, 100);
}
