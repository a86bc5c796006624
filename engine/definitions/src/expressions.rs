//! Expressions of a table's definition: conditions of CHECK, values of generated columns.
//!
//! They are kept as SQL text over the table's columns, in a form that means the same under any
//! sql_mode. What does not only hang on the row they are about is refused by name.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Value, Visitor,
};
use sqlparser::tokenizer::Span;
use syntax::canonical::canonical;
use syntax::names::parts;
use syntax::parser;
use syntax::walk::{replace_exprs, walk};
use types::{Check, ColumnId, ColumnType, Default, Table};
use values::error::{
    CHECK_WITHOUT_COLUMN, SqlError, SqlResult, check_auto_increment, check_function,
    check_not_boolean, check_of_other_column, check_row_value, check_subquery, check_variable,
    check_without_column, column_checked, column_generates, duplicate_check,
    generated_auto_increment, generated_function, generated_not_prior, generated_row_value,
    generated_subquery, no_column, not_for_generated, syntax, unsupported,
};

/// Functions whose value hangs on more than their arguments, or that do something; and aggregates,
/// which are about several rows.
const DISALLOWED: &[&str] = &[
    "avg",
    "benchmark",
    "bit_and",
    "bit_or",
    "bit_xor",
    "connection_id",
    "count",
    "curdate",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "curtime",
    "database",
    "found_rows",
    "get_lock",
    "group_concat",
    "is_free_lock",
    "is_used_lock",
    "isobar_digest",
    "isobar_release",
    "isobar_renew",
    "isobar_snapshot",
    "json_arrayagg",
    "json_objectagg",
    "last_insert_id",
    "load_file",
    "localtime",
    "localtimestamp",
    "max",
    "min",
    "name_const",
    "now",
    "rand",
    "random_bytes",
    "release_all_locks",
    "release_lock",
    "row_count",
    "schema",
    "session_user",
    "sleep",
    "std",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "sysdate",
    "system_user",
    "user",
    "utc_date",
    "utc_time",
    "utc_timestamp",
    "uuid",
    "uuid_short",
    "values",
    "var_pop",
    "var_samp",
    "variance",
    "version",
];

/// Functions whose value hangs on the session's time zone.
const ZONED: [&str; 2] = ["from_unixtime", "unix_timestamp"];

/// Functions whose first argument is a unit of time, which looks like a name.
const WITH_UNIT: [&str; 2] = ["timestampadd", "timestampdiff"];

/// Whose expression it is.
#[derive(Clone, Copy)]
enum Of<'a> {
    Check(&'a str),
    Generated(&'a str, bool),
}

impl Of<'_> {
    fn unknown_column(self, column: &str) -> SqlError {
        match self {
            Of::Check(name) => check_without_column(name, column),
            Of::Generated(..) => no_column(column, "generated column function"),
        }
    }

    fn function(self, function: &str) -> SqlError {
        match self {
            Of::Check(name) => check_function(name, function),
            Of::Generated(name, _) => generated_function(name, function),
        }
    }

    fn subquery(self) -> SqlError {
        match self {
            Of::Check(name) => check_subquery(name),
            Of::Generated(name, _) => generated_subquery(name),
        }
    }

    fn variable(self) -> SqlError {
        match self {
            Of::Check(name) => check_variable(name),
            Of::Generated(..) => self.subquery(),
        }
    }

    fn row_value(self) -> SqlError {
        match self {
            Of::Check(name) => check_row_value(name),
            Of::Generated(name, _) => generated_row_value(name),
        }
    }

    fn numbered(self) -> SqlError {
        match self {
            Of::Check(name) => check_auto_increment(name),
            Of::Generated(name, _) => generated_auto_increment(name),
        }
    }
}

/// The columns of an expression by their declared names, in backticks; everything else that is no
/// value of the row refused.
struct Names<'a> {
    table: &'a Table,
    of: Of<'a>,
    /// Where units of time stand.
    units: Vec<Span>,
    found: Vec<ColumnId>,
}

impl Names<'_> {
    fn column(&mut self, written: &str) -> SqlResult<Expr> {
        match self.table.column_named(written) {
            Some((_, column)) if !column.hidden => {
                if column.auto_increment {
                    return Err(self.of.numbered());
                }
                let zoned = matches!(column.ty, ColumnType::Timestamp(_));
                if let (Of::Generated(name, false), true) = (self.of, zoned) {
                    return Err(hangs_on_zone(name));
                }
                self.found.push(column.id);
                Ok(Expr::Identifier(Ident::with_quote('`', &column.name)))
            }
            _ => Err(self.of.unknown_column(written)),
        }
    }

    fn function(&mut self, function: &sqlparser::ast::Function) -> SqlResult<()> {
        let names = parts(&function.name);
        let name = names.last().map(String::as_str).unwrap_or_default();
        if names.len() > 1 || function.over.is_some() || DISALLOWED.contains(&name) {
            return Err(self.of.function(&names.join(".")));
        }
        let arguments = match &function.args {
            FunctionArguments::List(list) => list.args.as_slice(),
            _ => &[],
        };
        if ZONED.contains(&name) {
            match self.of {
                // Without an argument it is the present.
                _ if arguments.is_empty() => return Err(self.of.function(name)),
                Of::Generated(column, false) => return Err(hangs_on_zone(column)),
                _ => {}
            }
        }
        if WITH_UNIT.contains(&name)
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(unit)))) =
                arguments.first()
        {
            self.units.push(unit.span);
        }
        Ok(())
    }

    fn meaning(&mut self, expr: &Expr) -> SqlResult<Option<Expr>> {
        match expr {
            Expr::Identifier(ident) if self.units.contains(&ident.span) => Ok(None),
            Expr::Identifier(ident)
                if ident.quote_style.is_none() && ident.value.starts_with('@') =>
            {
                Err(self.of.variable())
            }
            Expr::Identifier(ident) => self.column(&ident.value).map(Some),
            Expr::CompoundIdentifier(path) => {
                let written: Vec<&str> = path.iter().map(|ident| ident.value.as_str()).collect();
                if written.first().is_some_and(|first| first.starts_with('@')) {
                    return Err(self.of.variable());
                }
                let own = |database: Option<&str>, table: &str| {
                    table.eq_ignore_ascii_case(&self.table.name)
                        && database.is_none_or(|d| d.eq_ignore_ascii_case(&self.table.database))
                };
                match written[..] {
                    [table, column] if own(None, table) => self.column(column).map(Some),
                    [database, table, column] if own(Some(database), table) => {
                        self.column(column).map(Some)
                    }
                    _ => Err(self.of.unknown_column(&written.join("."))),
                }
            }
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                Err(self.of.subquery())
            }
            Expr::Tuple(_) => Err(self.of.row_value()),
            Expr::MatchAgainst { .. } => Err(self.of.function("match")),
            Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) => {
                Err(syntax("a definition takes no parameters"))
            }
            Expr::Function(function) => self.function(function).map(|()| None),
            _ => Ok(None),
        }
    }
}

fn hangs_on_zone(column: &str) -> SqlError {
    unsupported(format!(
        "VIRTUAL column {column} over a TIMESTAMP (its value would hang on the reader's time zone; \
         make it STORED)"
    ))
}

/// An expression as it is kept, and the columns that it names.
fn normal(mut expr: Expr, table: &Table, of: Of<'_>) -> SqlResult<(String, Vec<ColumnId>)> {
    let mut names = Names { table, of, units: Vec::new(), found: Vec::new() };
    replace_exprs(&mut expr, &mut |expr| names.meaning(expr))?;
    Ok((text(&expr), names.found))
}

/// Text in parentheses, unless it is one whole without them.
fn text(expr: &Expr) -> String {
    let text = canonical(expr);
    match expr {
        Expr::Nested(_) | Expr::Function(_) | Expr::Identifier(_) | Expr::Value(_) => text,
        _ => format!("({text})"),
    }
}

/// A kept expression.
pub fn parsed(text: &str) -> SqlResult<Expr> {
    parser::parse_expression(text)
}

/// The columns that a kept expression names.
pub fn names(text: &str) -> SqlResult<Vec<String>> {
    struct Quoted(Vec<String>);
    impl Visitor for Quoted {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            // A unit of time is not in backticks.
            if let Expr::Identifier(ident) = expr
                && ident.quote_style == Some('`')
            {
                self.0.push(ident.value.clone());
            }
            ControlFlow::Continue(())
        }
    }
    let mut quoted = Quoted(Vec::new());
    _ = walk(&parsed(text)?, &mut quoted);
    Ok(quoted.0)
}

/// The expression of a generated column, as it was written.
pub fn written(expr: &Expr, stored: bool) -> Default {
    Default::Generated { expression: canonical(expr), stored }
}

/// Adds a CHECK constraint, as it was written, to a table; `column` is the only one that a check at
/// a column may name.
pub fn push_check(
    table: &mut Table,
    name: Option<&str>,
    expr: &Expr,
    enforced: Option<bool>,
    column: Option<&str>,
) -> SqlResult<()> {
    let name = match name {
        Some(name) if table.check_named(name).is_some() => {
            return Err(duplicate_check(name));
        }
        Some(name) => name.to_owned(),
        None => (1u32..)
            .map(|n| format!("{}_chk_{n}", table.name))
            .find(|name| table.check_named(name).is_none())
            .unwrap_or_default(),
    };
    let bare = match expr {
        Expr::Nested(inner) => &**inner,
        other => other,
    };
    let is_condition = binder::truth(bare.clone()) == *bare
        || matches!(bare, Expr::Function(_) | Expr::Between { .. } | Expr::RLike { .. })
        || matches!(bare, Expr::Value(value) if matches!(value.value, Value::Boolean(_)));
    if !is_condition {
        return Err(check_not_boolean(name));
    }
    if let Some(column) = column {
        let own = |found: &types::Column| found.name.eq_ignore_ascii_case(column);
        let mut alone = table.clone();
        alone.columns.retain(own);
        let others = |error: SqlError| match error.code {
            CHECK_WITHOUT_COLUMN => check_of_other_column(&name),
            _ => error,
        };
        normal(expr.clone(), &alone, Of::Check(&name)).map_err(others)?;
    }
    let expression = canonical(expr);
    table.checks.push(Check { name, expression, enforced: enforced.unwrap_or(true) });
    Ok(())
}

/// Makes the expressions of a whole table, as they were written, what is kept.
pub fn settle(table: &mut Table) -> SqlResult<()> {
    for at in 0..table.columns.len() {
        settle_column(table, at)?;
    }
    for at in 0..table.checks.len() {
        settle_check(table, at)?;
    }
    Ok(())
}

/// The same of one check.
pub fn settle_check(table: &mut Table, at: usize) -> SqlResult<()> {
    let Some(check) = table.checks.get(at) else { return Ok(()) };
    let (expression, _) = normal(parsed(&check.expression)?, table, Of::Check(&check.name))?;
    if let Some(check) = table.checks.get_mut(at) {
        check.expression = expression;
    }
    Ok(())
}

/// The same of one column, if it is generated.
pub fn settle_column(table: &mut Table, at: usize) -> SqlResult<()> {
    let Some(column) = table.columns.get(at) else { return Ok(()) };
    let Some((written, stored)) = column.generated() else { return Ok(()) };
    let of = Of::Generated(&column.name, stored);
    let (expression, found) = normal(parsed(written)?, table, of)?;
    let later = |id: &ColumnId| {
        table.position(*id).is_some_and(|other| {
            other >= at && table.columns.get(other).is_some_and(|c| c.generated().is_some())
        })
    };
    if found.iter().any(later) {
        return Err(generated_not_prior());
    }
    if !stored && table.primary_key.contains(&column.id) {
        return Err(not_for_generated("Defining a virtual generated column as primary key"));
    }
    if let Some(column) = table.columns.get_mut(at) {
        column.default = Some(Default::Generated { expression, stored });
    }
    Ok(())
}

/// Refuses a change after which an expression would name a column that is gone, or another one.
pub fn check_dependents(before: &Table, after: &Table) -> SqlResult<()> {
    let moved = |text: &str, known: bool| -> SqlResult<Option<String>> {
        let other = |name: &String| {
            let now = after.column_named(name).map(|(_, column)| column.id);
            let then = before.column_named(name).map(|(_, column)| column.id);
            now.is_none() || known && now != then
        };
        Ok(names(text)?.into_iter().find(other))
    };
    for check in &after.checks {
        if let Some(column) = moved(&check.expression, before.check_named(&check.name).is_some())? {
            return Err(column_checked(&check.name, column));
        }
    }
    for (at, column) in after.columns.iter().enumerate() {
        let Some((text, _)) = column.generated() else { continue };
        let later = |name: &String| {
            after
                .column_named(name)
                .is_some_and(|(other, c)| other >= at && c.generated().is_some())
        };
        if names(text)?.iter().any(later) {
            return Err(generated_not_prior());
        }
        if let Some(column) = moved(text, before.column(column.id).is_some())? {
            return Err(column_generates(column));
        }
    }
    Ok(())
}
