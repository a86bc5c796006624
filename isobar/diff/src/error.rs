//! What keeps a comparison from an answer: each names the object, the cause and the next step.
//!
//! No message may hold a password or a whole row.

use std::path::PathBuf;

/// Why the comparison is inconclusive.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line contradicts itself or cannot be read.
    #[error("{0}")]
    Usage(String),
    /// A server does not answer, within all retries.
    #[error(
        "{server} does not answer: {cause}; see that it runs and can be reached, then run again{resume}"
    )]
    Gone {
        /// Host and port.
        server: String,
        /// What the client said last.
        cause: String,
        /// How to go on.
        resume: &'static str,
    },
    /// A server refuses a statement.
    #[error("{server} refuses to {doing}: {cause}")]
    Refused {
        /// Host and port.
        server: String,
        /// What was asked.
        doing: String,
        /// Its words.
        cause: String,
    },
    /// A snapshot's lease is over: what was read and what is still to read are of two snapshots.
    #[error(
        "the snapshot on {server} is lost: {cause}; chunks read so far belong to it, so begin anew with --restart"
    )]
    SnapshotLost {
        /// Host and port.
        server: String,
        /// Its words.
        cause: String,
    },
    /// Two tables have no common shape.
    #[error("{table} cannot be compared: {cause}")]
    Schema {
        /// Table.
        table: String,
        /// What differs, and what to do.
        cause: String,
    },
    /// A file cannot be read.
    #[error("{file}{place}: {cause}", file = .file.display())]
    File {
        /// File.
        file: PathBuf,
        /// `, line 3` or empty.
        place: String,
        /// What is wrong, and what to do.
        cause: String,
    },
    /// Counts that must agree do not: rows moved, or the two sides order keys differently.
    #[error(
        "{side} of {table} changed while it was read: {cause}; stop its writers, or compare at a snapshot"
    )]
    Moved {
        /// SOURCE or TARGET.
        side: &'static str,
        /// Table.
        table: String,
        /// The counts.
        cause: String,
    },
    /// The checkpoint is of another run, or damaged.
    #[error("checkpoint {file}: {cause}", file = .file.display())]
    Checkpoint {
        /// File.
        file: PathBuf,
        /// What is wrong, and what to do.
        cause: String,
    },
    /// Asked to stop.
    #[error("interrupted{0}")]
    Interrupted(String),
    /// A file of ours cannot be written.
    #[error("cannot write {file}: {cause}", file = .file.display())]
    Output {
        /// File.
        file: PathBuf,
        /// The system's words.
        cause: std::io::Error,
    },
}

/// The outcome of most things here.
pub type Result<T> = std::result::Result<T, Error>;
