//! Nodes that are stopped: their kernel accepts connections, and nobody answers.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use rpc::{Channels, Pulse};
use tokio::time::{Instant, sleep};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// A port whose server never answers.
fn stopped() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Answers at an address, if only that it does not know what it is asked.
fn serve(address: &str) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener).unwrap());
    tokio::spawn(Server::builder().add_routes(Routes::default()).serve_with_incoming(incoming));
    address
}

#[tokio::test]
async fn a_call_to_a_stopped_node_is_given_up_where_others_can_answer_and_the_node_is_remembered() {
    let (_stopped, address) = stopped();
    let pulse = Pulse::new(Channels::default());
    let begun = Instant::now();
    let call = std::future::pending::<()>();
    let given_up = pulse.watch(&[(7, address)], |_| true, call).await;
    assert_eq!(given_up, Err(BTreeSet::from([7])));
    assert!(begun.elapsed() < Duration::from_secs(3), "it took {:?}", begun.elapsed());
    assert_eq!(pulse.silent(), BTreeSet::from([7]));
}

#[tokio::test]
async fn a_call_that_nobody_else_can_answer_is_given_up_later() {
    let (_stopped, address) = stopped();
    let pulse = Pulse::new(Channels::default());
    let begun = Instant::now();
    let call = std::future::pending::<()>();
    assert!(pulse.watch(&[(7, address)], |_| false, call).await.is_err());
    let took = begun.elapsed();
    assert!((2..10).contains(&took.as_secs()), "it took {took:?}");
}

#[tokio::test]
async fn a_slow_call_to_a_node_that_answers_is_waited_for() {
    let pulse = Pulse::new(Channels::default());
    let node = (7, serve("127.0.0.1:0").to_string());
    let call = async {
        sleep(Duration::from_millis(1_500)).await;
        "done"
    };
    assert_eq!(pulse.watch(&[node], |_| true, call).await, Ok("done"));
    assert!(pulse.silent().is_empty());
}

#[tokio::test]
async fn a_node_that_answers_again_is_not_left_out_any_more() {
    let (listener, address) = stopped();
    let pulse = Pulse::new(Channels::default());
    assert_eq!(pulse.ping_all(&[(7, address.clone())]).await, BTreeSet::from([7]));
    drop(listener);
    serve(&address);
    let back = async {
        while !pulse.silent().is_empty() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), back).await.expect("it is asked again");
}
