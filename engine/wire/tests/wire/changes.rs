//! Session changes in OK packets: only for who tracks them, and once.

use mysql_common::constants::CapabilityFlags;
use wire::Options;

use crate::backend::start;
use crate::raw::{Raw, capabilities};

const QUERY: u8 = 3;
const INIT_DB: u8 = 2;
const STATE_CHANGED: u16 = 0x4000;

/// Whether the answer's status says that something changed, and what is behind it.
async fn answer(raw: &mut Raw) -> (bool, Vec<u8>) {
    let (_, ok) = raw.read().await.unwrap();
    assert_eq!(ok[..3], [0, 0, 0], "{ok:?}");
    let status = u16::from_le_bytes([ok[3], ok[4]]);
    (status & STATE_CHANGED != 0, ok[7..].to_vec())
}

/// An empty message, and entries of these kinds and texts.
fn tracked(entries: &[(u8, &[&str])]) -> (bool, Vec<u8>) {
    let mut all = Vec::new();
    for (kind, texts) in entries {
        let mut data = Vec::new();
        for text in *texts {
            data.push(text.len() as u8);
            data.extend_from_slice(text.as_bytes());
        }
        all.extend_from_slice(&[*kind, data.len() as u8]);
        all.extend_from_slice(&data);
    }
    (true, [&[0, all.len() as u8], &all[..]].concat())
}

#[tokio::test]
async fn changes_are_reported_once_to_who_asked() {
    let server = start(Options::default()).await;
    let track = capabilities() | CapabilityFlags::CLIENT_SESSION_TRACK;
    let mut raw = Raw::login_with(&server, track).await;
    raw.command(QUERY, b"SET x").await;
    assert_eq!(answer(&mut raw).await, (false, vec![]));
    raw.command(QUERY, b"SET zone").await;
    assert_eq!(answer(&mut raw).await, tracked(&[(0, &["time_zone", "+01:00"])]));
    raw.command(QUERY, b"SET x").await;
    assert_eq!(answer(&mut raw).await, (false, vec![]));
    raw.command(INIT_DB, b"shop").await;
    assert_eq!(answer(&mut raw).await, tracked(&[(1, &["shop"])]));
    raw.command(QUERY, b"SET anything").await;
    assert_eq!(answer(&mut raw).await, tracked(&[(2, &["1"])]));

    let mut other = Raw::login(&server).await;
    for (command, text) in [(QUERY, &b"SET zone"[..]), (INIT_DB, b"shop"), (QUERY, b"SET anything")]
    {
        other.command(command, text).await;
        assert_eq!(answer(&mut other).await, (false, vec![]));
    }
}
