//! SLEEP(n). It holds nothing while it waits.

use std::time::Duration;

use types::Value;
use values::error::{SqlResult, wrong_arguments_because};

/// Longest wait.
const LONGEST_SLEEP: Duration = Duration::from_secs(365 * 24 * 3600);

/// Waits so many seconds; KILL ends the statement, and with it the wait.
pub(in crate::session) async fn sleep(seconds: &str) -> SqlResult<Value> {
    let length = seconds.trim().parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    let length = length.filter(|length| *length <= LONGEST_SLEEP);
    let length = length.ok_or_else(|| {
        wrong_arguments_because(
            "sleep",
            format!("'{seconds}' is no number of seconds between 0 and a year"),
        )
    })?;
    tokio::time::sleep(length).await;
    Ok(Value::Int(0))
}
