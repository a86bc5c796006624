//! `mysql_async` as a client: prepared statements, pools, TLS, files.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use mysql_async::prelude::{Query, Queryable};
use mysql_async::{ChangeUserOpts, Conn, Error, OptsBuilder, Params, Row, SslOpts, Value};
use wire::Options;

use crate::backend::{ALL_TYPES_TEXT, Running, eventually, start, with_tls};

fn options(server: &Running) -> OptsBuilder {
    OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(server.port())
        .prefer_socket(false)
        .user(Some("alice"))
        .pass(Some("secret"))
}

async fn connect(server: &Running) -> Conn {
    Conn::new(options(server)).await.unwrap()
}

fn code(error: Error) -> u16 {
    match error {
        Error::Server(error) => error.code,
        other => panic!("not the server's error: {other:?}"),
    }
}

#[tokio::test]
async fn every_type_comes_as_itself_through_prepared_statements() {
    let server = start(Options::default()).await;
    let mut conn = connect(&server).await;
    let rows: Vec<Row> = conn.exec("SELECT * FROM types", ()).await.unwrap();
    let rows: Vec<Vec<Value>> = rows.into_iter().map(Row::unwrap).collect();
    let text = |text: &str| Value::Bytes(text.as_bytes().to_vec());
    let large = vec![
        Value::Int(127),
        Value::Int(255),
        Value::Int(32767),
        Value::Int(65535),
        Value::Int(8_388_607),
        Value::Int(16_777_215),
        Value::Int(i64::from(i32::MAX)),
        Value::Int(i64::from(u32::MAX)),
        Value::Int(i64::MAX),
        Value::UInt(u64::MAX),
        Value::Double(1e20),
        text("123456.789"),
        text("grün"),
        text("grün"),
        text("grün"),
        Value::Date(2023, 11, 14, 0, 0, 0, 0),
        Value::Date(2023, 11, 14, 22, 13, 20, 0),
        Value::Date(2023, 11, 14, 22, 13, 20, 123_456),
        Value::Date(2023, 11, 15, 0, 13, 20, 123_000),
        text("{\"grün\": [1, null]}"),
        text("99999999999999999999999999999999999.999999999999999999999999999999"),
        text("grün"),
        text("x,grün"),
    ];
    assert_eq!(rows[0], large);
    assert_eq!(rows[1][0], Value::Int(-128));
    assert_eq!(rows[1][8], Value::Int(i64::MIN));
    assert_eq!(rows[1][10], Value::Double(-0.1));
    assert_eq!(rows[1][11], text("-0.001"));
    assert_eq!(rows[1][15], Value::Date(1, 1, 1, 0, 0, 0, 0));
    assert_eq!(rows[1][18], Value::Date(1970, 1, 1, 2, 0, 0, 0));
    assert_eq!(rows[2], vec![Value::NULL; 23]);
    assert_eq!(rows.len(), 3);
    // And the same as text.
    let rows: Vec<Row> = conn.query("SELECT * FROM types").await.unwrap();
    for (row, expected) in rows.into_iter().zip(ALL_TYPES_TEXT) {
        let cells: Vec<Value> = row.unwrap();
        let cells = cells.iter().map(|cell| match cell {
            Value::Bytes(bytes) => String::from_utf8(bytes.clone()).unwrap(),
            other => panic!("no text: {other:?}"),
        });
        assert_eq!(cells.collect::<Vec<_>>().join("\t"), expected);
    }
}

#[tokio::test]
async fn parameters_of_every_type_arrive() {
    let server = start(Options::default()).await;
    let mut conn = connect(&server).await;
    let params = vec![
        Value::Int(-5),
        Value::UInt(u64::MAX),
        Value::Float(1.5),
        Value::Double(-0.1),
        Value::Bytes("grün".into()),
        Value::NULL,
        Value::Date(2024, 2, 29, 0, 0, 0, 0),
        Value::Date(2024, 2, 29, 12, 30, 1, 250_000),
        Value::Date(0, 0, 0, 0, 0, 0, 0),
        Value::Time(true, 1, 2, 3, 4, 5),
        Value::Bytes(vec![b'l'; 20 << 20]),
    ];
    let marks = vec!["?"; params.len()].join(",");
    let echo = format!("ECHO {marks}");
    let row: Row = conn.exec_first(&echo, Params::Positional(params)).await.unwrap().unwrap();
    let cells: Vec<String> = (0..row.len()).map(|at| row.get(at).unwrap()).collect();
    let day = 19_782;
    let micros = (day * 86_400 + 12 * 3600 + 30 * 60 + 1) * 1_000_000 + 250_000;
    assert_eq!(
        cells,
        [
            "Int(-5)".to_owned(),
            format!("UInt({})", u64::MAX),
            "Double(1.5)".to_owned(),
            "Double(-0.1)".to_owned(),
            "String(\"grün\")".to_owned(),
            "Null".to_owned(),
            format!("DateTime({})", day * 86_400 * 1_000_000i64),
            format!("DateTime({micros})"),
            "String(\"0000-00-00 00:00:00.000000\")".to_owned(),
            "String(\"-26:03:04.000005\")".to_owned(),
            format!("{} bytes", 20 << 20),
        ]
    );
    // Bound types are remembered per statement, across executions of others.
    for n in [1, -2, 300] {
        let text: Option<String> = conn.exec_first("ECHO ?", (n,)).await.unwrap();
        assert_eq!(text.unwrap(), format!("Int({n})"));
        let other: Option<String> = conn.exec_first("ECHO ? ", ("x",)).await.unwrap();
        assert_eq!(other.unwrap(), "String(\"x\")");
    }
    conn.disconnect().await.unwrap();
}

#[tokio::test]
async fn results_carry_counts_state_and_errors() {
    let server = start(Options::default()).await;
    let mut conn = connect(&server).await;
    let done = conn.query_iter("INSERT").await.unwrap();
    assert_eq!((done.affected_rows(), done.last_insert_id(), done.warnings()), (3, Some(300), 2));
    assert_eq!(done.info(), "Records: 3  Duplicates: 0  Warnings: 2");
    drop(done);
    assert_eq!(code(conn.query_drop("NONSENSE").await.unwrap_err()), 1064);
    assert_eq!(code(conn.exec_drop("NONSENSE ?", (1,)).await.unwrap_err()), 1064);
    let mut results =
        "SELECT 1; INSERT; SELECT * FROM types; SELECT NULL;".run(&mut conn).await.unwrap();
    let mut counts = Vec::new();
    while !results.is_empty() {
        counts.push(results.collect::<Row>().await.unwrap().len());
    }
    assert_eq!(counts, [1, 0, 3, 1]);
    drop(results);
    let raw: Option<String> = conn.query_first(&b"SELECT _binary'\xff\xfe'"[..]).await.unwrap();
    assert_eq!(raw.unwrap(), "18 raw bytes");
    conn.query_drop("BEGIN").await.unwrap();
    conn.query_drop("COMMIT").await.unwrap();
}

#[tokio::test]
async fn an_unknown_outcome_has_a_number_and_a_state_that_nobody_retries_by() {
    let server = start(Options::default()).await;
    let mut conn = connect(&server).await;
    for statement in ["SET SEVERED", "BEGIN", "INSERT"] {
        conn.query_drop(statement).await.unwrap();
    }
    let Err(Error::Server(error)) = conn.query_drop("COMMIT").await else {
        panic!("an outcome was guessed");
    };
    assert_eq!((error.code, error.state.as_str()), (8501, "HY000"), "{error}");
    assert!(error.message.contains("check before running it again"), "{error}");
    // Timeouts that leave nothing behind, conflicts and lost connections have other numbers, by which
    // programs try again.
    assert!(![1205, 1213, 2006, 2013, 9002, 9005].contains(&error.code));
    assert!(["08", "40"].iter().all(|class| !error.state.starts_with(class)));
    // The session is whole, and outside of the transaction.
    let one: Option<i64> = conn.query_first("SELECT 1").await.unwrap();
    assert_eq!(one, Some(1));
    conn.disconnect().await.unwrap();
}

#[tokio::test]
async fn reset_and_change_user_begin_a_new_session() {
    let server = start(Options::default()).await;
    let mut conn = connect(&server).await;
    let statement = conn.prep("ECHO ?").await.unwrap();
    assert!(conn.reset().await.unwrap());
    assert_eq!(server.seen.closed.load(Ordering::SeqCst), 1);
    let gone = conn.exec_drop(&statement, (1,)).await;
    assert_eq!(code(gone.unwrap_err()), 1243, "prepared statements do not survive");
    let other = ChangeUserOpts::new()
        .with_user(Some("shay".to_owned()))
        .with_pass(Some("secret".to_owned()))
        .with_db_name(Some("depot".to_owned()));
    conn.change_user(other).await.unwrap();
    let who: Option<Row> = conn.query_first("SELECT who").await.unwrap();
    assert_eq!(who.unwrap().get::<String, _>(0).unwrap(), "shay");
    let database: Option<String> = conn.query_first("SELECT DATABASE()").await.unwrap();
    assert_eq!(database.unwrap(), "depot");
    let wrong = ChangeUserOpts::new()
        .with_user(Some("alice".to_owned()))
        .with_pass(Some("wrong".to_owned()));
    assert_eq!(code(conn.change_user(wrong).await.unwrap_err()), 1045);
    assert!(conn.query_drop("SELECT 1").await.is_err(), "nobody is logged in any more");
}

#[tokio::test]
async fn tls_carries_every_account() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(with_tls(directory.path())).await;
    let ssl = SslOpts::default().with_danger_accept_invalid_certs(true);
    for user in ["alice", "nora", "nate", "shay"] {
        let opts = options(&server).user(Some(user)).ssl_opts(ssl.clone());
        let mut conn = Conn::new(opts).await.unwrap();
        let who: Row = conn.query_first("SELECT who").await.unwrap().unwrap();
        assert_eq!(who.get::<String, _>(1).unwrap(), "true", "{user}");
        let big: Option<String> = conn.query_first("SELECT bytes 20000000").await.unwrap();
        assert_eq!(big.unwrap().len(), 20_000_000);
        conn.disconnect().await.unwrap();
        let opts = options(&server).user(Some(user)).pass(Some("wrong")).ssl_opts(ssl.clone());
        assert_eq!(code(Conn::new(opts).await.unwrap_err()), 1045, "{user}");
    }
    // A second start takes the same certificate.
    let before = std::fs::read(directory.path().join("server-cert.pem")).unwrap();
    let _again = with_tls(directory.path());
    assert_eq!(std::fs::read(directory.path().join("server-cert.pem")).unwrap(), before);
}

#[tokio::test]
async fn a_damaged_certificate_of_its_own_is_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    drop(with_tls(directory.path()));
    for file in ["server-cert.pem", "server-key.pem"] {
        let path = directory.path().join(file);
        for damage in
            [|bytes: &mut Vec<u8>| bytes.truncate(90), |bytes: &mut Vec<u8>| bytes[60] = 0]
        {
            let mut bytes = std::fs::read(&path).unwrap();
            damage(&mut bytes);
            std::fs::write(&path, bytes).unwrap();
            let server = start(with_tls(directory.path())).await;
            let ssl = SslOpts::default().with_danger_accept_invalid_certs(true);
            let opts = options(&server).user(Some("alice")).ssl_opts(ssl);
            Conn::new(opts).await.unwrap().disconnect().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_client_of_the_other_method_is_served_without_tls() {
    let server = start(Options::default()).await;
    for user in ["alice", "nora", "nate", "shay"] {
        let mut conn = Conn::new(options(&server).user(Some(user))).await.unwrap();
        let who: Row = conn.query_first("SELECT who").await.unwrap().unwrap();
        assert_eq!(who.get::<String, _>(0).unwrap(), user);
        assert_eq!(who.get::<String, _>(1).unwrap(), "false");
    }
}

#[tokio::test]
async fn kill_ends_a_query_or_a_connection() {
    let server = start(Options::default()).await;
    let mut victim = connect(&server).await;
    let mut killer = connect(&server).await;
    let id = victim.id();
    let sleeping = tokio::spawn(async move {
        let error = victim.query_drop("SELECT sleep").await.unwrap_err();
        (victim, error)
    });
    let running = || server.connections.list().iter().any(|one| one.command == "Query");
    eventually("it runs", running).await;
    killer.query_drop(format!("KILL QUERY {id}")).await.unwrap();
    let (mut victim, error) = sleeping.await.unwrap();
    assert_eq!(code(error), 1317);
    // The connection survived. A stream is killed between its batches.
    {
        let mut rows = victim.query_iter("SELECT rows 100000000").await.unwrap();
        assert!(rows.next().await.unwrap().is_some());
        killer.query_drop(format!("KILL QUERY {id}")).await.unwrap();
        let error = loop {
            match rows.next().await {
                Ok(row) => assert!(row.is_some()),
                Err(error) => break error,
            }
        };
        assert_eq!(code(error), 1317);
    }
    victim.query_drop("SELECT 1").await.unwrap();
    killer.query_drop(format!("KILL {id}")).await.unwrap();
    eventually("it is closed", || server.connections.count() == 1).await;
    assert!(victim.query_drop("SELECT 1").await.is_err());
    assert_eq!(code(killer.query_drop("KILL 4000000000").await.unwrap_err()), 1094);
}

#[tokio::test]
async fn a_client_sends_files() {
    let server = start(Options::default()).await;
    let opts = options(&server);
    let mut conn = Conn::new(opts).await.unwrap();
    conn.set_infile_handler(async move {
        let pieces = (0..2000).map(|n| Ok(Bytes::from(format!("{n},x\n").repeat(100))));
        Ok(stream::iter(pieces).boxed())
    });
    let done = conn.query_iter("LOAD DATA LOCAL INFILE 'x' INTO TABLE t").await.unwrap();
    assert_eq!(done.affected_rows(), 200_000);
    drop(done);
    conn.query_drop("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn many_clients_at_once() {
    let server = start(Options::default()).await;
    let tasks = (0..64u32).map(|n| {
        let opts = options(&server);
        tokio::spawn(async move {
            let mut conn = Conn::new(opts).await.unwrap();
            for _ in 0..20 {
                let echoed: Option<String> = conn.exec_first("ECHO ?", (n,)).await.unwrap();
                assert_eq!(echoed.unwrap(), format!("UInt({n})"));
            }
            conn.disconnect().await.unwrap();
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    eventually("all are closed", || server.connections.count() == 0).await;
}
