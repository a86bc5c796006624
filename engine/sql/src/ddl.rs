//! CREATE TABLE as a description for the catalog.
//!
//! Only shapes are checked here; names and numbers are placement's business.

use sqlparser::ast::{
    CharacterLength, ColumnDef, ColumnOption, CreateTable, DataType, ExactNumberInfo, Expr,
    GeneratedExpressionMode, ObjectName, TableConstraint,
};
use types::{Column, ColumnId, ColumnType, Default, IntWidth, Table, Value};

pub mod expressions;
pub mod keys;
mod labels;
pub mod queried;
mod show;

use keys::{Form, Key, new_index};
pub(crate) use show::now_of;
pub use show::show_create;
use syntax::charsets::{check_charset, check_collation};
use syntax::decimal::digits;
use syntax::names::parts;
use syntax::table_options;
use values::coerce::{self, Place};
use values::error::{SqlError, SqlResult, syntax, unsupported};
use values::temporal::Zone;

/// The column that numbers the rows of a table without a primary key.
pub const ROW_NUMBER: &str = "_isobar_rowid";

/// Where the number is that rows of a table are given and clients see.
pub(crate) fn number_of(table: &Table) -> Option<usize> {
    table.columns.iter().position(|column| column.auto_increment && !column.hidden)
}

/// Whether rows of a table are given numbers that clients see.
pub(crate) fn has_numbers(table: &Table) -> bool {
    number_of(table).is_some()
}

/// Refuses a columnar replica of a table with a DECIMAL that columns do not hold.
pub fn check_replica(table: &Table) -> SqlResult<()> {
    let wide = table.columns.iter().find(|column| column.ty.is_wide());
    let Some(column) = wide.filter(|_| table.columnar_replicas > 0) else { return Ok(()) };
    let text = format!(
        "Column '{}' of table '{}' is {}: columnar replicas hold DECIMALs of up to 38 digits, so the table can have \
         none (SET COLUMNAR REPLICA 0, or a narrower column)",
        column.name, table.name, column.ty
    );
    Err(SqlError::new(1235, b"42000", text))
}
/// A name of a character set or a collation, which may stand in quotes.
fn unquoted(name: &ObjectName) -> String {
    name.0.iter().filter_map(|part| part.as_ident()).map(|ident| ident.value.as_str()).collect()
}

/// What a CREATE TABLE describes.
pub struct Described {
    /// The table.
    pub table: Table,
    /// Its first AUTO_INCREMENT number; 0 where none is named.
    pub first_number: u64,
    /// Warnings.
    pub warnings: Vec<(u16, String)>,
}

/// What CREATE TABLE describes, with its warnings. `database` is the current one.
pub fn describe(create: &CreateTable, database: &str) -> SqlResult<Described> {
    describe_filled(create, Vec::new(), database)
}

/// The same, with the columns of the query that fills the table.
pub fn describe_filled(
    create: &CreateTable,
    queried: Vec<Column>,
    database: &str,
) -> SqlResult<Described> {
    let (database, name) = spelled(&create.name, database)?;
    let mut table = Table {
        id: 0,
        version: 1,
        database,
        name,
        columns: Vec::new(),
        primary_key: Vec::new(),
        indexes: Vec::new(),
        columnar_replicas: 0,
        comment: String::new(),
        dropped: Vec::new(),
        checks: Vec::new(),
    };
    let (mut first_number, mut warnings) = (0, Vec::new());
    for option in table_options::of_create(create, &table.name)? {
        match option {
            table_options::Treated::Comment(text) => table.comment = text,
            table_options::Treated::Number(number) => first_number = number,
            table_options::Treated::Nothing => {}
            table_options::Treated::Warning(code, text) => warnings.push((code, text)),
        }
    }
    for definition in &create.columns {
        column(definition, &mut table, &mut warnings)?;
    }
    queried::add(queried, &mut table)?;
    for constraint in &create.constraints {
        add_constraint(constraint, &mut table, &mut warnings)?;
    }
    finish(&mut table)?;
    expressions::settle(&mut table)?;
    if first_number > 0 && !table.columns.iter().any(|c| c.auto_increment && !c.hidden) {
        first_number = 0;
        warnings.push((1105, "AUTO_INCREMENT = n: the table has no AUTO_INCREMENT column".into()));
    }
    Ok(Described { table, first_number, warnings })
}

/// Database and name of a table, as the statement spells them.
pub fn spelled(name: &ObjectName, database: &str) -> SqlResult<(String, String)> {
    let mut parts: Vec<String> =
        name.0.iter().filter_map(|part| part.as_ident().map(|ident| ident.value.clone())).collect();
    match (parts.pop(), parts.pop(), parts.pop()) {
        (Some(name), Some(database), None) => Ok((database, name)),
        (Some(_), None, None) if database.is_empty() => Err(values::error::no_database_selected()),
        (Some(name), None, None) => Ok((database.to_owned(), name)),
        _ => Err(syntax(format!("'{name}' is no table name"))),
    }
}

/// Adds a defined column to a table, with the key and the checks that its definition may ask for.
/// Expressions stay as they are written until the table is whole.
pub fn column(
    definition: &ColumnDef,
    table: &mut Table,
    warnings: &mut Vec<(u16, String)>,
) -> SqlResult<()> {
    let name = definition.name.value.clone();
    if table.column_named(&name).is_some() {
        return Err(SqlError::new(1060, b"42S21", format!("Duplicate column name '{name}'")));
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
    let (mut default, mut generated, mut checks) = (None, None, Vec::new());
    for option in &definition.options {
        match &option.option {
            ColumnOption::Null => column.nullable = true,
            ColumnOption::NotNull => column.nullable = false,
            ColumnOption::Default(expr) => default = Some(expr),
            ColumnOption::PrimaryKey(_) => {
                keys::check_whole(&column)?;
                if !table.primary_key.is_empty() {
                    return Err(multiple_keys());
                }
                table.primary_key = vec![id];
                column.nullable = false;
            }
            ColumnOption::Unique(_) => {
                keys::check_whole(&column)?;
                let index = new_index(table, None, &column.name, Key::unique(id))?;
                table.indexes.push(index);
            }
            ColumnOption::Comment(text) => {
                column.comment = table_options::column_comment(text, &column.name)?;
            }
            ColumnOption::OnUpdate(expr) if is_now(expr) => {
                if !matches!(column.ty, ColumnType::DateTime(_) | ColumnType::Timestamp(_)) {
                    let text = format!("Invalid ON UPDATE clause for '{}' column", column.name);
                    return Err(SqlError::new(1294, b"HY000", text));
                }
                column.on_update_now = true;
            }
            ColumnOption::CharacterSet(charset) => {
                warnings.extend(check_charset(&unquoted(charset))?);
            }
            ColumnOption::Collation(collation) => check_collation(&unquoted(collation))?,
            ColumnOption::Check(check) => {
                let name = option.name.as_ref().or(check.name.as_ref());
                checks.push((name.map(|name| name.value.as_str()), check));
            }
            ColumnOption::Generated {
                generation_expr: Some(expr),
                sequence_options: None,
                generation_expr_mode: mode,
                ..
            } => {
                let stored = matches!(mode, Some(GeneratedExpressionMode::Stored));
                generated = Some(expressions::written(expr, stored));
            }
            ColumnOption::ForeignKey(_) => {
                return Err(unsupported("FOREIGN KEY (REFERENCES at a column)"));
            }
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
    }
    column.default = match generated {
        Some(_) if default.is_some() || column.on_update_now || column.auto_increment => {
            let other = match (column.auto_increment, column.on_update_now) {
                (true, _) => "AUTO_INCREMENT",
                (_, true) => "ON UPDATE",
                _ => "DEFAULT",
            };
            let text = format!("Incorrect usage of {other} and generated column");
            return Err(SqlError::new(1221, b"HY000", text));
        }
        Some(generated) => Some(generated),
        None => default_of(&column, default)?,
    };
    let name = column.name.clone();
    table.columns.push(column);
    for (named, check) in checks {
        expressions::push_check(table, named, &check.expr, check.enforced, Some(&name))?;
    }
    Ok(())
}

fn wrong_specifier(column: &str) -> SqlError {
    let text = format!("Incorrect column specifier for column '{column}'");
    SqlError::new(1063, b"42000", text)
}

fn multiple_keys() -> SqlError {
    SqlError::new(1068, b"42000", "Multiple primary key defined")
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
    let invalid =
        || SqlError::new(1067, b"42000", format!("Invalid default value for '{}'", column.name));
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
        let text = format!(
            "BLOB, TEXT, GEOMETRY or JSON column '{}' can't have a default value",
            column.name
        );
        return Err(SqlError::new(1101, b"42000", text));
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
        .map_err(|_| SqlError { message: invalid().message + besides, ..invalid() })?;
    Ok(Some(Default::Constant(value)))
}

fn column_type(ty: &DataType, name: &str) -> SqlResult<ColumnType> {
    let int = |width, unsigned| Ok(ColumnType::Int { width, unsigned });
    match ty {
        DataType::TinyInt(Some(1)) | DataType::Bool | DataType::Boolean => {
            int(IntWidth::Bool, false)
        }
        DataType::TinyInt(_) => int(IntWidth::Tiny, false),
        DataType::TinyIntUnsigned(_) | DataType::UTinyInt => int(IntWidth::Tiny, true),
        DataType::SmallInt(_) | DataType::Int2(_) => int(IntWidth::Small, false),
        DataType::SmallIntUnsigned(_) | DataType::USmallInt | DataType::Int2Unsigned(_) => {
            int(IntWidth::Small, true)
        }
        DataType::MediumInt(_) => int(IntWidth::Medium, false),
        DataType::MediumIntUnsigned(_) => int(IntWidth::Medium, true),
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => int(IntWidth::Int, false),
        DataType::IntUnsigned(_) | DataType::IntegerUnsigned(_) | DataType::Int4Unsigned(_) => {
            int(IntWidth::Int, true)
        }
        DataType::BigInt(_) | DataType::Int8(_) => int(IntWidth::Big, false),
        DataType::BigIntUnsigned(_) | DataType::UBigInt | DataType::Int8Unsigned(_) => {
            int(IntWidth::Big, true)
        }
        DataType::Double(ExactNumberInfo::PrecisionAndScale(m, d)) => {
            Err(unsupported(format!("DOUBLE({m},{d}) columns (use DOUBLE or DECIMAL)")))
        }
        DataType::Double(_) | DataType::DoublePrecision | DataType::Real | DataType::Float8 => {
            Ok(ColumnType::Double)
        }
        DataType::Float(info) => float(*info),
        DataType::FloatUnsigned(_) => Err(unsupported("FLOAT UNSIGNED columns")),
        DataType::Bit(bits) => match bits.unwrap_or(1) {
            bits @ 1..=64 => Ok(ColumnType::Bit(bits as u8)),
            0 => Err(SqlError::new(3013, b"HY000", "Invalid size for column of type BIT.")),
            _ => Err(SqlError::new(
                1439,
                b"42000",
                "Display width out of range for column (max = 64)",
            )),
        },
        DataType::Time(digits, _) => Ok(ColumnType::Time(fraction(*digits)?)),
        DataType::Custom(name, digits)
            if name.to_string().eq_ignore_ascii_case("year")
                && (digits.is_empty() || digits.as_slice() == ["4"]) =>
        {
            Ok(ColumnType::Year)
        }
        DataType::Decimal(info) | DataType::Numeric(info) | DataType::Dec(info) => {
            let (precision, scale) = digits(*info, name)?;
            Ok(ColumnType::Decimal { precision, scale })
        }
        DataType::Char(length) | DataType::Character(length) => {
            Ok(ColumnType::Char(chars(length.as_ref(), 255, Some(1))?))
        }
        DataType::Varchar(length)
        | DataType::CharVarying(length)
        | DataType::CharacterVarying(length)
        | DataType::Nvarchar(length) => {
            Ok(ColumnType::Varchar(chars(length.as_ref(), 16_383, None)?))
        }
        DataType::Binary(length) => Ok(ColumnType::Binary(bytes(length.unwrap_or(1), 255)?)),
        DataType::Varbinary(Some(sqlparser::ast::BinaryLength::IntegerLength { length })) => {
            Ok(ColumnType::Varbinary(bytes(*length, 65_532)?))
        }
        DataType::Varbinary(_) => Err(syntax("VARBINARY needs a length")),
        DataType::TinyBlob => Ok(ColumnType::Blob(255)),
        DataType::Blob(None) => Ok(ColumnType::Blob(65_535)),
        // BLOB(n) is the smallest of the four that holds n bytes, as in MySQL.
        DataType::Blob(Some(n)) => Ok(ColumnType::Blob(match n {
            0..=255 => 255,
            256..=65_535 => 65_535,
            65_536..=16_777_215 => 16_777_215,
            _ => bytes(*n, u32::MAX).map(|_| u32::MAX)?,
        })),
        DataType::MediumBlob => Ok(ColumnType::Blob(16_777_215)),
        DataType::LongBlob => Ok(ColumnType::Blob(u32::MAX)),
        DataType::TinyText => Ok(ColumnType::Text(255)),
        DataType::Text => Ok(ColumnType::Text(65_535)),
        DataType::MediumText => Ok(ColumnType::Text(16_777_215)),
        DataType::LongText => Ok(ColumnType::Text(u32::MAX)),
        DataType::JSON => Ok(ColumnType::Json),
        DataType::Date => Ok(ColumnType::Date),
        DataType::Datetime(digits) => Ok(ColumnType::DateTime(fraction(*digits)?)),
        DataType::Timestamp(digits, _) => Ok(ColumnType::Timestamp(fraction(*digits)?)),
        other => Err(unsupported(format!("columns of type {other}"))),
    }
}

fn bytes(length: u64, most: u32) -> SqlResult<u32> {
    u32::try_from(length).ok().filter(|length| *length <= most).ok_or_else(|| {
        SqlError::new(
            1074,
            b"42000",
            format!("Column length too big (max = {most}); use BLOB instead"),
        )
    })
}

fn fraction(digits: Option<u64>) -> SqlResult<u8> {
    match digits.unwrap_or(0) {
        digits @ 0..=6 => Ok(digits as u8),
        digits => Err(SqlError::new(
            1426,
            b"42000",
            format!("Too-big precision {digits} specified. Maximum is 6."),
        )),
    }
}

/// FLOAT(p) is DOUBLE from 25 bits on; FLOAT(m,d) would round to d digits, which is not kept (nor is DOUBLE(m,d)).
fn float(info: ExactNumberInfo) -> SqlResult<ColumnType> {
    match info {
        ExactNumberInfo::None | ExactNumberInfo::Precision(0..=24) => Ok(ColumnType::Float),
        ExactNumberInfo::Precision(25..=53) => Ok(ColumnType::Double),
        ExactNumberInfo::Precision(_) => {
            Err(SqlError::new(1063, b"42000", "Incorrect column specifier for column (FLOAT)"))
        }
        ExactNumberInfo::PrecisionAndScale(m, d) => {
            Err(unsupported(format!("FLOAT({m},{d}) columns (use FLOAT or DECIMAL)")))
        }
    }
}

fn chars(length: Option<&CharacterLength>, most: u32, default: Option<u32>) -> SqlResult<u32> {
    let length = match (length, default) {
        (Some(CharacterLength::IntegerLength { length, .. }), _) => *length,
        (None, Some(default)) => u64::from(default),
        _ => return Err(syntax("VARCHAR needs a length")),
    };
    u32::try_from(length).ok().filter(|length| *length <= most).ok_or_else(|| {
        SqlError::new(
            1074,
            b"42000",
            format!("Column length too big (max = {most}); use TEXT instead"),
        )
    })
}

fn add_constraint(
    constraint: &TableConstraint,
    table: &mut Table,
    warnings: &mut Vec<(u16, String)>,
) -> SqlResult<()> {
    match constraint {
        TableConstraint::PrimaryKey(key) => {
            if !table.primary_key.is_empty() {
                return Err(multiple_keys());
            }
            let form = keys::form(key.index_type.as_ref(), &key.index_options, warnings)?;
            table.primary_key = keys::primary(&key.columns, form, table)?;
        }
        TableConstraint::Unique(key) => {
            let form = keys::form(key.index_type.as_ref(), &key.index_options, warnings)?;
            let name = key.index_name.as_ref().or(key.name.as_ref());
            keys::push(table, name, &key.columns, Form { unique: true, ..form })?;
        }
        TableConstraint::Index(key) => {
            let form = keys::form(key.index_type.as_ref(), &key.index_options, warnings)?;
            keys::push(table, key.name.as_ref(), &key.columns, form)?;
        }
        TableConstraint::ForeignKey(_) => return Err(unsupported("FOREIGN KEY")),
        TableConstraint::Check(check) => {
            let name = check.name.as_ref().map(|name| name.value.as_str());
            expressions::push_check(table, name, &check.expr, check.enforced, None)?;
        }
        other => return Err(unsupported(other)),
    }
    Ok(())
}

/// The primary key that every table has, and what it demands of its columns.
fn finish(table: &mut Table) -> SqlResult<()> {
    if table.columns.is_empty() {
        return Err(SqlError::new(1113, b"42000", "A table must have at least 1 column"));
    }
    if table.columns.iter().any(|column| column.name.eq_ignore_ascii_case(ROW_NUMBER)) {
        return Err(SqlError::new(1166, b"42000", format!("Incorrect column name '{ROW_NUMBER}'")));
    }
    if table.primary_key.is_empty() {
        let id = table.columns.len() as ColumnId + 1;
        table.columns.push(Column {
            id,
            name: ROW_NUMBER.into(),
            ty: ColumnType::Int { width: IntWidth::Big, unsigned: false },
            nullable: false,
            default: None,
            original: None,
            auto_increment: true,
            on_update_now: false,
            hidden: true,
            comment: String::new(),
        });
        table.primary_key = vec![id];
    }
    let numbered = table.columns.iter().filter(|column| column.auto_increment).count();
    let keyed = |column: &Column| {
        table.primary_key.first() == Some(&column.id)
            || table.indexes.iter().any(|index| index.columns.first() == Some(&column.id))
    };
    let visible = table.columns.iter().filter(|c| c.auto_increment && !c.hidden);
    if visible.clone().count() > 1 || visible.clone().any(|column| !keyed(column)) {
        let text = "Incorrect table definition; there can be only one auto column and it must be defined as a key";
        return Err(SqlError::new(1075, b"42000", text));
    }
    if numbered > 1 {
        return Err(unsupported("AUTO_INCREMENT in a table without a primary key"));
    }
    let keys = table.primary_key.clone();
    for column in table.columns.iter_mut().filter(|column| keys.contains(&column.id)) {
        column.nullable = false;
        if column.default == Some(Default::Constant(Value::Null)) {
            column.default = None;
        }
    }
    Ok(())
}
