//! Prepared statements of a connection: what it answers to the COM_STMT commands that have rows or
//! definitions to send.

use arrow::array::timezone::Tz;
use execution::BatchStream;
use execution::reply::{Reply, WarningCount};
use tokio_util::sync::CancellationToken;
use values::column::ResultColumn;
use values::error;

use super::{Connection, End, attend};
use crate::answer::{self, Format, Rows};
use crate::command::Execute;
use crate::cursor::{Cursor, Left};
use crate::handshake::Accepted;
use crate::statements;

impl Connection {
    /// COM_STMT_PREPARE.
    pub(super) async fn prepare(&mut self, text: &[u8]) {
        let escapes = !self.session.status().no_backslash_escapes;
        let pieces = statements::split(text, escapes);
        let prepared = match (self.statements.check_room(), pieces.as_slice()) {
            (Err(error), _) => Err(error),
            (Ok(()), [one]) => self.session.prepare(one).await,
            (Ok(()), []) => self.session.prepare(b"").await,
            (Ok(()), _) => Err(error::multi_statements_off()),
        };
        match prepared {
            Ok(prepared) => {
                self.statements.add(&prepared, text);
                let context = self.context(false);
                answer::put_prepared(&mut self.accepted.writer, &context, &prepared);
            }
            Err(error) => self.put_error(&error),
        }
    }

    /// COM_STMT_EXECUTE.
    pub(super) async fn execute(
        &mut self,
        execute: Execute<'_>,
        cancel: &CancellationToken,
    ) -> Result<(), End> {
        _ = self.cursors.take(execute.id);
        let reply = match self.statements.params(execute.id, execute.params) {
            Err(error) => Err(error),
            Ok(params) => {
                let work = match execute.cursor {
                    true => self.session.open_prepared(execute.id, params, cancel),
                    false => self.session.execute_prepared(execute.id, params, cancel),
                };
                attend(&mut self.accepted.reader, &self.registration, cancel, work).await?
            }
        };
        self.end_cursors();
        match reply {
            Ok(Reply::Rows { columns, batches, warnings }) if execute.cursor => {
                self.open_cursor(execute.id, (columns, batches, warnings), cancel).await
            }
            reply => self.reply(reply, Format::Binary, false, cancel).await.map(|_| ()),
        }
    }

    /// Ends the cursors of a transaction that a statement has ended.
    pub(super) fn end_cursors(&mut self) {
        if !self.session.status().in_transaction {
            self.cursors.end_transaction();
        }
    }

    /// Answers COM_STMT_EXECUTE with a cursor.
    async fn open_cursor(
        &mut self,
        id: u32,
        (columns, batches, warnings): (Vec<ResultColumn>, BatchStream, WarningCount),
        cancel: &CancellationToken,
    ) -> Result<(), End> {
        let zone = self.session.time_zone();
        let Ok(zone) = zone.parse::<Tz>() else {
            self.put_error(&error::unknown(format!("unknown time zone '{zone}'")));
            return Ok(());
        };
        if let Err(error) = self.cursors.check_room() {
            self.put_error(&error);
            return Ok(());
        }
        let rows = Rows { columns, batches, warnings, format: Format::Binary, zone };
        let work = Cursor::open(rows, self.session.status().in_transaction, cancel);
        match attend(&mut self.accepted.reader, &self.registration, cancel, work).await? {
            Ok(cursor) => {
                let context = self.context(false);
                cursor.describe(&mut self.accepted.writer, &context);
                self.cursors.keep(id, cursor);
            }
            Err(error) => self.put_error(&error),
        }
        Ok(())
    }

    /// COM_STMT_FETCH. A cursor that breaks off, or that has given its last row, is closed.
    pub(super) async fn fetch(
        &mut self,
        id: u32,
        rows: u32,
        cancel: &CancellationToken,
    ) -> Result<(), End> {
        if !self.statements.contains(id) {
            self.put_error(&error::no_prepared(id, "mysqld_stmt_fetch"));
            return Ok(());
        }
        let Some(mut cursor) = self.cursors.take(id) else {
            self.put_error(&error::no_open_cursor(id));
            return Ok(());
        };
        let Accepted { reader, writer, .. } = &mut self.accepted;
        let work = cursor.send(writer, rows, cancel);
        match attend(reader, &self.registration, cancel, work).await?? {
            Ok(left) => {
                let mut context = self.context(false);
                context.status |= left.flag();
                answer::put_eof(&mut self.accepted.writer, &context, cursor.warnings());
                if left == Left::More {
                    self.cursors.keep(id, cursor);
                }
            }
            Err(error) => self.put_error(&error),
        }
        Ok(())
    }
}
