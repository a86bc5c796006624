//! Read-only cursors: rows come as they are fetched, cursors end with what they belong to, and there
//! is a bound on how many stay open.

use wire::Options;

use crate::backend::start;
use crate::raw::Raw;

const EXECUTE: u8 = 23;
const FETCH: u8 = 28;
const CURSOR_EXISTS: u16 = 0x40;
const LAST_ROW_SENT: u16 = 0x80;
/// Columns and rows of the table `types`.
const COLUMNS: usize = 23;
const ROWS: usize = 3;

async fn prepare(raw: &mut Raw, sql: &[u8]) -> Vec<u8> {
    raw.command(22, sql).await;
    let (_, prepared) = raw.read().await.unwrap();
    for _ in 0..COLUMNS {
        raw.read().await.unwrap();
    }
    prepared[1..5].to_vec()
}

/// Executes with a cursor; the status flags behind the definitions.
async fn open(raw: &mut Raw, id: &[u8]) -> u16 {
    raw.command(EXECUTE, &[id, &[1, 1, 0, 0, 0]].concat()).await;
    for _ in 0..1 + COLUMNS {
        raw.read().await.unwrap();
    }
    end(raw).await.expect("the definitions end")
}

/// The status flags of a packet that ends rows; none if it is a row.
async fn end(raw: &mut Raw) -> Option<u16> {
    let (_, packet) = raw.read().await.unwrap();
    (packet[0] == 0xfe).then(|| u16::from_le_bytes([packet[3], packet[4]]))
}

/// Fetches; how many rows came, and the status flags behind them.
async fn fetch(raw: &mut Raw, id: &[u8], rows: u32) -> (usize, u16) {
    raw.command(FETCH, &[id, &rows.to_le_bytes()].concat()).await;
    let mut count = 0;
    loop {
        match end(raw).await {
            Some(status) => return (count, status & (CURSOR_EXISTS | LAST_ROW_SENT)),
            None => count += 1,
        }
    }
}

async fn fetch_error(raw: &mut Raw, id: &[u8]) -> u16 {
    raw.command(FETCH, &[id, &1u32.to_le_bytes()].concat()).await;
    raw.read_error().await.code
}

#[tokio::test]
async fn rows_come_as_they_are_fetched() {
    let server = start(Options::default()).await;
    let mut raw = Raw::login(&server).await;
    let id = prepare(&mut raw, b"SELECT * FROM types").await;
    assert_eq!(open(&mut raw, &id).await & CURSOR_EXISTS, CURSOR_EXISTS);
    assert_eq!(fetch(&mut raw, &id, 2).await, (2, CURSOR_EXISTS));
    raw.expect_alive().await;
    assert_eq!(fetch(&mut raw, &id, 10).await, (ROWS - 2, LAST_ROW_SENT));
    assert_eq!(fetch_error(&mut raw, &id).await, 1421);
    // As many as there are: only the next fetch finds out that this was all.
    open(&mut raw, &id).await;
    assert_eq!(fetch(&mut raw, &id, ROWS as u32).await, (ROWS, CURSOR_EXISTS));
    assert_eq!(fetch(&mut raw, &id, 1).await, (0, LAST_ROW_SENT));
    // A cursor that is opened anew begins anew.
    open(&mut raw, &id).await;
    fetch(&mut raw, &id, 1).await;
    open(&mut raw, &id).await;
    assert_eq!(fetch(&mut raw, &id, 10).await, (ROWS, LAST_ROW_SENT));
    raw.expect_alive().await;
}

#[tokio::test]
async fn a_cursor_ends_with_what_it_belongs_to() {
    let server = start(Options::default()).await;
    let mut raw = Raw::login(&server).await;
    let id = prepare(&mut raw, b"SELECT * FROM types").await;
    open(&mut raw, &id).await;
    // COM_STMT_RESET.
    raw.command(26, &id).await;
    raw.read().await.unwrap();
    assert_eq!(fetch_error(&mut raw, &id).await, 1421);
    open(&mut raw, &id).await;
    // COM_STMT_CLOSE has no answer.
    raw.command(25, &id).await;
    assert_eq!(fetch_error(&mut raw, &id).await, 1243);
    let id = prepare(&mut raw, b"SELECT * FROM types").await;
    open(&mut raw, &id).await;
    // COM_RESET_CONNECTION.
    raw.command(31, &[]).await;
    raw.read().await.unwrap();
    assert_eq!(fetch_error(&mut raw, &id).await, 1243);
    raw.command(FETCH, &id).await;
    assert!(raw.read_error().await.code > 0, "a COM_STMT_FETCH without its number");
}

#[tokio::test]
async fn a_connection_keeps_a_bounded_number_of_cursors() {
    let server = start(Options::default()).await;
    let mut raw = Raw::login(&server).await;
    let mut ids = Vec::new();
    for _ in 0..64 {
        let id = prepare(&mut raw, b"SELECT * FROM types").await;
        open(&mut raw, &id).await;
        ids.push(id);
    }
    let id = prepare(&mut raw, b"SELECT * FROM types").await;
    raw.command(EXECUTE, &[&id[..], &[1, 1, 0, 0, 0]].concat()).await;
    assert_eq!(raw.read_error().await.code, 1105);
    // One that gave its last row makes room.
    assert_eq!(fetch(&mut raw, &ids[0], 10).await, (ROWS, LAST_ROW_SENT));
    open(&mut raw, &id).await;
    assert_eq!(fetch(&mut raw, &id, 1).await, (1, CURSOR_EXISTS));
    raw.expect_alive().await;
}

#[tokio::test]
async fn a_cursor_ends_with_the_transaction_that_it_reads_in() {
    let server = start(Options::default()).await;
    let mut raw = Raw::login(&server).await;
    let outside = prepare(&mut raw, b"SELECT * FROM types").await;
    let inside = prepare(&mut raw, b"SELECT * FROM types").await;
    open(&mut raw, &outside).await;
    let run = async |raw: &mut Raw, sql: &[u8]| {
        raw.command(3, sql).await;
        assert_eq!(raw.read().await.unwrap().1[0], 0);
    };
    run(&mut raw, b"BEGIN").await;
    open(&mut raw, &inside).await;
    assert_eq!(fetch(&mut raw, &inside, 1).await, (1, CURSOR_EXISTS));
    run(&mut raw, b"COMMIT").await;
    assert_eq!(fetch_error(&mut raw, &inside).await, 1421);
    assert_eq!(fetch(&mut raw, &outside, 10).await, (ROWS, LAST_ROW_SENT));
    open(&mut raw, &inside).await;
    assert_eq!(fetch(&mut raw, &inside, 10).await, (ROWS, LAST_ROW_SENT));
}
