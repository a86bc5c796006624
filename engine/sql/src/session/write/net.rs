//! What a statement does to each row in the end, for whom it does not matter by which steps.
//!
//! No I/O.

use std::collections::HashMap;

use storage::rows;
use types::{Table, Value};

use super::changes::Changes;

/// A change of one row.
pub(in crate::session) enum Step {
    /// A new row.
    Insert(Vec<Value>),
    /// A row and what it becomes.
    Update(Vec<Value>, Vec<Value>),
    /// A row that goes.
    Delete(Vec<Value>),
}

/// A row before and after a statement; none where it was not there, or is not any more.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::session) struct NetChange {
    /// Before.
    pub before: Option<Vec<Value>>,
    /// After.
    pub after: Option<Vec<Value>>,
}

impl NetChange {
    fn of(before: Option<&Vec<Value>>, after: Option<&Vec<Value>>) -> Self {
        NetChange { before: before.cloned(), after: after.cloned() }
    }

    /// A row that goes.
    pub(super) fn gone(row: &Vec<Value>) -> Self {
        NetChange::of(Some(row), None)
    }

    /// A row that changes, if it does.
    pub(super) fn changed(old: &Vec<Value>, new: &Vec<Value>) -> Self {
        NetChange::of(Some(old), Some(new))
    }

    /// A row that comes.
    pub(super) fn come(row: &Vec<Value>) -> Self {
        NetChange::of(None, Some(row))
    }

    /// What changes do, in their order.
    pub(super) fn of_changes(changes: &Changes) -> Vec<NetChange> {
        match changes {
            Changes::Insert { rows, .. } => rows.iter().map(NetChange::come).collect(),
            Changes::Update { pairs } => {
                pairs.iter().map(|(old, new)| NetChange::changed(old, new)).collect()
            }
            Changes::Delete { rows } => rows.iter().map(NetChange::gone).collect(),
        }
    }

    /// What steps come to: of a row that several of them change, the first and the last state. A row that goes and comes again
    /// has gone.
    pub(super) fn of_steps(table: &Table, steps: &[Step]) -> Vec<NetChange> {
        let mut changes: Vec<NetChange> = Vec::with_capacity(steps.len());
        // Where a row as it is by now was changed last.
        let mut last: HashMap<Vec<u8>, usize> = HashMap::new();
        for step in steps {
            let change = match step {
                Step::Insert(row) => NetChange::of(None, Some(row)),
                Step::Update(old, new) => NetChange::of(Some(old), Some(new)),
                Step::Delete(row) => NetChange::of(Some(row), None),
            };
            let known = change.before.as_ref().map(|row| rows::record_key(table, row));
            let known = known.and_then(|key| last.remove(&key));
            let key = change.after.as_ref().map(|row| rows::record_key(table, row));
            let at = match known.and_then(|at| Some((at, changes.get_mut(at)?))) {
                Some((at, earlier)) => {
                    earlier.after = change.after;
                    at
                }
                None => {
                    changes.push(change);
                    changes.len() - 1
                }
            };
            if let Some(key) = key {
                last.insert(key, at);
            }
        }
        changes.retain(|change| change.before != change.after);
        changes
    }
}

#[cfg(test)]
mod tests {
    use types::{Column, ColumnType, IntWidth};

    use super::*;

    fn table() -> Table {
        let column = |id, name: &str| Column {
            id,
            name: name.into(),
            ty: ColumnType::Int { width: IntWidth::Int, unsigned: false },
            nullable: false,
            default: None,
            original: None,
            auto_increment: false,
            on_update_now: false,
            hidden: false,
            comment: String::new(),
        };
        Table {
            id: 7,
            version: 1,
            database: "d".into(),
            name: "t".into(),
            columns: vec![column(1, "id"), column(2, "a")],
            primary_key: vec![1],
            indexes: Vec::new(),
            columnar_replicas: 0,
            comment: String::new(),
            dropped: Vec::new(),
            checks: Vec::new(),
        }
    }

    fn row(id: i64, a: i64) -> Vec<Value> {
        vec![Value::Int(id), Value::Int(a)]
    }

    fn net(steps: &[Step]) -> Vec<NetChange> {
        NetChange::of_steps(&table(), steps)
    }

    #[test]
    fn of_a_row_that_changes_twice_the_first_and_last_state_count() {
        let steps = [Step::Update(row(1, 1), row(2, 1)), Step::Update(row(2, 1), row(3, 5))];
        assert_eq!(net(&steps), [NetChange::changed(&row(1, 1), &row(3, 5))]);
        let steps = [Step::Insert(row(1, 1)), Step::Update(row(1, 1), row(1, 2))];
        assert_eq!(net(&steps), [NetChange::come(&row(1, 2))]);
        assert_eq!(net(&[Step::Insert(row(1, 1)), Step::Delete(row(1, 1))]), []);
    }

    #[test]
    fn a_row_that_is_replaced_has_gone() {
        let steps = [Step::Delete(row(1, 1)), Step::Insert(row(1, 2))];
        assert_eq!(net(&steps), [NetChange::gone(&row(1, 1)), NetChange::come(&row(1, 2))]);
    }
}
