//! MySQL as sqlparser should read it: its own dialect, mended where it misreads.
//!
//! Precedences only; no statement is parsed here.

use std::any::TypeId;

use sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};
use sqlparser::dialect::{Dialect, MySqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

/// sqlparser's MySQL dialect with MySQL's operators at their places.
#[derive(Debug, Default, Clone, Copy)]
pub struct Mysql;

const BASE: MySqlDialect = MySqlDialect {};

macro_rules! as_mysql {
    ($($name:ident),*) => { $(fn $name(&self) -> bool { BASE.$name() })* };
}

impl Dialect for Mysql {
    fn dialect(&self) -> TypeId {
        TypeId::of::<MySqlDialect>()
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        BASE.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        BASE.is_identifier_part(ch)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        BASE.is_delimited_identifier_start(ch)
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        BASE.identifier_quote_style(identifier)
    }

    as_mysql!(
        supports_string_literal_backslash_escape,
        supports_string_literal_concatenation,
        ignores_wildcard_escapes,
        supports_numeric_prefix,
        supports_bitwise_shift_operators,
        supports_multiline_comment_hints,
        require_interval_qualifier,
        supports_limit_comma,
        supports_create_table_select,
        supports_insert_set,
        supports_user_host_grantee,
        supports_table_hints,
        requires_single_line_comment_whitespace,
        supports_match_against,
        supports_select_modifiers,
        supports_set_names,
        supports_comma_separated_set_assignments,
        supports_update_order_by,
        supports_data_type_signed_suffix,
        supports_cross_join_constraint,
        supports_double_ampersand_operator,
        supports_comment_optimizer_hint,
        supports_constraint_keyword_without_name,
        supports_key_column_option
    );

    fn supports_group_by_with_modifier(&self) -> bool {
        true
    }

    fn supports_table_versioning(&self) -> bool {
        true
    }

    fn supports_bang_not_operator(&self) -> bool {
        true
    }

    fn is_table_factor_alias(&self, explicit: bool, kw: &Keyword, parser: &mut Parser) -> bool {
        BASE.is_table_factor_alias(explicit, kw, parser)
    }

    /// `BINARY a = b` is `(BINARY a) = b`; sqlparser would cast the comparison.
    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        if !matches!(&parser.peek_token().token, Token::Word(w) if w.keyword == Keyword::BINARY) {
            return None;
        }
        parser.next_token();
        Some(parser.parse_subexpr(self.prec_value(Precedence::AtTz)))
    }

    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        let op = match &parser.peek_token().token {
            Token::Word(w) if w.keyword == Keyword::DIV => BinaryOperator::MyIntegerDivide,
            Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case("MOD") => {
                BinaryOperator::Modulo
            }
            _ => return None,
        };
        parser.next_token();
        Some(parser.parse_subexpr(precedence).map(|right| Expr::BinaryOp {
            left: Box::new(expr.clone()),
            op,
            right: Box::new(right),
        }))
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        match &parser.peek_token().token {
            Token::Word(w)
                if w.quote_style.is_none()
                    && (w.keyword == Keyword::DIV || w.value.eq_ignore_ascii_case("MOD")) =>
            {
                Some(Ok(self.prec_value(Precedence::MulDivModOp)))
            }
            // `||` is OR under MySQL's default sql_mode, not concatenation.
            Token::StringConcat => Some(Ok(self.prec_value(Precedence::Or))),
            _ => None,
        }
    }
}

/// Whether an operator negates its operand's truth.
pub fn is_not(op: UnaryOperator) -> bool {
    matches!(op, UnaryOperator::Not | UnaryOperator::BangNot)
}
