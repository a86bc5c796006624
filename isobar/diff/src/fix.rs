//! SQL that makes TARGET like SOURCE. A row is touched only while it is what the comparison saw.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use crate::compare::{Difference, Values};
use crate::error::{Error, Result};
use crate::expr::{Dialect, Expressed, literal, name};
use crate::schema::Plan;

/// Statements of one transaction.
const BATCH: usize = 500;

/// A file of statements.
pub struct Fix {
    path: PathBuf,
    out: BufWriter<File>,
    open: usize,
}

/// A table of TARGET.
pub struct FixTable<'a> {
    /// Kind of server.
    pub dialect: Dialect,
    /// Quoted `database.table`.
    pub table: &'a str,
    /// Columns, rules, key.
    pub plan: &'a Plan,
}

/// Which statements a pass writes: what frees values of unique keys comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// DELETE.
    Delete,
    /// UPDATE.
    Update,
    /// INSERT.
    Insert,
}

impl Fix {
    /// Begins a file.
    pub fn create(path: &Path, source: &str, target: &str) -> Result<Fix> {
        let file =
            File::create(path).map_err(|cause| Error::Output { file: path.to_owned(), cause })?;
        let mut fix = Fix { path: path.to_owned(), out: BufWriter::new(file), open: 0 };
        fix.line(&format!("-- Makes {} like {}.", comment(target), comment(source)))?;
        fix.line("-- A row that has changed since the comparison is left alone (UPDATE, DELETE) or refused (INSERT).")?;
        for setting in ["SET NAMES utf8mb4;", "SET time_zone = '+00:00';", "SET autocommit = 1;"] {
            fix.line(setting)?;
        }
        Ok(fix)
    }

    fn line(&mut self, text: &str) -> Result<()> {
        writeln!(self.out, "{text}")
            .map_err(|cause| Error::Output { file: self.path.clone(), cause })
    }

    /// Writes what a pass has to say of a difference.
    pub fn write(
        &mut self,
        table: &FixTable<'_>,
        pass: Pass,
        difference: &Difference,
    ) -> Result<()> {
        let Some(statement) = table.statement(pass, difference) else { return Ok(()) };
        if statement.starts_with("--") {
            return self.line(&statement);
        }
        if self.open == 0 {
            self.line("START TRANSACTION;")?;
        }
        self.line(&statement)?;
        self.open += 1;
        if self.open >= BATCH { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<()> {
        self.open = 0;
        self.line("COMMIT;")
    }

    /// Ends the file.
    pub fn finish(mut self) -> Result<()> {
        if self.open > 0 {
            self.commit()?;
        }
        let fail = |cause| Error::Output { file: self.path.clone(), cause };
        self.out.flush().map_err(fail)?;
        self.out.get_ref().sync_all().map_err(fail)
    }
}

/// Text that stays on its line.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl FixTable<'_> {
    fn statement(&self, pass: Pass, difference: &Difference) -> Option<String> {
        match (pass, difference) {
            (Pass::Delete, Difference::Extra { target }) => {
                Some(format!("DELETE FROM {} WHERE {};", self.table, self.guard(target)))
            }
            (Pass::Update, Difference::Changed { columns, source, target }) => {
                let set: Vec<String> =
                    columns.iter().filter_map(|at| self.assignment(*at, source)).collect();
                Some(format!(
                    "UPDATE {} SET {} WHERE {};",
                    self.table,
                    set.join(", "),
                    self.guard(target)
                ))
            }
            (Pass::Insert, Difference::Missing { source }) => {
                let names: Vec<String> =
                    self.plan.columns.iter().map(|c| name(&c.target.name)).collect();
                let values: Vec<String> =
                    (0..names.len()).map(|at| self.value(at, source)).collect();
                Some(format!(
                    "INSERT INTO {} ({}) VALUES ({});",
                    self.table,
                    names.join(", "),
                    values.join(", ")
                ))
            }
            (Pass::Delete, Difference::Repeated { source, target }) => {
                let row = source.first().or(target.first())?;
                let key: Vec<String> =
                    self.plan.key.iter().map(|at| self.value(*at, row)).collect();
                Some(format!(
                    "-- Not corrected: the key ({}) is there more than once.",
                    comment(&key.join(", "))
                ))
            }
            _ => None,
        }
    }

    fn value(&self, at: usize, row: &Values) -> String {
        let (Some(column), Some(Some(text))) = (self.plan.columns.get(at), row.get(at)) else {
            return "NULL".into();
        };
        match column.rule.class {
            // A file's text may be compared with a number; it is one.
            class if self.dialect == Dialect::Isobar => literal(class, text),
            crate::class::Class::Text { .. } if text.contains('\\') => {
                // Right whatever sql_mode says of backslashes.
                format!("CONVERT(X'{}' USING utf8mb4)", crate::class::hex(text.as_bytes()))
            }
            crate::class::Class::Text { .. } => quoted_any_mode(text),
            class => literal(class, text),
        }
    }

    fn assignment(&self, at: usize, row: &Values) -> Option<String> {
        Some(format!("{} = {}", name(&self.plan.columns.get(at)?.target.name), self.value(at, row)))
    }

    /// That a row is still what it was: its key first, for a look-up, then every compared value.
    fn guard(&self, row: &Values) -> String {
        let mut text = String::new();
        for at in &self.plan.key {
            let Some(column) = self.plan.columns.get(*at) else { continue };
            // Writing to memory does not fail.
            _ = write!(text, "{} = {} AND ", name(&column.target.name), self.value(*at, row));
        }
        let each = self.plan.columns.iter().enumerate().map(|(at, column)| {
            let expressed = Expressed::new(self.dialect, &column.target, column.rule);
            match row.get(at) {
                Some(Some(_)) => format!("{} = {}", expressed.exact(), self.value(at, row)),
                _ => format!("{} IS NULL", name(&column.target.name)),
            }
        });
        text + &each.collect::<Vec<_>>().join(" AND ")
    }
}

/// Text without backslashes in it, for servers whose sql_mode is not known.
fn quoted_any_mode(text: &str) -> String {
    if text.chars().any(|c| c.is_control()) {
        return format!("CONVERT(X'{}' USING utf8mb4)", crate::class::hex(text.as_bytes()));
    }
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
#[path = "tests/fix.rs"]
mod tests;
