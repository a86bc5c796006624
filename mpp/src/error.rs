//! Errors of the door: a code that programs test, and a text for people.
//!
//! The code travels inside the text (`ISOBAR-CODE: …`), because DataFusion and gRPC both keep
//! texts and lose types.

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use sql::result::SqlError;
use tonic::{Code, Status};
use types::Error;

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
pub enum DoorCode {
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

impl DoorCode {
    const ALL: [DoorCode; 15] = [
        DoorCode::SnapshotTooOld,
        DoorCode::LeaseLost,
        DoorCode::TicketForged,
        DoorCode::TicketExpired,
        DoorCode::TableChanged,
        DoorCode::NotFound,
        DoorCode::Invalid,
        DoorCode::StaleRegion,
        DoorCode::Unavailable,
        DoorCode::Timeout,
        DoorCode::Corrupt,
        DoorCode::Cancelled,
        DoorCode::Unsupported,
        DoorCode::Unauthenticated,
        DoorCode::Denied,
    ];

    /// Name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            DoorCode::SnapshotTooOld => "SNAPSHOT_TOO_OLD",
            DoorCode::LeaseLost => "LEASE_LOST",
            DoorCode::TicketForged => "TICKET_FORGED",
            DoorCode::TicketExpired => "TICKET_EXPIRED",
            DoorCode::TableChanged => "TABLE_CHANGED",
            DoorCode::NotFound => "NOT_FOUND",
            DoorCode::Invalid => "INVALID",
            DoorCode::StaleRegion => "STALE_REGION",
            DoorCode::Unavailable => "UNAVAILABLE",
            DoorCode::Timeout => "TIMEOUT",
            DoorCode::Corrupt => "CORRUPT",
            DoorCode::Cancelled => "CANCELLED",
            DoorCode::Unsupported => "UNSUPPORTED",
            DoorCode::Unauthenticated => "UNAUTHENTICATED",
            DoorCode::Denied => "DENIED",
        }
    }

    /// Whether planning the query anew, with a fresh picture of the cluster, may succeed.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            DoorCode::StaleRegion | DoorCode::Unavailable | DoorCode::Corrupt | DoorCode::Timeout
        )
    }

    fn status(self) -> Code {
        match self {
            DoorCode::TicketForged | DoorCode::Denied => Code::PermissionDenied,
            DoorCode::SnapshotTooOld
            | DoorCode::LeaseLost
            | DoorCode::TicketExpired
            | DoorCode::TableChanged => Code::FailedPrecondition,
            DoorCode::NotFound => Code::NotFound,
            DoorCode::Invalid => Code::InvalidArgument,
            DoorCode::StaleRegion | DoorCode::Unavailable => Code::Unavailable,
            DoorCode::Timeout => Code::DeadlineExceeded,
            DoorCode::Corrupt => Code::DataLoss,
            DoorCode::Cancelled => Code::Cancelled,
            DoorCode::Unsupported => Code::Unimplemented,
            DoorCode::Unauthenticated => Code::Unauthenticated,
        }
    }
}

/// An error of the door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorError {
    /// For programs.
    pub code: DoorCode,
    /// For people: object, cause, next step.
    pub text: String,
}

/// The door's result.
pub type DoorResult<T> = Result<T, DoorError>;

impl DoorError {
    /// An error of a code.
    pub fn new(code: DoorCode, text: impl Into<String>) -> Self {
        DoorError { code, text: text.into() }
    }

    /// Finds a coded error within a text that passed through other layers.
    pub fn find(text: &str) -> Option<Self> {
        let at = text.find(MARK)?;
        let (name, rest) = text[at + MARK.len()..].split_once(": ")?;
        let code = DoorCode::ALL.into_iter().find(|code| code.name() == name)?;
        Some(DoorError { code, text: rest.to_owned() })
    }
}

impl std::fmt::Display for DoorError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{MARK}{}: {}", self.code.name(), self.text)
    }
}

impl std::error::Error for DoorError {}

impl From<Error> for DoorError {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::SnapshotTooOld { .. } => DoorCode::SnapshotTooOld,
            Error::LeaseLost(_) => DoorCode::LeaseLost,
            Error::StaleEpoch { .. } | Error::RegionNotFound(_) => DoorCode::StaleRegion,
            Error::SchemaChanged { .. } => DoorCode::TableChanged,
            Error::NotFound { .. } => DoorCode::NotFound,
            Error::Invalid(_) | Error::Exists { .. } | Error::Duplicate { .. } => DoorCode::Invalid,
            Error::Timeout { .. } => DoorCode::Timeout,
            Error::Corrupt(_) => DoorCode::Corrupt,
            // Not for another try.
            Error::Cancelled(_) | Error::OutcomeUnknown { .. } => DoorCode::Cancelled,
            Error::Revoked(_) => DoorCode::Unavailable,
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
            | Error::Io(_) => DoorCode::Unavailable,
        };
        DoorError::new(code, error.to_string())
    }
}

/// The one place where an error of the libraries below becomes one of a client's: their texts go to the node's log alone.
impl From<DataFusionError> for DoorError {
    fn from(error: DataFusionError) -> Self {
        let text = error.to_string();
        if let Some(coded) = DoorError::find(&text) {
            return coded;
        }
        let root = error.find_root();
        if let DataFusionError::ExecutionJoin(task) = root
            && task.is_panic()
        {
            return DoorError::new(DoorCode::Invalid, sql::panics::fault().to_string());
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
            return DoorError::new(DoorCode::Unavailable, text);
        }
        refused(&SqlError::from(error))
    }
}

impl From<ArrowError> for DoorError {
    fn from(error: ArrowError) -> Self {
        DataFusionError::from(error).into()
    }
}

/// An error that has a number in MySQL.
pub(crate) fn refused(error: &SqlError) -> DoorError {
    let code = match error.code {
        1049 | 1051 | 1054 | 1146 => DoorCode::NotFound,
        1235 => DoorCode::Unsupported,
        1412 => DoorCode::TableChanged,
        8175 | 9005 => DoorCode::Unavailable,
        _ => DoorCode::Invalid,
    };
    DoorError::new(code, error.to_string())
}

impl From<DoorError> for DataFusionError {
    fn from(error: DoorError) -> Self {
        DataFusionError::Execution(error.to_string())
    }
}

impl From<DoorError> for Status {
    fn from(error: DoorError) -> Self {
        Status::new(error.code.status(), error.to_string())
    }
}

impl From<Status> for DoorError {
    fn from(status: Status) -> Self {
        DoorError::find(status.message()).unwrap_or_else(|| {
            let code = match status.code() {
                Code::Unauthenticated => DoorCode::Unauthenticated,
                Code::DeadlineExceeded => DoorCode::Timeout,
                Code::Cancelled => DoorCode::Cancelled,
                _ => DoorCode::Unavailable,
            };
            DoorError::new(code, status.message())
        })
    }
}
