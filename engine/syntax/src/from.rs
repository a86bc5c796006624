//! What stands in FROM. It looks at trees alone.

use sqlparser::ast::{Delete, TableFactor, TableWithJoins, Update};

/// Every table and subquery of a FROM.
pub fn factors(from: &[TableWithJoins]) -> Vec<&TableFactor> {
    let mut found = Vec::new();
    let mut open: Vec<&TableWithJoins> = from.iter().collect();
    while let Some(next) = open.pop() {
        for factor in std::iter::once(&next.relation).chain(next.joins.iter().map(|j| &j.relation))
        {
            match factor {
                TableFactor::NestedJoin { table_with_joins, .. } => open.push(table_with_joins),
                factor => found.push(factor),
            }
        }
    }
    found
}

/// Whether an UPDATE is of joined tables.
pub fn updates_joined(update: &Update) -> bool {
    !update.table.joins.is_empty()
        || matches!(update.table.relation, TableFactor::NestedJoin { .. })
}

/// Whether a DELETE names its tables apart from its FROM.
pub fn deletes_joined(delete: &Delete) -> bool {
    !delete.tables.is_empty() || delete.using.is_some()
}
