//! Bulk import: versions straight into the log, without locks and a second phase.
//!
//! Only for a table that nobody else writes or reads meanwhile; seeing to that is the caller's
//! business. Every request bears repetition.

use types::{Error, Result, Table, Timestamp};

use crate::api::{Request, Response};
use crate::client::TxnClient;
use crate::resolve::unexpected;

/// Most keys of one request.
const REQUEST_KEYS: usize = 8_192;
/// Bytes of one request, about: an online write that arrives behind it waits for all of it.
const REQUEST_BYTES: usize = 512 << 10;

type Pair = (Vec<u8>, Vec<u8>);

impl TxnClient {
    /// Writes rows and index entries, ascending by key, as versions of `commit_ts`; `anew` if they
    /// may have been written at an earlier timestamp, which they replace.
    ///
    /// # Errors
    ///
    /// `Duplicate` if a key has another live version, `Conflict` if it was written later than
    /// `commit_ts`, `SnapshotTooOld` if no lease held it; a part may be written in any case.
    pub async fn import(
        &self,
        table: &Table,
        (commit_ts, anew): (Timestamp, bool),
        rows: Vec<Pair>,
    ) -> Result<()> {
        let mut retry = self.retry("the regions of an import");
        let mut left = rows;
        while !left.is_empty() {
            let groups = self.group(left, |(key, _)| key, &mut retry).await?;
            left = Vec::new();
            let mut passed = None;
            for (target, rows) in groups {
                for rows in requests(rows) {
                    let request = Request::Import {
                        region: target.reference(),
                        commit_ts,
                        rows: rows.clone(),
                        schema: (table.id, table.version),
                        anew,
                    };
                    match self.send(&target, request).await {
                        Ok(Response::Done) => {
                            retry = self.retry("the regions of an import");
                        }
                        Ok(_) => return Err(unexpected("an import")),
                        Err(error) if error.is_retryable() => {
                            left.extend(rows);
                            passed = Some(error);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            if let Some(error) = passed {
                retry.pause(error).await?;
            }
        }
        Ok(())
    }

    /// Fails with `Duplicate` if a range has a live row at `ts`; passes over what is locked first.
    ///
    /// # Errors
    ///
    /// Also whatever a read may fail with.
    pub async fn check_empty(&self, start: Vec<u8>, end: Vec<u8>, ts: Timestamp) -> Result<()> {
        let mut scan = self.snapshot(ts).scan(start, end, false).page_pairs(1);
        while let Some(page) = scan.next_page().await? {
            if let Some((key, _)) = page.into_iter().next() {
                return Err(Error::Duplicate { index: String::new(), key });
            }
        }
        Ok(())
    }
}

/// Cuts rows into requests.
fn requests(rows: Vec<Pair>) -> Vec<Vec<Pair>> {
    let mut requests: Vec<Vec<Pair>> = Vec::new();
    let mut bytes = 0;
    for row in rows {
        let size = row.0.len() + row.1.len();
        match requests.last_mut() {
            Some(request) if request.len() < REQUEST_KEYS && bytes + size <= REQUEST_BYTES => {
                request.push(row);
                bytes += size;
            }
            _ => {
                requests.push(vec![row]);
                bytes = size;
            }
        }
    }
    requests
}
