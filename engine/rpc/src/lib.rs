//! Raft, transactions and placement over gRPC.
