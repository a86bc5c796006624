//! CREATE TABLE and CREATE INDEX as descriptions for the catalog.
//!
//! Only shapes are checked here; names and numbers are placement's business.

use sqlparser::ast::{
    CharacterLength, ColumnDef, ColumnOption, CreateTable, CreateTableOptions, DataType,
    ExactNumberInfo, Expr, IndexColumn, ObjectName, SqlOption, TableConstraint,
};
use types::{
    Column, ColumnId, ColumnType, Default, Index, IndexState, IntWidth, Table, Timestamp, Value,
};

use crate::coerce::{self, Place};
use crate::error::{SqlResult, syntax, unsupported};
use crate::planner::parts;
use crate::result::SqlError;
use crate::temporal::Zone;

/// The column that numbers the rows of a table without a primary key.
pub const ROW_NUMBER: &str = "_isobar_rowid";

/// Refuses a character set that is not UTF-8.
pub fn check_charset(name: &str) -> SqlResult<()> {
    match name.to_lowercase().as_str() {
        "utf8mb4" | "utf8" | "utf8mb3" | "ascii" | "binary" => Ok(()),
        _ => Err(SqlError::new(
            1115,
            b"42000",
            format!("Unknown character set: '{name}' (only utf8mb4 is stored)"),
        )),
    }
}

/// Refuses a collation that does not compare bytes.
pub fn check_collation(name: &str) -> SqlResult<()> {
    match name.to_lowercase().as_str() {
        "utf8mb4_bin" | "utf8_bin" | "utf8mb3_bin" | "ascii_bin" | "binary" => Ok(()),
        _ => Err(SqlError::new(
            1273,
            b"HY000",
            format!(
                "Unknown collation: '{name}' (columns compare by utf8mb4_bin; leave COLLATE out or name that)"
            ),
        )),
    }
}

/// What CREATE TABLE describes, with its warnings. `database` is the current one.
pub fn describe(create: &CreateTable, database: &str) -> SqlResult<(Table, Vec<String>)> {
    if create.query.is_some() {
        return Err(unsupported("CREATE TABLE … SELECT"));
    }
    if create.like.is_some() {
        return Err(unsupported("CREATE TABLE … LIKE"));
    }
    if create.temporary {
        return Err(unsupported("TEMPORARY TABLE"));
    }
    if create.partition_by.is_some() {
        return Err(unsupported("PARTITION BY"));
    }
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
    };
    let mut warnings = Vec::new();
    options(create, &mut table)?;
    for definition in &create.columns {
        column(definition, &mut table, &mut warnings)?;
    }
    for constraint in &create.constraints {
        add_constraint(constraint, &mut table)?;
    }
    finish(&mut table)?;
    Ok((table, warnings))
}

/// Database and name of a table, as the statement spells them.
pub fn spelled(name: &ObjectName, database: &str) -> SqlResult<(String, String)> {
    let mut parts: Vec<String> =
        name.0.iter().filter_map(|part| part.as_ident().map(|ident| ident.value.clone())).collect();
    match (parts.pop(), parts.pop(), parts.pop()) {
        (Some(name), Some(database), None) => Ok((database, name)),
        (Some(_), None, None) if database.is_empty() => Err(crate::error::no_database_selected()),
        (Some(name), None, None) => Ok((database.to_owned(), name)),
        _ => Err(syntax(format!("'{name}' is no table name"))),
    }
}

fn options(create: &CreateTable, table: &mut Table) -> SqlResult<()> {
    let options = match &create.table_options {
        CreateTableOptions::Plain(options)
        | CreateTableOptions::With(options)
        | CreateTableOptions::Options(options)
        | CreateTableOptions::TableProperties(options) => options.as_slice(),
        CreateTableOptions::None => &[],
    };
    for option in options {
        match option {
            SqlOption::KeyValue { key, value } => {
                let value = match value {
                    Expr::Value(value) => value.clone().into_string().unwrap_or_default(),
                    other => other.to_string(),
                };
                match key.value.to_uppercase().replace("DEFAULT ", "").as_str() {
                    "CHARSET" | "CHARACTER SET" => check_charset(&value)?,
                    "COLLATE" => check_collation(&value)?,
                    "COMMENT" => table.comment = value,
                    _ => {}
                }
            }
            SqlOption::Comment(comment) => {
                table.comment = match comment {
                    sqlparser::ast::CommentDef::WithEq(text)
                    | sqlparser::ast::CommentDef::WithoutEq(text) => text.clone(),
                };
            }
            _ => {}
        }
    }
    Ok(())
}

fn column(definition: &ColumnDef, table: &mut Table, warnings: &mut Vec<String>) -> SqlResult<()> {
    let name = definition.name.value.clone();
    if table.column_named(&name).is_some() {
        return Err(SqlError::new(1060, b"42S21", format!("Duplicate column name '{name}'")));
    }
    let id = table.columns.len() as ColumnId + 1;
    let mut column = Column {
        id,
        name,
        ty: column_type(&definition.data_type)?,
        nullable: true,
        default: None,
        auto_increment: false,
        on_update_now: false,
        hidden: false,
        comment: String::new(),
    };
    let mut default = None;
    for option in &definition.options {
        match &option.option {
            ColumnOption::Null => column.nullable = true,
            ColumnOption::NotNull => column.nullable = false,
            ColumnOption::Default(expr) => default = Some(expr),
            ColumnOption::PrimaryKey(_) => {
                if !table.primary_key.is_empty() {
                    return Err(multiple_keys());
                }
                table.primary_key = vec![id];
                column.nullable = false;
            }
            ColumnOption::Unique(_) => {
                let index = new_index(table, None, &column.name, vec![id], true)?;
                table.indexes.push(index);
            }
            ColumnOption::Comment(text) => column.comment.clone_from(text),
            ColumnOption::OnUpdate(expr) if is_now(expr) => column.on_update_now = true,
            ColumnOption::CharacterSet(charset) => {
                check_charset(&charset.to_string())?;
                if charset.to_string().eq_ignore_ascii_case("utf8") {
                    warnings.push("'utf8' is stored as utf8mb4".into());
                }
            }
            ColumnOption::Collation(collation) => check_collation(&collation.to_string())?,
            ColumnOption::DialectSpecific(tokens)
                if tokens.iter().any(|t| t.to_string().eq_ignore_ascii_case("AUTO_INCREMENT")) =>
            {
                if !matches!(column.ty, ColumnType::Int { .. }) {
                    let text = format!("Incorrect column specifier for column '{}'", column.name);
                    return Err(SqlError::new(1063, b"42000", text));
                }
                column.auto_increment = true;
                column.nullable = false;
            }
            other => return Err(unsupported(format!("column option {other}"))),
        }
    }
    column.default = default_of(&column, default)?;
    table.columns.push(column);
    Ok(())
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

fn default_of(column: &Column, expr: Option<&Expr>) -> SqlResult<Option<Default>> {
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
    let Some(value) = crate::constant::literal(expr) else {
        return Err(unsupported(format!("DEFAULT {expr} (constants and CURRENT_TIMESTAMP only)")));
    };
    if value.is_null() {
        return if column.nullable {
            Ok(Some(Default::Constant(Value::Null)))
        } else {
            Err(invalid())
        };
    }
    let value = coerce::to_column(value, Place { column, row: 1, zone: Zone::UTC })
        .map_err(|_| invalid())?;
    Ok(Some(Default::Constant(value)))
}

fn column_type(ty: &DataType) -> SqlResult<ColumnType> {
    let int = |width, unsigned| Ok(ColumnType::Int { width, unsigned });
    match ty {
        DataType::TinyInt(_) | DataType::Bool | DataType::Boolean => int(IntWidth::Tiny, false),
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
        DataType::Double(_) | DataType::DoublePrecision | DataType::Real | DataType::Float8 => {
            Ok(ColumnType::Double)
        }
        DataType::Float(_) => Err(unsupported("FLOAT columns (use DOUBLE)")),
        DataType::Decimal(info) | DataType::Numeric(info) | DataType::Dec(info) => decimal(*info),
        DataType::Char(length) | DataType::Character(length) => {
            Ok(ColumnType::Char(chars(length.as_ref(), 255, Some(1))?))
        }
        DataType::Varchar(length)
        | DataType::CharVarying(length)
        | DataType::CharacterVarying(length)
        | DataType::Nvarchar(length) => {
            Ok(ColumnType::Varchar(chars(length.as_ref(), 16_383, None)?))
        }
        DataType::TinyText => Ok(ColumnType::Text(255)),
        DataType::Text => Ok(ColumnType::Text(65_535)),
        DataType::MediumText => Ok(ColumnType::Text(16_777_215)),
        DataType::LongText => Ok(ColumnType::Text(u32::MAX)),
        DataType::Date => Ok(ColumnType::Date),
        DataType::Datetime(digits) => Ok(ColumnType::DateTime(fraction(*digits)?)),
        DataType::Timestamp(digits, _) => Ok(ColumnType::Timestamp(fraction(*digits)?)),
        other => Err(unsupported(format!("columns of type {other}"))),
    }
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

fn decimal(info: ExactNumberInfo) -> SqlResult<ColumnType> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => (10, 0),
        ExactNumberInfo::Precision(p) => (p, 0),
        ExactNumberInfo::PrecisionAndScale(p, s) => (p, s),
    };
    match (u8::try_from(precision), u8::try_from(scale)) {
        (Ok(p @ 1..=38), Ok(s @ 0..=30)) if s <= p => {
            Ok(ColumnType::Decimal { precision: p, scale: s })
        }
        _ => Err(SqlError::new(
            1426,
            b"42000",
            format!(
                "DECIMAL({precision},{scale}) is beyond DECIMAL(38,30), or has more digits behind the point than in all"
            ),
        )),
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

fn add_constraint(constraint: &TableConstraint, table: &mut Table) -> SqlResult<()> {
    match constraint {
        TableConstraint::PrimaryKey(key) => {
            if !table.primary_key.is_empty() {
                return Err(multiple_keys());
            }
            table.primary_key = columns(&key.columns, table)?;
        }
        TableConstraint::Unique(unique) => {
            let name = unique.index_name.as_ref().or(unique.name.as_ref()).map(|i| i.value.clone());
            push_index(table, name, &unique.columns, true)?;
        }
        TableConstraint::Index(index) => {
            push_index(table, index.name.as_ref().map(|i| i.value.clone()), &index.columns, false)?;
        }
        TableConstraint::ForeignKey(_) => return Err(unsupported("FOREIGN KEY")),
        TableConstraint::Check(_) => return Err(unsupported("CHECK")),
        other => return Err(unsupported(other)),
    }
    Ok(())
}

fn push_index(
    table: &mut Table,
    name: Option<String>,
    columns_: &[IndexColumn],
    unique: bool,
) -> SqlResult<()> {
    let ids = columns(columns_, table)?;
    let first =
        ids.first().and_then(|id| table.column(*id)).map(|c| c.name.clone()).unwrap_or_default();
    let index = new_index(table, name, &first, ids, unique)?;
    table.indexes.push(index);
    Ok(())
}

/// A new index of a table, not yet part of it. `first` names it if nothing else does.
pub fn new_index(
    table: &Table,
    name: Option<String>,
    first: &str,
    columns: Vec<ColumnId>,
    unique: bool,
) -> SqlResult<Index> {
    let taken = |name: &str| table.index_named(name).is_some();
    let name = match name {
        Some(name) if name.eq_ignore_ascii_case("PRIMARY") => {
            return Err(SqlError::new(1280, b"42000", format!("Incorrect index name '{name}'")));
        }
        Some(name) if taken(&name) => {
            return Err(SqlError::new(1061, b"42000", format!("Duplicate key name '{name}'")));
        }
        Some(name) => name,
        None => {
            let numbered = (2..).map(|n| format!("{first}_{n}"));
            std::iter::once(first.to_owned())
                .chain(numbered)
                .find(|n| !taken(n))
                .unwrap_or_default()
        }
    };
    let id = placement::api::next_index_id(table);
    Ok(Index { id, name, columns, unique, state: IndexState::Public { since: Timestamp::ZERO } })
}

/// Columns of an index by number.
pub fn columns(columns: &[IndexColumn], table: &Table) -> SqlResult<Vec<ColumnId>> {
    let mut ids = Vec::with_capacity(columns.len());
    for column in columns {
        let Expr::Identifier(ident) = &column.column.expr else {
            return Err(unsupported(format!("index on {}", column.column.expr)));
        };
        if column.column.options.asc == Some(false) {
            return Err(unsupported("descending index columns"));
        }
        let Some((_, found)) = table.column_named(&ident.value) else {
            let text = format!("Key column '{}' doesn't exist in table", ident.value);
            return Err(SqlError::new(1072, b"42000", text));
        };
        if ids.contains(&found.id) {
            return Err(SqlError::new(
                1060,
                b"42S21",
                format!("Duplicate column name '{}'", ident.value),
            ));
        }
        ids.push(found.id);
    }
    Ok(ids)
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

/// CREATE TABLE that makes a table like this one.
pub fn show_create(table: &Table) -> String {
    let quote = |name: &str| format!("`{}`", name.replace('`', "``"));
    let name_of = |id: &ColumnId| table.column(*id).map(|c| quote(&c.name)).unwrap_or_default();
    let names = |ids: &[ColumnId]| ids.iter().map(name_of).collect::<Vec<_>>().join(",");
    let mut lines = Vec::new();
    for column in table.columns.iter().filter(|column| !column.hidden) {
        let mut line = format!("  {} {}", quote(&column.name), column.ty);
        if !column.nullable {
            line.push_str(" NOT NULL");
        } else if matches!(column.ty, ColumnType::Timestamp(_)) {
            line.push_str(" NULL");
        }
        match &column.default {
            Some(Default::Constant(Value::Null)) => line.push_str(" DEFAULT NULL"),
            Some(Default::Constant(value)) => {
                line.push_str(&format!(" DEFAULT '{}'", value.to_string().replace('\'', "''")));
            }
            Some(Default::CurrentTimestamp) => {
                line.push_str(&format!(" DEFAULT {}", now_of(column.ty)))
            }
            None => {}
        }
        if column.on_update_now {
            line.push_str(&format!(" ON UPDATE {}", now_of(column.ty)));
        }
        if column.auto_increment {
            line.push_str(" AUTO_INCREMENT");
        }
        if !column.comment.is_empty() {
            line.push_str(&format!(" COMMENT '{}'", column.comment.replace('\'', "''")));
        }
        lines.push(line);
    }
    let hidden = |id: &ColumnId| table.column(*id).is_some_and(|c| c.hidden);
    if !table.primary_key.iter().any(hidden) {
        lines.push(format!("  PRIMARY KEY ({})", names(&table.primary_key)));
    }
    for index in &table.indexes {
        let unique = if index.unique { "UNIQUE " } else { "" };
        lines.push(format!("  {unique}KEY {} ({})", quote(&index.name), names(&index.columns)));
    }
    let mut text = format!(
        "CREATE TABLE {} (\n{}\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin",
        quote(&table.name),
        lines.join(",\n")
    );
    if !table.comment.is_empty() {
        text.push_str(&format!(" COMMENT='{}'", table.comment.replace('\'', "''")));
    }
    text
}

fn now_of(ty: ColumnType) -> String {
    match ty {
        ColumnType::DateTime(digits @ 1..) | ColumnType::Timestamp(digits @ 1..) => {
            format!("CURRENT_TIMESTAMP({digits})")
        }
        _ => "CURRENT_TIMESTAMP".into(),
    }
}
