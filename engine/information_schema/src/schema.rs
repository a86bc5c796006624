//! The catalog as information_schema describes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use types::{ColumnType, Default, Index, Table, TableId, Value};

use super::{Listing, Sizes, Source, int, string, yes};
use definitions::now_of;

pub(super) const CATALOG: &str = "def";

/// Tables that are made of the catalog.
pub(super) const NAMES: &[&str] = &[
    "schemata",
    "tables",
    "columns",
    "statistics",
    "key_column_usage",
    "table_constraints",
    "check_constraints",
    "referential_constraints",
    "views",
    "engines",
    "collations",
    "character_sets",
];

impl Source<'_> {
    /// A listing of names and their properties, if there is one of this name.
    pub(super) fn described(&self, name: &str) -> Option<Listing> {
        Some(match name {
            "schemata" => self.schemata(),
            "columns" => self.columns(),
            "statistics" => self.statistics(),
            "key_column_usage" => self.key_column_usage(),
            "table_constraints" => self.table_constraints(),
            "check_constraints" => self.check_constraints(),
            "referential_constraints" => self.referential_constraints(),
            "views" => self.views(),
            "engines" => engines(),
            "collations" => collations(),
            "character_sets" => character_sets(),
            _ => {
                let listing = self.privileges(name).or_else(|| self.resource_groups(name));
                return listing.or_else(|| super::absent::listing(name));
            }
        })
    }

    /// Databases, the virtual ones included.
    pub fn databases(&self) -> Vec<String> {
        let mut names = self.catalog.databases.clone();
        if !names.iter().any(|name| name.eq_ignore_ascii_case("information_schema")) {
            names.push("information_schema".into());
        }
        names.sort();
        names
    }

    fn schemata(&self) -> Listing {
        let mut listing = Listing::of(&[
            "CATALOG_NAME",
            "SCHEMA_NAME",
            "DEFAULT_CHARACTER_SET_NAME",
            "DEFAULT_COLLATION_NAME",
            "SQL_PATH",
            "DEFAULT_ENCRYPTION",
        ]);
        let row = |name: String| {
            vec![
                string(CATALOG),
                string(name),
                string("utf8mb4"),
                string("utf8mb4_bin"),
                Value::Null,
                string("NO"),
            ]
        };
        listing.rows = self.databases().into_iter().map(row).collect();
        listing
    }

    /// Tables, with the next AUTO_INCREMENT number of those that have one.
    pub(super) fn tables(&self, numbers: &BTreeMap<TableId, u64>, sizes: &Sizes) -> Listing {
        let mut listing = Listing::of(&[
            "TABLE_CATALOG",
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "TABLE_TYPE",
            "ENGINE",
            "#VERSION",
            "ROW_FORMAT",
            "#TABLE_ROWS",
            "#AVG_ROW_LENGTH",
            "#DATA_LENGTH",
            "#MAX_DATA_LENGTH",
            "#INDEX_LENGTH",
            "#DATA_FREE",
            "#AUTO_INCREMENT",
            "CREATE_TIME",
            "UPDATE_TIME",
            "CHECK_TIME",
            "TABLE_COLLATION",
            "#CHECKSUM",
            "CREATE_OPTIONS",
            "TABLE_COMMENT",
        ]);
        for table in &self.catalog.tables {
            let mut row = vec![string(CATALOG), string(&table.database), string(&table.name)];
            row.extend([string("BASE TABLE"), string("InnoDB"), int(10), string("Dynamic")]);
            row.extend(sizes.of_table(table.id));
            row.push(numbers.get(&table.id).map_or(Value::Null, |number| int(*number)));
            row.extend(std::iter::repeat_n(Value::Null, 3));
            row.extend([string("utf8mb4_bin"), Value::Null, string(""), string(&table.comment)]);
            listing.rows.push(row);
        }
        for view in &self.catalog.views {
            let mut row = vec![string(CATALOG), string(&view.database), string(&view.name)];
            row.push(string("VIEW"));
            row.extend(std::iter::repeat_n(Value::Null, 16));
            row.push(string("VIEW"));
            listing.rows.push(row);
        }
        listing.rows.extend(super::names().into_iter().map(system_view));
        listing
    }

    fn views(&self) -> Listing {
        let mut listing = Listing::of(&[
            "TABLE_CATALOG",
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "VIEW_DEFINITION",
            "CHECK_OPTION",
            "IS_UPDATABLE",
            "DEFINER",
            "SECURITY_TYPE",
            "CHARACTER_SET_CLIENT",
            "COLLATION_CONNECTION",
        ]);
        for column in listing.columns.iter_mut().skip(3).take(1) {
            column.ty = ColumnType::Text(u32::MAX);
        }
        for view in &self.catalog.views {
            listing.rows.push(vec![
                string(CATALOG),
                string(&view.database),
                string(&view.name),
                string(&view.query),
                string("NONE"),
                string("NO"),
                string(&view.definer),
                string(if view.invoker { "INVOKER" } else { "DEFINER" }),
                string("utf8mb4"),
                string("utf8mb4_bin"),
            ]);
        }
        listing
    }

    fn columns(&self) -> Listing {
        let mut listing = Listing::of(&[
            "TABLE_CATALOG",
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "COLUMN_NAME",
            "#ORDINAL_POSITION",
            "COLUMN_DEFAULT",
            "IS_NULLABLE",
            "DATA_TYPE",
            "#CHARACTER_MAXIMUM_LENGTH",
            "#CHARACTER_OCTET_LENGTH",
            "#NUMERIC_PRECISION",
            "#NUMERIC_SCALE",
            "#DATETIME_PRECISION",
            "CHARACTER_SET_NAME",
            "COLLATION_NAME",
            "COLUMN_TYPE",
            "COLUMN_KEY",
            "EXTRA",
            "PRIVILEGES",
            "COLUMN_COMMENT",
            "GENERATION_EXPRESSION",
            "#SRS_ID",
        ]);
        let views: Vec<Table> = self.catalog.views.iter().map(|view| view.described()).collect();
        for table in self.catalog.tables.iter().map(Arc::as_ref).chain(&views) {
            let privileges = self.rights.on_columns(&table.database, &table.name);
            for (at, column) in table.columns.iter().filter(|column| !column.hidden).enumerate() {
                let length = text_length(column.ty);
                let is_text = length.is_some() && !column.ty.is_binary();
                let (precision, scale) = numeric(column.ty);
                let fraction = match column.ty {
                    ColumnType::DateTime(digits)
                    | ColumnType::Timestamp(digits)
                    | ColumnType::Time(digits) => int(digits),
                    _ => Value::Null,
                };
                let charset = |name: &str| if is_text { string(name) } else { Value::Null };
                listing.rows.push(vec![
                    string(CATALOG),
                    string(&table.database),
                    string(&table.name),
                    string(&column.name),
                    int(at + 1),
                    default_text(column),
                    yes(column.nullable),
                    string(data_type(column.ty)),
                    length.map_or(Value::Null, int),
                    octet_length(column.ty).map_or(Value::Null, int),
                    precision,
                    scale,
                    fraction,
                    charset("utf8mb4"),
                    charset("utf8mb4_bin"),
                    string(column.ty.to_string()),
                    string(column_key(table, column.id)),
                    string(extra(column)),
                    string(&privileges),
                    string(&column.comment),
                    string(column.generated().map_or("", |(expression, _)| expression)),
                    Value::Null,
                ]);
            }
        }
        listing
    }

    fn statistics(&self) -> Listing {
        let mut listing = Listing::of(&[
            "TABLE_CATALOG",
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "#NON_UNIQUE",
            "INDEX_SCHEMA",
            "INDEX_NAME",
            "#SEQ_IN_INDEX",
            "COLUMN_NAME",
            "COLLATION",
            "#CARDINALITY",
            "#SUB_PART",
            "PACKED",
            "NULLABLE",
            "INDEX_TYPE",
            "COMMENT",
            "INDEX_COMMENT",
            "IS_VISIBLE",
            "EXPRESSION",
        ]);
        for table in &self.catalog.tables {
            for part in keys(table) {
                listing.rows.push(vec![
                    string(CATALOG),
                    string(&table.database),
                    string(&table.name),
                    int(i64::from(!part.unique)),
                    string(&table.database),
                    string(part.key),
                    int(part.at),
                    string(part.column),
                    string(if part.descending { "D" } else { "A" }),
                    Value::Null,
                    part.prefix.map_or(Value::Null, int),
                    Value::Null,
                    string(if part.nullable { "YES" } else { "" }),
                    string("BTREE"),
                    string(""),
                    string(""),
                    yes(part.visible),
                    Value::Null,
                ]);
            }
        }
        listing
    }
}

/// A table of information_schema among TABLES: DBeaver shows CHECKs only if it finds CHECK_CONSTRAINTS there.
fn system_view(name: &str) -> Vec<Value> {
    let mut row = vec![string(CATALOG), string("information_schema"), string(name.to_uppercase())];
    row.extend([string("SYSTEM VIEW"), Value::Null, int(10)]);
    row.extend(std::iter::repeat_n(Value::Null, 13));
    row.extend([string(""), string("")]);
    row
}

/// SHOW ENGINES.
pub fn engines() -> Listing {
    let mut listing =
        Listing::of(&["ENGINE", "SUPPORT", "COMMENT", "TRANSACTIONS", "XA", "SAVEPOINTS"]);
    listing.rows.push(vec![
        string("InnoDB"),
        string("DEFAULT"),
        string("Isobar's row store, with columnar replicas; called InnoDB for clients that ask"),
        string("YES"),
        string("NO"),
        string("YES"),
    ]);
    listing
}

/// SHOW COLLATION.
pub fn collations() -> Listing {
    let mut listing = Listing::of(&[
        "COLLATION_NAME",
        "CHARACTER_SET_NAME",
        "#ID",
        "IS_DEFAULT",
        "IS_COMPILED",
        "#SORTLEN",
        "PAD_ATTRIBUTE",
    ]);
    for (name, charset, id) in [("utf8mb4_bin", "utf8mb4", 46), ("binary", "binary", 63)] {
        listing.rows.push(vec![
            string(name),
            string(charset),
            int(id),
            string("Yes"),
            string("Yes"),
            int(1),
            string("NO PAD"),
        ]);
    }
    listing
}

/// SHOW CHARACTER SET.
pub fn character_sets() -> Listing {
    let mut listing =
        Listing::of(&["CHARACTER_SET_NAME", "DEFAULT_COLLATE_NAME", "DESCRIPTION", "#MAXLEN"]);
    for (name, collation, description, longest) in [
        ("utf8mb4", "utf8mb4_bin", "UTF-8 Unicode", 4),
        ("binary", "binary", "Binary pseudo charset", 1),
    ] {
        listing.rows.push(vec![string(name), string(collation), string(description), int(longest)]);
    }
    listing
}

/// One column's part in a key, as lists of keys show it.
pub struct ShownPart {
    /// Name of the key.
    pub key: String,
    /// Whether the key is unique.
    pub unique: bool,
    /// Position within it, from 1.
    pub at: usize,
    /// The column.
    pub column: String,
    /// Whether the column may be NULL.
    pub nullable: bool,
    /// How much of the column is in the key, if not all.
    pub prefix: Option<u32>,
    /// Whether it was declared DESC.
    pub descending: bool,
    /// Whether reads may use the key.
    pub visible: bool,
}

/// The parts of all keys; PRIMARY first.
pub fn keys(table: &Table) -> Vec<ShownPart> {
    let shown = |id: &u32| table.column(*id).filter(|column| !column.hidden);
    let part = |(at, column): (usize, &types::Column), index: Option<&Index>| ShownPart {
        key: index.map_or("PRIMARY", |index| index.name.as_str()).to_owned(),
        unique: index.is_none_or(|index| index.unique),
        at: at + 1,
        column: column.name.clone(),
        nullable: column.nullable,
        prefix: index.and_then(|index| index.prefix(column.id)),
        descending: index.is_some_and(|index| index.is_descending(column.id)),
        visible: index.is_none_or(|index| index.visible),
    };
    let primary = table.primary_key.iter().filter_map(shown).enumerate();
    let mut parts: Vec<ShownPart> = primary.map(|column| part(column, None)).collect();
    let is_shown = |id: &u32| shown(id).is_some();
    let whole = |index: &&Index| index.is_public() && index.columns.iter().all(is_shown);
    for index in table.indexes.iter().filter(whole) {
        let columns = index.columns.iter().filter_map(shown).enumerate();
        parts.extend(columns.map(|column| part(column, Some(index))));
    }
    parts
}

/// PRI, UNI, MUL or nothing.
pub fn column_key(table: &Table, id: u32) -> &'static str {
    let leads = |index: &&Index| index.is_public() && index.columns.first() == Some(&id);
    if table.primary_key.contains(&id) {
        "PRI"
    } else if table.indexes.iter().filter(leads).any(|i| i.unique && i.columns.len() == 1) {
        "UNI"
    } else if table.indexes.iter().any(|index| leads(&index)) {
        "MUL"
    } else {
        ""
    }
}

/// The Extra column of SHOW COLUMNS.
pub fn extra(column: &types::Column) -> String {
    let updated = format!("on update {}", now_of(column.ty));
    let mut parts = Vec::new();
    if let Some((_, stored)) = column.generated() {
        parts.push(if stored { "STORED GENERATED" } else { "VIRTUAL GENERATED" });
    }
    if column.auto_increment {
        parts.push("auto_increment");
    }
    if column.default == Some(Default::CurrentTimestamp) {
        parts.push("DEFAULT_GENERATED");
    }
    if column.on_update_now {
        parts.push(&updated);
    }
    parts.join(" ")
}

/// A default as SHOW COLUMNS prints it.
pub fn default_text(column: &types::Column) -> Value {
    match &column.default {
        Some(
            Default::Constant(Value::Null) | Default::Generated { .. } | Default::Converted { .. },
        )
        | None => Value::Null,
        Some(Default::Constant(Value::UInt(n))) if matches!(column.ty, ColumnType::Bit(_)) => {
            string(format!("b'{n:b}'"))
        }
        Some(Default::Constant(Value::UInt(n))) if column.ty == ColumnType::Year => {
            string(format!("{n:04}"))
        }
        Some(Default::Constant(value)) => string(value.to_string()),
        Some(Default::CurrentTimestamp) => string(now_of(column.ty)),
    }
}

fn data_type(ty: ColumnType) -> String {
    let text = ty.to_string();
    text.split(['(', ' ']).next().unwrap_or_default().to_owned()
}

/// The most bytes of a text: four a character, but the length of a TEXT is one of bytes already.
fn octet_length(ty: ColumnType) -> Option<i64> {
    let length = text_length(ty)?;
    let counts_bytes = ty.is_binary() || matches!(ty, ColumnType::Text(_));
    Some(if counts_bytes { length } else { length.saturating_mul(4) })
}

fn text_length(ty: ColumnType) -> Option<i64> {
    match ty {
        ColumnType::Char(n)
        | ColumnType::Varchar(n)
        | ColumnType::Text(n)
        | ColumnType::Binary(n)
        | ColumnType::Varbinary(n)
        | ColumnType::Blob(n) => Some(i64::from(n)),
        ColumnType::Enum(labels) => i64::try_from(labels.longest()).ok(),
        ColumnType::Set(labels) => i64::try_from(labels.together()).ok(),
        _ => None,
    }
}

fn numeric(ty: ColumnType) -> (Value, Value) {
    match ty {
        ColumnType::Int { width, unsigned } => {
            let digits = match width.bits() {
                8 => 3,
                16 => 5,
                24 => 7,
                32 => 10,
                _ if unsigned => 20,
                _ => 19,
            };
            (int(digits), int(0))
        }
        ColumnType::Double => (int(22), Value::Null),
        ColumnType::Float => (int(12), Value::Null),
        ColumnType::Bit(bits) => (int(bits), Value::Null),
        ColumnType::Decimal { precision, scale } => (int(precision), int(scale)),
        _ => (Value::Null, Value::Null),
    }
}
