//! How a statement finds rows. It finds none itself.

use storage::Taking;
use storage::reader::Reader;
use types::Timestamp;

use super::state::Open;

/// How a statement finds rows that it changes or locks.
#[derive(Clone)]
pub(in crate::session) enum Finding {
    /// It reads them; conflicts show at commit.
    Read(Reader),
    /// It locks them, and sees them as they are then, as sure as what it expects of them says.
    Lock(Open, Taking),
}

impl Finding {
    /// When it reads, for choosing tables and indexes: now, if it locks.
    pub(in crate::session) fn ts(&self) -> Timestamp {
        match self {
            Finding::Read(reader) => reader.ts(),
            Finding::Lock(..) => Timestamp::MAX,
        }
    }
}
