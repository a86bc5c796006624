//! `*` and `t.*`: which columns they stand for. Hidden ones are none of them, which are the row
//! numbers of tables without a primary key, and columns that are being added or dropped.
//!
//! It must never leave a hidden column out of a table that has none of that name: the planner below
//! refuses that.

use sqlparser::ast::{
    ExcludeSelectItem, Join, JoinConstraint, JoinOperator, ObjectName, Select, SelectItem,
    SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins, WildcardAdditionalOptions,
};
use syntax::names::parts;
use syntax::tree::plain;

/// A table of a FROM.
pub struct Shown {
    /// What plans qualify its columns by: an alias, a name of WITH, or database and table.
    pub called: Vec<String>,
    /// Its hidden columns.
    pub hidden: Vec<String>,
}

impl Shown {
    /// `t.*` of the table.
    fn wildcard(&self) -> SelectItem {
        let name = ObjectName::from(self.called.iter().cloned().map(plain).collect::<Vec<_>>());
        let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
        SelectItem::QualifiedWildcard(kind, without(self.hidden.clone()))
    }

    /// Whether a qualifier of the text means it: its last name, or all of them.
    fn is_meant(&self, written: &[String]) -> bool {
        self.called.ends_with(written)
    }
}

/// Options of a wildcard that leaves columns out.
fn without(mut hidden: Vec<String>) -> WildcardAdditionalOptions {
    hidden.sort();
    hidden.dedup();
    let names: Vec<ObjectName> = hidden.into_iter().map(|name| vec![plain(name)].into()).collect();
    let opt_exclude = (!names.is_empty()).then_some(ExcludeSelectItem::Multiple(names));
    WildcardAdditionalOptions { opt_exclude, ..WildcardAdditionalOptions::default() }
}

/// Writes the wildcards of a SELECT out as far as hidden columns and names need it. `shown` knows
/// stored tables and names of WITH.
pub fn write_out(select: &mut Select, shown: &impl Fn(&ObjectName) -> Shown) {
    let is_wildcard = |item: &SelectItem| {
        matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
    };
    if !select.projection.iter().any(is_wildcard) {
        return;
    }
    let mut tables = Vec::new();
    // Whether `*` is the tables' own wildcards, one after the other.
    let mut in_a_row = true;
    for from in &select.from {
        in_a_row &= collect(from, shown, &mut tables);
    }
    let hidden: Vec<String> = tables.iter().flat_map(|table| table.hidden.clone()).collect();
    let mut items = Vec::with_capacity(select.projection.len());
    for item in std::mem::take(&mut select.projection) {
        match item {
            SelectItem::Wildcard(_) if !hidden.is_empty() && tables.len() > 1 && in_a_row => {
                items.extend(tables.iter().map(Shown::wildcard));
            }
            SelectItem::Wildcard(_) if !hidden.is_empty() => {
                items.push(SelectItem::Wildcard(without(hidden.clone())));
            }
            SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(name),
                options,
            ) => {
                let written = parts(&name);
                items.push(match tables.iter().find(|table| table.is_meant(&written)) {
                    Some(table) => table.wildcard(),
                    None => SelectItem::QualifiedWildcard(
                        SelectItemQualifiedWildcardKind::ObjectName(name),
                        options,
                    ),
                });
            }
            other => items.push(other),
        }
    }
    select.projection = items;
}

/// Takes the tables of a FROM, in order; false if one of them has no name, or if a join makes one
/// column of two.
fn collect(
    from: &TableWithJoins,
    shown: &impl Fn(&ObjectName) -> Shown,
    tables: &mut Vec<Shown>,
) -> bool {
    let mut in_a_row = factor(&from.relation, shown, tables);
    for join in &from.joins {
        in_a_row &= factor(&join.relation, shown, tables) && !merges(join);
    }
    in_a_row
}

fn factor(
    factor: &TableFactor,
    shown: &impl Fn(&ObjectName) -> Shown,
    tables: &mut Vec<Shown>,
) -> bool {
    let (alias, stored) = match factor {
        TableFactor::Table { name, alias, .. } => (alias.as_ref(), Some(name)),
        TableFactor::NestedJoin { table_with_joins, alias: None } => {
            return collect(table_with_joins, shown, tables);
        }
        TableFactor::NestedJoin { alias, .. } | TableFactor::Derived { alias, .. } => {
            (alias.as_ref(), None)
        }
        _ => (None, None),
    };
    let mut table = match stored {
        Some(name) => shown(name),
        None => Shown { called: Vec::new(), hidden: Vec::new() },
    };
    if let Some(alias) = alias {
        table.called = vec![alias.name.value.to_lowercase()];
    }
    let named = !table.called.is_empty();
    tables.push(table);
    named
}

/// Whether a join shows columns of both its sides as one.
fn merges(join: &Join) -> bool {
    use JoinOperator as J;
    match &join.join_operator {
        J::Join(on)
        | J::Inner(on)
        | J::Left(on)
        | J::LeftOuter(on)
        | J::Right(on)
        | J::RightOuter(on)
        | J::CrossJoin(on)
        | J::StraightJoin(on) => {
            matches!(on, JoinConstraint::Using(_) | JoinConstraint::Natural)
        }
        // Refused elsewhere.
        _ => true,
    }
}
