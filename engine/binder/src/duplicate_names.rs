//! Distinct names for the columns of a select list: DataFusion's planner refuses duplicate names.

use std::collections::HashSet;

use sqlparser::ast::{Expr, Select, SelectItem, SelectItemQualifiedWildcardKind};
use syntax::names::parts;
use syntax::tree::{null, plain};

/// Begins the suffix of a name that another column of the same list has too; cut off again in results.
pub const DUPLICATE_MARK: char = '\u{1}';

/// No two columns of a list share a name; an expression is called by its text, as in MySQL.
pub fn name_columns(select: &mut Select) {
    let mut seen = HashSet::new();
    let mut columns = Columns::beside(&select.projection);
    for item in &mut select.projection {
        let taken = std::mem::replace(item, SelectItem::UnnamedExpr(null()));
        *item = match taken {
            SelectItem::ExprWithAlias { expr, alias } => {
                let name = unique(&mut seen, alias.value.to_lowercase());
                SelectItem::ExprWithAlias { expr, alias: plain(name) }
            }
            SelectItem::UnnamedExpr(expr) => {
                let name = match &expr {
                    Expr::Identifier(ident) => ident.value.to_lowercase(),
                    Expr::CompoundIdentifier(idents) => {
                        let names = idents.iter().map(|i| i.value.to_lowercase());
                        names.collect::<Vec<_>>().join(".")
                    }
                    other => other.to_string().to_lowercase(),
                };
                let name = match columns.is_new(&expr) {
                    Some(true) if seen.insert(name.clone()) => {
                        *item = SelectItem::UnnamedExpr(expr);
                        continue;
                    }
                    Some(false) => format!("{name}{DUPLICATE_MARK}"),
                    _ => name,
                };
                SelectItem::ExprWithAlias { expr, alias: plain(unique(&mut seen, name)) }
            }
            other => other,
        };
    }
}

/// The columns of a select list that are there already, however they are written.
struct Columns {
    /// For each `*` the table before it, if there is one.
    stars: Vec<Option<String>>,
    /// Columns without a table before them, and the names of those with one.
    bare: HashSet<String>,
    of_tables: HashSet<String>,
}

impl Columns {
    fn beside(items: &[SelectItem]) -> Columns {
        let star = |item: &SelectItem| match item {
            SelectItem::Wildcard(_) => Some(None),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                Some(parts(name).pop())
            }
            _ => None,
        };
        let stars = items.iter().filter_map(star).collect();
        Columns { stars, bare: HashSet::new(), of_tables: HashSet::new() }
    }

    /// Whether a column is one that nothing before it, and no `*`, shows; `None` of what is no column.
    fn is_new(&mut self, expr: &Expr) -> Option<bool> {
        match expr {
            Expr::Identifier(name) => {
                let name = name.value.to_lowercase();
                let shown = self.of_tables.contains(&name) || self.stars.contains(&None);
                self.bare.insert(name);
                Some(!shown)
            }
            Expr::CompoundIdentifier(names) => {
                let mut names = names.iter().rev().map(|name| name.value.to_lowercase());
                let (name, table) = (names.next()?, names.next());
                let shown = self.bare.contains(&name)
                    || self.stars.contains(&None)
                    || self.stars.contains(&table);
                self.of_tables.insert(name);
                Some(!shown)
            }
            _ => None,
        }
    }
}

/// The name, with a suffix if it was seen before.
pub(crate) fn unique(seen: &mut HashSet<String>, name: String) -> String {
    let mut candidate = name.clone();
    let mut n = 1;
    while !seen.insert(candidate.clone()) {
        n += 1;
        candidate = format!("{name}{DUPLICATE_MARK}{n}");
    }
    candidate
}
