//! Commands: what the payload of a client's packet asks for.
//!
//! Pure decoding of untrusted bytes: every contradiction is a [`Malformed`], never a panic.

use mysql_common::constants::{CapabilityFlags, Command as Code};
use mysql_common::io::ParseBuf;

/// A packet whose content contradicts itself; names the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed {0}")]
pub struct Malformed(pub &'static str);

/// One command. Texts are raw bytes in the client's character set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Close the connection.
    Quit,
    /// Make a database current.
    InitDb(&'a [u8]),
    /// Run statements.
    Query(&'a [u8]),
    /// List a table's columns, as old clients do to complete names.
    FieldList {
        /// Table.
        table: &'a [u8],
        /// LIKE pattern of column names; empty for all.
        pattern: &'a [u8],
    },
    /// FLUSH of whatever there is.
    Refresh,
    /// One line of statistics.
    Statistics,
    /// SHOW PROCESSLIST.
    ProcessInfo,
    /// KILL.
    ProcessKill(u32),
    /// Are you there?
    Ping,
    /// Log in anew on this connection.
    ChangeUser(ChangeUser<'a>),
    /// Prepare a statement.
    Prepare(&'a [u8]),
    /// Run a prepared statement.
    Execute(Execute<'a>),
    /// A piece of one parameter.
    SendLongData {
        /// Statement.
        id: u32,
        /// Position of the parameter.
        param: u16,
        /// The piece.
        data: &'a [u8],
    },
    /// Forget a prepared statement. Has no answer.
    CloseStatement(u32),
    /// Forget pieces of parameters.
    ResetStatement(u32),
    /// Fetch rows of a cursor.
    Fetch {
        /// Statement.
        id: u32,
        /// How many at most.
        rows: u32,
    },
    /// Allow or forbid several statements in one query.
    SetMultiStatements(bool),
    /// A new session for the same user.
    ResetConnection,
    /// Anything else, by its code.
    Unknown(u8),
}

/// COM_CHANGE_USER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeUser<'a> {
    /// User.
    pub user: &'a [u8],
    /// Answer to the connection's nonce, by the client's method.
    pub answer: &'a [u8],
    /// Database to begin in; empty for none.
    pub database: &'a [u8],
    /// Collation number, if given.
    pub collation: Option<u16>,
    /// Name of the client's method, if given.
    pub plugin: Option<&'a [u8]>,
    /// Connection attributes.
    pub attributes: Vec<(String, String)>,
}

/// Cursor type of COM_STMT_EXECUTE.
const READ_ONLY_CURSOR: u8 = 1;

/// COM_STMT_EXECUTE, its parameters still encoded: their number stands in the prepared statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execute<'a> {
    /// Statement.
    pub id: u32,
    /// Whether a read-only cursor is asked for.
    pub cursor: bool,
    /// Null bitmap, types and values.
    pub params: &'a [u8],
}

impl<'a> Command<'a> {
    /// Decodes one payload. `capabilities` are those in force on the connection.
    pub fn decode(payload: &'a [u8], capabilities: CapabilityFlags) -> Result<Self, Malformed> {
        let Some((&code, rest)) = payload.split_first() else {
            return Err(Malformed("command: empty packet"));
        };
        let mut buf = ParseBuf(rest);
        let id = |buf: &mut ParseBuf<'a>| {
            buf.checked_eat_u32_le().ok_or(Malformed("statement or connection number"))
        };
        Ok(match code {
            c if c == Code::COM_QUIT as u8 => Command::Quit,
            c if c == Code::COM_INIT_DB as u8 => Command::InitDb(rest),
            c if c == Code::COM_QUERY as u8 => Command::Query(rest),
            c if c == Code::COM_FIELD_LIST as u8 => {
                Command::FieldList { table: buf.eat_null_str(), pattern: buf.eat_null_str() }
            }
            c if c == Code::COM_REFRESH as u8 => Command::Refresh,
            c if c == Code::COM_STATISTICS as u8 => Command::Statistics,
            c if c == Code::COM_PROCESS_INFO as u8 => Command::ProcessInfo,
            c if c == Code::COM_PROCESS_KILL as u8 => Command::ProcessKill(id(&mut buf)?),
            c if c == Code::COM_PING as u8 => Command::Ping,
            c if c == Code::COM_CHANGE_USER as u8 => {
                Command::ChangeUser(ChangeUser::decode(&mut buf, capabilities)?)
            }
            c if c == Code::COM_STMT_PREPARE as u8 => Command::Prepare(rest),
            c if c == Code::COM_STMT_EXECUTE as u8 => {
                let id = id(&mut buf)?;
                // Cursor type, and an iteration count that is always 1. A cursor that is asked
                // for to write through is not opened: the server answers with all rows instead.
                let flags = buf.checked_eat_u8().filter(|_| buf.checked_skip(4));
                let flags = flags.ok_or(Malformed("COM_STMT_EXECUTE: flags"))?;
                let cursor = flags & 7 == READ_ONLY_CURSOR;
                Command::Execute(Execute { id, cursor, params: buf.eat_all() })
            }
            c if c == Code::COM_STMT_SEND_LONG_DATA as u8 => Command::SendLongData {
                id: id(&mut buf)?,
                param: buf
                    .checked_eat_u16_le()
                    .ok_or(Malformed("COM_STMT_SEND_LONG_DATA: parameter number"))?,
                data: buf.eat_all(),
            },
            c if c == Code::COM_STMT_CLOSE as u8 => Command::CloseStatement(id(&mut buf)?),
            c if c == Code::COM_STMT_RESET as u8 => Command::ResetStatement(id(&mut buf)?),
            c if c == Code::COM_STMT_FETCH as u8 => Command::Fetch {
                id: id(&mut buf)?,
                rows: buf
                    .checked_eat_u32_le()
                    .ok_or(Malformed("COM_STMT_FETCH: number of rows"))?,
            },
            c if c == Code::COM_SET_OPTION as u8 => match buf.checked_eat_u16_le() {
                Some(0) => Command::SetMultiStatements(true),
                Some(1) => Command::SetMultiStatements(false),
                _ => return Err(Malformed("COM_SET_OPTION: option")),
            },
            c if c == Code::COM_RESET_CONNECTION as u8 => Command::ResetConnection,
            other => Command::Unknown(other),
        })
    }

    /// Name for the process list; never holds what the client sent.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Quit => "Quit",
            Command::InitDb(_) => "Init DB",
            Command::Query(_) => "Query",
            Command::FieldList { .. } => "Field List",
            Command::Refresh => "Refresh",
            Command::Statistics => "Statistics",
            Command::ProcessInfo => "Processlist",
            Command::ProcessKill(_) => "Kill",
            Command::Ping => "Ping",
            Command::ChangeUser(_) => "Change user",
            Command::Prepare(_) => "Prepare",
            Command::Execute(_) => "Execute",
            Command::SendLongData { .. } => "Long Data",
            Command::CloseStatement(_) => "Close stmt",
            Command::ResetStatement(_) => "Reset stmt",
            Command::Fetch { .. } => "Fetch",
            Command::SetMultiStatements(_) => "Set option",
            Command::ResetConnection => "Reset Connection",
            Command::Unknown(_) => "Error",
        }
    }
}

impl<'a> ChangeUser<'a> {
    fn decode(buf: &mut ParseBuf<'a>, capabilities: CapabilityFlags) -> Result<Self, Malformed> {
        let user = buf.eat_null_str();
        let answer =
            buf.checked_eat_u8_str().ok_or(Malformed("COM_CHANGE_USER: password answer"))?;
        let database = buf.eat_null_str();
        // What follows may be missing: clients stop where they have nothing more to say.
        let collation = buf.checked_eat_u16_le();
        let named = capabilities.contains(CapabilityFlags::CLIENT_PLUGIN_AUTH) && !buf.is_empty();
        let plugin = named.then(|| buf.eat_null_str());
        let attributes = match capabilities.contains(CapabilityFlags::CLIENT_CONNECT_ATTRS) {
            true => decode_attributes(buf)?,
            false => Vec::new(),
        };
        Ok(ChangeUser { user, answer, database, collation, plugin, attributes })
    }
}

/// Connection attributes: the length of all, then keys and values in turn. Absent is empty.
pub fn decode_attributes(buf: &mut ParseBuf<'_>) -> Result<Vec<(String, String)>, Malformed> {
    const WHAT: Malformed = Malformed("connection attributes");
    if buf.is_empty() {
        return Ok(Vec::new());
    }
    let length = buf.checked_eat_lenenc_int().ok_or(WHAT)?;
    let length = usize::try_from(length).map_err(|_| WHAT)?;
    let mut pairs = buf.checked_eat_buf(length).ok_or(WHAT)?;
    let mut attributes = Vec::new();
    while !pairs.is_empty() {
        let key = pairs.checked_eat_lenenc_str().ok_or(WHAT)?;
        let value = pairs.checked_eat_lenenc_str().ok_or(WHAT)?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        attributes.push((text(key), text(value)));
    }
    Ok(attributes)
}
