//! SET CONFIG: TiDB's forms.

use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;
use values::error::SqlResult;

use super::{peek_word, unexpected};
use crate::statement::Stmt;

/// `{row | sql | columnar | 'instance'} name = value`, behind SET CONFIG. Names may have points and dashes, as TiDB's have:
/// both mean an underscore.
pub fn set_config(parser: &mut Parser) -> SqlResult<Stmt> {
    let whose = word(parser, "a kind of node, or the address or number of one in quotes")?;
    let mut name = word(parser, "the name of a setting")?;
    while parser.consume_token(&Token::Period) || parser.consume_token(&Token::Minus) {
        name = format!("{name}_{}", word(parser, "the rest of the name")?);
    }
    if !parser.consume_token(&Token::Eq) && !parser.consume_token(&Token::Assignment) {
        return Err(unexpected(&parser.peek_token(), "="));
    }
    if peek_word(parser, 0).as_deref() == Some("DEFAULT") {
        parser.next_token();
        return Ok(Stmt::SetConfig { whose, name, value: None });
    }
    let value = Some(word(parser, "a value")?);
    Ok(Stmt::SetConfig { whose, name, value })
}

/// A word, a number, or what stands in quotes.
fn word(parser: &mut Parser, wanted: &str) -> SqlResult<String> {
    let token = parser.next_token();
    match token.token {
        Token::Word(word) => Ok(word.value),
        Token::Number(number, _) => Ok(number),
        Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => Ok(text),
        _ => Err(unexpected(&token, wanted)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;

    #[test]
    fn settings_are_read_as_tidb_writes_them() {
        for (sql, wanted) in [
            ("SET CONFIG columnar log_level = 'debug'", ("columnar", "log_level", Some("debug"))),
            ("SET CONFIG tikv log.level='info'", ("tikv", "log_level", Some("info"))),
            (
                "set config '127.0.0.1:4040' column-cache-mib := 12",
                ("127.0.0.1:4040", "column_cache_mib", Some("12")),
            ),
            ("SET CONFIG \"1001\" log_level = warn", ("1001", "log_level", Some("warn"))),
            ("SET CONFIG sql max_connections = DEFAULT", ("sql", "max_connections", None)),
        ] {
            let Stmt::SetConfig { whose, name, value } = parse(sql).unwrap() else {
                panic!("{sql}")
            };
            assert_eq!((whose.as_str(), name.as_str(), value.as_deref()), wanted, "{sql}");
        }
        for sql in [
            "SET CONFIG",
            "SET CONFIG sql",
            "SET CONFIG sql a",
            "SET CONFIG sql a =",
            "SET CONFIG sql a = (1)",
        ] {
            assert_eq!(parse(sql).unwrap_err().code, 1064, "{sql}");
        }
    }
}
