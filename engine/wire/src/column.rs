//! Column definitions: what a result says of its columns before its rows.

use bytes::{BufMut, BytesMut};
use mysql_common::collations::CollationId;
use mysql_common::constants::{ColumnFlags, ColumnType as WireType};
use mysql_common::io::BufMutExt;
use types::wide::WIDE_MAX_PRECISION;
use types::{ColumnType, IntWidth};
use values::column::ResultColumn;

/// Most bytes of one utf8mb4 character.
const CHARACTER_BYTES: u32 = 4;
/// "As many as the value has": the number of decimals that MySQL reports for DOUBLE.
const DECIMALS_NOT_SPECIFIED: u8 = 31;

/// Length of the fields behind the names.
const FIXED_FIELDS: u64 = 12;

/// Appends the definition of one column, as MySQL 8 would describe the same column.
pub fn put_definition(out: &mut BytesMut, column: &ResultColumn) {
    let shape = Shape::of(column.ty);
    let decimals = match (column.ty, column.decimals) {
        (Some(ColumnType::Double), Some(digits)) => digits,
        _ => shape.decimals,
    };
    // What is computed of YEARs is a YEAR that is not filled up with zeros.
    let computed = column.ty == Some(ColumnType::Year) && column.org_table.is_empty();
    let dropped = if computed { ColumnFlags::ZEROFILL_FLAG } else { ColumnFlags::empty() };
    let flags = (shape.flags - dropped) | key_flags(column);
    let names =
        [&column.database, &column.table, &column.org_table, &column.name, &column.org_name];
    put(out, names.map(String::as_bytes), &Shape { flags, decimals, ..shape });
}

/// Appends the definition of a parameter of a prepared statement: MySQL calls them all `?`.
pub fn put_parameter(out: &mut BytesMut) {
    let shape = Shape::text(WireType::MYSQL_TYPE_VAR_STRING, 0);
    let flags = ColumnFlags::BINARY_FLAG;
    put(out, [b"", b"", b"", b"?", b""], &Shape { charset: CollationId::BINARY, flags, ..shape });
}

/// ColumnDefinition41. Written by hand: mysql_common 0.38.2 reads it rightly but writes length and
/// character set in each other's place.
fn put(out: &mut BytesMut, names: [&[u8]; 5], shape: &Shape) {
    out.put_lenenc_str(b"def");
    for name in names {
        out.put_lenenc_str(name);
    }
    out.put_lenenc_int(FIXED_FIELDS);
    out.put_u16_le(shape.charset as u16);
    out.put_u32_le(shape.length);
    out.put_u8(shape.ty as u8);
    out.put_u16_le(shape.flags.bits());
    out.put_u8(shape.decimals);
    out.put_u16_le(0);
}

fn key_flags(column: &ResultColumn) -> ColumnFlags {
    [
        (!column.nullable, ColumnFlags::NOT_NULL_FLAG),
        (column.primary_key, ColumnFlags::PRI_KEY_FLAG),
        (column.unique_key, ColumnFlags::UNIQUE_KEY_FLAG),
        (column.multiple_key, ColumnFlags::MULTIPLE_KEY_FLAG),
        (column.auto_increment, ColumnFlags::AUTO_INCREMENT_FLAG),
    ]
    .into_iter()
    .filter_map(|(set, flag)| set.then_some(flag))
    .fold(ColumnFlags::empty(), |flags, flag| flags | flag)
}

fn short(characters: usize) -> u32 {
    u32::try_from(characters).unwrap_or(u32::MAX)
}

/// What the type alone decides.
struct Shape {
    ty: WireType,
    charset: CollationId,
    /// Most characters of a printed number, most bytes of a text.
    length: u32,
    decimals: u8,
    flags: ColumnFlags,
}

impl Shape {
    fn of(ty: Option<ColumnType>) -> Self {
        let fraction = |digits: u8| if digits == 0 { 0 } else { u32::from(digits) + 1 };
        match ty {
            None => Self::number(WireType::MYSQL_TYPE_NULL, 0, 0).without_num(),
            Some(ColumnType::Int { width, unsigned }) => Self::int(width, unsigned),
            Some(ColumnType::Double) => {
                Self::number(WireType::MYSQL_TYPE_DOUBLE, 22, DECIMALS_NOT_SPECIFIED)
            }
            Some(ColumnType::Decimal { precision, scale }) => {
                let digits = u32::from(precision.min(WIDE_MAX_PRECISION));
                let length = digits + u32::from(scale > 0) + 1;
                Self::number(WireType::MYSQL_TYPE_NEWDECIMAL, length, scale)
            }
            Some(ColumnType::Char(n)) => Self::text(WireType::MYSQL_TYPE_STRING, n),
            Some(ColumnType::Varchar(n)) => Self::text(WireType::MYSQL_TYPE_VAR_STRING, n),
            Some(ColumnType::Text(n)) => {
                let shape = Self::text(WireType::MYSQL_TYPE_BLOB, n);
                Self { flags: ColumnFlags::BLOB_FLAG, ..shape }
            }
            Some(ColumnType::Binary(n)) => Self::bytes(WireType::MYSQL_TYPE_STRING, n),
            Some(ColumnType::Varbinary(n)) => Self::bytes(WireType::MYSQL_TYPE_VAR_STRING, n),
            Some(ColumnType::Blob(n)) => Self::bytes(WireType::MYSQL_TYPE_BLOB, n).into_blob(),
            Some(ColumnType::Json) => Self::bytes(WireType::MYSQL_TYPE_JSON, u32::MAX).into_blob(),
            // Drivers know both by their flags, as texts of the longest value's length.
            Some(ColumnType::Enum(labels)) => {
                Self::text(WireType::MYSQL_TYPE_STRING, short(labels.longest()))
                    .with(ColumnFlags::ENUM_FLAG)
            }
            Some(ColumnType::Set(labels)) => {
                Self::text(WireType::MYSQL_TYPE_STRING, short(labels.together()))
                    .with(ColumnFlags::SET_FLAG)
            }
            Some(ColumnType::Float) => {
                Self::number(WireType::MYSQL_TYPE_FLOAT, 12, DECIMALS_NOT_SPECIFIED)
            }
            Some(ColumnType::Year) => {
                let flags = ColumnFlags::UNSIGNED_FLAG | ColumnFlags::ZEROFILL_FLAG;
                Self::number(WireType::MYSQL_TYPE_YEAR, 4, 0).with(flags)
            }
            // Not NUM: drivers take a BIT as bytes.
            Some(ColumnType::Bit(n)) => Self {
                flags: ColumnFlags::UNSIGNED_FLAG,
                ..Self::number(WireType::MYSQL_TYPE_BIT, u32::from(n), 0)
            },
            Some(ColumnType::Time(digits)) => {
                let length = 10 + fraction(digits);
                Self::number(WireType::MYSQL_TYPE_TIME, length, digits).without_num()
            }
            Some(ColumnType::Date) => Self::number(WireType::MYSQL_TYPE_DATE, 10, 0).without_num(),
            Some(ColumnType::DateTime(digits)) => {
                let length = 19 + fraction(digits);
                Self::number(WireType::MYSQL_TYPE_DATETIME, length, digits).without_num()
            }
            Some(ColumnType::Timestamp(digits)) => {
                let length = 19 + fraction(digits);
                let shape = Self::number(WireType::MYSQL_TYPE_TIMESTAMP, length, digits);
                let flags = ColumnFlags::BINARY_FLAG | ColumnFlags::TIMESTAMP_FLAG;
                Self { flags, ..shape }
            }
        }
    }

    /// Widths are those of the longest printed value, sign included, as SHOW COLUMNS gave them
    /// before MySQL 8.0.19.
    fn int(width: IntWidth, unsigned: bool) -> Self {
        let (ty, signed_length) = match width {
            IntWidth::Tiny => (WireType::MYSQL_TYPE_TINY, 4),
            // The length by which drivers distinguish a BOOL from a TINYINT.
            IntWidth::Bool if !unsigned => (WireType::MYSQL_TYPE_TINY, 1),
            IntWidth::Bool => (WireType::MYSQL_TYPE_TINY, 4),
            IntWidth::Small => (WireType::MYSQL_TYPE_SHORT, 6),
            IntWidth::Medium => (WireType::MYSQL_TYPE_INT24, 9),
            IntWidth::Int => (WireType::MYSQL_TYPE_LONG, 11),
            IntWidth::Big => (WireType::MYSQL_TYPE_LONGLONG, 20),
        };
        // BIGINT UNSIGNED has one digit more than BIGINT, so it is as long as that with its sign.
        let shorter = u32::from(unsigned && width != IntWidth::Big);
        let shape = Self::number(ty, signed_length - shorter, 0);
        match unsigned {
            true => Self { flags: shape.flags | ColumnFlags::UNSIGNED_FLAG, ..shape },
            false => shape,
        }
    }

    fn number(ty: WireType, length: u32, decimals: u8) -> Self {
        let flags = ColumnFlags::BINARY_FLAG | ColumnFlags::NUM_FLAG;
        Self { ty, charset: CollationId::BINARY, length, decimals, flags }
    }

    fn without_num(self) -> Self {
        Self { flags: ColumnFlags::BINARY_FLAG, ..self }
    }

    fn with(self, flags: ColumnFlags) -> Self {
        Self { flags: self.flags | flags, ..self }
    }

    fn into_blob(self) -> Self {
        self.with(ColumnFlags::BLOB_FLAG)
    }

    fn bytes(ty: WireType, length: u32) -> Self {
        let flags = ColumnFlags::BINARY_FLAG;
        Self { ty, charset: CollationId::BINARY, length, decimals: 0, flags }
    }

    fn text(ty: WireType, length: u32) -> Self {
        Self {
            ty,
            charset: CollationId::UTF8MB4_GENERAL_CI,
            length: length.saturating_mul(CHARACTER_BYTES),
            decimals: 0,
            flags: ColumnFlags::empty(),
        }
    }
}
