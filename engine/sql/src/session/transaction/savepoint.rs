//! SAVEPOINT, ROLLBACK TO and RELEASE: named places within a transaction. They undo writes that are
//! still buffered, and never touch what was committed.

use syntax::statement::Step;
use values::error::{SqlError, SqlResult};

use crate::result::Reply;
use crate::session::{Session, done, impossible};

impl Session {
    pub(in crate::session) async fn savepoint(
        &mut self,
        step: Step,
        name: &str,
    ) -> SqlResult<Reply> {
        let Some(open) = self.enclosing().await? else {
            return match step {
                // Alone, the statement is a transaction of its own, which ends here.
                Step::Set => Ok(done()),
                _ => Err(missing(name)),
            };
        };
        let name = name.to_lowercase();
        let known = self.savepoints.iter().position(|(other, _)| *other == name);
        let mut guard = open.shared.lock().await;
        let transaction = guard.as_mut().ok_or_else(|| impossible("the transaction has ended"))?;
        match (step, known) {
            (Step::Set, known) => {
                if let Some(at) = known {
                    self.savepoints.remove(at);
                }
                self.savepoints.push((name, transaction.savepoint()));
            }
            (_, None) => return Err(missing(&name)),
            (Step::RollBack, Some(at)) => {
                let place = self.savepoints.get(at).map(|(_, place)| *place);
                transaction.rollback_to(place.ok_or_else(|| missing(&name))?);
                self.savepoints.truncate(at + 1);
            }
            (Step::Release, Some(at)) => self.savepoints.truncate(at),
        }
        Ok(done())
    }
}

fn missing(name: &str) -> SqlError {
    SqlError::new(1305, b"42000", format!("SAVEPOINT {name} does not exist"))
}
