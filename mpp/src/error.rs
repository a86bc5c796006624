//! Errors of the Flight server and of distributed plans: a code that programs test, and a text for people.
//!
//! The code travels inside the text (`ISOBAR-CODE: …`), because DataFusion and gRPC both keep
//! texts and lose types.

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use tonic::{Code, Status};
use types::Error;
use values::error::{
    NO_COLUMN, NO_DATABASE, NO_TABLE, OUT_OF_MEMORY, SqlError, TABLE_CHANGED, UNAVAILABLE,
    UNKNOWN_TABLES, UNSUPPORTED,
};

const MARK: &str = "ISOBAR-";
/// What tonic and hyper say of connections that cannot be made or break, and workers of a coordinator
/// that is gone before they have its plan.
const BROKEN: [&str; 5] = [
    "transport error",
    "tcp connect",
    "http2 error",
    "h2 protocol error",
    "waiting for the plan to be set by the coordinator",
];

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
}

/// A result with such an error.
pub type MppResult<T> = Result<T, MppError>;

impl MppError {
    /// An error of a code.
    pub fn new(code: MppCode, text: impl Into<String>) -> Self {
        MppError { code, text: text.into() }
    }

    /// Finds a coded error within a text that passed through other layers.
    pub fn find(text: &str) -> Option<Self> {
        let at = text.find(MARK)?;
        let (name, rest) = text[at + MARK.len()..].split_once(": ")?;
        let code = MppCode::ALL.into_iter().find(|code| code.name() == name)?;
        Some(MppError { code, text: rest.to_owned() })
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
            return MppError::new(MppCode::Invalid, values::error::fault().to_string());
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
    MppError::new(code, error.to_string())
}

impl From<MppError> for DataFusionError {
    fn from(error: MppError) -> Self {
        DataFusionError::Execution(error.to_string())
    }
}

impl From<MppError> for Status {
    fn from(error: MppError) -> Self {
        Status::new(error.code.status(), error.to_string())
    }
}

impl From<Status> for MppError {
    fn from(status: Status) -> Self {
        MppError::find(status.message()).unwrap_or_else(|| {
            let code = match status.code() {
                Code::Unauthenticated => MppCode::Unauthenticated,
                Code::DeadlineExceeded => MppCode::Timeout,
                Code::Cancelled => MppCode::Cancelled,
                _ => MppCode::Unavailable,
            };
            MppError::new(code, status.message())
        })
    }
}
