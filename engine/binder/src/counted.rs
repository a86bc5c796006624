//! INTERSECT ALL and EXCEPT ALL, which count how often a row comes.
//!
//! The planner below takes both for a test of membership. So each row is numbered among its
//! equals on either side, and the numbered rows are a set: the n-th of some equal rows is on both
//! sides if each side has at least n of them.

use sqlparser::ast::{Expr, ObjectName, SelectItem, SetExpr, SetOperator, SetQuantifier};
use syntax::names::outermost;
use values::error::{SqlResult, different_column_counts, unsupported};

use crate::natural_joins::columns_of;
use crate::templates::{fill_query, query, query_of};

/// The columns that `*` stands for in a table; `None` if they are not known yet.
pub type Shown<'a> = &'a dyn Fn(&ObjectName) -> Option<Vec<String>>;

/// Writes every such operation of a body out.
pub fn write_out(body: &mut SetExpr, shown: Shown) -> SqlResult<()> {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return Ok(()) };
    write_out(left, shown)?;
    write_out(right, shown)?;
    if *set_quantifier != SetQuantifier::All || *op == SetOperator::Union {
        return Ok(());
    }
    let names = columns(left, shown).ok_or_else(|| {
        unsupported(format!("{op} ALL of a query with * in its select list (name its columns)"))
    })?;
    if columns(right, shown).is_some_and(|others| others.len() != names.len()) {
        return Err(different_column_counts());
    }
    let plain: Vec<String> = (1..=names.len()).map(|at| format!("isobar_c{at}")).collect();
    let plain = plain.join(", ");
    let named = names.iter().enumerate();
    let named =
        named.map(|(at, name)| format!("isobar_c{} AS `{}`", at + 1, name.replace('`', "``")));
    let named = named.collect::<Vec<_>>().join(", ");
    let side = |hole: &str| {
        format!(
            "SELECT {plain}, ROW_NUMBER() OVER (PARTITION BY {plain}) AS isobar_n \
             FROM (SELECT 1) AS {hole} ({plain})"
        )
    };
    let (one, other) = (side("isobar_left"), side("isobar_right"));
    let mut whole = query(&format!("SELECT {named} FROM ({one} {op} {other}) AS isobar_counted"))?;
    // The right one first: the left one may have such operations within, and names like these.
    fill_query(&mut whole, "isobar_right", &query_of((**right).clone()));
    fill_query(&mut whole, "isobar_left", &query_of((**left).clone()));
    *body = SetExpr::Query(Box::new(whole));
    Ok(())
}

/// What the columns of a body are called; `None` if its select list does not say.
pub fn columns(body: &SetExpr, shown: Shown) -> Option<Vec<String>> {
    let select = outermost(body)?;
    let mut names = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => names.push(alias.value.clone()),
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => names.push(name.value.clone()),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                names.push(parts.last()?.value.clone());
            }
            SelectItem::UnnamedExpr(expr) => names.push(expr.to_string()),
            SelectItem::Wildcard(_) => {
                for from in &select.from {
                    names.extend(columns_of(from, shown)?.into_iter().map(|(name, _)| name));
                }
            }
            _ => return None,
        }
    }
    Some(names.into_iter().map(|name| name.to_lowercase()).collect())
}
