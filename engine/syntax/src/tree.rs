//! Nodes of the syntax tree as those who rewrite statements make them.
//!
//! No node here has a place in a text.

use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    Value, ValueWithSpan,
};
use sqlparser::tokenizer::Span;

/// A call of a function by name.
pub fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e))).collect();
    Expr::Function(Function {
        name: vec![plain(name.to_owned())].into(),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// A text literal.
pub fn string(text: impl Into<String>) -> Expr {
    value(Value::SingleQuotedString(text.into()))
}

/// A number literal.
pub fn number(n: impl std::fmt::Display) -> Expr {
    value(Value::Number(n.to_string(), false))
}

/// NULL.
pub fn null() -> Expr {
    value(Value::Null)
}

/// A literal.
pub fn value(value: Value) -> Expr {
    Expr::Value(ValueWithSpan { value, span: Span::empty() })
}

/// An identifier that needs no further normalising.
pub fn plain(name: String) -> Ident {
    Ident { value: name, quote_style: None, span: Span::empty() }
}

/// Whether an expression is the word DEFAULT.
pub fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"))
}
