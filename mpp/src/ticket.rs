//! Tickets: what a DoGet is allowed to read, signed so that no client can make one up.
//!
//! A ticket says everything about its work, so it can be redeemed again after a failure, on any
//! node that holds what it names. It is never logged.

use serde::{Deserialize, Serialize};
use types::token;
use types::{Epoch, LeaseId, RegionId, SchemaVersion, SnapshotToken, TableId};

use crate::error::{DoorCode, DoorError, DoorResult};
use crate::request::{Filter, SqlContext};

const FORMAT: u8 = 1;
const TAG: usize = 16;

/// A part of a table at a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanTicket {
    /// Database, for messages.
    pub database: String,
    /// Table, for messages.
    pub table: String,
    /// The very table: a recreated one has another number.
    pub table_id: TableId,
    /// The schema that the client was told.
    pub schema_version: SchemaVersion,
    /// Columns, in the order of the answer.
    pub columns: Vec<String>,
    /// Rows to return.
    pub filter: Option<Filter>,
    /// Regions of one node.
    pub regions: Vec<(RegionId, Epoch)>,
    /// Most rows to return.
    pub limit: Option<u64>,
}

/// A query at a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SqlTicket {
    /// Text.
    pub query: String,
    /// What gives it meaning.
    pub context: SqlContext,
}

/// The work that a ticket stands for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Part of a table.
    Scan(ScanTicket),
    /// A query.
    Sql(SqlTicket),
}

/// A ticket's content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ticket {
    /// What to do.
    pub work: Work,
    /// At which snapshot.
    pub token: SnapshotToken,
    /// Unix milliseconds after which it is not redeemed; the lease may end earlier or be renewed.
    pub expires_ms: u64,
}

impl Ticket {
    /// The lease that keeps the ticket's snapshot.
    pub fn lease(&self) -> LeaseId {
        self.token.lease
    }

    /// As opaque bytes: `format | JSON | tag`.
    pub fn seal(&self, key: &[u8]) -> DoorResult<Vec<u8>> {
        let mut bytes = vec![FORMAT];
        serde_json::to_writer(&mut bytes, self)
            .map_err(|error| DoorError::new(DoorCode::Invalid, format!("ticket: {error}")))?;
        let tag = token::sign(key, &bytes);
        bytes.extend_from_slice(&tag);
        Ok(bytes)
    }

    /// From bytes that anybody may have made up: checks the signature before reading anything.
    pub fn open(bytes: &[u8], key: &[u8], now_ms: u64) -> DoorResult<Self> {
        let forged = || {
            DoorError::new(
                DoorCode::TicketForged,
                "this ticket was not issued by this cluster: call GetFlightInfo for a new one",
            )
        };
        let at = bytes.len().checked_sub(TAG).ok_or_else(forged)?;
        let (body, tag) = bytes.split_at(at);
        token::verify(key, body, tag).map_err(|_| forged())?;
        let ticket = Self::decode(body)?;
        if ticket.expires_ms < now_ms {
            return Err(DoorError::new(
                DoorCode::TicketExpired,
                format!(
                    "this ticket ended {} ms ago: call GetFlightInfo for a new one, with a longer snapshot",
                    now_ms - ticket.expires_ms
                ),
            ));
        }
        Ok(ticket)
    }

    /// The part behind the signature check; [`fuzz_ticket`] tries it by itself.
    pub fn decode(body: &[u8]) -> DoorResult<Self> {
        let bad = || {
            DoorError::new(
                DoorCode::Invalid,
                "this ticket is of an unknown format: call GetFlightInfo for a new one",
            )
        };
        match body.split_first() {
            Some((&FORMAT, rest)) => serde_json::from_slice(rest).map_err(|_| bad()),
            _ => Err(bad()),
        }
    }
}

/// Takes any bytes as a ticket, and as the signed part of one; for the fuzzer. Returns whether
/// they were one.
pub fn fuzz_ticket(data: &[u8]) -> bool {
    let key = [7; 32];
    let opened = Ticket::open(data, &key, 0);
    if let Ok(ticket) = &opened {
        // What was read is what would be written.
        let again = ticket.seal(&key).and_then(|bytes| Ticket::open(&bytes, &key, 0));
        assert_eq!(again.as_ref().ok(), Some(ticket), "a ticket changed by being written");
    }
    opened.is_ok() | Ticket::decode(data).is_ok()
}
