//! Calls of functions of ours in plans.

use datafusion::common::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;
use values::error::{external, unknown};

/// A call of one of our functions.
pub fn call(name: &str, args: Vec<Expr>) -> Result<Expr> {
    let function = functions::named(name)
        .ok_or_else(|| external(unknown(format!("function {name} is not registered"))))?;
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(function, args)))
}
