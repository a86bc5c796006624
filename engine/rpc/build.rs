//! Makes the client and the server of the nodes' service. Its messages are written by hand (`src/proto.rs`), six methods
//! and six small messages being less than a compiler of protobuf files would add to every build.

use tonic_build::manual::{Builder, Method, Service};

/// A method: its name in Rust and on the wire, what it takes and what it gives.
fn method(name: &str, route: &str, input: &str, output: &str, streams: bool) -> Method {
    let method = Method::builder()
        .name(name)
        .route_name(route)
        .input_type(format!("crate::proto::{input}"))
        .output_type(format!("crate::proto::{output}"))
        .codec_path("tonic_prost::ProstCodec");
    if streams { method.client_streaming().build() } else { method.build() }
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let node = Service::builder()
        .name("Node")
        .package("isobar.node.v1")
        // One long-lived stream for each direction between two nodes.
        .method(method("raft", "Raft", "RaftBatch", "Ack", true))
        // A region snapshot for a member that has no log to follow.
        .method(method("snapshot", "Snapshot", "SnapshotPart", "Ack", true))
        // A request to a region's leader (`txn::api`).
        .method(method("txn", "Txn", "Payload", "Payload", false))
        // A request to placement's leader (`placement::api`).
        .method(method("placement", "Placement", "Payload", "Payload", false))
        // How far the node is in becoming part of a cluster (`placement::formation`).
        .method(method("founding", "Founding", "Payload", "Payload", false))
        // Answered at once by every node that runs.
        .method(method("ping", "Ping", "Ack", "Ack", false))
        .build();
    Builder::new().compile(&[node]);
}
