//! Errors of the Flight server and of distributed plans: a code that programs test, and a text for people.
//!
//! The code travels inside the text (`ISOBAR-CODE: …`), which DataFusion and foreign clients keep. Between nodes it
//! also travels as gRPC metadata, and so do the number and SQLSTATE of an error that has them in MySQL: a node reads
//! the text only where they are missing, and where an error came through a library that keeps nothing else.

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::{Code, Status};
use types::Error;
use values::error::{
    self, NO_COLUMN, NO_DATABASE, NO_TABLE, OUT_OF_MEMORY, SqlError, TABLE_CHANGED, UNAVAILABLE,
    UNKNOWN_TABLES, UNSUPPORTED,
};

const MARK: &str = "ISOBAR-";
/// Keys of gRPC metadata: the code's name, MySQL's number in digits, and the SQLSTATE.
const CODE_KEY: &str = "isobar-code";
const NUMBER_KEY: &str = "isobar-error";
const STATE_KEY: &str = "isobar-sqlstate";
/// What tonic and hyper say of connections that cannot be made or break, and workers of a coordinator
/// that is gone before they have its plan.
const BROKEN: [&str; 6] = [
    "transport error",
    ABANDONED,
    "tcp connect",
    "http2 error",
    "h2 protocol error",
    "waiting for the plan to be set by the coordinator",
];

/// What hyper says of a request whose connection broke before it was sent. No owner cancelled it: one who does is named
/// by a code.
const ABANDONED: &str = "operation was canceled";

/// A stable name for what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MppCode {
    /// The snapshot is older than what is kept.
    SnapshotTooOld,
    /// The lease ran out.
    LeaseLost,
    /// A ticket or token was not issued by this cluster.
    TicketForged,
    /// The ticket's time is over.
    TicketExpired,
    /// The table was dropped, recreated or altered since the ticket was issued.
    TableChanged,
    /// A named thing does not exist.
    NotFound,
    /// The request cannot be right.
    Invalid,
    /// A region moved or was split while the query ran: plan again.
    StaleRegion,
    /// A node is down or not ready.
    Unavailable,
    /// A bounded wait ran out.
    Timeout,
    /// Stored bytes contradict their checksum.
    Corrupt,
    /// Its owner cancelled it.
    Cancelled,
    /// Not supported.
    Unsupported,
    /// Wrong user or password.
    Unauthenticated,
    /// The user may not do this.
    Denied,
}

impl MppCode {
    const ALL: [MppCode; 15] = [
        MppCode::SnapshotTooOld,
        MppCode::LeaseLost,
        MppCode::TicketForged,
        MppCode::TicketExpired,
        MppCode::TableChanged,
        MppCode::NotFound,
        MppCode::Invalid,
        MppCode::StaleRegion,
        MppCode::Unavailable,
        MppCode::Timeout,
        MppCode::Corrupt,
        MppCode::Cancelled,
        MppCode::Unsupported,
        MppCode::Unauthenticated,
        MppCode::Denied,
    ];

    /// Name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            MppCode::SnapshotTooOld => "SNAPSHOT_TOO_OLD",
            MppCode::LeaseLost => "LEASE_LOST",
            MppCode::TicketForged => "TICKET_FORGED",
            MppCode::TicketExpired => "TICKET_EXPIRED",
            MppCode::TableChanged => "TABLE_CHANGED",
            MppCode::NotFound => "NOT_FOUND",
            MppCode::Invalid => "INVALID",
            MppCode::StaleRegion => "STALE_REGION",
            MppCode::Unavailable => "UNAVAILABLE",
            MppCode::Timeout => "TIMEOUT",
            MppCode::Corrupt => "CORRUPT",
            MppCode::Cancelled => "CANCELLED",
            MppCode::Unsupported => "UNSUPPORTED",
            MppCode::Unauthenticated => "UNAUTHENTICATED",
            MppCode::Denied => "DENIED",
        }
    }

    /// Whether planning the query anew, with fresh routes, may succeed.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            MppCode::StaleRegion | MppCode::Unavailable | MppCode::Corrupt | MppCode::Timeout
        )
    }

    fn status(self) -> Code {
        match self {
            MppCode::TicketForged | MppCode::Denied => Code::PermissionDenied,
            MppCode::SnapshotTooOld
            | MppCode::LeaseLost
            | MppCode::TicketExpired
            | MppCode::TableChanged => Code::FailedPrecondition,
            MppCode::NotFound => Code::NotFound,
            MppCode::Invalid => Code::InvalidArgument,
            MppCode::StaleRegion | MppCode::Unavailable => Code::Unavailable,
            MppCode::Timeout => Code::DeadlineExceeded,
            MppCode::Corrupt => Code::DataLoss,
            MppCode::Cancelled => Code::Cancelled,
            MppCode::Unsupported => Code::Unimplemented,
            MppCode::Unauthenticated => Code::Unauthenticated,
        }
    }
}

/// An error of the Flight server or of a distributed plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MppError {
    /// For programs.
    pub code: MppCode,
    /// For people: object, cause, next step.
    pub text: String,
    /// MySQL's number and SQLSTATE, if it has them: then the text begins with both.
    pub(crate) numbered: Option<(u16, [u8; 5])>,
}

/// A result with such an error.
pub type MppResult<T> = Result<T, MppError>;

impl MppError {
    /// An error of a code.
    pub fn new(code: MppCode, text: impl Into<String>) -> Self {
        MppError { code, text: text.into(), numbered: None }
    }

    /// An error of a code that has a number in MySQL.
    pub fn numbered(code: MppCode, error: &SqlError) -> Self {
        let numbered = Some((error.code, error.sqlstate));
        MppError { code, text: error.to_string(), numbered }
    }

    /// The error in MySQL's shape, if it has a number there.
    pub fn sql(&self) -> Option<SqlError> {
        let Some((number, state)) = self.numbered else {
            // Of a node that sends words alone.
            return error::of_words(&self.text);
        };
        let received = |message: &str| SqlError::received(number, state, message);
        let prefix = received("").to_string();
        Some(received(self.text.strip_prefix(&prefix).unwrap_or(&self.text)))
    }

    /// Finds a coded error within a text that passed through other layers.
    pub fn find(text: &str) -> Option<Self> {
        let at = text.find(MARK)?;
        let (name, rest) = text[at + MARK.len()..].split_once(": ")?;
        let code = MppCode::ALL.into_iter().find(|code| code.name() == name)?;
        let mut found = MppError::new(code, rest);
        if found.text.starts_with("ERROR ") {
            found.numbered = found.sql().map(|error| (error.code, error.sqlstate));
        }
        Some(found)
    }

    /// The error that a status of another node carries as metadata.
    fn carried(status: &Status) -> Option<Self> {
        let read = |key| status.metadata().get(key)?.to_str().ok();
        let name = read(CODE_KEY)?;
        let code = MppCode::ALL.into_iter().find(|code| code.name() == name)?;
        let text = status.message();
        let marked = text.strip_prefix(MARK).and_then(|rest| rest.strip_prefix(name));
        let text = marked.and_then(|rest| rest.strip_prefix(": ")).unwrap_or(text);
        let state = |text: &str| <[u8; 5]>::try_from(text.as_bytes()).ok();
        let number = read(NUMBER_KEY).and_then(|digits| digits.parse().ok());
        let numbered = number.zip(read(STATE_KEY).and_then(state));
        Some(MppError { code, text: text.to_owned(), numbered })
    }
}

impl std::fmt::Display for MppError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{MARK}{}: {}", self.code.name(), self.text)
    }
}

impl std::error::Error for MppError {}

impl From<Error> for MppError {
    fn from(error: Error) -> Self {
        let code = match &error {
            // Under its own number to whoever asked, and for no other try.
            Error::Throttled(_) => {
                return MppError::numbered(MppCode::Cancelled, &SqlError::from(error));
            }
            Error::SnapshotTooOld { .. } => MppCode::SnapshotTooOld,
            Error::LeaseLost(_) => MppCode::LeaseLost,
            Error::StaleEpoch { .. } | Error::RegionNotFound(_) => MppCode::StaleRegion,
            Error::SchemaChanged { .. } => MppCode::TableChanged,
            Error::NotFound { .. } => MppCode::NotFound,
            Error::Invalid(_) | Error::Exists { .. } | Error::Duplicate { .. } => MppCode::Invalid,
            Error::Timeout { .. } => MppCode::Timeout,
            Error::Corrupt(_) => MppCode::Corrupt,
            // Not for another try.
            Error::Cancelled(_) | Error::OutcomeUnknown { .. } => MppCode::Cancelled,
            Error::Revoked(_) => MppCode::Unavailable,
            Error::NotLeader { .. }
            | Error::Conflict { .. }
            | Error::Locked(_)
            | Error::RolledBack(_)
            | Error::Deadlock(_)
            | Error::Held { .. }
            | Error::LockWait { .. }
            | Error::LockBusy(_)
            | Error::Unavailable(_)
            | Error::Dropped(_)
            | Error::Io(_) => MppCode::Unavailable,
        };
        MppError::new(code, error.to_string())
    }
}

/// The one place where an error of the libraries below becomes one of a client's: their texts go to the node's log alone.
impl From<DataFusionError> for MppError {
    fn from(error: DataFusionError) -> Self {
        let text = error.to_string();
        if let Some(coded) = MppError::find(&text) {
            return coded;
        }
        let root = error.find_root();
        if let DataFusionError::ExecutionJoin(task) = root
            && task.is_panic()
        {
            return refused(&error::fault());
        }
        if let DataFusionError::External(cause) = root
            && let Some(status) = cause.downcast_ref::<Status>()
        {
            return status.clone().into();
        }
        // A worker that cannot be reached is reported by gRPC in words only.
        if BROKEN.iter().any(|words| text.contains(words)) {
            tracing::warn!(cause = text, "a worker's answer broke off");
            let text =
                "a columnar node that the query runs on cannot be reached: run the query again";
            return MppError::new(MppCode::Unavailable, text);
        }
        refused(&SqlError::from(error))
    }
}

impl From<ArrowError> for MppError {
    fn from(error: ArrowError) -> Self {
        DataFusionError::from(error).into()
    }
}

/// An error that has a number in MySQL.
pub(crate) fn refused(error: &SqlError) -> MppError {
    let code = match error.code {
        NO_DATABASE | UNKNOWN_TABLES | NO_COLUMN | NO_TABLE => MppCode::NotFound,
        UNSUPPORTED => MppCode::Unsupported,
        TABLE_CHANGED => MppCode::TableChanged,
        OUT_OF_MEMORY | UNAVAILABLE => MppCode::Unavailable,
        _ => MppCode::Invalid,
    };
    MppError::numbered(code, error)
}

impl From<MppError> for DataFusionError {
    fn from(error: MppError) -> Self {
        DataFusionError::Execution(error.to_string())
    }
}

impl From<MppError> for Status {
    fn from(error: MppError) -> Self {
        let mut metadata = MetadataMap::new();
        metadata.insert(CODE_KEY, MetadataValue::from_static(error.code.name()));
        if let Some((number, state)) = error.numbered
            && let Ok(state) = MetadataValue::<Ascii>::try_from(&state[..])
        {
            metadata.insert(NUMBER_KEY, number.into());
            metadata.insert(STATE_KEY, state);
        }
        Status::with_metadata(error.code.status(), error.to_string(), metadata)
    }
}

impl From<Status> for MppError {
    fn from(status: Status) -> Self {
        MppError::carried(&status).or_else(|| MppError::find(status.message())).unwrap_or_else(
            || {
                let code = match status.code() {
                    Code::Unauthenticated => MppCode::Unauthenticated,
                    Code::DeadlineExceeded => MppCode::Timeout,
                    Code::Cancelled => {
                        let text = format!("the connection to a node broke ({})", status.message());
                        return MppError::new(MppCode::Unavailable, text);
                    }
                    _ => MppCode::Unavailable,
                };
                MppError::new(code, status.message())
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(error: &MppError) -> MppError {
        let mut headers = tonic::codegen::http::HeaderMap::new();
        Status::from(error.clone()).add_header(&mut headers).unwrap();
        Status::from_header_map(&headers).unwrap().into()
    }

    #[test]
    fn a_number_and_a_state_arrive_whatever_the_message_says() {
        let message = "ERROR 1 (HY000): ISOBAR-TIMEOUT: Größe 'a'";
        let error = SqlError::received(1690, *b"22003", message);
        let ours = refused(&error);
        assert_eq!(sent(&ours), ours);
        assert_eq!(sent(&ours).sql(), Some(error));
        let plain = MppError::new(MppCode::StaleRegion, "plan again");
        assert_eq!(sent(&plain), plain);
    }

    #[test]
    fn a_node_that_sends_words_alone_is_understood() {
        let error = error::no_table("d", "t");
        let words = Status::new(Code::NotFound, refused(&error).to_string());
        let read = MppError::from(words);
        assert_eq!((read.code, read.sql()), (MppCode::NotFound, Some(error)));
        let words = Status::new(Code::Unavailable, "connection refused");
        assert_eq!(MppError::from(words).code, MppCode::Unavailable);
    }

    #[test]
    fn a_request_that_a_broken_connection_abandoned_is_not_cancelled_by_its_owner() {
        let theirs = MppError::from(Error::Cancelled("the query was killed".to_owned()));
        assert_eq!(sent(&theirs).code, MppCode::Cancelled);
        let status = Status::cancelled(ABANDONED);
        assert_eq!(MppError::from(status.clone()).code, MppCode::Unavailable);
        let words = DataFusionError::Execution(status.to_string());
        assert_eq!(MppError::from(words).code, MppCode::Unavailable);
    }

    #[test]
    fn a_number_survives_a_library_that_keeps_words() {
        let error = error::out_of_range("BIGINT", "a");
        let through = DataFusionError::from(refused(&error)).context("task 3");
        let found = MppError::from(through);
        assert_eq!(sent(&found).sql(), Some(error));
    }
}
