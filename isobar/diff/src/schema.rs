//! What tables are made of, and whether two of them can be compared: by which columns, rules and key.

use serde::{Deserialize, Serialize};

use crate::class::{Class, Rule};
use crate::error::{Error, Result};

/// A column of a table or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name, as it is written there.
    pub name: String,
    /// Kind of values.
    pub class: Class,
    /// Type as the server or the file names it.
    pub type_name: String,
    /// Whether it may hold NULL.
    pub nullable: bool,
    /// Collation, of a server's text.
    pub collation: Option<String>,
    /// Whether only CAST makes it text (JSON, UUID and the like).
    pub is_cast: bool,
}

impl Column {
    /// Whether the server compares it byte by byte, without padding.
    pub fn sorts_by_bytes(&self) -> bool {
        !self.is_labelled()
            && self.collation.as_deref().is_some_and(|name| {
                name == "binary" || name.ends_with("_nopad_bin") || name == "utf8mb4_0900_bin"
            })
    }

    /// Whether it is an ENUM or SET, which servers sort by number.
    pub fn is_labelled(&self) -> bool {
        self.type_name.starts_with("enum(") || self.type_name.starts_with("set(")
    }

    /// Whether its text is UTF-8 where it lies.
    pub fn is_utf8(&self) -> bool {
        self.collation.as_deref().is_none_or(|name| name.starts_with("utf8mb4"))
    }

    /// Whether it spells its number in another way than in digits.
    pub fn is_odd_number(&self) -> bool {
        self.type_name.contains("zerofill")
            || self.type_name.starts_with("bit")
            || self.type_name == "year"
    }
}

/// A table or a file.
#[derive(Clone, Debug)]
pub struct Table {
    /// For people: `db.table`, or a file's name.
    pub name: String,
    /// Columns.
    pub columns: Vec<Column>,
    /// Names of the primary key's columns; empty without one.
    pub key: Vec<String>,
}

impl Table {
    fn find(&self, name: &str) -> Option<(usize, &Column)> {
        self.columns.iter().enumerate().find(|(_, column)| column.name.eq_ignore_ascii_case(name))
    }
}

/// What the user says about columns.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Wishes {
    /// Columns that are not looked at.
    pub ignore: Vec<String>,
    /// Key, where the tables have none or another.
    pub key: Vec<String>,
    /// Floats by significant digits.
    pub float_digits: Option<u8>,
    /// Text without case.
    pub ignore_case: bool,
    /// Text without trailing spaces.
    pub ignore_trailing_spaces: bool,
}

/// One column of a comparison.
#[derive(Clone, Debug)]
pub struct Compared {
    /// SOURCE's, in SOURCE's words.
    pub source: Column,
    /// TARGET's.
    pub target: Column,
    /// How.
    pub rule: Rule,
}

/// What is compared, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Columns.
    pub columns: Vec<Compared>,
    /// Places of the key's columns, in the key's order.
    pub key: Vec<usize>,
    /// What a user should know of it.
    pub notes: Vec<String>,
}

impl Plan {
    /// Rules by place.
    pub fn rules(&self) -> Vec<Rule> {
        self.columns.iter().map(|column| column.rule).collect()
    }

    /// The one key of a row's values. `None`: a NULL, or a value of another kind.
    pub fn key_of(&self, values: &[Option<String>]) -> Option<crate::range::Key> {
        let part = |at: &usize| {
            let rule = self.columns.get(*at)?.rule;
            let text = values.get(*at)?.as_deref()?;
            crate::range::Part::read(rule.class, &rule.spelled(text))
        };
        self.key.iter().map(part).collect()
    }
}

/// Plans a comparison, or says why there is none.
pub fn plan(source: &Table, target: &Table, wishes: &Wishes) -> Result<Plan> {
    let refuse = |cause: String| Error::Schema { table: source.name.clone(), cause };
    // Of several tables, not each has every column that is to be ignored.
    for name in &wishes.key {
        if source.find(name).is_none() && target.find(name).is_none() {
            return Err(refuse(format!("neither side has a column {name}, which --key names")));
        }
    }
    let ignored = |name: &str| wishes.ignore.iter().any(|other| other.eq_ignore_ascii_case(name));
    let lacking = |of: &Table, from: &Table| {
        let names = of.columns.iter().filter(|c| !ignored(&c.name) && from.find(&c.name).is_none());
        names.map(|column| column.name.clone()).collect::<Vec<_>>().join(", ")
    };
    for (of, from) in [(source, target), (target, source)] {
        let names = lacking(of, from);
        if !names.is_empty() {
            return Err(refuse(format!(
                "{} lacks {names}, which {} has; add it there, or leave it out with --ignore-columns",
                from.name, of.name
            )));
        }
    }
    let mut notes = Vec::new();
    let key_names = key_names(source, target, wishes).map_err(refuse)?;
    let mut columns = Vec::new();
    for column in source.columns.iter().filter(|column| !ignored(&column.name)) {
        let Some((_, other)) = target.find(&column.name) else { continue };
        let is_key = key_names.iter().any(|name| name.eq_ignore_ascii_case(&column.name));
        let rule = rule(column, other, is_key, wishes, &mut notes).map_err(|cause| {
            refuse(format!(
                "column {}: {cause}; make them alike, or leave it out with --ignore-columns",
                column.name
            ))
        })?;
        if column.nullable != other.nullable {
            notes.push(format!("column {} may be NULL on one side only", column.name));
        }
        columns.push(Compared { source: column.clone(), target: other.clone(), rule });
    }
    let place = |name: &String| {
        columns
            .iter()
            .position(|column: &Compared| column.source.name.eq_ignore_ascii_case(name))
            .ok_or_else(|| {
                refuse(format!("the key column {name} is ignored; name another key with --key"))
            })
    };
    let key = key_names.iter().map(place).collect::<Result<Vec<_>>>()?;
    Ok(Plan { columns, key, notes })
}

/// The key that both sides are walked by.
fn key_names(
    source: &Table,
    target: &Table,
    wishes: &Wishes,
) -> std::result::Result<Vec<String>, String> {
    if !wishes.key.is_empty() {
        return Ok(wishes.key.clone());
    }
    let alike = |a: &[String], b: &[String]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.eq_ignore_ascii_case(b))
    };
    match (source.key.is_empty(), target.key.is_empty()) {
        (true, true) => Err(
            "neither side has a primary key, and rows without one cannot be matched; name columns that are unique and not NULL with --key".into(),
        ),
        (false, false) if !alike(&source.key, &target.key) => Err(format!(
            "the primary keys differ: ({}) and ({}); say which columns to match rows by with --key",
            source.key.join(", "),
            target.key.join(", ")
        )),
        (false, _) => Ok(source.key.clone()),
        _ => Ok(target.key.clone()),
    }
}

/// How two columns are compared, if they can be.
fn rule(
    source: &Column,
    target: &Column,
    is_key: bool,
    wishes: &Wishes,
    notes: &mut Vec<String>,
) -> std::result::Result<Rule, String> {
    let class = common(source.class, target.class).ok_or_else(|| {
        format!(
            "{} ({}) and {} ({}) have no common meaning",
            source.type_name,
            source.class.name(),
            target.type_name,
            target.class.name()
        )
    })?;
    let mut rule = Rule::exact(class);
    let typed = source.class != Class::Unknown && target.class != Class::Unknown;
    let mut note = |text: String| notes.push(format!("column {}: {text}", source.name));
    match class {
        Class::Decimal(_) if typed && source.class != target.class => {
            rule.trim_zeros = true;
            note(format!(
                "{} and {} are compared without trailing zeros",
                source.type_name, target.type_name
            ));
        }
        Class::Float if !is_key => rule.float_digits = wishes.float_digits,
        Class::Text { padded } => {
            rule.trim_spaces = padded || (wishes.ignore_trailing_spaces && !is_key);
            rule.fold_case = wishes.ignore_case && !is_key;
        }
        Class::Timestamp if typed && source.class != target.class => {
            note("a DATETIME is compared with a TIMESTAMP as a reading in UTC".into());
        }
        _ => {}
    }
    Ok(rule)
}

/// The class that two columns share.
fn common(a: Class, b: Class) -> Option<Class> {
    Some(match (a, b) {
        (Class::Unknown, Class::Unknown) => Class::Text { padded: false },
        (Class::Unknown, known) | (known, Class::Unknown) => known,
        (Class::Decimal(a), Class::Decimal(b)) => Class::Decimal(a.max(b)),
        (Class::Decimal(scale), Class::Int) | (Class::Int, Class::Decimal(scale)) => {
            Class::Decimal(scale)
        }
        (Class::Text { padded: a }, Class::Text { padded: b }) => Class::Text { padded: a || b },
        (Class::DateTime, Class::Timestamp) | (Class::Timestamp, Class::DateTime) => {
            Class::Timestamp
        }
        (a, b) if a == b => a,
        _ => return None,
    })
}

/// The class of a server's column; `None` for types that have no text of their own.
pub fn server_class(data_type: &str, scale: u8, collation: Option<&str>) -> Option<(Class, bool)> {
    let text = |is_cast| (Class::Text { padded: false }, is_cast);
    Some(match data_type.to_lowercase().as_str() {
        "tinyint" | "smallint" | "mediumint" | "int" | "integer" | "bigint" | "bit" | "year"
        | "boolean" => (Class::Int, false),
        "decimal" | "numeric" => (Class::Decimal(scale), false),
        "float" | "double" | "real" => (Class::Float, false),
        "char" if collation != Some("binary") => (Class::Text { padded: true }, false),
        "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "enum" | "set" => text(false),
        "json" | "uuid" | "inet4" | "inet6" => text(true),
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "char" => {
            (Class::Binary, false)
        }
        "date" => (Class::Date, false),
        "datetime" => (Class::DateTime, false),
        "timestamp" => (Class::Timestamp, false),
        "time" => (Class::Time, false),
        _ => return None,
    })
}

#[cfg(test)]
#[path = "tests/schema.rs"]
mod tests;
