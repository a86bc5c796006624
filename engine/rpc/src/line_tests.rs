//! Calls over real connections, to nodes that are slow, old, silent or gone.

use std::future::pending;
use std::sync::atomic::AtomicUsize;

use bytes::BytesMut;
use futures::future::join_all;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::*;
use crate::answering::{Answers, answer_all};
use crate::frames::Accepted;
use crate::pipe::{MOST_WAITING, SMALL};
use crate::testing::{listener, listener_again, soon};

fn payload(number: u32, bytes: usize) -> Payload {
    Payload { format: number, body: vec![number as u8; bytes], ..Payload::default() }
}

/// Answers with what it was asked; what the first byte says otherwise is done otherwise.
#[derive(Clone)]
struct Echo {
    /// Requests that wait for nothing but a permit.
    gate: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

const WAIT: u32 = 1_000_001;
const REFUSE: u32 = 1_000_002;
const FAIL: u32 = 1_000_003;
const PANIC: u32 = 1_000_004;

/// Counts while it is there.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Answers for Echo {
    async fn answer(&self, _: Service, payload: Payload) -> Said {
        match payload.format {
            WAIT => {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                let _counted = Counted(self.waiting.clone());
                self.gate.acquire().await.unwrap().forget();
                Said::Answer(payload)
            }
            REFUSE => Said::Refused("no".into()),
            FAIL => Said::Failed,
            PANIC => panic!("as a bug would"),
            _ => Said::Answer(payload),
        }
    }
}

/// A node that answers every connection, until it is stopped.
fn serve(listener: TcpListener) -> (Echo, JoinHandle<()>) {
    let echo = Echo { gate: Arc::new(Semaphore::new(0)), waiting: Arc::default() };
    let answers = echo.clone();
    let serving = tokio::spawn(async move {
        let running = TaskTracker::new();
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (answers, running) = (answers.clone(), running.clone());
            connections.spawn(async move {
                let Ok(Accepted::Calls(stream)) = frames::accept(stream).await else {
                    panic!("no connection for calls")
                };
                _ = answer_all(stream, answers, &running).await;
            });
        }
    });
    (echo, serving)
}

async fn open(line: &Line) -> Arc<Connection> {
    soon("a connection", line.connection()).await.unwrap().expect("frames are known")
}

/// A connection, and its other end, at which nobody answers.
async fn to_nobody() -> (Arc<Connection>, TcpStream) {
    let (listener, address) = listener().await;
    let line = Line::new(&address);
    let (connection, accepted) = tokio::join!(open(&line), async {
        let (stream, _) = listener.accept().await.unwrap();
        frames::accept(stream).await.unwrap()
    });
    let Accepted::Calls(stream) = accepted else { panic!("no connection for calls") };
    (connection, stream)
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    soon(what, async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_has_the_answer_to_what_they_asked() {
    let (listener, address) = listener().await;
    let (echo, _serving) = serve(listener);
    let connection = open(&Line::new(&address)).await;
    let slow = tokio::spawn({
        let connection = connection.clone();
        async move { connection.call(Service::Txn, payload(WAIT, 1)).await }
    });
    until("the slow one", || echo.waiting.load(Ordering::SeqCst) == 1).await;
    // Together more than connections take at once, in both directions.
    let asked = (0..200).map(|number| {
        let size = if number % 10 == 0 { 1 << 20 } else { number as usize };
        let connection = &connection;
        async move {
            let answer = connection.call(Service::Placement, payload(number, size)).await;
            assert_eq!(answer.unwrap(), Some(payload(number, size)));
        }
    });
    soon("an answer", join_all(asked)).await;
    assert!(!slow.is_finished());
    echo.gate.add_permits(1);
    let answer = soon("the slow answer", slow).await.unwrap();
    assert_eq!(answer.unwrap(), Some(payload(WAIT, 1)));
    let refused = connection.call(Service::Txn, payload(REFUSE, 0)).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    for bad in [FAIL, PANIC] {
        let call = connection.call(Service::Txn, payload(bad, 0));
        assert_eq!(soon("an end", call).await.unwrap(), None);
    }
    let too_large = connection.call(Service::Txn, payload(1, 65 << 20)).await;
    assert!(matches!(too_large, Err(Error::Invalid(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_nobody_waits_for_is_cancelled_at_the_other_side() {
    let (listener, address) = listener().await;
    let (echo, _serving) = serve(listener);
    let connection = open(&Line::new(&address)).await;
    let call = connection.call(Service::Txn, payload(WAIT, 1));
    tokio::pin!(call);
    tokio::select! {
        _ = &mut call => panic!("nobody lets it"),
        () = until("the call", || echo.waiting.load(Ordering::SeqCst) == 1) => {}
    }
    let other = connection.call(Service::Txn, payload(7, 1));
    assert_eq!(soon("an answer", other).await.unwrap(), Some(payload(7, 1)));
    // Now it goes away.
    let abandoned = tokio::spawn({
        let connection = connection.clone();
        async move { connection.call(Service::Txn, payload(WAIT, 1)).await }
    });
    until("another call", || echo.waiting.load(Ordering::SeqCst) == 2).await;
    abandoned.abort();
    until("its cancellation", || echo.waiting.load(Ordering::SeqCst) == 1).await;
    echo.gate.add_permits(1);
    assert_eq!(soon("an answer", call).await.unwrap(), Some(payload(WAIT, 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_end_with_the_connection_and_the_next_one_opens_another() {
    let (listener, address) = listener().await;
    let (echo, serving) = serve(listener);
    let line = Line::new(&address);
    let connection = open(&line).await;
    let call = tokio::spawn(async move { connection.call(Service::Txn, payload(WAIT, 1)).await });
    until("the call", || echo.waiting.load(Ordering::SeqCst) == 1).await;
    serving.abort();
    // Nobody knows whether it was done.
    assert_eq!(soon("an end", call).await.unwrap().unwrap(), None);
    until("the end of its task", || echo.waiting.load(Ordering::SeqCst) == 0).await;
    _ = serving.await;
    // All who ask meanwhile hear at once that nobody is there.
    let failed = soon("an error", join_all((0..50).map(|_| line.connection()))).await;
    assert!(failed.iter().all(|one| matches!(one, Err(Error::Unavailable(_)))));
    let listener = listener_again(&address).await;
    let (_echo, _serving) = serve(listener);
    let answer = open(&line).await.call(Service::Txn, payload(5, 1)).await;
    assert_eq!(answer.unwrap(), Some(payload(5, 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_says_nothing_is_given_up() {
    let (connection, _stopped) = to_nobody().await;
    let call = connection.call(Service::Txn, payload(1, 1));
    assert_eq!(soon("the end", call).await.unwrap(), None);
    assert!(!connection.is_open());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_may_take_longer_than_silence_where_somebody_is_there() {
    let (listener, address) = listener().await;
    let (echo, _serving) = serve(listener);
    let connection = open(&Line::new(&address)).await;
    let call = connection.call(Service::Txn, payload(WAIT, 1));
    let longer = LOOK * (SILENT_LOOKS + 1);
    let answer = tokio::join!(call, async {
        tokio::time::sleep(longer).await;
        echo.gate.add_permits(1);
    });
    assert_eq!(answer.0.unwrap(), Some(payload(WAIT, 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_may_be_on_its_way_for_longer_than_silence() {
    let (connection, mut stream) = to_nobody().await;
    let answer = Said::Answer(payload(1, 100)).encode(1).unwrap();
    let begun = std::time::Instant::now();
    let slowly = async {
        for (at, byte) in answer.iter().enumerate() {
            if at > 0 && begun.elapsed() < LOOK * (SILENT_LOOKS + 1) {
                tokio::time::sleep(LOOK / 4).await;
            }
            stream.write_all(&[*byte]).await.unwrap();
        }
    };
    let (answered, ()) = tokio::join!(connection.call(Service::Txn, payload(1, 1)), slowly);
    assert_eq!(answered.unwrap(), Some(payload(1, 100)));
}

#[test]
fn what_ends_a_call_finds_room_behind_any_others() {
    let pipe = Pipe::default();
    while pipe.send(&[0; 1 << 20]) {}
    assert!(!pipe.send(&[0; SMALL + 1]));
    for said in [Said::Busy, Said::Failed, Said::Cancel] {
        assert!(pipe.send(&said.encode(u64::MAX).unwrap()), "{said:?}");
    }
}

/// Those who wait for room when a connection ends are not heard by anybody any more.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_for_room_end_with_the_connection() {
    let (connection, stream) = to_nobody().await;
    // More than three times of what may wait.
    let calls = join_all((0..50).map(|_| connection.call(Service::Txn, payload(1, 1 << 20))));
    let end = async {
        until("calls that wait", || connection.shared.pipe.waiting() >= MOST_WAITING).await;
        drop(stream);
    };
    let (answers, ()) = soon("an end", async { tokio::join!(calls, end) }).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(None))), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_knows_no_frames_is_asked_otherwise() {
    let (listener, address) = listener().await;
    let old = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"GOAWAY").await.unwrap();
        drop(stream);
        pending::<()>().await;
        drop(listener);
    });
    let line = Line::new(&address);
    assert!(soon("an answer", line.connection()).await.unwrap().is_none());
    // And is not asked again each time.
    assert!(soon("an answer", line.connection()).await.unwrap().is_none());
    old.abort();
}

/// Answers that a reader is slow to take wait, in any number of bytes, and none is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_gets_every_answer() {
    let (listener, address) = listener().await;
    let (_echo, _serving) = serve(listener);
    let Ok(Reached::Frames(stream)) = frames::connect(&address, Purpose::Calls).await else {
        panic!("frames are known")
    };
    let pipe = Pipe::into_stream(Arc::new(stream));
    let stream = pipe.stream().expect("it is open");
    let asked = async {
        // More than may wait, and than connections take.
        for id in 1..=60 {
            let ask = Said::Ask(Service::Txn, payload(id, 1 << 20)).encode(id.into()).unwrap();
            pipe.send_in_turn(&ask).await;
        }
        let mut incoming = Incoming::new();
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < 60 {
            let (id, said) = incoming.next(&stream, || {}).await.unwrap().expect("an answer");
            assert_eq!(said, Said::Answer(payload(id as u32, 1 << 20)));
            seen.insert(id);
        }
    };
    soon("an answer", async {
        tokio::select! {
            () = asked => {}
            error = pipe.keep_writing(&stream) => panic!("{error}"),
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_no_call_ends_the_connection() {
    let short = [&3_u32.to_le_bytes()[..], &[0; 3]].concat();
    let no_payload = [&10_u32.to_le_bytes()[..], &[0; 8], &[1, 0xff]].concat();
    let no_tag = [&9_u32.to_le_bytes()[..], &[0; 8], &[77]].concat();
    for bytes in [short, no_payload, no_tag, u32::MAX.to_le_bytes().to_vec()] {
        let (listener, address) = listener().await;
        let mut client = TcpStream::connect(&address).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        client.write_all(&bytes).await.unwrap();
        let echo = Echo { gate: Arc::new(Semaphore::new(0)), waiting: Arc::default() };
        let answered = soon("an end", answer_all(stream, echo, &TaskTracker::new())).await;
        assert!(matches!(answered, Err(Error::Invalid(_))), "{bytes:?}: {answered:?}");
    }
}

/// Bytes from outside: whatever comes is a call or an error.
#[test]
fn any_bytes_are_calls_or_an_error() {
    let mut random = crate::testing::numbers();
    let said = [
        Said::Ask(Service::Txn, payload(1, 20)),
        Said::Ask(Service::Placement, payload(2, 0)),
        Said::Cancel,
        Said::Ping,
        Said::Answer(payload(3, 300)),
        Said::Refused("why".into()),
        Said::Busy,
        Said::Failed,
    ];
    let (mut read, mut refused) = (0, 0);
    for round in 0..40_000_u64 {
        let said = &said[random() as usize % said.len()];
        let mut frame = said.encode(round).unwrap().split_off(4);
        if round % 2 == 0 {
            assert_eq!(Said::decode(frame.clone().freeze()).unwrap(), (round, said.clone()));
        }
        for _ in 0..random() % 4 {
            let at = random() as usize % frame.len();
            frame[at] = random() as u8;
        }
        frame.truncate(random() as usize % (frame.len() * 2));
        match Said::decode(frame.freeze()) {
            Ok(_) => read += 1,
            Err(Error::Invalid(_)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(read > 1_000 && refused > 1_000, "{read} were read and {refused} refused");
    assert!(matches!(Said::decode(BytesMut::new().freeze()), Err(Error::Invalid(_))));
}
