//! pymysql and mysql-connector-python as clients. `ISOBAR_PYTHON` names the interpreter that has
//! them.

use tokio::process::Command;
use wire::Options;

use crate::backend::{Running, start, with_tls};
use crate::command_line::run;

/// The interpreter, if it has the module. Without it a test is skipped by name, unless
/// `REQUIRE_CLIENTS=1`.
fn interpreter_with(module: &str) -> Option<String> {
    let python = std::env::var("ISOBAR_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let import = format!("import {module}");
    let found = std::process::Command::new(&python).args(["-c", &import]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let required = std::env::var("REQUIRE_CLIENTS").is_ok_and(|value| value == "1");
    assert!(!required, "{python} with {module} is required and not there");
    println!("skipped: {python} has no {module}");
    None
}

async fn script(python: &str, server: &Running, body: &str) {
    let mut command = Command::new(python);
    command.args(["-c", body]).env("PORT", server.port().to_string());
    let outcome = run(command).await;
    assert!(outcome.ok, "{}\n{}", outcome.out, outcome.err);
}

const PYMYSQL: &str = r#"
import datetime, decimal, os, pymysql, ssl, tempfile
from pymysql.constants import CLIENT
port = int(os.environ["PORT"])
def connect(**more):
    arguments = dict(host="127.0.0.1", port=port, user="alice", password="secret", local_infile=True)
    return pymysql.connect(**{**arguments, **more})
c = connect(client_flag=CLIENT.MULTI_STATEMENTS, database="shop")
q = c.cursor()
q.execute("SELECT * FROM types")
large, small, nulls = q.fetchall()
assert large[:11] == (127, 255, 32767, 65535, 8388607, 16777215, 2**31-1, 2**32-1, 2**63-1, 2**64-1, 1e20), large
assert large[11] == decimal.Decimal("123456.789"), large
assert large[12:15] == ("grün",) * 3, large
assert large[15] == datetime.date(2023, 11, 14)
assert large[17] == datetime.datetime(2023, 11, 14, 22, 13, 20, 123456)
assert large[18] == datetime.datetime(2023, 11, 15, 0, 13, 20, 123000)
assert large[19] == '{"grün": [1, null]}' and small[19] == '""', large
assert large[20] == decimal.Decimal("9" * 35 + "." + "9" * 30) and small[20] == -decimal.Decimal(10) ** -30
assert large[-2:] == ("grün", "x,grün") and small[-2:] == ("", ""), large
assert nulls == (None,) * 23
q.execute("SELECT DATABASE()"); assert q.fetchone() == ("shop",)
c.select_db("depot")
q.execute("SELECT DATABASE()"); assert q.fetchone() == ("depot",)
assert q.execute("INSERT") == 3 and q.lastrowid == 300 and q._result.warning_count == 2
q.execute("SELECT 1; INSERT; SELECT NULL")
assert q.fetchall() == ((1,),) and q.nextset() and q.rowcount == 3 and q.nextset()
assert q.fetchall() == ((None,),) and not q.nextset()
try:
    q.execute("NONSENSE"); assert False
except pymysql.err.ProgrammingError as e:
    assert e.args[0] == 1064, e
try:
    q.execute("SELECT broken"); assert False
except pymysql.err.OperationalError as e:
    assert e.args[0] == 1030, e
q.execute(b"SELECT _binary'\xff\xfe'"); assert q.fetchone() == ("18 raw bytes",)
c.ping(reconnect=False)
with tempfile.NamedTemporaryFile("w", suffix=".csv") as f:
    f.write("1,2\n" * 10000); f.flush()
    assert q.execute("LOAD DATA LOCAL INFILE '%s' INTO TABLE t" % f.name) == 10000
c.close()
one = connect()
try:
    one.cursor().execute("SELECT 1; SELECT 1"); assert False
except pymysql.err.ProgrammingError as e:
    assert e.args[0] == 1064, e
s = pymysql.cursors.SSCursor(connect())
s.execute("SELECT rows 50000"); assert sum(1 for _ in s) == 50000
for user in ["nora", "nate", "shay"]:
    connect(user=user).close()
for bad in [dict(password="wrong"), dict(password=""), dict(user="nobody"), dict(user="root")]:
    try:
        connect(**bad); assert False, bad
    except pymysql.err.OperationalError as e:
        assert e.args[0] == 1045, e
try:
    connect(database="nowhere"); assert False
except pymysql.err.OperationalError as e:
    assert e.args[0] == 1049, e
"#;

const PYMYSQL_TLS: &str = r#"
import os, pymysql
for user in ["alice", "nora", "nate", "shay"]:
    c = pymysql.connect(host="127.0.0.1", port=int(os.environ["PORT"]), user=user, password="secret",
        ssl={"check_hostname": False, "verify_mode": "none"})
    q = c.cursor(); q.execute("SELECT who"); row = q.fetchone()
    assert row[:2] == (user, "true"), row
"#;

const CONNECTOR: &str = r#"
import datetime, decimal, os, mysql.connector
port = int(os.environ["PORT"])
tls = os.environ.get("TLS") == "1"
def connect(**more):
    arguments = dict(host="127.0.0.1", port=port, user="alice", password="secret",
        use_pure=True, ssl_disabled=not tls)
    return mysql.connector.connect(**{**arguments, **more})
c = connect()
q = c.cursor()
q.execute("SELECT * FROM types")
large, small, nulls = q.fetchall()
assert large[:10] == (127, 255, 32767, 65535, 8388607, 16777215, 2**31-1, 2**32-1, 2**63-1, 2**64-1), large
assert nulls == (None,) * 23
p = c.cursor(prepared=True)
p.execute("SELECT * FROM types")
# The connector leaves JSON of the binary protocol, whose character set is binary, as bytes.
binary = [tuple(v.decode() if isinstance(v, (bytes, bytearray)) else v for v in row) for row in p.fetchall()]
# By its flag it knows a SET, but only in the text protocol.
assert large[-2:] == ("grün", {"x", "grün"}) and small[-2:] == ("", set()), (large, small)
assert [row[-1] for row in binary] == ["x,grün", "", None], binary
large, small, nulls = [row[:-1] for row in (large, small, nulls)]
binary = [row[:-1] for row in binary]
assert binary == [large, small, nulls], (binary, [large, small, nulls])
p.execute("ECHO ?, ?, ?, ?, ?, ?, ?", (-5, 2**63, 0.5, "grün", None, datetime.datetime(2024, 2, 29, 1, 2, 3, 4), decimal.Decimal("1.25")))
row = p.fetchone()
assert row[0] == "Int(-5)" and row[2] == "Double(0.5)" and row[3] == 'String("grün")' and row[4] == "Null", row
assert row[5].startswith("DateTime(") and row[6] == 'String("1.25")', row
p.execute("ECHO ?, ?, ?, ?, ?, ?, ?", ("a", b"b" * 100000, 1, 2, 3, 4, 5))
assert p.fetchone()[1] == "100000 bytes"
p.close()
q.execute("INSERT"); assert (q.rowcount, q.lastrowid) == (3, 300)
c.cmd_reset_connection()
c.cmd_change_user(username="shay", password="secret", database="depot")
q = c.cursor(); q.execute("SELECT who"); row = q.fetchone()
assert row[0] == "shay" and row[1] == str(tls).lower(), row
assert c.is_connected()
q.execute("SELECT DATABASE()"); assert q.fetchone() == ("depot",)
statistics = c.cmd_statistics(); assert int(statistics["Threads"]) >= 1, statistics
c.close()
for plugin in ["mysql_native_password", "caching_sha2_password"]:
    for user in ["alice", "nora", "nate", "shay"]:
        connect(user=user, auth_plugin=plugin).close()
for bad in [dict(password="wrong"), dict(password=""), dict(user="nobody")]:
    try:
        connect(**bad); assert False, bad
    except mysql.connector.Error as e:
        assert e.errno == 1045, e
"#;

#[tokio::test]
async fn pymysql_works() {
    let Some(python) = interpreter_with("pymysql") else { return };
    let server = start(Options::default()).await;
    script(&python, &server, PYMYSQL).await;
    let directory = tempfile::tempdir().unwrap();
    let server = start(with_tls(directory.path())).await;
    script(&python, &server, PYMYSQL_TLS).await;
}

#[tokio::test]
async fn mysql_connector_python_works() {
    let Some(python) = interpreter_with("mysql.connector") else { return };
    let server = start(Options::default()).await;
    script(&python, &server, CONNECTOR).await;
    let directory = tempfile::tempdir().unwrap();
    let server = start(with_tls(directory.path())).await;
    let tls = format!("import os; os.environ['TLS'] = '1'\n{CONNECTOR}");
    script(&python, &server, &tls).await;
}
