//! The tables a query names, and what its columns are called.
//!
//! Whether there is a table of a name is not asked.

use std::collections::HashSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr, Value, Visitor,
};
use values::error::{SqlResult, no_database_selected, unsupported};

use crate::walk::{Part, walk};

/// A table, by its names in lower case.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct TableName {
    /// Database.
    pub database: String,
    /// Table.
    pub table: String,
}

/// The identifiers of a name, in lower case.
pub fn parts(name: &ObjectName) -> Vec<String> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => ident.value.to_lowercase(),
        ObjectNamePart::Function(function) => function.name.value.to_lowercase(),
    };
    name.0.iter().map(part).collect()
}

/// Database and table that a name means.
pub fn table_name(name: &ObjectName, database: &str) -> SqlResult<TableName> {
    let mut parts = parts(name);
    match (parts.pop(), parts.pop(), parts.pop()) {
        (Some(table), Some(database), None) => Ok(TableName { database, table }),
        (Some(_), None, None) if database.is_empty() => Err(no_database_selected()),
        (Some(table), None, None) => Ok(TableName { database: database.to_lowercase(), table }),
        _ => Err(unsupported(format!("table name {name}"))),
    }
}

struct Relations<'a> {
    database: &'a str,
    ctes: Vec<String>,
    found: Vec<TableName>,
    seen: HashSet<TableName>,
}

impl Visitor for Relations<'_> {
    type Break = values::error::SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        if let Some(with) = &query.with {
            self.ctes.extend(with.cte_tables.iter().map(|cte| cte.alias.name.value.to_lowercase()));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<Self::Break> {
        let parts = parts(relation);
        let cte = matches!(&parts[..], [one] if self.ctes.contains(one) || one == "dual");
        if cte {
            return ControlFlow::Continue(());
        }
        match table_name(relation, self.database) {
            Ok(name) => {
                if self.seen.insert(name.clone()) {
                    self.found.push(name);
                }
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// Every table of some parts of a statement once, in order of appearance; names of WITH are none.
pub fn tables_of(parts: &[&dyn Part], database: &str) -> SqlResult<Vec<TableName>> {
    let mut relations =
        Relations { database, ctes: Vec::new(), found: Vec::new(), seen: HashSet::new() };
    parts.iter().try_for_each(|part| walk(*part, &mut relations))?;
    Ok(relations.found)
}

/// One item of the outermost select list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Displayed {
    /// A column of this name.
    Named(String),
    /// As many columns as `*` stands for.
    Wildcard,
}

/// The outermost SELECT of a query: of a UNION, the first.
pub fn outermost(body: &SetExpr) -> Option<&Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(query) => outermost(&query.body),
        SetExpr::SetOperation { left, .. } => outermost(left),
        _ => None,
    }
}

/// What the columns of a result are called: aliases, names as written, or the expression's text.
pub fn displayed(query: &Query) -> Vec<Displayed> {
    let Some(select) = outermost(&query.body) else { return Vec::new() };
    select
        .projection
        .iter()
        .map(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => Displayed::Named(alias.value.clone()),
            SelectItem::UnnamedExpr(expr) => Displayed::Named(expression_name(expr)),
            _ => Displayed::Wildcard,
        })
        .collect()
}

/// What a column is called that has no alias, as far as the tree knows.
pub fn expression_name(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(ident) => ident.value.clone(),
        Expr::CompoundIdentifier(idents) => {
            idents.last().map(|ident| ident.value.clone()).unwrap_or_default()
        }
        Expr::Prefixed { value, .. } => expression_name(value),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text)
            | Value::DoubleQuotedString(text)
            | Value::NationalStringLiteral(text) => {
                cut(text.trim_start_matches(|c: char| c == ' ' || c.is_ascii_control())).to_owned()
            }
            Value::Boolean(truth) => truth.to_string().to_uppercase(),
            other => unnumbered(&other.to_string()),
        },
        other => unnumbered(&other.to_string()),
    }
}

/// A text as far as it goes into a name that nobody gave: 256 bytes.
pub fn cut(text: &str) -> &str {
    let mut end = text.len().min(256);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// `?1` as the client wrote it.
fn unnumbered(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut after_mark = false;
    for c in text.chars() {
        if after_mark && c.is_ascii_digit() {
            continue;
        }
        after_mark = c == '?';
        out.push(c);
    }
    out
}

/// Adds the names that a query's WITH gives, in lower case.
pub fn remember_ctes(query: &Query, ctes: &mut Vec<String>) {
    if let Some(with) = &query.with {
        ctes.extend(with.cte_tables.iter().map(|cte| cte.alias.name.value.to_lowercase()));
    }
}

/// Whether a name is one of these, or `dual`, and no table's.
pub fn is_cte(name: &ObjectName, ctes: &[String]) -> bool {
    matches!(&parts(name)[..], [one] if ctes.contains(one) || one == "dual")
}
