//! DECIMALs of more than 38 digits: the ways to their rows, what they cannot have, and where Isobar
//! stops before MySQL does. What both answer is in `tests/scripts/wide_decimals.slt`.

use num_bigint::BigInt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::harness::{done, engine, in_database, rows};

const NINES: &str = "99999999999999999999999999999999999999999999999999999999999999999";

#[tokio::test]
async fn a_table_of_wide_decimals_has_no_replica() {
    let mut one = in_database(&engine()).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, money DECIMAL(39,2))").await.unwrap();
    let refused = done(&mut one, "ALTER TABLE a SET COLUMNAR REPLICA 1").await.unwrap_err();
    assert_eq!(refused.code, 1235);
    assert!(refused.message.contains("'money'") && refused.message.contains("decimal(39,2)"));
    done(&mut one, "ALTER TABLE a SET COLUMNAR REPLICA 0").await.unwrap();
    done(&mut one, "CREATE TABLE b (id INT PRIMARY KEY, n DECIMAL(38,2))").await.unwrap();
    done(&mut one, "ALTER TABLE b SET COLUMNAR REPLICA 1").await.unwrap();
    for action in [
        "ADD COLUMN wide DECIMAL(39,0)",
        "ADD COLUMN x INT, ADD COLUMN wide DECIMAL(65,30)",
        "ADD COLUMN wide DECIMAL(40,2) AS (n + 1) STORED",
    ] {
        let refused = done(&mut one, &format!("ALTER TABLE b {action}")).await.unwrap_err();
        assert_eq!(refused.code, 1235, "{action}: {}", refused.message);
        assert!(refused.message.contains("'wide'"), "{}", refused.message);
    }
    assert!(done(&mut one, "ALTER TABLE b MODIFY COLUMN n DECIMAL(40,2)").await.is_err());
    let columns = rows(&mut one, "SHOW COLUMNS FROM b").await.unwrap();
    assert_eq!(columns.len(), 2, "{columns:?}");
    // Without the column, and without the replica, all is as everywhere.
    done(&mut one, "ALTER TABLE a DROP COLUMN money").await.unwrap();
    done(&mut one, "ALTER TABLE a SET COLUMNAR REPLICA 1").await.unwrap();
    done(&mut one, "ALTER TABLE b SET COLUMNAR REPLICA 0").await.unwrap();
    done(&mut one, "ALTER TABLE b ADD COLUMN wide DECIMAL(39,0) DEFAULT 5").await.unwrap();
}

#[tokio::test]
async fn keys_are_found_by_wide_numbers() {
    let mut one = in_database(&engine()).await;
    let table = "CREATE TABLE a (n DECIMAL(65,30) PRIMARY KEY, w DECIMAL(65,0), KEY by_w (w))";
    done(&mut one, table).await.unwrap();
    let insert = format!("INSERT INTO a VALUES (-1.5, -{NINES}), (0, 0), (1.5, 7), (99, {NINES})");
    done(&mut one, &insert).await.unwrap();
    for (condition, found, way) in [
        ("n = 1.5".to_owned(), "7", "1 primary key point(s)"),
        ("n = 99".to_owned(), NINES, "1 primary key point(s)"),
        ("n = '1.50'".to_owned(), "7", "1 primary key point(s)"),
        ("n > 1.5".to_owned(), NINES, "1 primary key range(s)"),
        (format!("w = {NINES}"), NINES, "1 range(s) of index by_w"),
        (format!("w < {NINES} AND w > 5"), "7", "1 range(s) of index by_w"),
        // No number of the column: looked at row by row.
        ("w = 7.5 OR n = 1.5".to_owned(), "7", "full scan"),
    ] {
        let sql = format!("SELECT w FROM a WHERE {condition}");
        assert_eq!(rows(&mut one, &sql).await.unwrap(), [found], "{sql}");
        let lines = rows(&mut one, &format!("EXPLAIN {sql}")).await.unwrap();
        assert!(lines.last().unwrap().contains(way), "{sql}: {lines:?}");
    }
    let shown = rows(&mut one, "SHOW CREATE TABLE a").await.unwrap().join("\n");
    assert!(shown.contains("`n` decimal(65,30) NOT NULL"), "{shown}");
}

/// What has too many digits is refused, and never rounded unasked.
#[tokio::test]
async fn what_is_not_exact_is_refused() {
    let mut one = in_database(&engine()).await;
    let table =
        "CREATE TABLE a (n DECIMAL(65,0), f DECIMAL(65,30), d DECIMAL(38,0), s DECIMAL(38,30))";
    done(&mut one, table).await.unwrap();
    let insert =
        format!("INSERT INTO a VALUES ({NINES}, 1.5, 99999999999999999999999999999999999999, 1.5)");
    done(&mut one, &insert).await.unwrap();
    for (sql, code) in [
        (format!("SELECT {NINES}9"), 1235),
        ("SELECT 0.1234567890123456789012345678901234567890".to_owned(), 1235),
        ("SELECT n * 1000000000000 FROM a".to_owned(), 1690),
        ("SELECT COALESCE(n, f) FROM a".to_owned(), 1690),
        ("SELECT GREATEST(f, n) FROM a".to_owned(), 1690),
        // Narrow numbers are counted in 128 bits.
        ("SELECT d * d FROM a".to_owned(), 1690),
        ("SELECT SUM(n * 10) FROM a".to_owned(), 1690),
    ] {
        assert_eq!(rows(&mut one, &sql).await.unwrap_err().code, code, "{sql}");
    }
    for (sql, expected) in [
        (
            "SELECT f * f, f / f FROM a",
            "2.250000000000000000000000000000|1.000000000000000000000000000000",
        ),
        (
            "SELECT CAST(d AS DECIMAL(65,0)) * d FROM a",
            "9999999999999999999999999999999999999800000000000000000000000000000000000001",
        ),
        // The scales are 30 apart: no type holds both, and yet they compare.
        (
            "SELECT n > f, n = f, f < n, n <=> f, NULLIF(f, n) FROM a",
            "1|0|1|0|1.500000000000000000000000000000",
        ),
        (
            "SELECT FORMAT(d, 30), FORMAT(f, 1) FROM a",
            "99,999,999,999,999,999,999,999,999,999,999,999,999.000000000000000000000000000000|1.5",
        ),
        ("SELECT f = s, s < n, n IN (f, d, n), d BETWEEN f AND n FROM a", "1|1|1|1"),
    ] {
        assert_eq!(rows(&mut one, sql).await.unwrap(), [expected], "{sql}");
    }
    // Texts and literals of more digits than 128 bits hold, on their way into narrow columns.
    done(&mut one, "DELETE FROM a").await.unwrap();
    let long = "1.2345678901234567890123456789012345678901234567890";
    let insert =
        format!("INSERT INTO a (s, d) VALUES ({long}, 12.{}), ('{long}', '1e37')", "4".repeat(90));
    done(&mut one, &insert).await.unwrap();
    let expected = "1.234567890123456789012345678901";
    assert_eq!(
        rows(&mut one, "SELECT s, d FROM a ORDER BY d").await.unwrap(),
        [format!("{expected}|12"), format!("{expected}|10000000000000000000000000000000000000")]
    );
    let cast = format!("SELECT CAST('{long}' AS DECIMAL(38,30)), CAST('{long}' AS DECIMAL(40,30))");
    assert_eq!(rows(&mut one, &cast).await.unwrap(), [format!("{expected}|{expected}")]);
}

/// IGNORE takes the nearest number of the column.
#[tokio::test]
async fn ignore_takes_the_end_of_a_wide_column() {
    let mut one = in_database(&engine()).await;
    done(&mut one, "CREATE TABLE a (id INT PRIMARY KEY, n DECIMAL(65,5))").await.unwrap();
    let insert = format!("INSERT IGNORE INTO a VALUES (1, {NINES}), (2, -{NINES}), (3, '12x')");
    done(&mut one, &insert).await.unwrap();
    let end = format!("{}.99999", "9".repeat(60));
    assert_eq!(
        rows(&mut one, "SELECT n FROM a ORDER BY id").await.unwrap(),
        [end.clone(), format!("-{end}"), "12.00000".into()]
    );
}

/// A number, and its spelling with `scale` digits behind the point.
fn random_number(random: &mut StdRng, scale: usize) -> (BigInt, String) {
    let (whole, fraction) = (random.random_range(0..=22), random.random_range(0..=scale));
    let mut digits = |n: usize| -> String {
        (0..n).map(|_| char::from(b'0' + random.random_range(0..10u8))).collect()
    };
    let text = format!("{}{:0<scale$}", digits(whole), digits(fraction));
    let number: BigInt = format!("0{text}").parse().unwrap();
    let number = if random.random_bool(0.5) { -number } else { number };
    let spelled = spelled(&number, scale);
    (number, spelled)
}

fn spelled(number: &BigInt, scale: usize) -> String {
    let digits = format!("{:0>width$}", number.magnitude(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if *number < BigInt::ZERO { "-" } else { "" };
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// The quotient, rounded half away from zero.
fn rounded(above: &BigInt, below: &BigInt) -> BigInt {
    let twice: BigInt = (above.magnitude() * 2u8 + below.magnitude()).into();
    let size = twice / BigInt::from(below.magnitude() * 2u8);
    if (*above < BigInt::ZERO) == (*below < BigInt::ZERO) { size } else { -size }
}

/// Operators on rows of random numbers, against numbers of any length.
#[tokio::test]
async fn operators_are_exact() {
    let mut one = in_database(&engine()).await;
    let table = "CREATE TABLE a (id INT PRIMARY KEY, x DECIMAL(65,10), y DECIMAL(65,25))";
    done(&mut one, table).await.unwrap();
    let mut random = StdRng::seed_from_u64(65);
    let power = |n: u32| BigInt::from(10).pow(n);
    let (mut values, mut expected) = (Vec::new(), Vec::new());
    for id in 0..400 {
        let (x, x_text) = random_number(&mut random, 10);
        let (y, y_text) = random_number(&mut random, 25);
        values.push(format!("({id}, {x_text}, '{y_text}')"));
        let at_25 = &x * power(15);
        let by_zero = y == BigInt::ZERO;
        let or_null = |text: String| if by_zero { "NULL".to_owned() } else { text };
        let divisor = if by_zero { BigInt::from(1) } else { y.clone() };
        expected.push(
            [
                spelled(&(&at_25 + &y), 25),
                spelled(&(&at_25 - &y), 25),
                spelled(&rounded(&(&x * &y), &power(5)), 30),
                or_null(spelled(&rounded(&(&x * power(29)), &divisor), 14)),
                or_null(spelled(&(&at_25 % &divisor), 25)),
                spelled(&-&x, 10),
                spelled(&rounded(&y, &power(20)), 5),
                i32::from(at_25 > y).to_string(),
                i32::from(at_25 == y).to_string(),
            ]
            .join("|"),
        );
    }
    done(&mut one, &format!("INSERT INTO a VALUES {}", values.join(", "))).await.unwrap();
    let sql = "SELECT x + y, x - y, x * y, x / y, x % y, -x, ROUND(y, 5), x > y, x = y FROM a ORDER BY id";
    let found = rows(&mut one, sql).await.unwrap();
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
        // A minus before nothing but zeros is none.
        let plain = |text: &str| {
            let none = |cell: &str| !cell.bytes().any(|b| b.is_ascii_digit() && b != b'0');
            let cell =
                |cell: &str| cell.strip_prefix('-').filter(|c| none(c)).unwrap_or(cell).to_owned();
            text.split('|').map(cell).collect::<Vec<_>>().join("|")
        };
        assert_eq!(plain(found), plain(expected), "{}", values[at]);
    }
}
