//! MySQL as sqlparser should read it: its own dialect, mended where it misreads, and aware of what a
//! session's sql_mode says about quotes and operators.
//!
//! Tokens and precedences only; no statement is parsed here.

use std::any::TypeId;

use sqlparser::ast::{BinaryOperator, Expr, Ident, ObjectName, UnaryOperator, Value};
use sqlparser::dialect::{Dialect, MySqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

/// The version of MySQL that clients see; they choose syntax by it.
pub use values::variables::VERSION;

/// sqlparser's MySQL dialect with MySQL's operators at their places.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Mysql {
    /// ANSI_QUOTES: `"x"` is a name.
    pub ansi_quotes: bool,
    /// PIPES_AS_CONCAT: `||` joins texts.
    pub pipes_as_concat: bool,
    /// NO_BACKSLASH_ESCAPES: `\` in a text is itself.
    pub plain_backslashes: bool,
    /// REAL_AS_FLOAT: REAL is FLOAT.
    pub real_as_float: bool,
}

impl Mysql {
    /// The dialect of a session whose sql_mode is this.
    pub fn of(sql_mode: &str) -> Self {
        let has = |wanted: &str| sql_mode.split(',').any(|mode| mode.eq_ignore_ascii_case(wanted));
        Mysql {
            ansi_quotes: has("ANSI_QUOTES"),
            pipes_as_concat: has("PIPES_AS_CONCAT"),
            plain_backslashes: has("NO_BACKSLASH_ESCAPES"),
            real_as_float: has("REAL_AS_FLOAT"),
        }
    }
}

/// How strongly MySQL's operators bind, weakest first. sqlparser's own order is PostgreSQL's, in
/// which `a = 1 XOR b = 2`, `2 * 3 ^ 1`, `1 << 2 = 4`, `a = b LIKE c` and `x = 1 && y` mean
/// something else.
mod binds {
    pub const OR: u8 = 5;
    pub const XOR: u8 = 8;
    pub const AND: u8 = 10;
    pub const NOT: u8 = 15;
    pub const COMPARISON: u8 = 20;
    /// LIKE, REGEXP, IN, BETWEEN: MySQL's grammar has them below comparisons.
    pub const PREDICATE: u8 = 22;
    pub const BIT_OR: u8 = 25;
    pub const BIT_AND: u8 = 26;
    pub const SHIFT: u8 = 28;
    pub const SUM: u8 = 30;
    pub const PRODUCT: u8 = 40;
    pub const BIT_XOR: u8 = 44;
    /// `||` under PIPES_AS_CONCAT.
    pub const CONCAT: u8 = 46;
    /// Signs and `~`.
    pub const SIGN: u8 = 48;
    /// `!` and BINARY.
    pub const PREFIX: u8 = 50;
    /// `->` and `->>`, which only follow a column.
    pub const MEMBER: u8 = 60;
}

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
        BASE.is_delimited_identifier_start(ch) || (self.ansi_quotes && ch == '"')
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        BASE.identifier_quote_style(identifier)
    }

    as_mysql!(
        supports_string_literal_concatenation,
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

    /// `FROM (t)`.
    fn supports_parens_around_table_factor(&self) -> bool {
        true
    }

    fn supports_group_by_with_modifier(&self) -> bool {
        true
    }

    /// EXTRACT(YEAR_MONTH FROM …) and its like.
    fn allow_extract_custom(&self) -> bool {
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

    /// `SELECT 1 ON DUPLICATE KEY UPDATE` names no column ON, and `SELECT 1 FOR UPDATE` none FOR.
    fn is_column_alias(&self, kw: &Keyword, parser: &mut Parser) -> bool {
        ![Keyword::ON, Keyword::FOR].contains(kw) && BASE.is_column_alias(kw, parser)
    }

    fn supports_string_literal_backslash_escape(&self) -> bool {
        !self.plain_backslashes
    }

    /// `\%` and `\_` in a text stay as they are, for LIKE.
    fn ignores_wildcard_escapes(&self) -> bool {
        !self.plain_backslashes
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        match precedence {
            Precedence::Or => binds::OR,
            Precedence::Xor => binds::XOR,
            Precedence::And => binds::AND,
            Precedence::UnaryNot => binds::NOT,
            // IS stands beside the comparisons, from left to right.
            Precedence::Is | Precedence::Eq => binds::COMPARISON,
            Precedence::Like | Precedence::Between => binds::PREDICATE,
            Precedence::Pipe | Precedence::PgOther => binds::BIT_OR,
            Precedence::Ampersand => binds::BIT_AND,
            Precedence::PlusMinus => binds::SUM,
            Precedence::MulDivModOp => binds::PRODUCT,
            Precedence::Caret => binds::BIT_XOR,
            Precedence::AtTz | Precedence::DoubleColon => binds::PREFIX,
            Precedence::Colon => binds::MEMBER,
            Precedence::Period => 100,
        }
    }

    /// Operators before their operand. `BINARY a = b` is `(BINARY a) = b`, `!a = b` is `(!a) = b`,
    /// `~a * b` is `(~a) * b`; sqlparser would take in more.
    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        if let Token::Word(word) = &parser.peek_token_ref().token
            && let Some(bits) = word.value.strip_prefix("0b").filter(|_| word.quote_style.is_none())
            && !bits.is_empty()
            && bits.bytes().all(|bit| matches!(bit, b'0' | b'1'))
        {
            let bits = Value::SingleQuotedByteStringLiteral(bits.to_owned());
            let span = parser.next_token().span;
            return Some(Ok(Expr::Value(bits.with_span(span))));
        }
        if let Some(form) = crate::forms::form(parser) {
            return Some(form);
        }
        if let Some(assignment) = crate::forms::assignment(parser) {
            return Some(assignment);
        }
        if let Some(negated) = not_exists(parser) {
            return Some(negated);
        }
        let (op, binds) = match &parser.peek_token_ref().token {
            Token::Word(w) if w.keyword == Keyword::BINARY => (None, binds::PREFIX),
            Token::ExclamationMark => (Some(UnaryOperator::BangNot), binds::PREFIX),
            Token::Minus => (Some(UnaryOperator::Minus), binds::SIGN),
            Token::Plus => (Some(UnaryOperator::Plus), binds::SIGN),
            Token::Tilde => (Some(UnaryOperator::BitwiseNot), binds::SIGN),
            _ => return None,
        };
        parser.next_token();
        // The operand of a sign may have a sign: the operator before binds no weaker than it.
        let operand = parser.parse_subexpr(binds - 1);
        Some(operand.map(|expr| match op {
            Some(op) => Expr::UnaryOp { op, expr: Box::new(expr) },
            // BINARY: compared as bytes.
            None => Expr::Collate {
                expr: Box::new(expr),
                collation: ObjectName::from(Ident::new("binary")),
            },
        }))
    }

    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if let Some(negated) = in_list_of_queries(parser) {
            return Some(in_list(parser, expr, negated));
        }
        let op = match &parser.peek_token_ref().token {
            Token::Word(w) if w.keyword == Keyword::DIV => BinaryOperator::MyIntegerDivide,
            Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case("MOD") => {
                BinaryOperator::Modulo
            }
            Token::StringConcat if self.pipes_as_concat => {
                parser.next_token();
                let right = parser.parse_subexpr(precedence);
                return Some(right.map(|right| concat(expr.clone(), right)));
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
        Some(Ok(match &parser.peek_token_ref().token {
            Token::Word(w)
                if w.quote_style.is_none()
                    && (w.keyword == Keyword::DIV || w.value.eq_ignore_ascii_case("MOD")) =>
            {
                binds::PRODUCT
            }
            Token::StringConcat if self.pipes_as_concat => binds::CONCAT,
            // `||` is OR under MySQL's default sql_mode, not concatenation.
            Token::StringConcat => binds::OR,
            Token::Overlap => binds::AND,
            Token::ShiftLeft | Token::ShiftRight => binds::SHIFT,
            Token::Arrow | Token::LongArrow => binds::MEMBER,
            // No operator stands there in MySQL.
            Token::ExclamationMark | Token::Tilde => 0,
            _ => return None,
        }))
    }
}

/// `NOT EXISTS (…) …`, if it comes next: NOT takes in all that binds more strongly, `NOT EXISTS (…) + 1` is
/// `NOT (EXISTS (…) + 1)`. sqlparser would take in the subquery alone.
fn not_exists(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
    let is = |token: &Token, keyword| matches!(token, Token::Word(w) if w.keyword == keyword);
    if !is(&parser.peek_token_ref().token, Keyword::NOT)
        || !is(&parser.peek_nth_token(1).token, Keyword::EXISTS)
    {
        return None;
    }
    parser.next_token();
    Some(parser.parse_subexpr(binds::NOT).map(|operand| match operand {
        Expr::Exists { subquery, negated: false } => Expr::Exists { subquery, negated: true },
        operand => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(operand) },
    }))
}

/// What goes on with a query behind one in parentheses.
const GOES_ON: [Keyword; 5] =
    [Keyword::UNION, Keyword::INTERSECT, Keyword::EXCEPT, Keyword::ORDER, Keyword::LIMIT];

/// Whether a list of several items comes next whose first one is in parentheses, `IN ((SELECT …), 2)`, and whether it is
/// of NOT IN; `None` of anything else. sqlparser would take the first query for all that is in the parentheses.
fn in_list_of_queries(parser: &Parser) -> Option<bool> {
    let is = |at: usize, keyword| matches!(&parser.peek_nth_token(at).token, Token::Word(w) if w.keyword == keyword);
    let negated = is(0, Keyword::NOT);
    let at = usize::from(negated);
    let opened = |at: usize| parser.peek_nth_token(at).token == Token::LParen;
    if !is(at, Keyword::IN) || !opened(at + 1) || !opened(at + 2) {
        return None;
    }
    let mut depth = 0usize;
    for at in parser.index().. {
        match &parser.token_at(at).token {
            Token::LParen => depth += 1,
            Token::RParen if depth <= 1 => return None,
            Token::RParen => depth -= 1,
            Token::Comma if depth == 1 => return Some(negated),
            // It is one query, which is in parentheses itself.
            Token::Word(w) if depth == 1 && GOES_ON.contains(&w.keyword) => return None,
            Token::EOF => return None,
            _ => {}
        }
    }
    None
}

fn in_list(parser: &mut Parser, expr: &Expr, negated: bool) -> Result<Expr, ParserError> {
    if negated {
        parser.next_token();
    }
    parser.next_token();
    parser.expect_token(&Token::LParen)?;
    let list = parser.parse_comma_separated(Parser::parse_expr)?;
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::InList { expr: Box::new(expr.clone()), list, negated })
}

/// `a || b` under PIPES_AS_CONCAT, in a form that means the same under any sql_mode.
fn concat(left: Expr, right: Expr) -> Expr {
    crate::tree::call("concat", vec![left, right])
}

/// Whether an operator negates its operand's truth.
pub fn is_not(op: UnaryOperator) -> bool {
    matches!(op, UnaryOperator::Not | UnaryOperator::BangNot)
}
