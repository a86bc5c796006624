//! Errors that the wire itself raises: of packets, and of clients that may not come in.
//!
//! It knows which they are; their numbers and texts stand in the table of errors.

use values::error::{self, SqlError};

use crate::packet::PacketError;

/// An unknown user or a wrong password; which of the two stays unsaid.
pub fn access_denied(user: &str, host: &str, with_password: bool) -> SqlError {
    error::access_denied(user, host, if with_password { "YES" } else { "NO" })
}

/// What to answer to a packet that failed; `None` where the peer cannot receive any more.
pub fn of_packet(error: &PacketError) -> Option<SqlError> {
    match error {
        PacketError::TooLarge { limit, .. } => Some(error::packet_too_large(limit)),
        PacketError::OutOfOrder { .. } => Some(error::packets_out_of_order()),
        PacketError::TimedOut(_) => Some(error::packet_timeout()),
        PacketError::Closed | PacketError::Truncated | PacketError::Io(_) => None,
    }
}
