//! Read-only cursors: results of prepared statements that a client fetches piece by piece.
//!
//! A cursor is the stream of a query that nobody pulls between two fetches. At most one batch of it
//! is held, and a connection keeps a bounded number of them. That later statements do not change its
//! rows is the session's promise (`Session::open_prepared`).

use std::collections::HashMap;

use arrow::record_batch::RecordBatch;
use futures::StreamExt;
use mysql_common::constants::StatusFlags;
use tokio::io::AsyncWrite;
use tokio_util::sync::CancellationToken;
use values::error::{self, SqlError};

use crate::answer::{self, Context, Rows};
use crate::packet::{PacketError, PacketWriter};

/// Most cursors that a connection keeps open.
pub const MAX_CURSORS: usize = 64;

/// A result that is fetched piece by piece.
pub struct Cursor {
    rows: Rows,
    /// The batch that is being sent, and its first row that was not.
    batch: Option<(RecordBatch, usize)>,
    /// Whether it reads in an open transaction, and so ends with it.
    in_transaction: bool,
}

/// Whether a cursor has given its last row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// There may be more.
    More,
    /// That was all.
    Nothing,
}

impl Left {
    /// The status flag for it.
    pub fn flag(self) -> StatusFlags {
        match self {
            Left::More => StatusFlags::SERVER_STATUS_CURSOR_EXISTS,
            Left::Nothing => StatusFlags::SERVER_STATUS_LAST_ROW_SENT,
        }
    }
}

impl Cursor {
    /// Opens a cursor: its first batch is awaited, so that a query that fails says so now.
    pub async fn open(
        rows: Rows,
        in_transaction: bool,
        cancel: &CancellationToken,
    ) -> Result<Self, SqlError> {
        let mut cursor = Cursor { rows, batch: None, in_transaction };
        cursor.fill(cancel).await?;
        Ok(cursor)
    }

    /// Sends the client the columns of the rows.
    pub fn describe<W: AsyncWrite + Unpin>(&self, writer: &mut PacketWriter<W>, context: &Context) {
        answer::put_description(writer, &self.rows.columns);
        // With or without CLIENT_DEPRECATE_EOF there is one packet behind the definitions: it says
        // that a cursor is open.
        let mut context = context.clone();
        context.status |= Left::More.flag();
        answer::put_eof(writer, &context, self.rows.warnings.now());
    }

    /// Sends so many rows at most, without the packet that ends them. The outer error means that the
    /// client is gone, the inner one that the result broke off.
    pub async fn send<W: AsyncWrite + Unpin>(
        &mut self,
        writer: &mut PacketWriter<W>,
        most: u32,
        cancel: &CancellationToken,
    ) -> Result<Result<Left, SqlError>, PacketError> {
        let mut left = usize::try_from(most).unwrap_or(usize::MAX);
        while left > 0 {
            if let Err(error) = self.fill(cancel).await {
                return Ok(Err(error));
            }
            let Some((batch, from)) = self.batch.take() else { return Ok(Ok(Left::Nothing)) };
            let to = from.saturating_add(left).min(batch.num_rows());
            let put = answer::put_rows(writer, self.rows.form(), &batch, from..to, cancel).await?;
            if let Err(error) = put {
                return Ok(Err(error));
            }
            left -= to - from;
            self.batch = Some((batch, to));
        }
        Ok(Ok(Left::More))
    }

    /// Warnings for the packet behind the rows.
    pub fn warnings(&self) -> u16 {
        self.rows.warnings.now()
    }

    /// Makes sure that there is a row to send, unless there is none left.
    async fn fill(&mut self, cancel: &CancellationToken) -> Result<(), SqlError> {
        while self.batch.as_ref().is_none_or(|(batch, from)| *from >= batch.num_rows()) {
            self.batch = None;
            let batch = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(error::interrupted()),
                batch = self.rows.batches.next() => batch,
            };
            match batch.transpose()? {
                Some(batch) => self.batch = Some((batch, 0)),
                None => return Ok(()),
            }
        }
        Ok(())
    }
}

/// The open cursors of a connection, by statement.
#[derive(Default)]
pub struct Cursors(HashMap<u32, Cursor>);

impl Cursors {
    /// Fails if one more would be too many.
    pub fn check_room(&self) -> Result<(), SqlError> {
        match self.0.len() < MAX_CURSORS {
            true => Ok(()),
            false => Err(error::too_many_cursors(MAX_CURSORS)),
        }
    }

    /// Keeps a cursor open.
    pub fn keep(&mut self, statement: u32, cursor: Cursor) {
        self.0.insert(statement, cursor);
    }

    /// Takes a cursor, to fetch from it or to end it.
    pub fn take(&mut self, statement: u32) -> Option<Cursor> {
        self.0.remove(&statement)
    }

    /// Ends those that read in a transaction, because it is over.
    pub fn end_transaction(&mut self) {
        self.0.retain(|_, cursor| !cursor.in_transaction);
    }

    /// Ends all of them.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
