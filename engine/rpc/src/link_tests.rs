//! A link over real connections, to peers that are slow, old, silent, gone, or no peers.

use parking_lot::Mutex as SyncMutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use super::*;
use crate::frames::Accepted;
use crate::pipe::MOST_WAITING;
use crate::proto::node_server::{Node, NodeServer};
use crate::proto::{Ack, Envelope, Payload, SnapshotPart};
use crate::testing::{listener, listener_again, soon};

const NODE: NodeId = 7;

/// A message with a number.
fn batch(number: u64, bytes: usize) -> RaftBatch {
    let message = vec![number as u8; bytes];
    let envelope = Envelope { region: number, message, ..Envelope::default() };
    RaftBatch { envelopes: vec![envelope], cluster: 3, speaks: 1 }
}

fn numbers(batch: &RaftBatch) -> u64 {
    let [envelope] = &batch.envelopes[..] else { panic!("{} messages", batch.envelopes.len()) };
    assert!(envelope.message.iter().all(|byte| *byte == envelope.region as u8));
    envelope.region
}

/// A link to an address, and the task that keeps it.
fn link(address: &str) -> (Link, JoinHandle<()>) {
    let book = AddressBook::default();
    book.insert(NODE, address);
    let link = Link::default();
    let running = tokio::spawn(link.clone().run(NODE, book, Channels::default()));
    (link, running)
}

/// The next connection, as one of frames.
async fn taken(listener: &TcpListener) -> frames::Batches {
    let (stream, _) = soon("a connection", listener.accept()).await.unwrap();
    assert!(frames::begins(&stream).await.unwrap());
    match frames::accept(stream).await.unwrap() {
        Accepted::Raft(batches) => batches,
        Accepted::Calls(_) => panic!("a connection for calls"),
    }
}

async fn next(batches: &mut frames::Batches) -> u64 {
    numbers(&soon("a message", batches.next()).await.unwrap().expect("a message"))
}

/// Waits until the link writes at once.
async fn connected(link: &Link) {
    soon("a connection", async {
        while !link.0.is_open() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_come_whole_and_in_order_however_slow_the_reader() {
    let (listener, address) = listener().await;
    let (link, running) = link(&address);
    // More than a connection takes at once, and less than may wait.
    for number in 0..12 {
        link.send(&batch(number, if number % 3 == 0 { 1 << 20 } else { 10 }), false);
    }
    let mut batches = taken(&listener).await;
    connected(&link).await;
    for number in 12..24 {
        link.send(&batch(number, if number % 3 == 0 { 1 << 20 } else { 10 }), false);
    }
    for number in 0..24 {
        assert_eq!(next(&mut batches).await, number);
    }
    // Now that nothing waits, a message begins at once, and what finds no room of it waits.
    link.send(&batch(24, 12 << 20), false);
    assert!(link.0.waiting() > 0, "a connection takes so much at once");
    link.send(&batch(25, 5), false);
    assert_eq!((next(&mut batches).await, next(&mut batches).await), (24, 25));
    // And a small one needs no task.
    running.abort();
    link.send(&batch(26, 5), false);
    assert_eq!(next(&mut batches).await, 26);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_wait_goes_soon_and_before_what_may_not() {
    let (listener, address) = listener().await;
    let (link, running) = link(&address);
    let mut batches = taken(&listener).await;
    connected(&link).await;
    for number in 0..3 {
        link.send(&batch(number, 10), true);
        assert_eq!(next(&mut batches).await, number);
    }
    // Without the task that gives it its time.
    running.abort();
    soon("the task's end", running).await.unwrap_err();
    link.send(&batch(3, 10), true);
    let one = link.0.waiting();
    link.send(&batch(4, 10), true);
    assert_eq!((one > 0, link.0.waiting()), (true, 2 * one));
    link.send(&batch(5, 10), false);
    assert_eq!(link.0.waiting(), 0);
    for number in 3..6 {
        assert_eq!(next(&mut batches).await, number);
    }
    link.send(&batch(6, 10), true);
    link.hurry();
    assert_eq!((link.0.waiting(), next(&mut batches).await), (0, 6));
    // Nor does much of it wait.
    link.send(&batch(7, 10), true);
    link.send(&batch(8, 100_000), true);
    assert_eq!((next(&mut batches).await, next(&mut batches).await), (7, 8));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_finds_no_room_is_dropped_and_cuts_no_other() {
    let (listener, address) = listener().await;
    let (link, _running) = link(&address);
    for number in 0..60 {
        link.send(&batch(number, 1 << 20), false);
    }
    let most = MOST_WAITING + (2 << 20);
    assert!(link.0.waiting() < most);
    let mut batches = taken(&listener).await;
    let mut last = next(&mut batches).await;
    assert_eq!(last, 0);
    link.send(&batch(1_000, 10), false);
    while last != 1_000 {
        let number = next(&mut batches).await;
        assert_eq!(number, if number == 1_000 { number } else { last + 1 });
        last = number;
        // The last one is sent again where it found no room either.
        if number < 1_000 && link.0.waiting() == 0 {
            link.send(&batch(1_000, 10), false);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_back_is_reached_again() {
    let (listener, address) = listener().await;
    let (link, _running) = link(&address);
    link.send(&batch(1, 10), false);
    let mut batches = taken(&listener).await;
    assert_eq!(next(&mut batches).await, 1);
    drop(batches);
    // Nobody writes meanwhile: that the other side has ended is seen all the same.
    let mut batches = taken(&listener).await;
    connected(&link).await;
    link.send(&batch(2, 10), false);
    assert_eq!(next(&mut batches).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_accepts_and_says_nothing_is_asked_again() {
    let (listener, address) = listener().await;
    let (link, _running) = link(&address);
    let (_silent, _) = soon("a connection", listener.accept()).await.unwrap();
    let mut batches = taken(&listener).await;
    connected(&link).await;
    link.send(&batch(3, 10), false);
    assert_eq!(next(&mut batches).await, 3);
}

/// A node whose program knows gRPC alone.
struct Old(SyncMutex<tokio::sync::mpsc::UnboundedSender<u64>>);

#[tonic::async_trait]
impl Node for Old {
    async fn raft(&self, request: Request<Streaming<RaftBatch>>) -> Result<Response<Ack>, Status> {
        let mut batches = request.into_inner();
        while let Some(batch) = batches.message().await? {
            let number = numbers(&batch);
            if number == 99 {
                return Err(Status::unavailable("ends"));
            }
            _ = self.0.lock().send(number);
        }
        Ok(Response::new(Ack {}))
    }

    async fn snapshot(&self, _: Request<Streaming<SnapshotPart>>) -> Result<Response<Ack>, Status> {
        Err(Status::unimplemented("no"))
    }

    async fn ping(&self, _: Request<Ack>) -> Result<Response<Ack>, Status> {
        Err(Status::unimplemented("no"))
    }

    async fn txn(&self, _: Request<Payload>) -> Result<Response<Payload>, Status> {
        Err(Status::unimplemented("no"))
    }

    async fn placement(&self, _: Request<Payload>) -> Result<Response<Payload>, Status> {
        Err(Status::unimplemented("no"))
    }

    async fn founding(&self, _: Request<Payload>) -> Result<Response<Payload>, Status> {
        Err(Status::unimplemented("no"))
    }
}

fn old(listener: TcpListener) -> (UnboundedReceiver<u64>, JoinHandle<()>) {
    let (numbers, received) = unbounded_channel();
    let node = NodeServer::new(Old(SyncMutex::new(numbers))).max_decoding_message_size(64 << 20);
    let serving = Server::builder().add_service(node);
    let serving = serving.serve_with_incoming(TcpIncoming::from(listener));
    (received, tokio::spawn(async move { serving.await.unwrap() }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_knows_no_frames_gets_the_same_over_grpc() {
    let (listener, address) = listener().await;
    let (mut received, serving) = old(listener);
    let (link, _running) = link(&address);
    for number in 0..20 {
        link.send(&batch(number, 100_000), false);
    }
    for number in 0..20 {
        assert_eq!(soon("a message", received.recv()).await, Some(number));
    }
    // A program that knows them takes its place.
    link.send(&batch(99, 1), false);
    serving.abort();
    _ = serving.await;
    let listener = listener_again(&address).await;
    let mut batches = taken(&listener).await;
    connected(&link).await;
    link.send(&batch(20, 10), false);
    assert_eq!(next(&mut batches).await, 20);
}

#[tokio::test]
async fn what_is_no_frame_ends_the_connection() {
    let (listener, address) = listener().await;
    for bytes in [
        // A word that is not known, a frame that is too large, and one that is no batch.
        b"ISOBAR9\n".to_vec(),
        [&b"ISOBAR1\n"[..], &u32::MAX.to_le_bytes()].concat(),
        [&b"ISOBAR1\n"[..], &3_u32.to_le_bytes(), &[0xff; 3]].concat(),
    ] {
        let mut client = TcpStream::connect(&address).await.unwrap();
        client.write_all(&bytes).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        assert!(frames::begins(&stream).await.unwrap());
        let ended = match frames::accept(stream).await {
            Ok(Accepted::Raft(mut batches)) => soon("an end", batches.next()).await.map(drop),
            Ok(Accepted::Calls(_)) => Ok(()),
            Err(error) => Err(error),
        };
        assert!(matches!(ended, Err(Error::Invalid(_))), "{bytes:?}: {ended:?}");
        let mut rest = Vec::new();
        _ = soon("the end", client.read_to_end(&mut rest)).await;
    }
}

/// Bytes from outside: whatever comes is a batch or an error, and takes no more memory than it has bytes.
#[test]
fn any_bytes_are_frames_or_an_error() {
    let mut random = crate::testing::numbers();
    let mut whole = BytesMut::new();
    for number in 0..3 {
        frames::encode(&batch(number, 20), &mut whole).unwrap();
    }
    let (mut read, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..random() % 4 {
            let at = random() as usize % bytes.len();
            bytes[at] = random() as u8;
        }
        bytes.truncate(random() as usize % (whole.len() + 1));
        loop {
            match frames::first(&mut bytes) {
                Ok(Some(frame)) => match frames::decode(&frame) {
                    Ok(_) => read += 1,
                    Err(Error::Invalid(_)) => refused += 1,
                    Err(other) => panic!("{other}"),
                },
                Ok(None) => break,
                Err(Error::Invalid(_)) => {
                    refused += 1;
                    break;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(read > 1_000 && refused > 1_000, "{read} were read and {refused} refused");
}
