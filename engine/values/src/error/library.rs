//! Errors of the libraries that plan and run queries (DataFusion, Arrow) as MySQL's errors.
//!
//! The one place where they become a client's error. Their texts go to the node's log and never into a message: what has
//! a number in MySQL gets that number and a text of our own, anything else says in general terms what is not supported.

use std::error::Error as Cause;

use arrow::error::ArrowError;
use datafusion_common::DataFusionError;
use types::Error;

use super::{
    SqlError, fault, out_of_memory, out_of_range, syntax, too_many_rows, unknown, unsupported,
    wrong_argument_count, wrong_arguments,
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

/// MySQL's number for what DataFusion says in words only: it has one variant for all that cannot be planned, and one for
/// all that fails. `engine/sql/tests/sql/library_words.rs` provokes each; what no query may say the binder refuses. The
/// last are our own functions' words, of whose errors DataFusion makes texts where it asks for their types.
fn numbered(text: &str) -> Option<SqlError> {
    if text.contains("Scalar subquery returned more than one row") {
        return Some(too_many_rows());
    }
    if text.contains("NTILE requires a positive integer") {
        return Some(wrong_arguments("ntile"));
    }
    if text.contains("ORDER BY expressions must appear in argument list") {
        let what = "GROUP_CONCAT(DISTINCT … ORDER BY …) in the order of something else";
        return Some(unsupported(what));
    }
    let rest = text.split_once("Incorrect parameter count in the call to function '")?.1;
    let name = rest.split_once('\'').map_or(rest, |(name, _)| name);
    let name = name.strip_prefix("mysql_").unwrap_or(name);
    // MySQL's grammar has these with their arguments.
    if matches!(name, "left" | "right") {
        return Some(syntax(format!("{name} takes two arguments")));
    }
    Some(wrong_argument_count(name))
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
    }
}
