//! Tickets: what a DoGet is allowed to read, signed so that no client can make one up.
//!
//! A ticket says everything about its work, so it can be redeemed again after a failure, on any
//! columnar node. A part of a table is named by what no split, move or ALTER changes: the table's
//! number, ranges of its keys, and the columns as they were described. It never names a region or
//! a node, and it is never logged.

use std::sync::Arc;

use binder::{BoundQuery, QueryContext};
use serde::{Deserialize, Serialize};
use types::token;
use types::{LeaseId, SnapshotToken, Table};

use crate::error::{MppCode, MppError, MppResult};
use crate::request::Filter;

const FORMAT: u8 = 3;
/// Without bound queries: all that nodes of cluster version 1 read.
const FORMAT_OF_TEXTS: u8 = 2;
const TAG: usize = 16;
/// Longest ticket, in bytes: no message of a client may be longer.
const LONGEST: usize = 16 << 20;
/// Most bytes of a bound query, before it is compressed.
const LARGEST_QUERY: usize = 256 << 20;

/// Keys from the first to before the second.
pub type KeyRange = (Vec<u8>, Vec<u8>);

/// A part of a table at a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanTicket {
    /// The very table, at the schema version that the client got, with the columns that
    /// this ticket needs and no others. Names in it are for messages, and for `columns` and
    /// `filter` to refer to.
    #[serde(with = "packed")]
    pub table: Arc<Table>,
    /// Columns, in the order of the answer.
    pub columns: Vec<String>,
    /// Rows to return.
    pub filter: Option<Filter>,
    /// Where the rows are: ascending, none touching the next.
    #[serde(with = "packed")]
    pub ranges: Vec<KeyRange>,
    /// Most rows to return.
    pub limit: Option<u64>,
}

/// Keys and descriptions, which JSON would blow up, as base64 of a compact form.
mod packed {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    use serde::de::{DeserializeOwned, Error as _};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let bytes = postcard::to_allocvec(value).map_err(S::Error::custom)?;
        BASE64_STANDARD.encode(bytes).serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64_STANDARD.decode(text).map_err(D::Error::custom)?;
        postcard::from_bytes(&bytes).map_err(D::Error::custom)
    }
}

/// Queries in a compact form, in which each expression repeats its type, and an ENUM's its labels.
mod compressed {
    use std::sync::Arc;

    use base64::prelude::{BASE64_STANDARD, Engine as _};
    use binder::BoundQuery;
    use lz4_flex::block::{compress_prepend_size, decompress_size_prepended};
    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::LARGEST_QUERY;

    pub(super) fn serialize<S: Serializer>(
        query: &Arc<BoundQuery>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let bytes = postcard::to_allocvec(query).map_err(S::Error::custom)?;
        if bytes.len() > LARGEST_QUERY {
            return Err(S::Error::custom("the query is too large"));
        }
        BASE64_STANDARD.encode(compress_prepend_size(&bytes)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<BoundQuery>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64_STANDARD.decode(text).map_err(D::Error::custom)?;
        let size = bytes.first_chunk().map_or(0, |size| u32::from_le_bytes(*size));
        if usize::try_from(size).is_ok_and(|size| size > LARGEST_QUERY) {
            return Err(D::Error::custom("the query is too large"));
        }
        let bytes = decompress_size_prepended(&bytes).map_err(D::Error::custom)?;
        postcard::from_bytes(&bytes).map_err(D::Error::custom)
    }
}

/// What a query asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Asked {
    /// As its client wrote it.
    Text(String),
    /// As whoever made the ticket bound it, to the versions of tables that its context names.
    Bound {
        /// The query.
        #[serde(with = "compressed")]
        bound: Arc<BoundQuery>,
    },
}

/// A query at a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SqlTicket {
    /// What it asks.
    pub query: Asked,
    /// What it was bound with: versions of tables, time zone, sql_mode; all that gives a text its meaning.
    pub context: QueryContext,
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
    /// The resource group that pays for it; the default one without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl Ticket {
    /// The lease that keeps the ticket's snapshot.
    pub fn lease(&self) -> LeaseId {
        self.token.lease
    }

    /// As opaque bytes: `format | JSON | tag`.
    pub fn seal(&self, key: &[u8]) -> MppResult<Vec<u8>> {
        let bound = matches!(&self.work, Work::Sql(SqlTicket { query: Asked::Bound { .. }, .. }));
        let mut bytes = vec![if bound { FORMAT } else { FORMAT_OF_TEXTS }];
        serde_json::to_writer(&mut bytes, self)
            .map_err(|error| MppError::new(MppCode::Invalid, format!("ticket: {error}")))?;
        let tag = token::sign(key, &bytes);
        bytes.extend_from_slice(&tag);
        match bytes.len() {
            0..=LONGEST => Ok(bytes),
            length => Err(MppError::new(
                MppCode::Invalid,
                format!(
                    "the ticket would be {length} bytes, at most {LONGEST} are allowed: ask for fewer \
                     columns, with a shorter filter or query"
                ),
            )),
        }
    }

    /// From bytes that anybody may have made up: checks the signature before reading anything.
    pub fn open(bytes: &[u8], key: &[u8], now_ms: u64) -> MppResult<Self> {
        let forged = || {
            MppError::new(
                MppCode::TicketForged,
                "this ticket was not issued by this cluster: call GetFlightInfo for a new one",
            )
        };
        let at = bytes.len().checked_sub(TAG).filter(|_| bytes.len() <= LONGEST);
        let (body, tag) = bytes.split_at(at.ok_or_else(forged)?);
        token::verify(key, body, tag).map_err(|_| forged())?;
        let ticket = Self::decode(body)?;
        if ticket.expires_ms < now_ms {
            return Err(MppError::new(
                MppCode::TicketExpired,
                format!(
                    "this ticket ended {} ms ago: call GetFlightInfo for a new one, with a longer snapshot",
                    now_ms - ticket.expires_ms
                ),
            ));
        }
        Ok(ticket)
    }

    /// The part behind the signature check; [`fuzz_ticket`] tries it by itself.
    pub fn decode(body: &[u8]) -> MppResult<Self> {
        let bad = |format: &str| {
            MppError::new(
                MppCode::Invalid,
                format!(
                    "this ticket is of format {format}, and this node reads formats {FORMAT_OF_TEXTS} and {FORMAT}: \
                     call GetFlightInfo for a new one"
                ),
            )
        };
        match body.split_first() {
            Some((format @ &(FORMAT | FORMAT_OF_TEXTS), rest)) => serde_json::from_slice(rest)
                .map_err(|_| bad(&format!("{format}, as another release writes it"))),
            Some((format, _)) => Err(bad(&format.to_string())),
            None => Err(bad("none")),
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
