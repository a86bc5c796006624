//! Columns as CREATE TABLE and ALTER TABLE define them: their options, defaults and checks.
//!
//! One definition is looked at alone; what the whole table demands of it is checked by `ddl`.

use sqlparser::ast::{
    CheckConstraint, ColumnDef, ColumnOption, Expr, GeneratedExpressionMode, Ident,
};
use syntax::charsets::{check_charset, check_collation};
use syntax::names::parts;
use syntax::table_options;
use types::{Column, ColumnId, ColumnType, Default, Table, Value};
use values::coerce::{self, Place};
use values::error::{
    SqlError, SqlResult, duplicate_column, invalid_default, invalid_default_because,
    invalid_on_update, multiple_primary_keys, no_default_possible, unsupported, wrong_specifier,
    wrong_usage,
};
use values::temporal::Zone;

use super::column_types::column_type;
use super::keys::{self, Key, new_index};
use super::{expressions, labels, unquoted};

/// Adds a defined column to a table, with the key and the checks that its definition may ask for.
/// Expressions stay as they are written until the table is whole.
pub fn column(
    definition: &ColumnDef,
    table: &mut Table,
    warnings: &mut Vec<SqlError>,
) -> SqlResult<()> {
    let name = definition.name.value.clone();
    if table.column_named(&name).is_some() {
        return Err(duplicate_column(name));
    }
    let id = table.columns.len() as ColumnId + 1;
    let ty = match labels::column_type(&definition.data_type, &name)? {
        Some(ty) => ty,
        None => column_type(&definition.data_type, &definition.name.value)?,
    };
    let mut column = Column {
        id,
        name,
        ty,
        nullable: true,
        default: None,
        original: None,
        auto_increment: false,
        on_update_now: false,
        hidden: false,
        comment: String::new(),
    };
    let mut said = Said::default();
    for option in &definition.options {
        let name = option.name.as_ref();
        apply(&option.option, name, (&mut column, &mut said), table, warnings)?;
    }
    column.default = said.default_of(&column)?;
    let name = column.name.clone();
    table.columns.push(column);
    for (named, check) in said.checks {
        expressions::push_check(table, named, &check.expr, check.enforced, Some(&name))?;
    }
    Ok(())
}

/// What the options of a column say that takes all of them to understand.
#[derive(Default)]
struct Said<'a> {
    default: Option<&'a Expr>,
    generated: Option<types::Default>,
    /// Checks, and their names where they have some.
    checks: Vec<(Option<&'a str>, &'a CheckConstraint)>,
}

impl Said<'_> {
    /// What the column gets when an INSERT does not name it.
    fn default_of(&mut self, column: &Column) -> SqlResult<Option<types::Default>> {
        let Some(generated) = self.generated.take() else {
            return default_of(column, self.default);
        };
        let other = match (column.auto_increment, column.on_update_now, self.default) {
            (true, ..) => "AUTO_INCREMENT",
            (_, true, _) => "ON UPDATE",
            (_, _, Some(_)) => "DEFAULT",
            _ => return Ok(Some(generated)),
        };
        Err(wrong_usage(other, "generated column"))
    }
}

/// Takes an option of a column over; `name` is the one that it was given.
fn apply<'a>(
    option: &'a ColumnOption,
    name: Option<&'a Ident>,
    (column, said): (&mut Column, &mut Said<'a>),
    table: &mut Table,
    warnings: &mut Vec<SqlError>,
) -> SqlResult<()> {
    match option {
        ColumnOption::Null => column.nullable = true,
        ColumnOption::NotNull => column.nullable = false,
        ColumnOption::Default(expr) => said.default = Some(expr),
        ColumnOption::PrimaryKey(_) => {
            keys::check_whole(column)?;
            if !table.primary_key.is_empty() {
                return Err(multiple_primary_keys());
            }
            table.primary_key = vec![column.id];
            column.nullable = false;
        }
        ColumnOption::Unique(_) => {
            keys::check_whole(column)?;
            let index = new_index(table, None, &column.name, Key::unique(column.id))?;
            table.indexes.push(index);
        }
        ColumnOption::Comment(text) => {
            column.comment = table_options::column_comment(text, &column.name)?;
        }
        ColumnOption::OnUpdate(expr) if is_now(expr) => {
            if !matches!(column.ty, ColumnType::DateTime(_) | ColumnType::Timestamp(_)) {
                return Err(invalid_on_update(&column.name));
            }
            column.on_update_now = true;
        }
        ColumnOption::CharacterSet(charset) => {
            warnings.extend(check_charset(&unquoted(charset))?);
        }
        ColumnOption::Collation(collation) => check_collation(&unquoted(collation))?,
        ColumnOption::Check(check) => {
            let name = name.or(check.name.as_ref());
            said.checks.push((name.map(|name| name.value.as_str()), check));
        }
        ColumnOption::Generated {
            generation_expr: Some(expr),
            sequence_options: None,
            generation_expr_mode: mode,
            ..
        } => {
            let stored = matches!(mode, Some(GeneratedExpressionMode::Stored));
            said.generated = Some(expressions::written(expr, stored));
        }
        // As in MySQL 8, a REFERENCES at a column says nothing.
        ColumnOption::ForeignKey(_) => {}
        ColumnOption::DialectSpecific(tokens)
            if tokens.iter().any(|t| t.to_string().eq_ignore_ascii_case("AUTO_INCREMENT")) =>
        {
            if !matches!(column.ty, ColumnType::Int { .. }) {
                return Err(wrong_specifier(&column.name));
            }
            column.auto_increment = true;
            column.nullable = false;
        }
        other => return Err(unsupported(format!("column option {other}"))),
    }
    Ok(())
}

fn is_now(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_now(inner),
        Expr::Function(function) => {
            let names = parts(&function.name);
            matches!(
                names.first().map(String::as_str),
                Some("current_timestamp" | "now" | "localtime" | "localtimestamp")
            )
        }
        _ => false,
    }
}

/// What a column gets when an INSERT does not name it, as a definition says.
pub fn default_of(column: &Column, expr: Option<&Expr>) -> SqlResult<Option<Default>> {
    let Some(expr) = expr else {
        return Ok(column.nullable.then_some(Default::Constant(Value::Null)));
    };
    let invalid = || invalid_default(&column.name);
    if is_now(expr) {
        return match column.ty {
            ColumnType::DateTime(_) | ColumnType::Timestamp(_) => {
                Ok(Some(Default::CurrentTimestamp))
            }
            _ => Err(invalid()),
        };
    }
    if column.ty == ColumnType::Json && syntax::constant::literal(expr) != Some(Value::Null) {
        if matches!(expr, Expr::Nested(_)) {
            return Err(unsupported(format!("DEFAULT {expr} of a JSON column")));
        }
        return Err(no_default_possible(&column.name));
    }
    let number = syntax::constant::number_of_bytes(expr, column.ty);
    let Some(value) = number.or_else(|| syntax::constant::literal(expr)) else {
        return Err(unsupported(format!("DEFAULT {expr} (constants and CURRENT_TIMESTAMP only)")));
    };
    if value.is_null() {
        return if column.nullable {
            Ok(Some(Default::Constant(Value::Null)))
        } else {
            Err(invalid())
        };
    }
    if column.ty.labels().is_some() {
        let value = labels::default_value(column.ty, value).ok_or_else(invalid)?;
        return Ok(Some(Default::Constant(value)));
    }
    let besides = coerce::of_zero_date(&value, column.ty);
    let value = coerce::to_column(value, Place { column, row: 1, zone: Zone::UTC })
        .map_err(|_| invalid_default_because(&column.name, besides))?;
    Ok(Some(Default::Constant(value)))
}
