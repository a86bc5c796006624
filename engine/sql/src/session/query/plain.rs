//! Queries that are one plain SELECT. It looks at trees alone.

use sqlparser::ast::{Query, Select, SetExpr};

/// Whether a query is one plain SELECT; it may lock what it reads.
pub(in crate::session) fn plain_select(query: &Query) -> Option<&Select> {
    let bare = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none();
    match &*query.body {
        SetExpr::Select(select) if bare => Some(select),
        _ => None,
    }
}
