//! What columns without an alias are called: their expressions as they were written.
//!
//! The tree keeps neither blanks nor spellings, so the texts are taken from the statement, by the places of its
//! tokens, and become aliases wherever the tree's own text is another. No list whose items are counted otherwise by
//! the tree is touched.

use std::collections::HashMap;
use std::ops::ControlFlow;

use sqlparser::ast::{Expr, Ident, Select, SelectItem, UnaryOperator, Value, VisitorMut};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use crate::names;
use crate::statement::Stmt;
use crate::walk::{Part, walk_mut};

/// Words between SELECT and its list.
const MODIFIERS: [&str; 11] = [
    "ALL",
    "DISTINCT",
    "DISTINCTROW",
    "HIGH_PRIORITY",
    "STRAIGHT_JOIN",
    "SQL_SMALL_RESULT",
    "SQL_BIG_RESULT",
    "SQL_BUFFER_RESULT",
    "SQL_CACHE",
    "SQL_CALC_FOUND_ROWS",
    "SQL_NO_CACHE",
];

/// Words that end a select list.
const ENDS: [Keyword; 14] = [
    Keyword::FROM,
    Keyword::INTO,
    Keyword::WHERE,
    Keyword::GROUP,
    Keyword::HAVING,
    Keyword::WINDOW,
    Keyword::ORDER,
    Keyword::LIMIT,
    Keyword::UNION,
    Keyword::EXCEPT,
    Keyword::INTERSECT,
    Keyword::FOR,
    Keyword::ON,
    Keyword::WITH,
];

/// Texts of the items of select lists, cut to a name's length, by the place of their SELECT.
#[derive(Default)]
pub struct Labels(HashMap<Location, Vec<String>>);

/// A select list: the first and the last token of each item.
struct List {
    select: Location,
    items: Vec<(usize, usize)>,
    item: Option<(usize, usize)>,
}

impl List {
    fn of(select: Location) -> List {
        List { select, items: Vec::new(), item: None }
    }

    fn read(&mut self, at: usize) {
        self.item = Some((self.item.map_or(at, |(first, _)| first), at));
    }

    fn end_item(&mut self) {
        self.items.extend(self.item.take());
    }
}

impl Labels {
    /// Those of a text and of all of its tokens, as they were read.
    pub fn of(text: &str, tokens: &[TokenWithSpan]) -> Labels {
        let computed = |list: &List| list.items.iter().any(|item| is_computed(tokens, *item));
        let lists: Vec<List> = lists(tokens).into_iter().filter(computed).collect();
        if lists.is_empty() {
            return Labels::default();
        }
        let Some(starts) = starts(text, tokens) else { return Labels::default() };
        let written = |&(first, last): &(usize, usize)| {
            let start = starts.get(first).copied().unwrap_or(text.len());
            let end = starts.get(last + 1).copied().unwrap_or(text.len());
            // Cut at once: of subqueries within subqueries the whole texts would be their square.
            names::cut(text.get(start..end).unwrap_or_default()).to_owned()
        };
        let texts = |list: List| (list.select, list.items.iter().map(&written).collect::<Vec<_>>());
        Labels(lists.into_iter().map(texts).collect())
    }

    /// Writes them into the statement of that text.
    pub fn write(mut self, statement: &mut Stmt) {
        if !self.0.is_empty() {
            self.within(statement);
        }
    }

    fn within(&mut self, statement: &mut Stmt) {
        match statement {
            Stmt::Query(query) | Stmt::SelectInto(query, _) => self.walk(&mut **query),
            Stmt::PutView(view) => self.walk(&mut *view.query),
            Stmt::CreateTable(create) => self.walk(&mut **create),
            Stmt::Insert(insert) => self.walk(&mut **insert),
            Stmt::Update(update) => self.walk(&mut **update),
            Stmt::Delete(delete, _) => self.walk(&mut **delete),
            Stmt::Explain { statement, .. } => self.within(statement),
            _ => {}
        }
    }

    fn walk(&mut self, part: &mut impl Part) {
        _ = walk_mut(part, self);
    }
}

impl VisitorMut for Labels {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if let Some(texts) = self.0.get(&select.select_token.0.span.start)
            && texts.len() == select.projection.len()
        {
            for (item, text) in select.projection.iter_mut().zip(texts) {
                label(item, text);
            }
        }
        ControlFlow::Continue(())
    }
}

fn label(item: &mut SelectItem, text: &str) {
    let SelectItem::UnnamedExpr(expr) = item else { return };
    if let Some(held) = bare(expr) {
        *expr = held.clone();
    }
    let named = match &*expr {
        Expr::Identifier(_) | Expr::Prefixed { .. } => true,
        Expr::Value(value) => !matches!(
            value.value,
            Value::HexStringLiteral(_) | Value::SingleQuotedByteStringLiteral(_)
        ),
        Expr::CompoundIdentifier(path) => !path.first().is_some_and(is_variable),
        _ => false,
    };
    // Between backquotes these would be read back as something else.
    let ambiguous = text.contains("``") || text.contains("\\`");
    if !named && !ambiguous && text != names::expression_name(expr) {
        let (expr, alias) = (expr.clone(), Ident::with_quote('`', text));
        *item = SelectItem::ExprWithAlias { expr, alias };
    }
}

fn is_variable(name: &Ident) -> bool {
    name.quote_style.is_none() && name.value.starts_with("@@")
}

/// The name or literal that parentheses hold, or that only has a plus before it.
fn bare(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Nested(inner) => bare(inner),
        Expr::UnaryOp { op: UnaryOperator::Plus, expr: inner } => bare(inner),
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) => Some(expr),
        _ => None,
    }
}

/// Whether an item is more than a column, a star or a literal, with or without AS and an alias behind it.
fn is_computed(tokens: &[TokenWithSpan], (first, last): (usize, usize)) -> bool {
    let item = tokens.get(first..=last).unwrap_or_default();
    let mut name_is_due = true;
    for TokenWithSpan { token, .. } in item {
        name_is_due = match token {
            Token::Whitespace(_) => name_is_due,
            Token::Word(word) if name_is_due => {
                if word.value.starts_with("@@") {
                    return true;
                }
                false
            }
            Token::Mul if name_is_due => false,
            Token::Word(word) if word.keyword == Keyword::AS => true,
            Token::Period if !name_is_due => true,
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::Placeholder(_) => return first != last,
            _ => return true,
        };
    }
    false
}

/// The select lists of a statement.
fn lists(tokens: &[TokenWithSpan]) -> Vec<List> {
    let mut found = Vec::new();
    // What is read in the parentheses that are open.
    let mut levels: Vec<Option<List>> = vec![None];
    let mut behind_point = false;
    let solid = tokens.iter().enumerate().filter(|(_, t)| !matches!(t.token, Token::Whitespace(_)));
    for (at, TokenWithSpan { token, span }) in solid {
        let name = std::mem::replace(&mut behind_point, *token == Token::Period);
        if matches!(token, Token::RParen | Token::RBrace | Token::RBracket) && levels.len() > 1 {
            end(levels.pop().flatten(), &mut found);
        }
        let Some(level) = levels.last_mut() else { break };
        match token {
            Token::Word(word) if !name && word.keyword == Keyword::SELECT => {
                end(level.take(), &mut found);
                *level = Some(List::of(span.start));
                continue;
            }
            Token::Word(word) if !name && ENDS.contains(&word.keyword) => {
                end(level.take(), &mut found);
            }
            Token::SemiColon => end(level.take(), &mut found),
            _ => {}
        }
        if let Some(list) = level {
            let first = list.item.is_none() && list.items.is_empty();
            match token {
                Token::Comma => list.end_item(),
                Token::Word(word)
                    if first && word.quote_style.is_none() && is_modifier(&word.value) => {}
                _ => list.read(at),
            }
        }
        if matches!(token, Token::LParen | Token::LBrace | Token::LBracket) {
            levels.push(None);
        }
    }
    levels.into_iter().for_each(|level| end(level, &mut found));
    found
}

fn end(list: Option<List>, found: &mut Vec<List>) {
    if let Some(mut list) = list {
        list.end_item();
        found.push(list);
    }
}

fn is_modifier(word: &str) -> bool {
    MODIFIERS.iter().any(|modifier| modifier.eq_ignore_ascii_case(word))
}

/// Where each token begins, in bytes.
fn starts(text: &str, tokens: &[TokenWithSpan]) -> Option<Vec<usize>> {
    let mut starts = Vec::with_capacity(tokens.len());
    let mut places = tokens.iter().map(|token| token.span.start).peekable();
    let mut here = Location::new(1, 1);
    for (at, c) in text.char_indices() {
        while places.next_if_eq(&here).is_some() {
            starts.push(at);
        }
        if c == '\n' {
            here = Location::new(here.line + 1, 1);
        } else {
            here.column += 1;
        }
    }
    (starts.len() == tokens.len()).then_some(starts)
}

#[cfg(test)]
mod tests {
    use crate::dialect::Mysql;
    use crate::names::{Displayed, displayed};
    use crate::parser::parse_in;
    use crate::statement::Stmt;

    #[track_caller]
    fn check(sql: &str, expected: &[&str]) {
        let Ok(Stmt::Query(query)) = parse_in(sql, &Mysql::default()) else { panic!("{sql}") };
        let labels = displayed(&query).into_iter().map(|shown| match shown {
            Displayed::Named(name) => name,
            Displayed::Wildcard => "*".to_owned(),
        });
        assert_eq!(labels.collect::<Vec<_>>(), expected, "{sql}");
    }

    #[test]
    fn expressions_are_called_as_they_were_written() {
        check(
            "SELECT YEARWEEK(d,1),count( * ) , a*1, t . a, `x y` FROM t",
            &["YEARWEEK(d,1)", "count( * )", "a*1", "a", "x y"],
        );
        check("SELECT DISTINCT  a  +  1, max( distinct a ) b, t.*", &["a  +  1", "b", "*"]);
        check("select 1 /* c */ + 1, /* a */ -  2 /* b */", &["1 /* c */ + 1", "-  2"]);
        check("SELECT 'é' , concat('é','\n'),\na<>1\nFROM t", &["é", "concat('é','\n')", "a<>1"]);
        check("SELECT a mod 2, a!=1 UNION SELECT 1+1, 2", &["a mod 2", "a!=1"]);
        check(
            "SELECT (select  a, 1 from t), f(a,b) FROM t WHERE 1",
            &["(select  a, 1 from t)", "f(a,b)"],
        );
        check("SELECT t.a+1, ?+ ?", &["t.a+1", "?+ ?"]);
        check(
            "SELECT DATE'2024-01-01', 0x41 ,x is  null",
            &["DATE'2024-01-01'", "0x41", "x is  null"],
        );
        check("SELECT @@SESSION . sql_mode, @@version", &["@@SESSION . sql_mode", "@@version"]);
    }

    #[test]
    fn names_and_literals_are_called_by_what_they_are() {
        check(
            "SELECT (a), ((t.`a`)), +1, ('x'), N'y', _utf8mb4'z'",
            &["a", "a", "1", "x", "y", "z"],
        );
        check("SELECT NULL, null, true, '  x', ''", &["NULL", "NULL", "TRUE", "x", ""]);
    }

    #[test]
    fn long_ones_are_cut() {
        let long = format!("SELECT concat('{}')", "é".repeat(300));
        let cut = format!("concat('{}", "é".repeat(124));
        check(&long, &[&cut]);
    }

    #[test]
    fn views_and_derived_tables_have_them_too() {
        let read = |sql: &str| match parse_in(sql, &Mysql::default()) {
            Ok(Stmt::PutView(view)) => view.query.to_string(),
            Ok(Stmt::Query(query)) => query.to_string(),
            other => panic!("{sql}: {other:?}"),
        };
        assert_eq!(read("CREATE VIEW v AS SELECT a+1 FROM t"), "SELECT a + 1 AS `a+1` FROM t");
        assert_eq!(
            read("SELECT * FROM (SELECT f(a,b), `c` FROM t) AS x"),
            "SELECT * FROM (SELECT f(a, b) AS `f(a,b)`, `c` FROM t) AS x"
        );
        assert_eq!(read("SELECT a + 1 FROM t"), "SELECT a + 1 FROM t");
    }
}
