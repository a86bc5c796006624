//! Digests of statements: what their text is but for constants, case and space. For people and for watches; not TiDB's own.

use sha2::{Digest, Sha256};
use sqlparser::dialect::MySqlDialect;
use sqlparser::tokenizer::{Token, Tokenizer};

/// In place of one constant, and of several in a row.
const ONE: &str = "?";
const SEVERAL: &str = "...";

/// A statement without constants, comments and needless space, in lower case. Of what is no statement, its text.
pub fn normalized(sql: &str) -> String {
    let Ok(tokens) = Tokenizer::new(&MySqlDialect {}, sql).tokenize() else {
        return sql.trim().to_lowercase();
    };
    let mut words: Vec<String> = Vec::new();
    for token in tokens {
        let word = match token {
            Token::Whitespace(_) | Token::SemiColon | Token::EOF => continue,
            Token::Word(word) => word.value.to_lowercase(),
            token if is_constant(&token) => ONE.to_owned(),
            token => token.to_string().to_lowercase(),
        };
        if word == ONE
            && let [.., before, comma] = words.as_slice()
            && comma == ","
            && (before == ONE || before == SEVERAL)
        {
            words.truncate(words.len() - 2);
            words.push(SEVERAL.to_owned());
        } else {
            words.push(word);
        }
    }
    words.join(" ")
}

/// SHA-256 of the normalized statement, in hexadecimal digits.
pub fn digest(sql: &str) -> String {
    Sha256::digest(normalized(sql)).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_constant(token: &Token) -> bool {
    matches!(
        token,
        Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::NationalStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::SingleQuotedByteStringLiteral(_)
            | Token::DoubleQuotedByteStringLiteral(_)
            | Token::EscapedStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::Placeholder(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_case_space_and_comments_do_not_count() {
        let written = [
            "SELECT * FROM `T` WHERE a = 7 AND b IN (1, 2, 3)",
            "select  *\nfrom t /* a comment */ where A = 'x' and b in ('y', ?, -- another\n 5.0);",
            "SELECT * FROM t WHERE a = \"q\" AND b IN (1,2)",
        ];
        for sql in written {
            assert_eq!(normalized(sql), "select * from t where a = ? and b in ( ... )", "{sql}");
            assert_eq!(digest(sql), digest(written[0]));
        }
        assert_ne!(digest("SELECT 1"), digest("SELECT 1 FROM t"));
        assert_eq!(normalized("SELECT f(1, a, 2)"), "select f ( ? , a , ? )");
        assert_eq!(normalized("SELECT 'open"), "select 'open", "no statement");
        assert_eq!(digest("x").len(), 64);
    }
}
