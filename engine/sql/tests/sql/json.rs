//! JSON beyond what scripts can say: types of results, and messages word for word.

use types::ColumnType;

use super::harness::{Answer, done, engine, in_database, rows, run};

#[tokio::test]
async fn results_are_json_where_mysqls_are() {
    let mut one = in_database(&engine()).await;
    done(&mut one, "CREATE TABLE t (id INT PRIMARY KEY, d JSON)").await.unwrap();
    done(&mut one, "INSERT INTO t VALUES (1, '[1]')").await.unwrap();
    let sql = "SELECT d, d->'$[0]', d->>'$[0]', JSON_ARRAY(id), IF(id, d, NULL), IF(id, d, 'x'), \
               CASE id WHEN 1 THEN d END, JSON_TYPE(d), JSON_LENGTH(d), CONCAT(d), \
               JSON_ARRAYAGG(d) OVER (), GROUP_CONCAT(id) OVER () FROM t";
    let Answer::Rows(columns, found) = run(&mut one, sql).await.unwrap() else { panic!() };
    let json: Vec<bool> =
        columns.iter().map(|column| column.ty == Some(ColumnType::Json)).collect();
    let expected = [true, true, false, true, true, false, true, false, false, false, true, false];
    assert_eq!(json, expected);
    let shown = ["[1]", "1", "1", "[1]", "[1]", "[1]", "[1]", "ARRAY", "1", "[1]", "[[1]]", "1"];
    assert_eq!(found, [shown.map(str::to_owned).to_vec()]);
    for key in ["id = 1", "id > 0"] {
        let sql = format!("SELECT d FROM t WHERE {key}");
        let Answer::Rows(columns, _) = run(&mut one, &sql).await.unwrap() else { panic!() };
        assert_eq!(columns[0].ty, Some(ColumnType::Json), "{key}");
    }
    let shown = rows(&mut one, "SHOW CREATE TABLE t").await.unwrap().join("\n");
    assert!(shown.contains("`d` json DEFAULT NULL"), "{shown}");
}

#[tokio::test]
async fn messages_say_what_is_wrong_and_where() {
    let mut one = in_database(&engine()).await;
    done(&mut one, "CREATE TABLE t (id INT PRIMARY KEY, d JSON)").await.unwrap();
    for (sql, message) in [
        (
            "INSERT INTO t VALUES (1, '[1 2]')",
            "Invalid JSON text: \"Missing a comma or ']' after an array element.\" at position 3 in \
             value for column 'd'.",
        ),
        (
            "INSERT INTO t VALUES (1, 1)",
            "Invalid JSON text: \"not a JSON text, may need CAST\" at position 0 in value for \
             column 'd'.",
        ),
        (
            "SELECT JSON_LENGTH('{}', '$', 1)",
            "Incorrect parameter count in the call to native function 'json_length'",
        ),
        (
            "SELECT JSON_CONTAINS('{}', 'x')",
            "Invalid JSON text in argument 2 to function json_contains: \"Invalid value.\" at \
             position 0.",
        ),
        (
            "SELECT JSON_EXTRACT('{}', '$.a[')",
            "Invalid JSON path expression. The error is around character position 4.",
        ),
        (
            "SELECT JSON_KEYS(5)",
            "Invalid data type for JSON data in argument 1 to function json_keys; a JSON string or \
             JSON type is required.",
        ),
    ] {
        let Err(error) = run(&mut one, sql).await else { panic!("{sql} is no error") };
        assert_eq!(error.message, message, "{sql}");
        if !sql.contains("json_length") {
            assert_ne!(error.code, 1105, "{sql}");
        }
    }
}
