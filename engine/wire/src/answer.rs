//! Answers: OK, error and end-of-rows packets, column definitions, rows.
//!
//! Encodes into the packet buffer; the only waiting is for the peer to take bytes and for the
//! engine to give batches.

use std::ops::Range;

use arrow::array::timezone::Tz;
use arrow::record_batch::RecordBatch;
use bytes::{BufMut, BytesMut};
use execution::BatchStream;
use execution::panics;
use execution::reply::{Done, WarningCount};
use futures::StreamExt;
use mysql_common::constants::{CapabilityFlags, StatusFlags};
use mysql_common::io::BufMutExt;
use tokio::io::AsyncWrite;
use tokio_util::sync::CancellationToken;
use values::column::ResultColumn;
use values::error::{self, SqlError};

use crate::backend::SessionStatus;
use crate::cell::{self, CellReader};
use crate::packet::{PacketError, PacketWriter};
use crate::{binary, column, text};

/// Marks the types of session-state entries: a system variable, the current database, and that
/// something has changed.
const SESSION_TRACK_SYSTEM_VARIABLES: u8 = 0;
const SESSION_TRACK_SCHEMA: u8 = 1;
const SESSION_TRACK_STATE_CHANGE: u8 = 2;
/// First byte of an OK packet.
const OK: u8 = 0x00;
/// First byte of an end-of-rows packet, old or new.
const EOF: u8 = 0xfe;
/// First byte of an error packet.
const ERR: u8 = 0xff;
/// Most bytes of an error message.
const MAX_MESSAGE: usize = 4096;

/// Row format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Answers to COM_QUERY.
    Text,
    /// Answers to COM_STMT_EXECUTE.
    Binary,
}

/// What every answer of a connection depends on.
#[derive(Clone, Debug)]
pub struct Context {
    /// Capabilities in force.
    pub capabilities: CapabilityFlags,
    /// Status flags of the session.
    pub status: StatusFlags,
    /// The current database, if it changed since the last answer.
    pub new_database: Option<String>,
    /// System variables that were set since the last answer, and that the client wants to know.
    pub new_variables: Vec<(String, String)>,
    /// Whether the client wants to know that something has changed, and it has.
    pub state_changed: bool,
}

impl Context {
    fn has(&self, capability: CapabilityFlags) -> bool {
        self.capabilities.contains(capability)
    }
}

/// The wire's form of a session's status. `more` announces another answer behind this one.
pub fn status_flags(status: SessionStatus, more: bool) -> StatusFlags {
    [
        (status.in_transaction, StatusFlags::SERVER_STATUS_IN_TRANS),
        (status.autocommit, StatusFlags::SERVER_STATUS_AUTOCOMMIT),
        (status.no_backslash_escapes, StatusFlags::SERVER_STATUS_NO_BACKSLASH_ESCAPES),
        (more, StatusFlags::SERVER_MORE_RESULTS_EXISTS),
    ]
    .into_iter()
    .filter_map(|(set, flag)| set.then_some(flag))
    .fold(StatusFlags::empty(), |flags, flag| flags | flag)
}

/// Appends a packet that any encoder fills without failing.
fn put<W: AsyncWrite + Unpin>(writer: &mut PacketWriter<W>, fill: impl FnOnce(&mut BytesMut)) {
    let filled: Result<(), std::convert::Infallible> = writer.packet(|out| {
        fill(out);
        Ok(())
    });
    match filled {
        Ok(()) => {}
        Err(never) => match never {},
    }
}

/// Appends an OK packet.
pub fn put_ok<W: AsyncWrite + Unpin>(writer: &mut PacketWriter<W>, context: &Context, done: &Done) {
    put(writer, |out| fill_ok(out, OK, context, done));
}

fn fill_ok(out: &mut BytesMut, header: u8, context: &Context, done: &Done) {
    out.put_u8(header);
    out.put_lenenc_int(done.affected_rows);
    out.put_lenenc_int(done.last_insert_id);
    let changes = changes(context);
    let mut status = context.status;
    status.set(StatusFlags::SERVER_SESSION_STATE_CHANGED, !changes.is_empty());
    out.put_u16_le(status.bits());
    out.put_u16_le(done.warnings);
    // Behind a length with or without CLIENT_SESSION_TRACK, whatever the manual says of `string<EOF>`:
    // that is what MySQL sends and what clients read.
    if changes.is_empty() && done.info.is_empty() {
        return;
    }
    out.put_lenenc_str(done.info.as_bytes());
    if !changes.is_empty() {
        out.put_lenenc_str(&changes);
    }
}

/// The entries of an OK packet with the session's changes, if the client knows them.
fn changes(context: &Context) -> BytesMut {
    let mut entries = BytesMut::new();
    if !context.has(CapabilityFlags::CLIENT_SESSION_TRACK) {
        return entries;
    }
    let mut entry = |kind: u8, texts: &[&str]| {
        let mut data = BytesMut::new();
        texts.iter().for_each(|text| data.put_lenenc_str(text.as_bytes()));
        entries.put_u8(kind);
        entries.put_lenenc_str(&data);
    };
    for (name, value) in &context.new_variables {
        entry(SESSION_TRACK_SYSTEM_VARIABLES, &[name.as_str(), value.as_str()]);
    }
    if let Some(database) = &context.new_database {
        entry(SESSION_TRACK_SCHEMA, &[database.as_str()]);
    }
    if context.state_changed {
        entry(SESSION_TRACK_STATE_CHANGE, &["1"]);
    }
    entries
}

/// Appends what ends rows, or column definitions where the client still wants that marked.
pub fn put_eof<W: AsyncWrite + Unpin>(
    writer: &mut PacketWriter<W>,
    context: &Context,
    warnings: u16,
) {
    if context.has(CapabilityFlags::CLIENT_DEPRECATE_EOF) {
        let done = Done { warnings, ..Done::default() };
        put(writer, |out| fill_ok(out, EOF, context, &done));
    } else {
        put(writer, |out| {
            out.put_u8(EOF);
            out.put_u16_le(warnings);
            out.put_u16_le(context.status.bits());
        });
    }
}

/// Appends an error packet. SQLSTATE is left out for clients that are still unknown.
pub fn put_error<W: AsyncWrite + Unpin>(
    writer: &mut PacketWriter<W>,
    capabilities: CapabilityFlags,
    error: &SqlError,
) {
    put(writer, |out| {
        out.put_u8(ERR);
        out.put_u16_le(error.code);
        if capabilities.contains(CapabilityFlags::CLIENT_PROTOCOL_41) {
            out.put_u8(b'#');
            out.put_slice(&error.sqlstate);
        }
        let end = error.message.floor_char_boundary(MAX_MESSAGE);
        out.put_slice(error.message.get(..end).unwrap_or_default().as_bytes());
    });
}

/// Appends what describes rows: how many columns, and each of them.
pub fn put_description<W: AsyncWrite + Unpin>(
    writer: &mut PacketWriter<W>,
    columns: &[ResultColumn],
) {
    put(writer, |out| out.put_lenenc_int(columns.len() as u64));
    for column in columns {
        put(writer, |out| column::put_definition(out, column));
    }
}

/// Appends column definitions, and the mark behind them that older clients want.
pub fn put_definitions<W: AsyncWrite + Unpin>(
    writer: &mut PacketWriter<W>,
    context: &Context,
    columns: &[ResultColumn],
) {
    for column in columns {
        put(writer, |out| column::put_definition(out, column));
    }
    end_definitions(writer, context);
}

fn end_definitions<W: AsyncWrite + Unpin>(writer: &mut PacketWriter<W>, context: &Context) {
    if !context.has(CapabilityFlags::CLIENT_DEPRECATE_EOF) {
        put_eof(writer, context, 0);
    }
}

/// Appends the answer to COM_STMT_PREPARE.
pub fn put_prepared<W: AsyncWrite + Unpin>(
    writer: &mut PacketWriter<W>,
    context: &Context,
    prepared: &crate::backend::Prepared,
) {
    put(writer, |out| {
        out.put_u8(OK);
        out.put_u32_le(prepared.id);
        out.put_u16_le(prepared.columns.len().min(usize::from(u16::MAX)) as u16);
        out.put_u16_le(prepared.params);
        out.put_u8(0);
        out.put_u16_le(prepared.warnings);
    });
    if prepared.params > 0 {
        for _ in 0..prepared.params {
            put(writer, column::put_parameter);
        }
        end_definitions(writer, context);
    }
    if !prepared.columns.is_empty() {
        put_definitions(writer, context, &prepared.columns);
    }
}

/// Appends the answer to COM_FIELD_LIST: definitions with a default value (never one) and a mark.
pub fn put_field_list<'c, W: AsyncWrite + Unpin>(
    writer: &mut PacketWriter<W>,
    context: &Context,
    columns: impl IntoIterator<Item = &'c ResultColumn>,
) {
    const NULL: u8 = 0xfb;
    for column in columns {
        put(writer, |out| {
            column::put_definition(out, column);
            out.put_u8(NULL);
        });
    }
    put_eof(writer, context, 0);
}

/// Asks the client for a file.
pub fn put_infile_request<W: AsyncWrite + Unpin>(writer: &mut PacketWriter<W>, file: &str) {
    const LOCAL_INFILE: u8 = 0xfb;
    put(writer, |out| {
        out.put_u8(LOCAL_INFILE);
        out.put_slice(file.as_bytes());
    });
}

/// A result that is on its way out.
pub struct Rows {
    /// What the columns are.
    pub columns: Vec<ResultColumn>,
    /// The rows.
    pub batches: BatchStream,
    /// Warnings for the packet behind the rows.
    pub warnings: WarningCount,
    /// Row format.
    pub format: Format,
    /// Session's time zone.
    pub zone: Tz,
}

/// How rows are written: their columns, the session's time zone, the row format.
pub type Form<'a> = (&'a [ResultColumn], Tz, Format);

impl Rows {
    /// How these are written.
    pub fn form(&self) -> Form<'_> {
        (&self.columns, self.zone, self.format)
    }
}

/// Sends a result up to its last row, without the packet that ends it: whoever calls knows the
/// status flags then.
///
/// The outer error means that the client is gone, the inner one that the result broke off. At
/// most one batch and one full buffer are held; a client that does not read stops the stream.
pub async fn send_rows<W: AsyncWrite + Unpin>(
    writer: &mut PacketWriter<W>,
    context: &Context,
    mut rows: Rows,
    cancel: &CancellationToken,
) -> Result<Result<u16, SqlError>, PacketError> {
    // A query that fails before its first batch answers with the error alone.
    let mut described = false;
    loop {
        let batch = tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(Err(error::interrupted())),
            batch = rows.batches.next() => batch,
        };
        let batch = match batch.transpose() {
            Ok(batch) => batch,
            Err(error) => return Ok(Err(error)),
        };
        if !std::mem::replace(&mut described, true) {
            put_description(writer, &rows.columns);
            end_definitions(writer, context);
        }
        let Some(batch) = batch else { return Ok(Ok(rows.warnings.now())) };
        if let Err(error) =
            put_rows(writer, rows.form(), &batch, 0..batch.num_rows(), cancel).await?
        {
            return Ok(Err(error));
        }
    }
}

/// Appends some rows of a batch, handing full buffers over. The outer error means that the client
/// is gone, the inner one that the result broke off.
pub async fn put_rows<W: AsyncWrite + Unpin>(
    writer: &mut PacketWriter<W>,
    (columns, zone, format): Form<'_>,
    batch: &RecordBatch,
    range: Range<usize>,
    cancel: &CancellationToken,
) -> Result<Result<(), SqlError>, PacketError> {
    let readers = match panics::caught(|| cell::readers(batch, columns, zone)) {
        Ok(readers) => readers,
        Err(error) => return Ok(Err(error)),
    };
    for row in range {
        if let Err(error) = put_row(writer, &readers, row, format) {
            return Ok(Err(error));
        }
        if writer.is_full() {
            // A client that does not read must not keep a killed query alive.
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Ok(Err(error::interrupted())),
                flushed = writer.flush_if_full() => flushed?,
            }
        }
    }
    Ok(Ok(()))
}

/// Appends one row.
fn put_row<W: AsyncWrite + Unpin>(
    writer: &mut PacketWriter<W>,
    readers: &[CellReader<'_>],
    row: usize,
    format: Format,
) -> Result<(), SqlError> {
    let fill = |out: &mut BytesMut| match format {
        Format::Binary => binary::put_row(out, readers, row),
        Format::Text => {
            for reader in readers {
                text::put_cell(out, &reader.cell(row)?, reader.fraction());
            }
            Ok(())
        }
    };
    // Within the packet: what a row that fails has written is taken back.
    writer.packet(|out| panics::caught(|| fill(out)))
}
