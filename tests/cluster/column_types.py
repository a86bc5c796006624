"""Every column type with values that are hard to carry: the one list that the table of types and readers goes by.

It must never know a reader: what a value becomes in one is that reader's business (test_column_types.py).
"""

import datetime
import struct
from dataclasses import dataclass, field
from decimal import Decimal


@dataclass(frozen=True)
class StoredAs:
    """A value that is stored as another."""

    written: object
    read: object


@dataclass(frozen=True)
class Type:
    """A column type: its values besides NULL in Python's natural types, who refuses it and with what words (its table
    has no columnar replica then), and what is to be said of it everywhere."""

    sql: str
    values: list
    refused: dict[str, str] = field(default_factory=dict)
    note: str = "exact"

    def written(self) -> list:
        return [value.written if isinstance(value, StoredAs) else value for value in self.values]

    def read(self) -> list:
        return [value.read if isinstance(value, StoredAs) else value for value in self.values]

    @property
    def base(self) -> str:
        """The type's name without its length."""
        return self.sql.split("(")[0].split()[0]


def integers(name: str, bits: int) -> list[Type]:
    top = 1 << bits - 1
    return [Type(name, [-top, top - 1, 0, -1]), Type(f"{name} UNSIGNED", [0, 2 * top - 1, top, 1])]


def decimals(digits: int, fraction: int, refused: dict[str, str] | None = None) -> Type:
    """All nines on both sides of zero, the least there is, and zero with its scale."""
    most, least = Decimal((0, (9,) * digits, -fraction)), Decimal((0, (1,), -fraction))
    values = [most.copy_negate(), most, least, least.copy_negate(), Decimal((0, (0,), -fraction))]
    return Type(f"DECIMAL({digits},{fraction})", values, refused or {})


def single(number: float) -> float:
    """The nearest number that a FLOAT holds."""
    return struct.unpack("<f", struct.pack("<f", number))[0]


def span(hours: int, minutes: int = 0, seconds: int = 0, micros: int = 0) -> datetime.timedelta:
    return datetime.timedelta(hours=hours, minutes=minutes, seconds=seconds, microseconds=micros)


def texts(name: str, longest: int) -> Type:
    """`longest` is in bytes."""
    return Type(name, ["", "blanks  ", "nul \0 back \\ quote ' \" %_ tab \t", "𝄞\U0010ffff é", "x" * longest])


def binaries(name: str, longest: int) -> Type:
    return Type(name, [b"", b"\0", b"blanks  ", b"\x00\xff\x80\xfe\xc3(", b"\xfe" * longest])


dt = datetime.datetime
longest, micro = span(838, 59, 59), span(0, 0, 0, 1)
largest_float, largest = single(3.4028234663852886e38), 1.7976931348623157e308
deep = "[" * 99 + "1" + "]" * 99

ROWS_ONLY = {
    "SQL on columns, text": "columnar replica",
    "SQL on columns, prepared": "columnar replica",
    "Flight scan": "DECIMALs of up to 38 digits",
    "Flight SQL": "DECIMALs of up to 38 digits",
    "ADBC, pandas": "DECIMALs of up to 38 digits",
    "ADBC, polars": "DECIMALs of up to 38 digits",
    "Spark": "which Spark cannot hold",
}

TYPES = [
    *integers("TINYINT", 8),
    Type("TINYINT(1)", [-128, 127, 0, 1]),
    *integers("SMALLINT", 16),
    *integers("MEDIUMINT", 24),
    *integers("INT", 32),
    *integers("BIGINT", 64),
    Type(
        "FLOAT",
        [-largest_float, largest_float, single(1e-45), StoredAs(-0.0, 0.0), single(0.1), 16777216.0, single(-1.17549435e-38)],
        note="exact, with one zero",
    ),
    Type(
        "DOUBLE",
        [-largest, largest, 5e-324, StoredAs(-0.0, 0.0), 0.1, 9007199254740992.0, 2.2250738585072014e-308],
        note="exact, with one zero",
    ),
    decimals(1, 0),
    decimals(18, 6),
    decimals(19, 19),
    decimals(38, 0),
    decimals(38, 30),
    decimals(39, 0, ROWS_ONLY),
    decimals(65, 30, ROWS_ONLY),
    Type("CHAR(8)", ["", "naïve ☃", StoredAs("blanks  ", "blanks"), "𝄞" * 8, " x"]),
    texts("VARCHAR(255)", 255),
    texts("TINYTEXT", 255),
    texts("TEXT", 65_535),
    texts("MEDIUMTEXT", 70_000),
    texts("LONGTEXT", 70_000),
    Type("BINARY(4)", [StoredAs(b"", b"\0" * 4), b"\xff" * 4, StoredAs(b"a ", b"a \0\0"), b"\xc3(\x80\0"]),
    binaries("VARBINARY(255)", 255),
    binaries("TINYBLOB", 255),
    binaries("BLOB", 65_535),
    binaries("MEDIUMBLOB", 70_000),
    binaries("LONGBLOB", 70_000),
    Type("DATE", [datetime.date(*day) for day in ((1000, 1, 1), (9999, 12, 31), (1582, 10, 10), (2024, 2, 29))]),
    Type(
        "DATETIME",
        [
            dt(1000, 1, 1),
            dt(9999, 12, 31, 23, 59, 59),
            StoredAs(dt(1999, 12, 31, 23, 59, 59, 500_000), dt(2000, 1, 1)),
        ],
    ),
    Type("DATETIME(3)", [StoredAs(dt(1969, 12, 31, 23, 59, 59, 999_400), dt(1969, 12, 31, 23, 59, 59, 999_000))]),
    Type("DATETIME(6)", [dt(1000, 1, 1, 0, 0, 0, 1), dt(9999, 12, 31, 23, 59, 59, 999_999), dt(1582, 10, 10)]),
    Type("TIMESTAMP", [dt(1970, 1, 1, 0, 0, 1), dt(2038, 1, 19, 3, 14, 7), dt(2024, 3, 31, 1, 30)]),
    Type("TIMESTAMP(6)", [dt(1970, 1, 1, 0, 0, 1, 1), dt(2038, 1, 19, 3, 14, 7, 999_999)]),
    Type("TIME", [-longest, longest, span(0), StoredAs(span(23, 59, 59, 500_000), span(24)), -span(0, 0, 1)]),
    Type("TIME(3)", [-longest, StoredAs(-span(0, 0, 1, 500), -span(0, 0, 1, 1000))]),
    Type("TIME(6)", [-longest, longest, -micro, micro, longest - micro, micro - longest]),
    Type("YEAR", [0, 1901, 2155, 1970]),
    Type("BIT(1)", [0, 1]),
    Type("BIT(10)", [0, 1023, 513]),
    Type("BIT(63)", [0, 2**63 - 1]),
    Type("BIT(64)", [0, 2**64 - 1, 2**63]),
    Type("ENUM('a','b c','𝄞 é')", ["a", "b c", "𝄞 é"]),
    Type("SET('x','y','𝄞')", ["", "x", "y,𝄞", StoredAs("𝄞,x", "x,𝄞")]),
    Type(
        "JSON",
        [
            "null",
            '""',
            StoredAs('{"bb":1,"a":[true,{"c":[]}],"a":2}', '{"a": 2, "bb": 1}'),
            "[-9223372036854775808, 18446744073709551615, 1.7976931348623157e308, 5e-324]",
            StoredAs('"\\u00e9 \\ud834\\udd1e \\u0000 \\" \\\\ 𝄞"', '"é 𝄞 \\u0000 \\" \\\\ 𝄞"'),
            deep,
            '"' + "x" * 70_000 + '"',
        ],
    ),
]

# What no column takes: the type, the literal, MySQL's number of the error.
NOT_STORED = [
    ("DATE", "'0000-00-00'", 1292),
    ("DATE", "'2024-00-10'", 1292),
    ("DATETIME", "'0000-00-00 00:00:00'", 1292),
    ("TIMESTAMP", "'1970-01-01 00:00:00'", 1292),
    ("TIMESTAMP", "'2038-01-19 03:14:08'", 1292),
    ("TIME", "'839:00:00'", 1292),
    ("YEAR", "1900", 1264),
    ("YEAR", "2156", 1264),
    ("FLOAT", "1e39", 1264),
    ("DOUBLE", "'NaN'", 1366),
    ("BIT(10)", "1024", 1406),
    ("DECIMAL(38,0)", "1" + "0" * 38, 1264),
    ("JSON", "'{\"a\": NaN}'", 3140),
    ("JSON", f"'[{deep}]'", 3157),
]
