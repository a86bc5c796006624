//! A parsed query or expression as text that means the same to whoever parses it under the default
//! sql_mode.
//!
//! Only literals are touched: sqlparser prints the characters of a text as they are, so that a
//! backslash or two quotes in a row would be read as something else.

use std::fmt::Display;
use std::ops::ControlFlow;

use sqlparser::ast::{Value, ValueWithSpan, Visitor, VisitorMut};

use crate::walk::{Part, finds, walk_mut};

/// The text of a query or an expression.
pub fn canonical<T: Clone + Display + Part>(tree: &T) -> String {
    if !finds(tree, &mut Escaped) {
        return tree.to_string();
    }
    let mut tree = tree.clone();
    _ = walk_mut(&mut tree, &mut Escaped);
    tree.to_string()
}

struct Escaped;

/// The characters of a text that cannot be printed as they are.
fn special(value: &Value) -> Option<&str> {
    match value {
        Value::SingleQuotedString(text) if text.contains(['\'', '\\']) => Some(text),
        Value::DoubleQuotedString(text) | Value::NationalStringLiteral(text) => Some(text),
        _ => None,
    }
}

impl Visitor for Escaped {
    type Break = ();

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<()> {
        match special(&value.value) {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }
}

impl VisitorMut for Escaped {
    type Break = ();

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
        if let Some(text) = special(&value.value) {
            let text = text.replace('\\', "\\\\").replace('\'', "''");
            value.value = Value::SingleQuotedString(text);
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use sqlparser::ast::{Query, Statement};

    use super::*;
    use crate::dialect::Mysql;
    use crate::statement::Stmt;
    use crate::walk::walk;

    #[test]
    fn texts_survive_being_printed_and_parsed() {
        for text in [
            "a'b", "a''b", r"a\b", r"a\'b", r"\\", r"\", "'", "''", "'''", r"\%_\_", "\"\"",
            "\u{1}\n",
        ] {
            let plain = Mysql { plain_backslashes: true, ..Mysql::default() };
            for quote in ['\'', '"'] {
                let doubled = text.replace(quote, &format!("{quote}{quote}"));
                let sql = format!("SELECT {quote}{doubled}{quote}");
                let Ok(Stmt::Query(query)) = crate::parser::parse_in(&sql, &plain) else {
                    panic!("{sql}")
                };
                let printed = canonical(&query);
                let Ok(Statement::Query(again)) = crate::parser::parse_sql(&printed) else {
                    panic!("{printed}")
                };
                assert_eq!(values(&again), [text], "{sql} was printed as {printed}");
            }
        }
    }

    fn values(query: &Query) -> Vec<String> {
        struct Values(Vec<String>);
        impl Visitor for Values {
            type Break = ();
            fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<()> {
                self.0.extend(value.value.clone().into_string());
                ControlFlow::Continue(())
            }
        }
        let mut found = Values(Vec::new());
        _ = walk(query, &mut found);
        found.0
    }
}
