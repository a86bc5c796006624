//! One connection after its handshake: reads commands, has the session run them, answers.
//!
//! Commands run one at a time, in order. While one runs, the socket is watched: a client that
//! goes away, or is killed, cancels it.

mod prepared;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::timezone::Tz;
use bytes::Bytes;
use execution::reply::{Done, Reply};
use mysql_common::constants::CapabilityFlags;
use tokio_util::sync::CancellationToken;
use values::error::{self, SqlError};

use crate::answer::{self, Context, Format, Rows};
use crate::backend::{Backend, Session};
use crate::command::{ChangeUser, Command};
use crate::connections::{Connections, Registration};
use crate::cursor::Cursors;
use crate::handshake::{self, Accepted, Failure, Host, Offer, Reader, Socket};
use crate::options::Options;
use crate::packet::PacketError;
use crate::pattern::like;
use crate::prepared::Statements;
use crate::{errors, infile, statements};

/// Bytes of further commands that are taken in while one runs, to notice that the client is gone.
const READ_AHEAD: usize = 64 * 1024;
/// How long a cancelled command gets to end before it is dropped.
const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// What all connections of a server share.
pub struct Shared {
    /// Settings.
    pub options: Options,
    /// The engine.
    pub backend: Arc<dyn Backend>,
    /// All connections.
    pub connections: Arc<Connections>,
    /// Version string of the greeting.
    pub version: String,
    /// Cancelled when the server begins to go down.
    pub draining: CancellationToken,
}

impl Shared {
    fn host(&self) -> Host<'_> {
        Host {
            version: &self.version,
            tls: self.options.tls.as_ref(),
            backend: self.backend.as_ref(),
            timeout: self.options.handshake_timeout,
            write_timeout: self.options.stall_timeout,
        }
    }
}

/// Why a connection ends.
enum End {
    /// The client said so, or is simply gone.
    Quit,
    /// The client gets this error first.
    Error(SqlError),
    /// The client gets the answer that waits for it, and nothing after it.
    Answered,
    /// The socket failed.
    Broken(PacketError),
}

impl From<PacketError> for End {
    fn from(error: PacketError) -> Self {
        match errors::of_packet(&error) {
            Some(error) => End::Error(error),
            None if matches!(error, PacketError::Closed) => End::Quit,
            None => End::Broken(error),
        }
    }
}

struct Connection {
    accepted: Accepted,
    session: Box<dyn Session>,
    statements: Statements,
    cursors: Cursors,
    multi_statements: bool,
    /// Database as of the last answer, to report changes to the client.
    known_database: Option<String>,
    registration: Registration,
    shared: Arc<Shared>,
}

/// Serves a connection from its greeting to its end.
pub async fn serve(
    socket: Box<dyn Socket>,
    peer: IpAddr,
    registration: Registration,
    shared: Arc<Shared>,
) -> Result<(), Failure> {
    let host = shared.host();
    let mut accepted = tokio::select! {
        biased;
        () = shared.draining.cancelled() => return Err(error::shutting_down().into()),
        () = registration.closing.cancelled() => return Err(error::interrupted().into()),
        accepted = handshake::accept(socket, &host, registration.id, peer) => accepted?,
    };
    let session = match shared.backend.open_session(accepted.info.clone()).await {
        Ok(session) => session,
        Err(error) => {
            let Accepted { reader, writer, capabilities, .. } = &mut accepted;
            return Err(handshake::refuse(reader, writer, *capabilities, error).await);
        }
    };
    registration.set_user(&accepted.info.user);
    let limit = shared.options.max_allowed_packet;
    accepted.reader.decoder().set_limit(limit);
    let mut connection = Connection {
        multi_statements: accepted.capabilities.contains(CapabilityFlags::CLIENT_MULTI_STATEMENTS),
        accepted,
        session,
        statements: Statements::new(limit),
        cursors: Cursors::default(),
        known_database: None,
        registration,
        shared: Arc::clone(&shared),
    };
    let end = connection.run().await;
    // The session first: its locks should not wait until a client has read that it is shut out.
    connection.close_session().await;
    connection.say_goodbye(end).await
}

impl Connection {
    async fn run(&mut self) -> End {
        self.put_ok(&Done::default());
        loop {
            self.registration.end();
            self.registration.set_database(self.session.database());
            if let Err(end) = self.next_command().await {
                return end;
            }
        }
    }

    /// Sends the last answer, and answers one more command.
    async fn next_command(&mut self) -> Result<(), End> {
        self.flush().await?;
        let payload = self.next_payload().await?;
        self.answer(&payload).await
    }

    /// Sends what is buffered. If the connection was killed, that is the last of it: an error on top
    /// of an answer would be out of order.
    async fn flush(&mut self) -> Result<(), End> {
        tokio::select! {
            biased;
            () = self.registration.closing.cancelled() => Err(End::Answered),
            flushed = self.accepted.writer.flush() => Ok(flushed?),
        }
    }

    async fn close_session(&mut self) {
        // What they read from should not outlive the session.
        self.cursors.clear();
        if tokio::time::timeout(CANCEL_GRACE, self.session.close()).await.is_err() {
            tracing::warn!(id = self.registration.id, "a session did not close and was dropped");
        }
    }

    /// Sends what there is still to say.
    async fn say_goodbye(&mut self, end: End) -> Result<(), Failure> {
        let Accepted { reader, writer, capabilities, .. } = &mut self.accepted;
        match end {
            End::Quit => Ok(()),
            End::Broken(error) => Err(error.into()),
            End::Answered => Err(handshake::leave(reader, writer, error::interrupted()).await),
            End::Error(error) => Err(handshake::refuse(reader, writer, *capabilities, error).await),
        }
    }

    /// Waits for the next command.
    async fn next_payload(&mut self) -> Result<Bytes, End> {
        let options = &self.shared.options;
        let Accepted { reader, writer, .. } = &mut self.accepted;
        reader.decoder().set_sequence(0);
        writer.set_sequence(0);
        let first = tokio::select! {
            biased;
            () = self.registration.closing.cancelled() => return Err(End::Error(error::interrupted())),
            () = self.shared.draining.cancelled() => return Err(End::Error(error::shutting_down())),
            first = tokio::time::timeout(options.idle_timeout, reader.wait_for_input()) => first,
        };
        match first {
            Err(_) => return Err(End::Error(error::idle())),
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Err(End::Quit),
            Ok(Err(error)) => return Err(error.into()),
        }
        let payload = reader.read(options.stall_timeout).await;
        writer.set_sequence(reader.decoder().sequence());
        Ok(payload?)
    }

    async fn answer(&mut self, payload: &Bytes) -> Result<(), End> {
        let command = match Command::decode(payload, self.accepted.capabilities) {
            Ok(command) => command,
            Err(error) => return Err(End::Error(error::malformed(error.0))),
        };
        let statement = match &command {
            Command::Query(text) => Some(payload.slice_ref(text)),
            Command::Execute(execute) => self.statements.text(execute.id),
            _ => None,
        };
        let cancel = self.registration.begin(command.name(), statement);
        match command {
            Command::Quit => return Err(End::Quit),
            Command::Ping => self.put_ok(&Done::default()),
            Command::Query(text) => self.query(text, &cancel).await?,
            Command::ProcessInfo => self.query(b"SHOW PROCESSLIST", &cancel).await?,
            Command::Refresh => self.query(b"FLUSH TABLES", &cancel).await?,
            Command::ProcessKill(id) => {
                self.query(format!("KILL {id}").as_bytes(), &cancel).await?;
            }
            Command::FieldList { table, pattern } => {
                self.field_list(table, pattern, &cancel).await?;
            }
            Command::InitDb(name) => self.init_db(name).await,
            Command::Statistics => self.statistics(),
            Command::SetMultiStatements(on) => {
                self.multi_statements = on;
                let context = self.context(false);
                answer::put_eof(&mut self.accepted.writer, &context, 0);
            }
            Command::Prepare(text) => self.prepare(text).await,
            Command::Execute(execute) => self.execute(execute, &cancel).await?,
            Command::SendLongData { id, param, data } => {
                self.statements.add_long_data(id, param, data);
            }
            Command::CloseStatement(id) => {
                _ = self.cursors.take(id);
                if self.statements.remove(id) {
                    self.session.close_prepared(id).await;
                }
            }
            Command::ResetStatement(id) => {
                _ = self.cursors.take(id);
                match self.statements.reset(id) {
                    Some(()) => self.put_ok(&Done::default()),
                    None => self.put_error(&error::no_prepared(id, "mysqld_stmt_reset")),
                }
            }
            Command::Fetch { id, rows } => self.fetch(id, rows, &cancel).await?,
            Command::ResetConnection => self.reset().await?,
            Command::ChangeUser(offer) => self.change_user(offer).await?,
            Command::Unknown(code) => {
                self.put_error(&error::unknown_command(format_args!("0x{code:02x}")))
            }
        }
        Ok(())
    }

    /// What the next answer depends on; notes that the client has learnt of all changes.
    fn context(&mut self, more: bool) -> Context {
        let database = self.session.database();
        let changed = database != self.known_database;
        if changed {
            self.known_database.clone_from(&database);
        }
        let changes = self.session.take_changes();
        Context {
            capabilities: self.accepted.capabilities,
            status: answer::status_flags(self.session.status(), more),
            new_database: database.filter(|_| changed && changes.tracks_schema),
            state_changed: changes.tracks_state && (changed || changes.any),
            new_variables: changes.variables,
        }
    }

    fn put_ok(&mut self, done: &Done) {
        let context = self.context(false);
        answer::put_ok(&mut self.accepted.writer, &context, done);
    }

    fn put_error(&mut self, error: &SqlError) {
        answer::put_error(&mut self.accepted.writer, self.accepted.capabilities, error);
    }

    fn put_result(&mut self, result: Result<(), SqlError>) {
        match result {
            Ok(()) => self.put_ok(&Done::default()),
            Err(error) => self.put_error(&error),
        }
    }

    /// COM_QUERY: one statement, or several where the client allows it. The first error ends it.
    async fn query(&mut self, text: &[u8], cancel: &CancellationToken) -> Result<(), End> {
        let escapes = !self.session.status().no_backslash_escapes;
        let mut pieces = statements::split(text, escapes);
        if pieces.len() > 1 && !self.multi_statements {
            self.put_error(&error::multi_statements_off());
            return Ok(());
        }
        if pieces.is_empty() {
            // The engine knows best what to say to nothing, or to comments alone.
            pieces.push(text.strip_suffix(b"\0").unwrap_or(text));
        }
        let last = pieces.len() - 1;
        for (position, sql) in pieces.into_iter().enumerate() {
            let Accepted { reader, .. } = &mut self.accepted;
            let work = self.session.execute(sql, cancel);
            let reply = attend(reader, &self.registration, cancel, work).await?;
            self.end_cursors();
            if !self.reply(reply, Format::Text, position < last, cancel).await? {
                break;
            }
            if position < last {
                // The client need not wait for the next statement to see this one's result.
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Sends one reply; whether the next statement may run.
    async fn reply(
        &mut self,
        mut reply: Result<Reply, SqlError>,
        format: Format,
        more: bool,
        cancel: &CancellationToken,
    ) -> Result<bool, End> {
        if let Ok(Reply::LocalInfile { file }) = reply {
            reply = self.local_infile(&file, cancel).await?;
        }
        match reply {
            Ok(Reply::Done(done)) => {
                let context = self.context(more);
                answer::put_ok(&mut self.accepted.writer, &context, &done);
                Ok(true)
            }
            Ok(Reply::Rows { columns, batches, warnings }) => {
                let zone = self.session.time_zone();
                let Ok(zone) = zone.parse::<Tz>() else {
                    self.put_error(&error::unknown(format!("unknown time zone '{zone}'")));
                    return Ok(false);
                };
                let rows = Rows { columns, batches, warnings, format, zone };
                self.rows(rows, more, cancel).await
            }
            Ok(Reply::LocalInfile { .. }) => {
                self.put_error(&error::unknown("a file was asked for twice"));
                Ok(false)
            }
            Err(error) => {
                self.put_error(&error);
                Ok(false)
            }
        }
    }

    async fn rows(
        &mut self,
        rows: Rows,
        more: bool,
        cancel: &CancellationToken,
    ) -> Result<bool, End> {
        let context = self.context(more);
        let Accepted { reader, writer, .. } = &mut self.accepted;
        let work = answer::send_rows(writer, &context, rows, cancel);
        match attend(reader, &self.registration, cancel, work).await?? {
            Ok(warnings) => {
                // The transaction may have ended with the last row.
                let context = self.context(more);
                answer::put_eof(&mut self.accepted.writer, &context, warnings);
                Ok(true)
            }
            Err(error) => {
                self.put_error(&error);
                Ok(false)
            }
        }
    }

    async fn local_infile(
        &mut self,
        file: &str,
        cancel: &CancellationToken,
    ) -> Result<Result<Reply, SqlError>, End> {
        if !self.accepted.info.local_files {
            return Ok(Err(error::local_infile_off()));
        }
        answer::put_infile_request(&mut self.accepted.writer, file);
        self.flush().await?;
        let Accepted { reader, writer, .. } = &mut self.accepted;
        reader.decoder().set_sequence(writer.sequence());
        let timeout = self.shared.options.stall_timeout;
        let reply = infile::load(
            reader,
            self.session.as_mut(),
            &self.registration.closing,
            cancel,
            timeout,
        );
        let reply = reply.await?;
        writer.set_sequence(reader.decoder().sequence());
        Ok(reply)
    }

    /// COM_FIELD_LIST: an empty SELECT gives the columns.
    async fn field_list(
        &mut self,
        table: &[u8],
        pattern: &[u8],
        cancel: &CancellationToken,
    ) -> Result<(), End> {
        let mut sql = b"SELECT * FROM `".to_vec();
        for byte in table {
            sql.push(*byte);
            if *byte == b'`' {
                sql.push(b'`');
            }
        }
        sql.extend_from_slice(b"` LIMIT 0");
        let work = self.session.execute(&sql, cancel);
        let reply = attend(&mut self.accepted.reader, &self.registration, cancel, work).await?;
        match reply {
            Ok(Reply::Rows { columns, .. }) => {
                let context = self.context(false);
                let named = columns.iter().filter(|column| like(column.name.as_bytes(), pattern));
                answer::put_field_list(&mut self.accepted.writer, &context, named);
            }
            Ok(_) => self.put_error(&error::unknown("a SELECT answered without rows")),
            Err(error) => self.put_error(&error),
        }
        Ok(())
    }

    async fn init_db(&mut self, name: &[u8]) {
        let result = match std::str::from_utf8(name) {
            Ok(name) => self.session.use_database(name).await,
            Err(_) => Err(error::wrong_utf8_in("a database's name")),
        };
        self.put_result(result);
    }

    fn statistics(&mut self) {
        let connections = &self.shared.connections;
        let text = format!(
            "Uptime: {}  Threads: {}  Questions: {}",
            connections.uptime().as_secs(),
            connections.count(),
            connections.statements(),
        );
        self.accepted.writer.put(text.as_bytes());
    }

    /// COM_RESET_CONNECTION: a new session for the same user, in the same database.
    async fn reset(&mut self) -> Result<(), End> {
        self.accepted.info.database = self.session.database();
        self.reopen().await
    }

    async fn reopen(&mut self) -> Result<(), End> {
        self.close_session().await;
        self.statements.clear();
        let info = self.accepted.info.clone();
        match self.shared.backend.open_session(info).await {
            Ok(session) => {
                self.session = session;
                self.put_ok(&Done::default());
                Ok(())
            }
            Err(error) => Err(End::Error(error)),
        }
    }

    /// COM_CHANGE_USER. A failure ends the connection: nobody is logged in then.
    async fn change_user(&mut self, offer: ChangeUser<'_>) -> Result<(), End> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let info = &mut self.accepted.info;
        info.user = text(offer.user);
        info.database = Some(text(offer.database)).filter(|name| !name.is_empty());
        info.attributes = offer.attributes;
        info.collation = offer.collation.unwrap_or(info.collation);
        let host = self.shared.host();
        let offer = Offer { answer: offer.answer, plugin: offer.plugin, trusts_nonce: false };
        match handshake::authenticate(&mut self.accepted, &host, offer).await {
            Ok(()) => {}
            Err(Failure::Refused(error)) => return Err(End::Error(error)),
            Err(Failure::Packet(error)) => return Err(error.into()),
        }
        self.registration.set_user(&self.accepted.info.user);
        self.reopen().await
    }
}

/// Runs work to its end. If the client goes away or its connection is killed meanwhile, the work
/// is cancelled, given a bounded time to end, and the connection ends.
async fn attend<T>(
    reader: &mut Reader,
    registration: &Registration,
    cancel: &CancellationToken,
    work: impl Future<Output = T>,
) -> Result<T, End> {
    tokio::pin!(work);
    let end = tokio::select! {
        biased;
        value = &mut work => return Ok(value),
        () = registration.closing.cancelled() => End::Error(error::interrupted()),
        () = reader.wait_closed(READ_AHEAD) => End::Quit,
    };
    cancel.cancel();
    if tokio::time::timeout(CANCEL_GRACE, work).await.is_err() {
        tracing::warn!(id = registration.id, "a cancelled command did not end and was dropped");
    }
    Err(end)
}
