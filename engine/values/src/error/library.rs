//! Errors of the libraries that plan and run queries (DataFusion, Arrow) as MySQL's errors.
//!
//! The one place where they become a client's error. Their texts go to the node's log and never into a message: what has
//! a number in MySQL gets that number and a text of our own, anything else says in general terms what is not supported.

use std::error::Error as Cause;

use arrow::error::ArrowError;
use datafusion_common::{DataFusionError, SchemaError};
use types::Error;

use super::{
    SqlError, ambiguous_column, different_column_counts, duplicate_column, fault, no_column,
    no_window, order_not_distinct, order_not_selected, out_of_memory, out_of_range, syntax,
    too_many_rows, unknown, unsupported, wrong_aggregate, wrong_argument_count, wrong_arguments,
    wrong_width,
};

/// With what other tiers begin an error that they have given a code of their own: it stays as it is, for them to find.
const CODED: &str = "ISOBAR-";

/// What the libraries' texts speak of, in lower case, and what a client gets instead; the first that fits.
const CONSTRUCTS: [(&[&str], &str); 8] = [
    (
        &["correlated", "outer_ref", "outerreference", "subquery", "exists("],
        "a subquery of this form",
    ),
    (&["recursive"], "a recursive query of this form"),
    (&["window", "range queries"], "a window of this form"),
    (
        &[
            "coerc",
            "common argument type",
            "signature",
            "cast",
            "data type",
            "datatype",
            "incompatible",
        ],
        "an operation on values of these types",
    ),
    (&["aggregat", "accumulator", "group by", "grouping"], "an aggregate of this form"),
    (&["union", "intersect", "except"], "a set operation of this form"),
    (&["join"], "a join of this form"),
    (&["order by", "sort"], "an order by values of this kind"),
];

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::External(inner) => of_cause(inner),
            DataFusionError::ArrowError(inner, _) => (*inner).into(),
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
                (*inner).into()
            }
            // Several faults: the first is the one that MySQL would name.
            DataFusionError::Collection(errors) => match errors.into_iter().next() {
                Some(first) => first.into(),
                None => not_supported("no fault is named"),
            },
            DataFusionError::Shared(inner) => shared(&inner),
            // A task of a plan's own.
            DataFusionError::ExecutionJoin(inner) if inner.is_panic() => fault(),
            DataFusionError::SchemaError(inner, _) => of_schema(&inner),
            other => worded(&other),
        }
    }
}

impl From<ArrowError> for SqlError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::ExternalError(inner) => of_cause(inner),
            other => of_arrow(&other),
        }
    }
}

/// An error of ours that passed through a library, or one of a third party.
fn of_cause(cause: Box<dyn Cause + Send + Sync>) -> SqlError {
    let cause = match cause.downcast::<SqlError>() {
        Ok(error) => return *error,
        Err(cause) => cause,
    };
    let cause = match cause.downcast::<Error>() {
        Ok(error) => return (*error).into(),
        Err(cause) => cause,
    };
    let cause = match cause.downcast::<DataFusionError>() {
        Ok(error) => return (*error).into(),
        Err(cause) => cause,
    };
    match cause.downcast::<ArrowError>() {
        Ok(error) => (*error).into(),
        Err(cause) => carried(&cause.to_string()).unwrap_or_else(|| failed(&cause.to_string())),
    }
}

/// An error that several consumers of one input received.
fn shared(error: &DataFusionError) -> SqlError {
    match error.find_root() {
        DataFusionError::External(inner) => {
            if let Some(error) = inner.downcast_ref::<SqlError>() {
                return error.clone();
            }
            if let Some(error) = inner.downcast_ref::<Error>() {
                return error.clone().into();
            }
            let text = inner.to_string();
            carried(&text).unwrap_or_else(|| failed(&text))
        }
        DataFusionError::ExecutionJoin(inner) if inner.is_panic() => fault(),
        DataFusionError::ArrowError(inner, _) => of_arrow(inner),
        DataFusionError::SchemaError(inner, _) => of_schema(inner),
        other => worded(other),
    }
}

/// An error that consists of a text alone.
fn worded(error: &DataFusionError) -> SqlError {
    let text = error.strip_backtrace();
    if let Some(error) = carried(&text) {
        return error;
    }
    match error {
        DataFusionError::NotImplemented(_) => {
            log(&text);
            unsupported(construct(&text).unwrap_or("a statement of this form"))
        }
        DataFusionError::ResourcesExhausted(_) => {
            log(&text);
            out_of_memory()
        }
        DataFusionError::Execution(_)
        | DataFusionError::ExecutionJoin(_)
        | DataFusionError::IoError(_) => failed(&text),
        _ => not_supported(&text),
    }
}

/// The error that a text carries, if it is one of ours or has a number in MySQL.
fn carried(text: &str) -> Option<SqlError> {
    if let Some(at) = text.find(CODED) {
        return Some(unknown(&text[at..]));
    }
    spelled(text).or_else(|| numbered(text))
}

/// An error of which another node has sent the words alone; `None` if they contain no number.
pub fn of_words(text: &str) -> Option<SqlError> {
    spelled(text).or_else(|| numbered(text))
}

fn spelled(text: &str) -> Option<SqlError> {
    let (code, rest) = text.split_once("ERROR ")?.1.split_once(" (")?;
    let (state, message) = rest.split_once("): ")?;
    let state: [u8; 5] = state.as_bytes().try_into().ok()?;
    Some(SqlError::received(code.parse().ok()?, state, message))
}

/// Error 1105 of a statement that a library refuses to plan, or plans wrongly.
fn not_supported(text: &str) -> SqlError {
    log(text);
    let what = construct(text).unwrap_or("there is no plan for it");
    unknown(format!("this statement is not supported: {what}"))
}

/// Error 1105 of a statement that failed while it ran.
fn failed(text: &str) -> SqlError {
    log(text);
    unknown("the statement failed while it ran; the log of the node that it ran on has the cause")
}

fn log(cause: &str) {
    tracing::warn!(cause, "a library refused a statement");
}

fn construct(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    let fits = |(marks, _): &&(&[&str], &str)| marks.iter().any(|mark| text.contains(mark));
    CONSTRUCTS.iter().find(fits).map(|(_, what)| *what)
}

/// Whether a name that a library speaks of is one that a statement can have written.
fn is_written(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let internal = ["__", "isobar_", "mysql_"].iter().any(|prefix| last.starts_with(prefix));
    !internal && !name.contains(['(', ')', '\u{1}', '\n'])
}

/// MySQL's number for what DataFusion says in words only: it has one variant for all that cannot be planned, and one for
/// all that fails. `engine/sql/tests/sql/library_words.rs` provokes each. The last are our own functions' words, of whose
/// errors DataFusion makes texts where it asks for their types.
fn numbered(text: &str) -> Option<SqlError> {
    let between = |before: &str, after: &str| {
        let rest = text.split_once(before)?.1;
        Some(rest.split_once(after).map_or(rest, |(word, _)| word).to_owned())
    };
    if text.contains("The subquery should only return one column")
        || text.contains("names given as column alias")
    {
        return Some(wrong_width(1));
    }
    if text.contains("Scalar subquery returned more than one row") {
        return Some(too_many_rows());
    }
    if text.contains("queries have different number of columns") {
        return Some(different_column_counts());
    }
    if text.contains("Aggregate functions are not allowed in the WHERE clause")
        || text.contains("Aggregate function calls cannot be nested")
    {
        return Some(wrong_aggregate());
    }
    if text.contains("NTILE requires a positive integer") {
        return Some(wrong_arguments("ntile"));
    }
    if text.contains("LIMIT must be >= 0") || text.contains("OFFSET must be >=0") {
        return Some(syntax("LIMIT and OFFSET take numbers that are not negative"));
    }
    if text.contains("ORDER BY expressions must appear in argument list") {
        let what = "GROUP_CONCAT(DISTINCT … ORDER BY …) in the order of something else";
        return Some(unsupported(what));
    }
    if text.contains("undecorrelated Subquery") {
        let what = "a LATERAL table of this form (it is joined by what its WHERE equates)";
        return Some(unsupported(what));
    }
    if text.contains("must appear in select list")
        && let Some(name) = between("ORDER BY expressions ", " must appear in select list")
    {
        return Some(not_listed(&name));
    }
    if text.contains("must be in GROUP BY") || text.contains("must appear in the GROUP BY") {
        return Some(not_grouped(text, between("column \"", "\"")));
    }
    if let Some(position) = between("Order by column out of bounds, specified: ", ",") {
        return Some(no_column(&position, "order clause"));
    }
    if let Some(position) = between("Cannot find column with position ", " ") {
        return Some(no_column(&position, "group statement"));
    }
    if let Some(name) = between("The window ", " is not defined") {
        return Some(no_window(name));
    }
    let name = between("Incorrect parameter count in the call to function '", "'")?;
    let name = name.strip_prefix("mysql_").unwrap_or(&name);
    // MySQL's grammar has these with their arguments.
    if matches!(name, "left" | "right") {
        return Some(syntax(format!("{name} takes two arguments")));
    }
    Some(wrong_argument_count(name))
}

/// Error 3065.
fn not_listed(name: &str) -> SqlError {
    match is_written(name) {
        true => order_not_selected(name),
        false => order_not_distinct(),
    }
}

/// Error 1055; of HAVING, which knows the select list and groups alone, 1054.
fn not_grouped(text: &str, name: Option<String>) -> SqlError {
    let name = name.filter(|name| is_written(name));
    if text.contains("Column in HAVING") || text.contains("HAVING clause") {
        let name = name.unwrap_or_default();
        return no_column(name.rsplit('.').next().unwrap_or_default(), "having clause");
    }
    let clause = match text.contains("Column in ORDER BY") {
        true => "ORDER BY clause",
        false => "SELECT list",
    };
    let column = match name {
        Some(name) => format!("nonaggregated column '{name}'"),
        None => "a nonaggregated column".to_owned(),
    };
    super::not_grouped(clause, column)
}

fn of_schema(error: &SchemaError) -> SqlError {
    let name = match error {
        SchemaError::FieldNotFound { field, .. } => match &field.relation {
            Some(relation) => format!("{}.{}", relation.table(), field.name),
            None => field.name.clone(),
        },
        SchemaError::AmbiguousReference { field } => field.name.clone(),
        SchemaError::DuplicateUnqualifiedField { name }
        | SchemaError::DuplicateQualifiedField { name, .. } => name.clone(),
    };
    if !is_written(&name) {
        return not_supported(&error.to_string());
    }
    match error {
        SchemaError::FieldNotFound { .. } => no_column(&name, "field list"),
        SchemaError::AmbiguousReference { .. } => ambiguous_column(name, "field list"),
        _ => duplicate_column(name),
    }
}

/// Numbers that leave their types; anything else is a fault of ours, for no client's values reach Arrow unchecked.
fn of_arrow(error: &ArrowError) -> SqlError {
    let text = error.to_string();
    if let Some(error) = carried(&text) {
        return error;
    }
    match error {
        ArrowError::ArithmeticOverflow(_) | ArrowError::DivideByZero => {
            log(&text);
            out_of_range("BIGINT", "the statement")
        }
        ArrowError::InvalidArgumentError(what) if is_of_digits(what) => {
            log(&text);
            out_of_range("DECIMAL", "the statement")
        }
        ArrowError::CastError(_)
        | ArrowError::SchemaError(_)
        | ArrowError::NotYetImplemented(_) => not_supported(&text),
        _ => failed(&text),
    }
}

/// Whether a number has more digits than its type, as Arrow says it: in words, of a variant that means other things too.
fn is_of_digits(text: &str) -> bool {
    text.contains("to store in a Decimal")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::external;

    const MARKS: [&str; 6] =
        ["Error during", "Internal", "Arrow", "Schema", "type_coercion", "Utf8"];

    fn converted(error: DataFusionError) -> SqlError {
        let error = SqlError::from(error);
        assert!(!MARKS.iter().any(|mark| error.message.contains(mark)), "{error}");
        error
    }

    #[test]
    fn texts_of_the_library_are_not_passed_on() {
        let text = || "type_coercion: cannot coerce Utf8 to Duration".to_owned();
        let arrow = |error| DataFusionError::ArrowError(Box::new(error), None);
        let errors = [
            DataFusionError::Plan(text()),
            DataFusionError::Internal(text()),
            DataFusionError::NotImplemented(text()),
            DataFusionError::Execution(text()),
            DataFusionError::ResourcesExhausted(text()),
            DataFusionError::External(text().into()),
            DataFusionError::Plan(text()).context("Optimizer rule 'type_coercion' failed"),
            DataFusionError::Shared(DataFusionError::Internal(text()).into()),
            DataFusionError::Collection(vec![DataFusionError::Internal(text())]),
            DataFusionError::Plan(
                "Column in SELECT must be in GROUP BY or an aggregate function: While expanding wildcard, \
                 column \"mysql_add(d.t.a, Utf8(\"1\"))\" must appear in the GROUP BY clause"
                    .to_owned(),
            ),
            arrow(ArrowError::CastError(text())),
            arrow(ArrowError::ComputeError(text())),
            arrow(ArrowError::ArithmeticOverflow(text())),
            arrow(ArrowError::ExternalError(text().into())),
        ];
        for error in errors {
            converted(error);
        }
    }

    #[test]
    fn errors_of_ours_pass_through_it() {
        let ours = out_of_range("BIGINT", "a");
        let through = |error: DataFusionError| SqlError::from(error);
        assert_eq!(through(external(ours.clone())), ours);
        let arrow = ArrowError::ExternalError(Box::new(ours.clone()));
        assert_eq!(through(DataFusionError::ArrowError(Box::new(arrow), None)), ours);
        assert_eq!(through(DataFusionError::Shared(external(ours.clone()).into())), ours);
        assert_eq!(through(DataFusionError::Execution(format!("task 3: {ours}"))), ours);
        let coded =
            through(DataFusionError::Execution("ISOBAR-STALE_REGION: plan again".to_owned()));
        assert_eq!(coded.message, "ISOBAR-STALE_REGION: plan again");
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let text = "Cannot run range queries on datatype: Binary";
        let message = converted(DataFusionError::Internal(text.to_owned())).message;
        assert_eq!(message, "this statement is not supported: a window of this form");
        let grouped = "Column in ORDER BY must be in GROUP BY or an aggregate function: While expanding wildcard, \
                       column \"d.k.d\" must appear in the GROUP BY clause";
        let error = converted(DataFusionError::Plan(grouped.to_owned()));
        assert_eq!(error.code, 1055);
        assert!(error.message.starts_with("Expression of ORDER BY clause"), "{error}");
        assert!(error.message.contains("'d.k.d'"), "{error}");
    }
}
