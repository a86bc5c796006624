//! Statements at the ends of types: whatever they are given, none panics; and what a session is after one that did.

use std::sync::Arc;

use env::SimClock;
use execution::host::{Host, Process};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use sql::engine::Engine;
use sql::session::Session;
use storage::memory::MemoryStorage;
use values::error::is_fault;

use super::harness::{done, engine, in_database, rows, run};

/// A server whose every answer is a panic.
struct Panics;

impl Host for Panics {
    fn processes(&self) -> Vec<Process> {
        panic!("a value of a row");
    }

    fn statement(&self, _: u64) -> Option<String> {
        None
    }

    fn kill(&self, _: u64, _: bool) -> bool {
        panic!("a value of a row");
    }

    fn store_password(&self, _: &str) -> Vec<u8> {
        panic!("a value of a row");
    }

    fn uptime_and_statements(&self) -> (u64, u64) {
        panic!("a value of a row");
    }
}

#[tokio::test]
async fn a_statement_that_panics_fails_and_its_session_goes_on() {
    let clock = Arc::new(SimClock::new(1_700_000_000_000_000));
    let engine = Engine::new(Arc::new(MemoryStorage::new()), clock).with_host(Arc::new(Panics));
    let mut one = in_database(&engine).await;
    done(&mut one, "CREATE TABLE t (id INT PRIMARY KEY)").await.unwrap();
    for sql in ["KILL 13", "SHOW PROCESSLIST", "SELECT * FROM information_schema.processlist"] {
        done(&mut one, "BEGIN").await.unwrap();
        done(&mut one, "INSERT INTO t VALUES (1)").await.unwrap();
        let error = run(&mut one, sql).await.map(|_| ()).unwrap_err();
        assert!(is_fault(&error), "{sql}: {error}");
        assert!(!error.message.contains("a value of a row"), "{error}");
        // How far it came nobody knows: its transaction is over.
        assert_eq!(rows(&mut one, "SELECT COUNT(*) FROM t").await.unwrap(), ["0"], "{sql}");
    }
    done(&mut one, "INSERT INTO t VALUES (1)").await.unwrap();
    assert_eq!(rows(&mut one, "SELECT id FROM t").await.unwrap(), ["1"]);
}

/// Calls with holes for their arguments.
const CALLS: &str = "{} + {}|{} - {}|{} * {}|{} / {}|{} DIV {}|{} % {}|-({})|{} & {}|{} ^ {}|{} << {}|{} >> {}|~({})|\
    {} = {}|{} < {}|{} <=> {}|{} LIKE {}|{} REGEXP {}|{} BETWEEN {} AND {}|{} IN ({}, {})|CASE {} WHEN {} THEN {} END|IF({}, {}, {})|\
    IFNULL({}, {})|NULLIF({}, {})|GREATEST({}, {})|LEAST({}, {}, {})|ROUND({})|ROUND({}, {})|TRUNCATE({}, {})|FLOOR({})|CEIL({})|\
    ABS({})|SIGN({})|MOD({}, {})|SQRT({})|EXP({})|LN({})|LOG({}, {})|LOG2({})|LOG10({})|POW({}, {})|ATAN2({}, {})|ACOS({})|COT({})|\
    RADIANS({})|DEGREES({})|INTERVAL({}, {}, {})|CRC32({})|CONV({}, {}, {})|BIN({})|OCT({})|BIT_COUNT({})|RAND({})|FORMAT({}, {})|\
    CONCAT({}, {})|CONCAT_WS({}, {}, {})|UPPER({})|REVERSE({})|HEX({})|UNHEX({})|QUOTE({})|LENGTH({})|CHAR_LENGTH({})|BIT_LENGTH({})|\
    ASCII({})|ORD({})|LEFT({}, {})|RIGHT({}, {})|REPEAT({}, {})|SPACE({})|SUBSTRING({}, {})|SUBSTRING({}, {}, {})|\
    SUBSTRING_INDEX({}, {}, {})|REPLACE({}, {}, {})|TRIM({})|TRIM({} FROM {})|LPAD({}, {}, {})|RPAD({}, {}, {})|LOCATE({}, {}, {})|\
    INSTR({}, {})|STRCMP({}, {})|FIELD({}, {}, {})|ELT({}, {}, {})|FIND_IN_SET({}, {})|MAKE_SET({}, {}, {})|EXPORT_SET({}, {}, {})|\
    INSERT({}, {}, {}, {})|SOUNDEX({})|CHAR({}, {})|TO_BASE64({})|FROM_BASE64({})|MD5({})|SHA1({})|SHA2({}, {})|INET_ATON({})|\
    INET_NTOA({})|IS_UUID({})|REGEXP_SUBSTR({}, {})|REGEXP_INSTR({}, {})|REGEXP_REPLACE({}, {}, {})|WEIGHT_STRING({})|\
    YEAR({})|MONTH({})|DAY({})|HOUR({})|MINUTE({})|SECOND({})|MICROSECOND({})|QUARTER({})|WEEK({}, {})|YEARWEEK({}, {})|DAYNAME({})|\
    DAYOFYEAR({})|TO_DAYS({})|TO_SECONDS({})|FROM_DAYS({})|MAKEDATE({}, {})|MAKETIME({}, {}, {})|SEC_TO_TIME({})|TIME_TO_SEC({})|\
    ADDTIME({}, {})|SUBTIME({}, {})|TIMEDIFF({}, {})|DATEDIFF({}, {})|DATE_FORMAT({}, {})|TIME_FORMAT({}, {})|STR_TO_DATE({}, {})|\
    PERIOD_ADD({}, {})|PERIOD_DIFF({}, {})|LAST_DAY({})|CONVERT_TZ({}, {}, {})|UNIX_TIMESTAMP({})|FROM_UNIXTIME({})|\
    ADDDATE({}, {})|DATE_SUB({}, INTERVAL {} DAY)|DATE_ADD({}, INTERVAL {} MICROSECOND)|DATE_ADD({}, INTERVAL {} YEAR)|\
    {} + INTERVAL {} MONTH|{} - INTERVAL {} SECOND|DATE_ADD({}, INTERVAL {} DAY_MICROSECOND)|DATE_SUB({}, INTERVAL {} YEAR_MONTH)|\
    TIMESTAMPADD(WEEK, {}, {})|TIMESTAMPDIFF(MICROSECOND, {}, {})|TIMESTAMPDIFF(MONTH, {}, {})|EXTRACT(DAY_MICROSECOND FROM {})|\
    CAST({} AS SIGNED)|CAST({} AS UNSIGNED)|CAST({} AS DOUBLE)|CAST({} AS DECIMAL(65,30))|CAST({} AS DECIMAL(5,2))|CAST({} AS CHAR(3))|\
    CAST({} AS BINARY(3))|CAST({} AS DATE)|CAST({} AS DATETIME)|CAST({} AS DATETIME(3))|CAST({} AS TIME)|CAST({} AS JSON)|\
    JSON_EXTRACT({}, {})|JSON_SET({}, {}, {})|JSON_ARRAY({}, {})|JSON_CONTAINS({}, {})|JSON_LENGTH({})|JSON_UNQUOTE({})|\
    SUM({})|AVG({})|STDDEV({})|VAR_SAMP({})|MIN({})|GROUP_CONCAT({})|BIT_XOR({})|COUNT(DISTINCT {}, {})|JSON_ARRAYAGG({})|\
    SUM({}) OVER ()|NTILE({}) OVER ()|LAG({}, {}) OVER ()|LEAD({}, {}, {}) OVER ()|NTH_VALUE({}, {}) OVER ()|FIRST_VALUE({}) OVER (ORDER BY {})";

/// Literals, and the columns of a table of such.
const VALUES: &[&str] = &[
    "NULL",
    "0",
    "1",
    "-1",
    "100",
    "9223372036854775807",
    "(-9223372036854775807 - 1)",
    "18446744073709551615",
    "1.7976931348623157e308",
    "-1e19",
    "0.5",
    "99999999999999999999999999999999999999",
    "-0.000000000000000000000000000001",
    "99999999999999999999999999999999999999999999999999999999999999999",
    "''",
    "'abc'",
    "'-1e400'",
    "'9999-12-31 23:59:59.9999999'",
    "'-838:59:59.9'",
    "'☃é'",
    "'%Y %'",
    "'('",
    "'{\"a\": [1, null]}'",
    "'$.a[last]'",
    "X''",
    "X'FF00'",
    "DATE'9999-12-31'",
    "DATE'0001-01-01'",
    "TIMESTAMP'9999-12-31 23:59:59.999999'",
    "TIME'-838:59:59'",
    "TIME'838:59:59'",
    "JSON_OBJECT('a', 1)",
    "TRUE",
    "n",
    "u",
    "d",
    "x",
    "s",
    "b",
    "day",
    "at",
    "span",
];

async fn table() -> Session {
    let mut one = in_database(&engine()).await;
    let create = "CREATE TABLE t (id INT PRIMARY KEY, n BIGINT, u BIGINT UNSIGNED, d DECIMAL(38,10), x DOUBLE, \
                  s VARCHAR(40), b VARBINARY(20), day DATE, at DATETIME(6), span TIME(6))";
    done(&mut one, create).await.unwrap();
    let insert = "INSERT INTO t VALUES \
        (1, -9223372036854775808, 18446744073709551615, 9999999999999999999999999999.9999999999, 1.7976931348623157e308, \
         '9223372036854775808', X'FF', '9999-12-31', '9999-12-31 23:59:59.999999', '838:59:59'), \
        (2, 9223372036854775807, 0, -9999999999999999999999999999.9999999999, -1.7976931348623157e308, \
         '', X'', '0001-01-01', '0001-01-01', '-838:59:59'), \
        (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)";
    done(&mut one, insert).await.unwrap();
    one
}

/// A call with random values in its holes.
fn filled(form: &str, random: &mut StdRng) -> String {
    let parts: Vec<&str> = form.split("{}").collect();
    let mut call = parts[0].to_owned();
    for part in &parts[1..] {
        call.push_str(VALUES.choose(random).unwrap());
        call.push_str(part);
    }
    call
}

/// Every call with many random arguments, as `EDGES` and `EDGES_SEED` say.
#[test]
fn no_call_panics_at_the_ends_of_types() {
    let setting = |name: &str, or: u64| std::env::var(name).map_or(or, |n| n.parse().unwrap());
    let mut random = StdRng::seed_from_u64(setting("EDGES_SEED", 15));
    let each = setting("EDGES", 12);
    let work = async move {
        let mut one = table().await;
        let mut found = Vec::new();
        for form in CALLS.split('|') {
            for _ in 0..each {
                let limit = if random.random_bool(0.1) { " ORDER BY id LIMIT 0" } else { "" };
                let sql =
                    format!("SELECT {} FROM t WHERE id >= 1{limit}", filled(form, &mut random));
                if run(&mut one, &sql).await.is_err_and(|error| is_fault(&error)) {
                    found.push(sql);
                }
            }
        }
        assert!(found.is_empty(), "{} statements panic:\n{}", found.len(), found.join("\n"));
    };
    // With the stack that the server's threads have.
    let thread = std::thread::Builder::new().stack_size(syntax::parser::chains::STACK);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let done = thread.spawn(move || runtime.block_on(work)).unwrap().join();
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[tokio::test]
async fn a_limit_of_no_rows_is_no_fault_wherever_it_stands() {
    let mut one = table().await;
    for sql in [
        "SELECT id FROM t WHERE id >= 1 ORDER BY id LIMIT 0",
        "SELECT id FROM t WHERE id >= 1 ORDER BY n DESC LIMIT 0",
        "SELECT id FROM t WHERE id >= 1 ORDER BY n LIMIT 3, 0",
        "SELECT id FROM (SELECT id, n FROM t WHERE id >= 1 ORDER BY n LIMIT 2) x ORDER BY id LIMIT 0",
        "SELECT * FROM (SELECT id FROM t WHERE id >= 1 ORDER BY n LIMIT 2) x LIMIT 5, 1",
        "SELECT id FROM (SELECT id FROM t WHERE id >= 1 ORDER BY n LIMIT 0) x",
        "SELECT DISTINCT s FROM t WHERE id >= 1 ORDER BY s LIMIT 0",
        "SELECT s, COUNT(*) FROM t WHERE id >= 1 GROUP BY s ORDER BY s LIMIT 0",
        "SELECT a.id FROM t a JOIN t b ON a.id = b.id ORDER BY a.n LIMIT 0",
        "(SELECT id FROM t ORDER BY n LIMIT 0) UNION ALL (SELECT id FROM t ORDER BY n LIMIT 0) ORDER BY id LIMIT 0",
        "SELECT id FROM t WHERE id IN (SELECT id FROM t WHERE n > 0) ORDER BY n LIMIT 0",
        "SELECT id FROM t WHERE id = 1 ORDER BY id LIMIT 0 FOR UPDATE",
        "SELECT * FROM (SELECT ROW_NUMBER() OVER (PARTITION BY s ORDER BY id) r FROM t) x WHERE r < 1 ORDER BY r",
    ] {
        assert_eq!(rows(&mut one, sql).await.as_deref(), Ok(&[][..]), "{sql}");
    }
    assert_eq!(
        rows(&mut one, "SELECT COUNT(*) FROM (SELECT id FROM t ORDER BY n LIMIT 0) x")
            .await
            .unwrap(),
        ["0"]
    );
}
