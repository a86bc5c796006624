//! Clients that break the protocol: each gets a typed error or a closed connection, in bounded
//! time, and the server goes on.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::io::AsyncWriteExt;
use wire::Options;

use crate::backend::{BATCH, Running, eventually, start};
use crate::raw::{Raw, capabilities};

async fn expect_healthy(server: &Running) {
    Raw::login(server).await.expect_alive().await;
}

/// MySQL Connector/J ends the empty password by a zero.
#[tokio::test]
async fn an_empty_password_is_nothing_or_a_zero() {
    let server = start(Options::default()).await;
    for answer in [None, Some(vec![]), Some(vec![0])] {
        Raw::login_answering(&server, capabilities(), answer).await.expect_alive().await;
    }
}

/// libmariadb offers a method of no server where it could not load the greeting's, and then waits
/// for another to be named before it takes an OK.
#[tokio::test]
async fn a_method_that_is_not_ours_is_switched_even_without_a_password() {
    let server = start(Options::default()).await;
    for (answer, last) in [(&b""[..], 0), (&b"no password"[..], 0xff)] {
        let mut raw = Raw::connect(&server).await;
        raw.read().await.unwrap();
        let mut hello = capabilities().bits().to_le_bytes().to_vec();
        hello.extend_from_slice(&[0, 0, 0, 1, 45]);
        hello.extend_from_slice(&[0; 23]);
        hello.extend_from_slice(b"root\0\0dummy_fallback_auth\0");
        raw.write(1, &hello).await;
        let (sequence, switch) = raw.read().await.unwrap();
        assert_eq!((sequence, switch[0]), (2, 0xfe), "{switch:?}");
        assert!(switch[1..].starts_with(b"mysql_native_password\0"), "{switch:?}");
        raw.write(3, answer).await;
        let (sequence, end) = raw.read().await.unwrap();
        assert_eq!((sequence, end[0]), (4, last), "{end:?}");
    }
    expect_healthy(&server).await;
}

#[tokio::test]
async fn garbage_instead_of_a_hello_is_refused() {
    let server = start(Options::default()).await;
    let mut random = SmallRng::seed_from_u64(7);
    for length in [1usize, 4, 5, 31, 32, 33, 100, 10_000] {
        let mut raw = Raw::connect(&server).await;
        raw.read().await.unwrap();
        let bytes: Vec<u8> = (0..length).map(|_| random.random()).collect();
        raw.write(1, &bytes).await;
        raw.socket.shutdown().await.unwrap();
        // Whatever the bytes happen to say, the end comes, and it is not a welcome.
        while let Some((_, payload)) = raw.read().await {
            assert_ne!(payload[0], 0, "{length} random bytes logged in");
        }
        let mut raw = Raw::connect(&server).await;
        raw.read().await.unwrap();
        raw.write_bytes(&bytes).await;
        raw.socket.shutdown().await.unwrap();
        while raw.read().await.is_some() {}
    }
    expect_healthy(&server).await;
    eventually("all connections end", || server.connections.count() == 0).await;
}

#[tokio::test]
async fn a_hello_too_long_for_a_stranger_is_refused() {
    let server = start(Options::default()).await;
    let mut raw = Raw::connect(&server).await;
    raw.read().await.unwrap();
    raw.write(1, &vec![b'a'; 1 << 20]).await;
    assert_eq!(raw.read_error().await.code, 1153);
    raw.expect_closed().await;
    expect_healthy(&server).await;
}

#[tokio::test]
async fn a_silent_stranger_is_shown_out() {
    let handshake_timeout = Duration::from_millis(200);
    let server = start(Options { handshake_timeout, ..Options::default() }).await;
    for half in [&[][..], &[9, 0], &[100, 0, 0, 1, 5, 5]] {
        let mut raw = Raw::connect(&server).await;
        raw.read().await.unwrap();
        raw.write_bytes(half).await;
        let began = Instant::now();
        assert_eq!(raw.read_error().await.code, 1159);
        raw.expect_closed().await;
        assert!(began.elapsed() < Duration::from_secs(5));
    }
    eventually("all connections end", || server.connections.count() == 0).await;
}

#[tokio::test]
async fn an_old_client_gets_an_error() {
    let server = start(Options::default()).await;
    let mut raw = Raw::connect(&server).await;
    raw.read().await.unwrap();
    raw.write(1, &[0x85, 0xa4, 0, 0, 1, b'r', b'o', b'o', b't', 0]).await;
    assert_eq!(raw.read_error().await.code, 1251);
    raw.expect_closed().await;
}

#[tokio::test]
async fn unknown_commands_and_statements_keep_the_connection() {
    let server = start(Options::default()).await;
    let mut raw = Raw::login(&server).await;
    let known = [1, 2, 3, 4, 7, 9, 10, 12, 14, 17, 22, 23, 24, 25, 26, 27, 28, 31];
    for code in (0..=255u8).filter(|code| !known.contains(code)) {
        raw.command(code, b"whatever").await;
        assert_eq!(raw.read_error().await.code, 1047, "command {code}");
    }
    // EXECUTE, RESET, FETCH of a statement that does not exist; CLOSE and LONG DATA are silent.
    raw.command(25, &77u32.to_le_bytes()).await;
    raw.command(24, &[77, 0, 0, 0, 0, 0, b'x']).await;
    raw.command(23, &[77, 0, 0, 0, 0, 1, 0, 0, 0]).await;
    assert_eq!(raw.read_error().await.code, 1243);
    raw.command(26, &77u32.to_le_bytes()).await;
    assert_eq!(raw.read_error().await.code, 1243);
    raw.command(28, &[77, 0, 0, 0, 1, 0, 0, 0]).await;
    assert_eq!(raw.read_error().await.code, 1243);
    raw.command(12, &99u32.to_le_bytes()).await;
    assert_eq!(raw.read_error().await.code, 1094, "KILL reaches the engine");
    raw.expect_alive().await;
}

#[tokio::test]
async fn malformed_commands_end_the_connection_with_an_error() {
    let server = start(Options::default()).await;
    let short: [&[u8]; 8] = [
        &[],
        &[12, 1],
        &[17, b'r', b'o', b'o', b't', 0, 200],
        &[23, 1, 0, 0, 0],
        &[24, 1, 0],
        &[25, 1],
        &[27, 9, 0],
        &[28],
    ];
    for payload in short {
        let mut raw = Raw::login(&server).await;
        raw.write(0, payload).await;
        assert_eq!(raw.read_error().await.code, 1835, "{payload:?}");
        raw.expect_closed().await;
    }
    let mut raw = Raw::login(&server).await;
    raw.write(5, &[14]).await;
    assert_eq!(raw.read_error().await.code, 1156);
    raw.expect_closed().await;
    eventually("sessions are closed", || server.seen.closed.load(Ordering::SeqCst) == 9).await;
}

#[tokio::test]
async fn broken_parameters_keep_the_connection() {
    let server = start(Options::default()).await;
    let mut raw = Raw::login(&server).await;
    raw.command(22, b"ECHO ?").await;
    let (_, prepared) = raw.read().await.unwrap();
    let id = &prepared[1..5];
    raw.read().await.unwrap();
    raw.read().await.unwrap();
    let execute = |tail: &[u8]| [id, &[0, 1, 0, 0, 0], tail].concat();
    for (tail, code) in [
        (&[][..], 1835),
        (&[0], 1835),
        (&[0, 0], 1210),
        (&[0, 1], 1835),
        (&[0, 1, 18, 0], 1210),
        (&[0, 1, 200, 0], 1210),
        (&[0, 1, 243, 0, 1], 1210),
        (&[0, 1, 8, 0, 1, 2, 3], 1835),
        (&[0, 1, 253, 0, 200, b'x'], 1835),
        (&[0, 1, 253, 0, 0xfe, 255, 255, 255, 255, 255, 255, 255, 255], 1835),
        (&[0, 1, 5, 0, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f], 1210),
        (&[0, 1, 12, 0, 11, 1], 1835),
    ] {
        raw.command(23, &execute(tail)).await;
        assert_eq!(raw.read_error().await.code, code, "{tail:?}");
    }
    raw.expect_alive().await;
}

#[tokio::test]
async fn long_parameters_arrive_in_pieces_and_are_bounded() {
    let max_allowed_packet = 1 << 20;
    let server = start(Options { max_allowed_packet, ..Options::default() }).await;
    let mut raw = Raw::login(&server).await;
    raw.command(22, b"ECHO ?").await;
    let (_, prepared) = raw.read().await.unwrap();
    let id = &prepared[1..5];
    raw.read().await.unwrap();
    raw.read().await.unwrap();
    let piece = |text: &[u8]| [id, &[0, 0], text].concat();
    let execute = [id, &[0, 1, 0, 0, 0, 0, 1, 252, 0]].concat();
    let echo = async |raw: &mut Raw| {
        raw.read().await.unwrap();
        raw.read().await.unwrap();
        let (_, row) = raw.read().await.unwrap();
        raw.read().await.unwrap();
        String::from_utf8_lossy(&row[3..]).into_owned()
    };
    raw.command(24, &piece(b"long ")).await;
    raw.command(24, &piece(b"data")).await;
    raw.command(23, &execute).await;
    assert_eq!(echo(&mut raw).await, "String(\"long data\")");
    // Used up by one execution; and forgotten by a reset.
    raw.command(23, &execute).await;
    assert_eq!(raw.read_error().await.code, 1835, "no value any more");
    raw.command(24, &piece(b"forgotten")).await;
    raw.command(26, id).await;
    assert_eq!(raw.read().await.unwrap().1[0], 0);
    raw.command(24, &piece(b"kept")).await;
    raw.command(23, &execute).await;
    assert_eq!(echo(&mut raw).await, "String(\"kept\")");
    // More than a packet may hold: reported at the execution, and freed by it.
    for _ in 0..3 {
        for _ in 0..30 {
            raw.command(24, &piece(&[b'x'; 100_000])).await;
        }
        raw.command(23, &execute).await;
        let error = raw.read_error().await;
        assert!(error.code == 1105 && error.text.contains("max_allowed_packet"), "{error:?}");
    }
    raw.command(24, &[id, &[7, 0], b"x"].concat()).await;
    raw.command(23, &execute).await;
    assert_eq!(raw.read_error().await.code, 1210);
    raw.command(25, id).await;
    raw.command(23, &execute).await;
    assert_eq!(raw.read_error().await.code, 1243, "closed");
    raw.expect_alive().await;
}

#[tokio::test]
async fn field_list_returns_columns_by_pattern() {
    let server = start(Options::default()).await;
    let mut raw = Raw::login(&server).await;
    for (pattern, columns) in
        [("", 23), ("%", 23), ("i%", 5), ("D_", 1), ("_8", 2), ("%4", 5), ("x%x", 0)]
    {
        raw.command(4, format!("types\0{pattern}").as_bytes()).await;
        let mut count = 0;
        while raw.read().await.unwrap().1[0] != 0xfe {
            count += 1;
        }
        assert_eq!(count, columns, "{pattern}");
    }
    raw.command(4, b"no`such\0").await;
    let error = raw.read_error().await;
    assert!(error.text.contains("`no``such`"), "{error:?}");
    raw.expect_alive().await;
}

#[tokio::test]
async fn several_statements_need_the_clients_consent() {
    let server = start(Options::default()).await;
    let mut raw = Raw::login(&server).await;
    raw.command(27, &[1, 0]).await;
    assert_eq!(raw.read().await.unwrap().1[0], 0xfe);
    raw.command(3, b"INSERT; INSERT").await;
    assert_eq!(raw.read_error().await.code, 1064);
    raw.command(27, &[0, 0]).await;
    assert_eq!(raw.read().await.unwrap().1[0], 0xfe);
    raw.command(3, b"INSERT; INSERT;").await;
    let (_, first) = raw.read().await.unwrap();
    let (_, second) = raw.read().await.unwrap();
    // Status flags stand behind two small numbers and a number of three bytes: more, then no more.
    assert_eq!((first[5] & 8, second[5] & 8), (8, 0), "{first:?} {second:?}");
    raw.command(22, b"INSERT; INSERT").await;
    assert_eq!(raw.read_error().await.code, 1064);
}

#[tokio::test]
async fn an_oversize_packet_is_answered_and_the_connection_closed() {
    let max_allowed_packet = 20 * 1024 * 1024;
    let server = start(Options { max_allowed_packet, ..Options::default() }).await;
    let mut raw = Raw::login(&server).await;
    // 32 MiB in two packets.
    let half = vec![b' '; 0xff_ffff];
    raw.write(0, &half).await;
    raw.write(1, &half).await;
    raw.write(2, b"").await;
    let error = raw.read_error().await;
    assert_eq!(error.code, 1153, "{error:?}");
    raw.expect_closed().await;
    // Below the limit, split in two, it is a statement.
    let mut raw = Raw::login(&server).await;
    let mut sql = b"\x03SELECT length ".to_vec();
    sql.resize(0xff_ffff + 10, b'.');
    raw.write(0, &sql[..0xff_ffff]).await;
    raw.write(1, &sql[0xff_ffff..]).await;
    let (sequence, columns) = raw.read().await.unwrap();
    assert_eq!((sequence, columns.as_slice()), (2, &[1][..]));
    expect_healthy(&server).await;
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_query() {
    let server = start(Options::default()).await;
    let mut raw = Raw::login(&server).await;
    raw.command(3, b"SELECT sleep").await;
    eventually("it runs", || server.connections.list().iter().any(|one| one.command == "Query"))
        .await;
    assert_eq!(server.seen.cancelled.load(Ordering::SeqCst), 0);
    drop(raw);
    eventually("it is cancelled", || server.seen.cancelled.load(Ordering::SeqCst) == 1).await;
    eventually("its session is closed", || server.seen.closed.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_the_stream_and_leaving_frees_it() {
    let server = start(Options::default()).await;
    let mut raw = Raw::login(&server).await;
    let rows = 100_000_000;
    raw.command(3, format!("SELECT rows {rows}").as_bytes()).await;
    raw.read().await.unwrap();
    // Sockets of both sides hold some megabytes; then nothing more is pulled.
    let pulled = || server.seen.batches.load(Ordering::SeqCst);
    let mut before = u64::MAX;
    let mut same = 0;
    eventually("the stream stands still", || {
        same = if pulled() == before { same + 1 } else { 0 };
        before = pulled();
        same > 40
    })
    .await;
    assert!(pulled() < (rows / BATCH / 100) as u64, "{} batches were pulled", pulled());
    assert_eq!(server.seen.streams.load(Ordering::SeqCst), 1);
    drop(raw);
    eventually("the stream is dropped", || server.seen.streams.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_client_that_stalls_within_a_result_is_given_up() {
    let stall_timeout = Duration::from_millis(300);
    let server = start(Options { stall_timeout, ..Options::default() }).await;
    let mut raw = Raw::login(&server).await;
    raw.command(3, b"SELECT rows 100000000").await;
    eventually("the stream is dropped", || {
        server.seen.batches.load(Ordering::SeqCst) > 0
            && server.seen.streams.load(Ordering::SeqCst) == 0
    })
    .await;
}

#[tokio::test]
async fn a_killed_client_that_does_not_read_is_gone_at_once() {
    let server = start(Options::default()).await;
    for (kill, left) in [("KILL QUERY", 2), ("KILL", 1)] {
        let mut raw = Raw::login(&server).await;
        let mut killer = Raw::login(&server).await;
        let id = server.connections.list()[0].id;
        raw.command(3, b"SELECT rows 100000000").await;
        eventually("it runs", || server.seen.streams.load(Ordering::SeqCst) == 1).await;
        killer.command(3, format!("{kill} {id}").as_bytes()).await;
        assert_eq!(killer.read().await.unwrap().1[0], 0);
        eventually("its stream is dropped", || server.seen.streams.load(Ordering::SeqCst) == 0)
            .await;
        eventually("its place is free", || server.connections.count() == left).await;
        drop((raw, killer));
        eventually("all are gone", || server.connections.count() == 0).await;
    }
}

#[tokio::test]
async fn commands_sent_ahead_are_answered_in_order() {
    let server = start(Options::default()).await;
    let mut raw = Raw::login(&server).await;
    raw.write_bytes(b"\x09\0\0\0\x03SELECT 1\x01\0\0\0\x0e\x01\0\0\0\xc8\x01\0\0\0\x0e").await;
    for _ in 0..4 {
        raw.read().await.unwrap();
    }
    assert_eq!(raw.read().await.unwrap().1[0], 0);
    assert_eq!(raw.read_error().await.code, 1047);
    assert_eq!(raw.read().await.unwrap().1[0], 0);
}

#[tokio::test]
async fn too_many_connections_are_turned_away_and_room_comes_back() {
    let server = start(Options { max_connections: 2, ..Options::default() }).await;
    let first = Raw::login(&server).await;
    let mut second = Raw::login(&server).await;
    let mut third = Raw::connect(&server).await;
    assert_eq!(third.read_error().await.code, 1040);
    third.expect_closed().await;
    second.expect_alive().await;
    drop(first);
    eventually("there is room", || server.connections.count() == 1).await;
    expect_healthy(&server).await;
}

#[tokio::test]
async fn shutdown_lets_commands_finish_and_cancels_those_that_do_not() {
    let drain = Duration::from_millis(300);
    let mut server = start(Options { drain, ..Options::default() }).await;
    let mut idle = Raw::login(&server).await;
    let mut busy = Raw::login(&server).await;
    busy.command(3, b"SELECT sleep").await;
    eventually("it runs", || server.connections.list().iter().any(|one| one.command == "Query"))
        .await;
    server.shutdown.cancel();
    assert_eq!(idle.read_error().await.code, 1053);
    idle.expect_closed().await;
    assert_eq!(busy.read_error().await.code, 1317);
    let task = server.task.take().unwrap();
    tokio::time::timeout(Duration::from_secs(5), task).await.unwrap().unwrap();
    assert_eq!(server.seen.closed.load(Ordering::SeqCst), 2);
    assert!(tokio::net::TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn an_idle_client_gets_an_error() {
    let idle_timeout = Duration::from_millis(100);
    let server = start(Options { idle_timeout, ..Options::default() }).await;
    let mut raw = Raw::login(&server).await;
    assert_eq!(raw.read_error().await.code, 4031);
    raw.expect_closed().await;
}

#[tokio::test]
async fn a_file_broken_off_is_no_file() {
    let server = start(Options::default()).await;
    let mut raw = Raw::login(&server).await;
    raw.command(3, b"LOAD DATA LOCAL INFILE 'x' INTO TABLE t").await;
    let (sequence, request) = raw.read().await.unwrap();
    assert_eq!((sequence, request.as_slice()), (1, &b"\xfbx"[..]));
    raw.write(2, b"1\n2\n").await;
    drop(raw);
    eventually("the engine cancels", || server.seen.cancelled.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn a_result_that_breaks_ends_in_an_error() {
    let server = start(Options::default()).await;
    let mut raw = Raw::login(&server).await;
    raw.command(3, b"SELECT broken").await;
    for _ in 0..3 {
        raw.read().await.unwrap();
    }
    assert_eq!(raw.read_error().await.code, 1030);
    raw.command(3, b"SELECT lied").await;
    let (_, _columns) = raw.read().await.unwrap();
    let (_, _definition) = raw.read().await.unwrap();
    let error = raw.read_error().await;
    assert!(error.code == 1105 && error.text.contains("'lie'"), "{error:?}");
    raw.expect_alive().await;
}
