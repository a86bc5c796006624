//! Parameters written into a query's text, for those who keep no session: afterwards the text means the same anywhere.
//!
//! It must never plan or run anything.

use sqlparser::ast::{Expr, Value as SqlValue, ValueWithSpan};
use types::Value;
use values::error::{SqlResult, syntax};

use crate::constant::expression;
use crate::dialect::Mysql;
use crate::parser;
use crate::walk::each_expr;

/// How many parameters a query takes under the default sql_mode.
pub fn parameters(sql: &str) -> SqlResult<usize> {
    parser::placeholders(sql, &Mysql::default())
}

/// A query with its parameters as literals. One without is left as it is written.
pub fn bound(sql: &str, values: &[Value]) -> SqlResult<String> {
    let taken = parameters(sql)?;
    if taken != values.len() {
        return Err(syntax(format!("the query takes {taken} parameters and has {}", values.len())));
    }
    if taken == 0 {
        return Ok(sql.to_owned());
    }
    let mut statement = parser::parse_sql(sql)?;
    each_expr(&mut statement, &mut |expr: &mut Expr| -> SqlResult<()> {
        if let Expr::Value(ValueWithSpan { value: SqlValue::Placeholder(mark), .. }) = expr {
            let at = mark.trim_start_matches('?').parse::<usize>().unwrap_or(0);
            let value = at.checked_sub(1).and_then(|at| values.get(at));
            *expr = expression(value.ok_or_else(|| syntax("a '?' stands where no parameter can"))?);
        }
        Ok(())
    })?;
    Ok(statement.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_literals_in_the_order_of_the_text() {
        let values = [Value::Int(-1), Value::String("it's".into()), Value::Null];
        let text = bound("SELECT ? + 1, '?', ? FROM t WHERE a <=> ?", &values).unwrap();
        assert_eq!(text, "SELECT -1 + 1, '?', _utf8mb4 X'69742773' FROM t WHERE a <=> NULL");
        assert_eq!(bound(&text, &[]).unwrap(), text);
    }

    #[test]
    fn a_wrong_number_of_parameters_is_refused() {
        assert!(bound("SELECT ?", &[]).is_err());
        assert!(bound("SELECT 1", &[Value::Null]).is_err());
    }
}
