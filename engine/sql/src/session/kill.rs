//! KILL.

use values::error::{SqlResult, no_thread};

use super::{Session, done};
use execution::reply::Reply;

impl Session {
    /// KILL.
    pub(super) fn kill(&self, id: u64, query: bool) -> SqlResult<Reply> {
        self.check_kill(id)?;
        let host = self.engine.host.as_ref();
        if host.is_some_and(|host| host.kill(id, query)) {
            return Ok(done());
        }
        Err(no_thread(id))
    }
}
