//! SQL for servers: digests of ranges, keys, conditions. What it spells, [`crate::digest`] spells, too.

use crate::class::{Class, Rule};
use crate::digest::carries_length;
use crate::range::{Part, Range};
use crate::schema::Column;

/// What kind of server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Computes a row's digest natively.
    Isobar,
    /// MySQL, MariaDB and whatever speaks as they do.
    Plain,
}

/// A name in backticks.
pub fn name(text: &str) -> String {
    format!("`{}`", text.replace('`', "``"))
}

/// Text in quotes, for sessions that take backslashes as escapes.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('\'');
    for c in text.chars() {
        match c {
            '\'' => out.push_str("\\'"),
            '\\' => out.push_str("\\\\"),
            '\0' => out.push_str("\\0"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\u{1a}' => out.push_str("\\Z"),
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// A value in its plain spelling as a literal.
pub fn literal(class: Class, text: &str) -> String {
    let number =
        || !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    match class {
        Class::Int | Class::Decimal(_) | Class::Float if number() => text.to_owned(),
        Class::Binary if text.bytes().all(|b| b.is_ascii_hexdigit()) => format!("X'{text}'"),
        Class::DateTime | Class::Timestamp | Class::Time => {
            quoted(text.strip_suffix(".000000").unwrap_or(text))
        }
        _ => quoted(text),
    }
}

/// A column of one server, and how it is compared.
#[derive(Clone, Debug)]
pub struct Expressed {
    /// The value to fetch.
    pub value: String,
    /// What goes into a digest.
    spelled: String,
    /// What orders keys, as [`Part`] does.
    order: String,
    rule: Rule,
}

impl Expressed {
    /// Expressions for a column under a rule.
    pub fn new(dialect: Dialect, column: &Column, rule: Rule) -> Expressed {
        let plain = plain_value(dialect, column);
        let order = match column.class {
            // A server's own order is that of its collation, and pads with spaces.
            Class::Text { .. } if dialect == Dialect::Plain && !column.sorts_by_bytes() => {
                format!("CAST({plain} AS BINARY)")
            }
            _ if dialect == Dialect::Isobar && column.is_labelled() => {
                format!("CAST({plain} AS CHAR)")
            }
            // Here the column's own order is that of its values, and a look-up finds its index.
            _ if dialect == Dialect::Isobar => name(&column.name),
            Class::Binary => name(&column.name),
            _ => plain.clone(),
        };
        Expressed { spelled: spelled(dialect, column, &rule, &plain), value: plain, order, rule }
    }

    /// What compares equal to a value only if it is that value, byte by byte.
    pub fn exact(&self) -> &str {
        &self.order
    }

    /// Its part of a row's text.
    fn piece(&self) -> String {
        let spelled = &self.spelled;
        if carries_length(&self.rule) {
            format!("IFNULL(CONCAT(LENGTH({spelled}),':',{spelled}),'N')")
        } else {
            format!("IFNULL({spelled},'N')")
        }
    }
}

fn plain_value(dialect: Dialect, column: &Column) -> String {
    let quoted = name(&column.name);
    match column.class {
        // Text is UTF-8 there, and is compared as it is.
        Class::Text { .. } if dialect == Dialect::Isobar => quoted,
        Class::Int if column.is_odd_number() => format!("({quoted} + 0)"),
        // FLOAT spells six digits of itself; as a double it spells all.
        Class::Float => format!("({quoted} + 0e0)"),
        Class::Text { .. } if column.is_cast => format!("CAST({quoted} AS CHAR)"),
        Class::Text { .. } if !column.is_utf8() => format!("CONVERT({quoted} USING utf8mb4)"),
        Class::Binary => format!("HEX({quoted})"),
        _ => quoted,
    }
}

fn spelled(dialect: Dialect, column: &Column, rule: &Rule, plain: &str) -> String {
    let mut text = plain.to_owned();
    if rule.trim_zeros {
        text = format!("CAST({text} AS CHAR)");
        if matches!(column.class, Class::Decimal(scale) if scale > 0) {
            text = format!("TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))");
        }
    }
    if let Some(digits) = rule.float_digits {
        let exponent = format!("FLOOR(LOG10(ABS({text})))");
        text = format!(
            "IF({text}=0,'0',IFNULL(CONCAT(CAST(ROUND({text}/POW(10,{exponent}-{})) AS SIGNED),'e',CAST({exponent} AS SIGNED)),CONCAT('?',{text})))",
            i32::from(digits) - 1
        );
    }
    if rule.trim_spaces {
        text = format!("RTRIM({text})");
    }
    if rule.fold_case {
        text = format!("LOWER({text})");
    }
    match column.class {
        Class::DateTime | Class::Timestamp if dialect == Dialect::Plain => {
            format!("CAST({text} AS DATETIME(6))")
        }
        Class::Time if dialect == Dialect::Plain => format!("CAST({text} AS TIME(6))"),
        _ => text,
    }
}

/// One table of one server, and the columns that are compared.
#[derive(Clone, Debug)]
pub struct TableSql {
    /// Kind of server.
    pub dialect: Dialect,
    /// Quoted `database.table`.
    pub table: String,
    /// Compared columns.
    pub columns: Vec<Expressed>,
    /// Places of the key's columns.
    pub key: Vec<usize>,
    /// A condition of the user's.
    pub condition: Option<String>,
}

impl TableSql {
    fn of_key(&self) -> impl Iterator<Item = &Expressed> {
        self.key.iter().filter_map(|at| self.columns.get(*at))
    }

    fn hash<'a>(&self, columns: impl Iterator<Item = &'a Expressed>) -> String {
        if self.dialect == Dialect::Isobar {
            let texts: Vec<&str> = columns.map(|column| column.spelled.as_str()).collect();
            return format!("isobar_digest({})", texts.join(","));
        }
        let pieces: Vec<String> = columns.map(Expressed::piece).collect();
        let hash = format!(
            "CAST(CONV(LEFT(MD5(CONCAT_WS(',',{})),16),16,10) AS UNSIGNED)",
            pieces.join(",")
        );
        // A row whose text is longer than max_allowed_packet has no digest: it must never look like
        // another, so that it is fetched.
        format!("IFNULL({hash},CAST(RAND()*1e18 AS UNSIGNED))")
    }

    fn filter(&self, range: &Range, more: Option<String>) -> String {
        let conditions: Vec<String> =
            [self.within(range), self.condition.as_ref().map(|c| format!("({c})")), more]
                .into_iter()
                .flatten()
                .collect();
        if conditions.is_empty() {
            String::new()
        } else {
            format!(" WHERE {}", conditions.join(" AND "))
        }
    }

    /// The condition that a row's key lies in a range.
    fn within(&self, range: &Range) -> Option<String> {
        let columns: Vec<&Expressed> = self.of_key().collect();
        let mut all = Vec::new();
        for (bound, op) in [(&range.low, '>'), (&range.high, '<')] {
            let Some(bound) = bound else { continue };
            // By the first column alone, which every server knows how to look up.
            if let (Some(column), Some(part), true) =
                (columns.first(), bound.first(), columns.len() > 1)
            {
                all.push(format!("{} {op}= {}", column.order, self.part(column, part)));
            }
            all.push(self.beyond(&columns, bound, op));
        }
        (!all.is_empty()).then(|| all.join(" AND "))
    }

    /// Keys beyond a bound in key order, the upper one included.
    fn beyond(&self, columns: &[&Expressed], bound: &[Part], op: char) -> String {
        let ([column, columns @ ..], [part, bound @ ..]) = (columns, bound) else {
            return "TRUE".into();
        };
        let (order, value) = (&column.order, self.part(column, part));
        if bound.is_empty() || columns.is_empty() {
            return format!("{order} {op}{} {value}", if op == '<' { "=" } else { "" });
        }
        format!(
            "({order} {op} {value} OR ({order} = {value} AND {}))",
            self.beyond(columns, bound, op)
        )
    }

    fn part(&self, column: &Expressed, part: &Part) -> String {
        literal(column.rule.class, &part.text())
    }

    /// Number and sum of a range's digests.
    pub fn digest(&self, range: &Range) -> String {
        let hash = self.hash(self.columns.iter());
        format!("SELECT COUNT(*), BIT_XOR({hash}) FROM {}{}", self.table, self.filter(range, None))
    }

    /// Number of rows.
    pub fn count(&self, range: &Range) -> String {
        format!("SELECT COUNT(*) FROM {}{}", self.table, self.filter(range, None))
    }

    fn keys(&self) -> String {
        self.of_key().map(|column| column.value.clone()).collect::<Vec<_>>().join(", ")
    }

    /// One key in about `every`, picked by the key's own digest.
    pub fn sample(&self, range: &Range, every: u64) -> String {
        let hash = self.hash(self.of_key());
        let picked = format!("MOD({hash}, {every}) = 0");
        format!("SELECT {} FROM {}{}", self.keys(), self.table, self.filter(range, Some(picked)))
    }

    /// The key that so many keys of a range precede.
    pub fn nth(&self, range: &Range, n: u64) -> String {
        let order: Vec<&str> = self.of_key().map(|column| column.order.as_str()).collect();
        let (keys, table, filter) = (self.keys(), &self.table, self.filter(range, None));
        format!(
            "SELECT {keys} FROM {table}{filter} ORDER BY {} LIMIT 1 OFFSET {n}",
            order.join(", ")
        )
    }

    /// A range's rows.
    pub fn rows(&self, range: &Range) -> String {
        let values: Vec<&str> = self.columns.iter().map(|column| column.value.as_str()).collect();
        format!("SELECT {} FROM {}{}", values.join(", "), self.table, self.filter(range, None))
    }
}

#[cfg(test)]
#[path = "tests/expr.rs"]
mod tests;
