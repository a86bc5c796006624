//! The start of a connection: greeting, TLS, authentication.
//!
//! Until a client is authenticated it gets little memory and a bounded time. Passwords and
//! answers are never logged; whether a user exists is not revealed.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use mysql_common::constants::{CapabilityFlags, StatusFlags};
use mysql_common::io::ParseBuf;
use mysql_common::packets::{AuthMoreData, AuthSwitchRequest, HandshakePacket};
use mysql_common::proto::MySerialize;
use rand::TryRngCore;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadHalf, WriteHalf};
use values::error::{self, SqlError};

use crate::answer;
use crate::backend::{Backend, ConnectionInfo};
use crate::command::{Malformed, decode_attributes};
use crate::errors;
use crate::packet::{PacketError, PacketReader, PacketWriter};
use crate::password::{AuthPlugin, NONCE_LEN, StoredPassword};

/// How long a client that is refused or shut out has to read why.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Most bytes of a packet from a client that is not authenticated.
const HANDSHAKE_PACKET: usize = 256 * 1024;
/// Method that the greeting announces.
const DEFAULT_PLUGIN: AuthPlugin = AuthPlugin::CachingSha2;
/// caching_sha2_password: the answer was right.
const FAST_AUTH_SUCCESS: u8 = 3;
/// caching_sha2_password: send the password itself.
const PERFORM_FULL_AUTHENTICATION: u8 = 4;
/// caching_sha2_password, client to server: send the RSA key.
const REQUEST_PUBLIC_KEY: &[u8] = &[2];
/// utf8mb4_general_ci, the collation that the greeting names.
const GREETING_COLLATION: u8 = 45;

/// A socket, encrypted or not.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// Reading end of a connection.
pub type Reader = PacketReader<ReadHalf<Box<dyn Socket>>>;
/// Writing end of a connection.
pub type Writer = PacketWriter<WriteHalf<Box<dyn Socket>>>;

/// What the server offers; a client's own flags are cut to these.
pub fn server_capabilities(tls: bool) -> CapabilityFlags {
    let mut flags = CapabilityFlags::CLIENT_LONG_PASSWORD
        | CapabilityFlags::CLIENT_FOUND_ROWS
        | CapabilityFlags::CLIENT_LONG_FLAG
        | CapabilityFlags::CLIENT_CONNECT_WITH_DB
        | CapabilityFlags::CLIENT_ODBC
        | CapabilityFlags::CLIENT_LOCAL_FILES
        | CapabilityFlags::CLIENT_IGNORE_SPACE
        | CapabilityFlags::CLIENT_PROTOCOL_41
        | CapabilityFlags::CLIENT_INTERACTIVE
        | CapabilityFlags::CLIENT_TRANSACTIONS
        | CapabilityFlags::CLIENT_SECURE_CONNECTION
        | CapabilityFlags::CLIENT_MULTI_STATEMENTS
        | CapabilityFlags::CLIENT_MULTI_RESULTS
        | CapabilityFlags::CLIENT_PS_MULTI_RESULTS
        | CapabilityFlags::CLIENT_PLUGIN_AUTH
        | CapabilityFlags::CLIENT_CONNECT_ATTRS
        | CapabilityFlags::CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA
        | CapabilityFlags::CLIENT_SESSION_TRACK
        | CapabilityFlags::CLIENT_DEPRECATE_EOF;
    flags.set(CapabilityFlags::CLIENT_SSL, tls);
    flags
}

/// Why a connection came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The peer cannot be talked to.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The peer gets this error and the connection is closed.
    #[error(transparent)]
    Refused(#[from] SqlError),
}

impl From<Malformed> for Failure {
    fn from(error: Malformed) -> Self {
        Failure::Refused(error::bad_handshake(error.0))
    }
}

/// A random challenge, without the bytes that old clients take for an end.
pub fn new_nonce() -> Result<[u8; NONCE_LEN], SqlError> {
    let mut nonce = [0; NONCE_LEN];
    rand::rngs::OsRng
        .try_fill_bytes(&mut nonce)
        .map_err(|error| error::unknown(format!("no randomness for the handshake: {error}")))?;
    for byte in &mut nonce {
        *byte &= 0x7f;
        if matches!(*byte, 0 | b'$') {
            *byte += 1;
        }
    }
    Ok(nonce)
}

/// What a client says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Capabilities, not yet cut to the server's.
    pub capabilities: CapabilityFlags,
    /// Collation number.
    pub collation: u16,
    /// User.
    pub user: &'a [u8],
    /// Answer to the nonce.
    pub answer: &'a [u8],
    /// Database to begin in.
    pub database: Option<&'a [u8]>,
    /// Name of its authentication method.
    pub plugin: Option<&'a [u8]>,
    /// Connection attributes.
    pub attributes: Vec<(String, String)>,
}

/// First packet of a client: a request for TLS, or its hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First<'a> {
    /// Encrypt first; the hello comes again inside.
    Tls,
    /// Its hello.
    Hello(Hello<'a>),
}

impl<'a> First<'a> {
    /// Decodes HandshakeResponse41 or SSLRequest.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Malformed> {
        const FIXED: Malformed = Malformed("handshake response: fixed part");
        let mut buf = ParseBuf(payload);
        let raw = buf.clone().checked_eat_u32_le().ok_or(FIXED)?;
        let capabilities = CapabilityFlags::from_bits_truncate(raw);
        if !capabilities.contains(CapabilityFlags::CLIENT_PROTOCOL_41) {
            // The old layout has 16 bits of flags; only they matter, to refuse the client.
            let hello = Hello {
                capabilities,
                collation: 0,
                user: &[],
                answer: &[],
                database: None,
                plugin: None,
                attributes: Vec::new(),
            };
            return Ok(First::Hello(hello));
        }
        if !buf.checked_skip(8) {
            return Err(FIXED);
        }
        let collation = u16::from(buf.checked_eat_u8().ok_or(FIXED)?);
        if !buf.checked_skip(23) {
            return Err(FIXED);
        }
        if capabilities.contains(CapabilityFlags::CLIENT_SSL) && buf.is_empty() {
            return Ok(First::Tls);
        }
        let user = buf.eat_null_str();
        let has = |flag| capabilities.contains(flag);
        let answer = if has(CapabilityFlags::CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA) {
            buf.checked_eat_lenenc_str()
        } else if has(CapabilityFlags::CLIENT_SECURE_CONNECTION) {
            buf.checked_eat_u8_str()
        } else {
            Some(buf.eat_null_str())
        };
        let answer = answer.ok_or(Malformed("handshake response: password answer"))?;
        // What follows may be missing: clients stop where they have nothing more to say.
        let database = has(CapabilityFlags::CLIENT_CONNECT_WITH_DB).then(|| buf.eat_null_str());
        let plugin = (has(CapabilityFlags::CLIENT_PLUGIN_AUTH) && !buf.is_empty())
            .then(|| buf.eat_null_str());
        let attributes = match has(CapabilityFlags::CLIENT_CONNECT_ATTRS) {
            true => decode_attributes(&mut buf)?,
            false => Vec::new(),
        };
        let database = database.filter(|name| !name.is_empty());
        Ok(First::Hello(Hello {
            capabilities,
            collation,
            user,
            answer,
            database,
            plugin,
            attributes,
        }))
    }
}

/// What a handshake needs of its surroundings.
pub struct Host<'a> {
    /// Version string of the greeting.
    pub version: &'a str,
    /// Encryption, if offered.
    pub tls: Option<&'a Arc<rustls::ServerConfig>>,
    /// Knows users.
    pub backend: &'a dyn Backend,
    /// Bounds each wait for the peer.
    pub timeout: Duration,
    /// Bounds a wait for the peer to take bytes.
    pub write_timeout: Duration,
}

/// An authenticated connection.
pub struct Accepted {
    /// Reading end.
    pub reader: Reader,
    /// Writing end, at the sequence number of the answer that lets the client in.
    pub writer: Writer,
    /// Capabilities in force.
    pub capabilities: CapabilityFlags,
    /// Who it is.
    pub info: ConnectionInfo,
    /// The nonce in force, for COM_CHANGE_USER.
    pub nonce: [u8; NONCE_LEN],
}

/// Wraps a socket in packets.
pub fn packets(socket: Box<dyn Socket>, write_timeout: Duration) -> (Reader, Writer) {
    let (read, write) = tokio::io::split(socket);
    (PacketReader::new(read, HANDSHAKE_PACKET), PacketWriter::new(write, write_timeout))
}

/// Greets a client, encrypts if it wants to, and authenticates it. A refusal has been sent when
/// this returns. `id` is the connection's number.
pub async fn accept(
    socket: Box<dyn Socket>,
    host: &Host<'_>,
    id: u32,
    peer: IpAddr,
) -> Result<Accepted, Failure> {
    let (mut reader, mut writer) = packets(socket, host.write_timeout);
    let nonce = new_nonce()?;
    writer.put(&greeting(host, id, &nonce));
    writer.flush().await?;
    let mut payload = read_first(&mut reader, &mut writer, host).await?;
    let mut tls = false;
    if matches!(decode_first(&payload, &mut reader, &mut writer).await?, First::Tls) {
        let Some(config) = host.tls else {
            let error = error::bad_handshake("TLS is asked for but not offered");
            return Err(refuse(&mut reader, &mut writer, CapabilityFlags::empty(), error).await);
        };
        (reader, writer) = encrypt(reader, writer, host, config).await?;
        tls = true;
        payload = read_first(&mut reader, &mut writer, host).await?;
    }
    let First::Hello(hello) = decode_first(&payload, &mut reader, &mut writer).await? else {
        return Err(refuse(
            &mut reader,
            &mut writer,
            CapabilityFlags::empty(),
            error::bad_handshake("TLS is asked for again"),
        )
        .await);
    };
    if !hello.capabilities.contains(CapabilityFlags::CLIENT_PROTOCOL_41) {
        return Err(
            refuse(&mut reader, &mut writer, hello.capabilities, error::client_too_old()).await
        );
    }
    let capabilities = hello.capabilities & server_capabilities(host.tls.is_some());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let info = ConnectionInfo {
        id,
        user: text(hello.user),
        host: peer,
        database: hello.database.map(text),
        attributes: hello.attributes.clone(),
        collation: hello.collation,
        found_rows: capabilities.contains(CapabilityFlags::CLIENT_FOUND_ROWS),
        local_files: capabilities.contains(CapabilityFlags::CLIENT_LOCAL_FILES),
        tls,
    };
    let mut accepted = Accepted { reader, writer, capabilities, info, nonce };
    let offer = Offer { answer: hello.answer, plugin: hello.plugin, trusts_nonce: true };
    match authenticate(&mut accepted, host, offer).await {
        Ok(()) => Ok(accepted),
        Err(Failure::Refused(error)) => {
            Err(refuse(&mut accepted.reader, &mut accepted.writer, capabilities, error).await)
        }
        Err(failure) => Err(failure),
    }
}

/// The greeting, HandshakeV10.
fn greeting(host: &Host<'_>, id: u32, nonce: &[u8; NONCE_LEN]) -> Vec<u8> {
    let (first, second) = nonce.split_at(8);
    let mut start = [0; 8];
    start.copy_from_slice(first);
    // The second part ends with a zero byte that its length counts.
    let mut end = second.to_vec();
    end.push(0);
    let packet = HandshakePacket::new(
        10,
        host.version.as_bytes(),
        id,
        start,
        Some(end),
        server_capabilities(host.tls.is_some()),
        GREETING_COLLATION,
        StatusFlags::SERVER_STATUS_AUTOCOMMIT,
        Some(DEFAULT_PLUGIN.name().as_bytes()),
    );
    let mut payload = Vec::new();
    packet.serialize(&mut payload);
    payload
}

/// Reads a packet of the handshake; the answer's number follows the packet's.
async fn read(
    reader: &mut Reader,
    writer: &mut Writer,
    timeout: Duration,
) -> Result<bytes::Bytes, PacketError> {
    reader.decoder().set_sequence(writer.sequence());
    let payload = reader.read(timeout).await;
    writer.set_sequence(reader.decoder().sequence());
    payload
}

async fn read_first(
    reader: &mut Reader,
    writer: &mut Writer,
    host: &Host<'_>,
) -> Result<bytes::Bytes, Failure> {
    match read(reader, writer, host.timeout).await {
        Ok(payload) => Ok(payload),
        Err(error) => match errors::of_packet(&error) {
            Some(answer) => Err(refuse(reader, writer, CapabilityFlags::empty(), answer).await),
            None => Err(error.into()),
        },
    }
}

async fn decode_first<'p>(
    payload: &'p [u8],
    reader: &mut Reader,
    writer: &mut Writer,
) -> Result<First<'p>, Failure> {
    match First::decode(payload) {
        Ok(first) => Ok(first),
        Err(error) => {
            let error = error::bad_handshake(error.0);
            Err(refuse(reader, writer, CapabilityFlags::empty(), error).await)
        }
    }
}

/// Sends the client the error, and closes. Bounded by [`LAST_WORDS`], whether the client listens or not.
pub async fn refuse(
    reader: &mut Reader,
    writer: &mut Writer,
    capabilities: CapabilityFlags,
    error: SqlError,
) -> Failure {
    answer::put_error(writer, capabilities, &error);
    leave(reader, writer, error).await
}

/// Sends what is buffered, within a bound, and closes the connection because of `error`.
pub async fn leave(reader: &mut Reader, writer: &mut Writer, error: SqlError) -> Failure {
    match tokio::time::timeout(LAST_WORDS, writer.close()).await {
        Ok(Ok(())) => reader.drain(LAST_WORDS).await,
        Ok(Err(error)) => return Failure::Packet(error),
        Err(_) => return Failure::Packet(PacketError::TimedOut(LAST_WORDS)),
    }
    Failure::Refused(error)
}

/// Encrypts a connection whose client asked for it; what it has sent since is TLS already.
async fn encrypt(
    reader: Reader,
    writer: Writer,
    host: &Host<'_>,
    config: &Arc<rustls::ServerConfig>,
) -> Result<(Reader, Writer), PacketError> {
    let sequence = writer.sequence();
    let (read, early) = reader.into_parts();
    let read = std::io::Cursor::new(early).chain(read);
    let socket = tokio::io::join(read, writer.into_inner());
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(config));
    let stream = match tokio::time::timeout(host.timeout, acceptor.accept(socket)).await {
        Ok(stream) => stream.map_err(PacketError::Io)?,
        Err(_) => return Err(PacketError::TimedOut(host.timeout)),
    };
    let (reader, mut writer) = packets(Box::new(stream), host.write_timeout);
    writer.set_sequence(sequence);
    Ok((reader, writer))
}

/// What a client offers as proof, in its hello or in COM_CHANGE_USER.
pub struct Offer<'a> {
    /// Answer to the nonce in force.
    pub answer: &'a [u8],
    /// Name of the method that the answer was made by.
    pub plugin: Option<&'a [u8]>,
    /// Whether a wrong answer is final. In COM_CHANGE_USER it is not: clients differ in which
    /// nonce they use there, so a fresh one is sent.
    pub trusts_nonce: bool,
}

/// Checks who the client says it is, with whatever exchange its method needs.
///
/// Unknown users go through the same exchange as known ones.
pub async fn authenticate(
    connection: &mut Accepted,
    host: &Host<'_>,
    offer: Offer<'_>,
) -> Result<(), Failure> {
    let Accepted { info, .. } = connection;
    let stored = host.backend.credentials(&info.user, info.host).await?;
    let (user, address) = (info.user.clone(), info.host.to_string());
    let denied = |with| Failure::Refused(errors::access_denied(&user, &address, with));
    let known = stored.is_some();
    let stored = match stored {
        Some(stored) => stored,
        None => decoy()?,
    };
    let offered = unzeroed(offer.answer);
    let foreign = offer.plugin.filter(|name| AuthPlugin::from_name(name).is_none());
    let plugged = connection.capabilities.contains(CapabilityFlags::CLIENT_PLUGIN_AUTH);
    if stored.is_empty() && offered.is_empty() {
        return match foreign {
            // A client that names a method not ours may wait for one to be named before it takes an OK:
            // libmariadb offers dummy_fallback_auth where it could not load the greeting's. Every
            // client has the native method built in.
            Some(_) if plugged => match switch(connection, host, AuthPlugin::Native).await? {
                answer if answer.is_empty() => Ok(()),
                _ => Err(denied(true)),
            },
            _ => Ok(()),
        };
    }
    let mut method = match offer.plugin {
        Some(name) => AuthPlugin::from_name(name),
        None => Some(AuthPlugin::Native),
    };
    let mut answer = offered.to_vec();
    let verdict = method.and_then(|m| stored.verify_scramble(m, &connection.nonce, &answer));
    // An empty answer may only mean that the client knows another method than the greeting's.
    let conclusive = !answer.is_empty() && (offer.trusts_nonce || verdict == Some(true));
    let needs_switch = method.is_none() || !conclusive;
    if needs_switch {
        if !plugged {
            return Err(denied(!answer.is_empty()));
        }
        let wanted = method.unwrap_or(stored.plugin);
        answer = switch(connection, host, wanted).await?;
        method = Some(wanted);
    }
    let Some(method) = method else { return Err(denied(true)) };
    let with_password = !answer.is_empty();
    match stored.verify_scramble(method, &connection.nonce, &answer) {
        Some(true) if known => welcome(connection, method, with_password),
        Some(_) => Err(denied(with_password)),
        // The method's digest is not stored: the password itself decides, under TLS only;
        // without TLS the other method may do.
        None if connection.info.tls && method == AuthPlugin::CachingSha2 => {
            let password = full_exchange(connection, host).await?;
            match stored.verify_plaintext(&password) && known {
                true => Ok(()),
                false => Err(denied(true)),
            }
        }
        None => by_other_method(connection, host, &stored, method).await,
    }
}

/// Ends an exchange that proved who the client is.
fn welcome(
    connection: &mut Accepted,
    method: AuthPlugin,
    with_password: bool,
) -> Result<(), Failure> {
    if method == AuthPlugin::CachingSha2 && with_password {
        put_more_data(&mut connection.writer, FAST_AUTH_SUCCESS);
    }
    Ok(())
}

/// Tries the method whose digest is stored.
async fn by_other_method(
    connection: &mut Accepted,
    host: &Host<'_>,
    stored: &StoredPassword,
    failed: AuthPlugin,
) -> Result<(), Failure> {
    let (user, address) = (connection.info.user.clone(), connection.info.host.to_string());
    if !connection.capabilities.contains(CapabilityFlags::CLIENT_PLUGIN_AUTH) {
        return Err(error::needs_tls(&user, &address).into());
    }
    let other = match failed {
        AuthPlugin::Native => AuthPlugin::CachingSha2,
        AuthPlugin::CachingSha2 => AuthPlugin::Native,
    };
    let answer = switch(connection, host, other).await?;
    match stored.verify_scramble(other, &connection.nonce, &answer) {
        Some(true) => welcome(connection, other, !answer.is_empty()),
        _ => Err(errors::access_denied(&user, &address, !answer.is_empty()).into()),
    }
}

/// Asks the client to use a method, with a fresh nonce, and returns its answer.
async fn switch(
    connection: &mut Accepted,
    host: &Host<'_>,
    method: AuthPlugin,
) -> Result<Vec<u8>, Failure> {
    connection.nonce = new_nonce()?;
    let mut data = connection.nonce.to_vec();
    data.push(0);
    let mut payload = Vec::new();
    AuthSwitchRequest::new(method.name().as_bytes(), data).serialize(&mut payload);
    connection.writer.put(&payload);
    connection.writer.flush().await?;
    let answer = read(&mut connection.reader, &mut connection.writer, host.timeout).await?;
    Ok(unzeroed(&answer).to_vec())
}

/// The empty password is answered by nothing, or by its terminating zero (Connector/J).
fn unzeroed(answer: &[u8]) -> &[u8] {
    if *answer == [0] { &[] } else { answer }
}

/// Asks for the password itself. Only ever called under TLS.
async fn full_exchange(connection: &mut Accepted, host: &Host<'_>) -> Result<Vec<u8>, Failure> {
    put_more_data(&mut connection.writer, PERFORM_FULL_AUTHENTICATION);
    connection.writer.flush().await?;
    let answer = read(&mut connection.reader, &mut connection.writer, host.timeout).await?;
    if *answer == *REQUEST_PUBLIC_KEY {
        let address = connection.info.host.to_string();
        return Err(error::needs_tls(&connection.info.user, address).into());
    }
    Ok(answer.strip_suffix(&[0]).unwrap_or(&answer).to_vec())
}

fn put_more_data(writer: &mut Writer, code: u8) {
    let mut payload = Vec::new();
    AuthMoreData::new(vec![code]).serialize(&mut payload);
    writer.put(&payload);
}

/// A password that nobody has, for users that do not exist.
fn decoy() -> Result<StoredPassword, SqlError> {
    Ok(StoredPassword::from_plaintext(&new_nonce()?, DEFAULT_PLUGIN))
}
