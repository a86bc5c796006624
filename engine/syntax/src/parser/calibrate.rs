//! CALIBRATE RESOURCE: TiDB's forms.

use std::time::Duration;

use sqlparser::ast::{BinaryOperator, Expr};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;
use types::calibration::KnownLoad;
use types::resource_group::duration_of;
use values::error::{SqlResult, syntax};

use super::resource_groups::equals;
use super::{expect, peek_word, refused, take, text, unexpected};
use crate::statement::{CalibrateBy, Stmt, Until};

/// `CALIBRATE RESOURCE [WORKLOAD name | START_TIME time [DURATION '…' | END_TIME time]]`, the times in any order.
pub fn calibrate(parser: &mut Parser) -> SqlResult<Stmt> {
    expect(parser, &["CALIBRATE", "RESOURCE"])?;
    if take(parser, &["WORKLOAD"]) {
        let word = peek_word(parser, 0).unwrap_or_default();
        let known = KnownLoad::ALL.into_iter().find(|load| load.name() == word);
        let names = "TPCC, OLTP_READ_WRITE, OLTP_READ_ONLY or OLTP_WRITE_ONLY";
        let load = known.ok_or_else(|| unexpected(&parser.peek_token(), names))?;
        parser.next_token();
        return Ok(Stmt::Calibrate(Box::new(CalibrateBy::Workload(load))));
    }
    let (mut start, mut end, mut lasts) = (None, None, None);
    while !matches!(parser.peek_token().token, Token::EOF | Token::SemiColon) {
        let at = parser.peek_token();
        let twice = || unexpected(&at, "each of START_TIME, END_TIME and DURATION at most once");
        if take(parser, &["START_TIME"]) {
            let given = start.replace(time(parser)?);
            given.is_none().then_some(()).ok_or_else(twice)?;
        } else if take(parser, &["END_TIME"]) {
            let given = end.replace(time(parser)?);
            given.is_none().then_some(()).ok_or_else(twice)?;
        } else if take(parser, &["DURATION"]) {
            let given = lasts.replace(duration(parser)?);
            given.is_none().then_some(()).ok_or_else(twice)?;
        } else {
            return Err(unexpected(&at, "WORKLOAD, START_TIME, END_TIME or DURATION"));
        }
        _ = parser.consume_token(&Token::Comma);
    }
    let by = match (start, end, lasts) {
        (Some(start), None, None) => CalibrateBy::Used { start, until: None },
        (Some(start), Some(end), None) => CalibrateBy::Used { start, until: Some(Until::End(end)) },
        (Some(start), None, Some(Lasts::Time(time))) => {
            CalibrateBy::Used { start, until: Some(Until::Lasts(time)) }
        }
        (Some(start), None, Some(Lasts::Interval(interval))) => {
            let (left, right) = (start.clone(), interval);
            let end = Box::new(Expr::BinaryOp { left, op: BinaryOperator::Plus, right });
            CalibrateBy::Used { start, until: Some(Until::End(end)) }
        }
        (None, None, None) => CalibrateBy::Workload(KnownLoad::Tpcc),
        (None, ..) => return Err(syntax("CALIBRATE RESOURCE needs START_TIME beside that")),
        (_, Some(_), Some(_)) => return Err(syntax("END_TIME or DURATION, not both")),
    };
    Ok(Stmt::Calibrate(Box::new(by)))
}

/// What DURATION gives.
enum Lasts {
    Time(Duration),
    Interval(Box<Expr>),
}

fn time(parser: &mut Parser) -> SqlResult<Box<Expr>> {
    equals(parser);
    parser.parse_expr().map(Box::new).map_err(|error| refused(&error))
}

/// `'10m'` or `INTERVAL 10 MINUTE`.
fn duration(parser: &mut Parser) -> SqlResult<Lasts> {
    equals(parser);
    if peek_word(parser, 0).as_deref() == Some("INTERVAL") {
        return time(parser).map(Lasts::Interval);
    }
    let at = parser.peek_token();
    let lasts = duration_of(&text(parser)?);
    lasts.map(Lasts::Time).ok_or_else(|| unexpected(&at, "a duration such as '10m'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;

    fn by(sql: &str) -> CalibrateBy {
        match parse(sql).unwrap() {
            Stmt::Calibrate(by) => *by,
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn calibrations_are_read_as_tidb_writes_them() {
        assert_eq!(by("CALIBRATE RESOURCE"), CalibrateBy::Workload(KnownLoad::Tpcc));
        let load = by("calibrate resource workload oltp_read_only");
        assert_eq!(load, CalibrateBy::Workload(KnownLoad::ReadOnly));
        let forms = [
            ("START_TIME '2030-01-01 10:00:00' DURATION '10m'", "Lasts(600s)"),
            ("DURATION = '1h30m' START_TIME = NOW()", "Lasts(5400s)"),
            ("START_TIME NOW() - INTERVAL 1 HOUR, END_TIME NOW()", "End"),
            ("START_TIME '2030-01-01' DURATION INTERVAL 20 MINUTE", "End"),
        ];
        for (form, wanted) in forms {
            let found = by(&format!("CALIBRATE RESOURCE {form}"));
            let CalibrateBy::Used { until: Some(until), .. } = found else {
                panic!("{form}: {found:?}")
            };
            assert!(format!("{until:?}").starts_with(wanted), "{form}: {until:?}");
        }
        let open = by("CALIBRATE RESOURCE START_TIME '2030-01-01'");
        assert!(matches!(open, CalibrateBy::Used { until: None, .. }));
    }

    #[test]
    fn what_is_no_calibration_is_refused() {
        for sql in [
            "CALIBRATE",
            "CALIBRATE RESOURCE WORKLOAD",
            "CALIBRATE RESOURCE WORKLOAD YCSB",
            "CALIBRATE RESOURCE DURATION '10m'",
            "CALIBRATE RESOURCE START_TIME '2030-01-01' DURATION 'soon'",
            "CALIBRATE RESOURCE START_TIME '2030-01-01' START_TIME '2030-01-02'",
            "CALIBRATE RESOURCE START_TIME '2030-01-01' END_TIME '2030-01-02' DURATION '10m'",
            "CALIBRATE RESOURCE TPCC",
        ] {
            assert_eq!(parse(sql).unwrap_err().code, 1064, "{sql}");
        }
    }
}
