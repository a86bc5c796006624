"""Random schemas, rows and queries of MySQL, as trees that print themselves and can be made smaller.

A seed gives the same statements for ever. Nothing here knows a server, and no generated query depends on the clock, on
randomness, or on an order of rows that it does not ask for.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache

INT, DECIMAL, DOUBLE, TEXT, BYTES, DATE, DATETIME, TIME, YEAR, JSON = (
    "int", "decimal", "double", "text", "bytes", "date", "datetime", "time", "year", "json"
)

# A column's type, what kind of value it is, and literals with its edges.
TYPES: list[tuple[str, str, list[str]]] = [
    ("TINYINT", INT, ["-128", "127", "0", "1", "-1"]),
    ("TINYINT UNSIGNED", INT, ["0", "255", "7"]),
    ("SMALLINT", INT, ["-32768", "32767", "0", "100"]),
    ("INT", INT, ["-2147483648", "2147483647", "0", "1", "42", "-7"]),
    ("INT UNSIGNED", INT, ["0", "4294967295", "10"]),
    ("BIGINT", INT, ["-9223372036854775808", "9223372036854775807", "0", "1", "1000000007"]),
    ("BIGINT UNSIGNED", INT, ["0", "18446744073709551615", "3"]),
    ("DECIMAL(5,2)", DECIMAL, ["-999.99", "999.99", "0.00", "1.50", "-0.01"]),
    ("DECIMAL(18,6)", DECIMAL, ["-999999999999.999999", "0.000001", "3.141593", "100"]),
    ("DECIMAL(38,10)", DECIMAL, ["9999999999999999999999999999.9999999999", "-1.5", "0"]),
    ("DOUBLE", DOUBLE, ["-1.5e300", "0", "0.5", "-0.25", "123456789.125", "1e-10"]),
    ("CHAR(8)", TEXT, ["''", "'a'", "'Abc'", "'naïve ☃'", "'12'", "'-3.5x'"]),
    ("VARCHAR(40)", TEXT, ["''", "'abc'", "'ABC'", "' lead'", "'20'", "'2020-02-29'", "'a_b%c'", "'☃'"]),
    ("TEXT", TEXT, ["''", "'lorem ipsum dolor'", "'1e2'", "'x,y,z'"]),
    ("VARBINARY(20)", BYTES, ["''", "X'00ff80'", "'abc'"]),
    ("DATE", DATE, ["'1000-01-01'", "'9999-12-31'", "'2020-02-29'", "'1999-12-31'", "'2013-06-01'"]),
    ("DATETIME", DATETIME, ["'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'2020-02-29 12:34:56'", "'2013-06-01 00:00:00'"]),
    ("DATETIME(6)", DATETIME, ["'1969-12-31 23:59:59.999999'", "'2020-02-29 12:34:56.000001'", "'2013-06-01 00:00:00'"]),
    ("TIMESTAMP", DATETIME, ["'1970-01-02 00:00:00'", "'2038-01-18 03:14:07'", "'2013-06-01 12:00:00'"]),
    ("TIME", TIME, ["'-838:59:59'", "'838:59:59'", "'00:00:00'", "'12:34:56'"]),
    ("TIME(3)", TIME, ["'-00:00:00.001'", "'23:59:59.999'", "'100:00:00'"]),
    ("YEAR", YEAR, ["1901", "2155", "2000", "2013"]),
    ("MEDIUMINT", INT, ["-8388608", "8388607", "0", "5"]),
    ("BINARY(4)", BYTES, ["X'00010203'", "'ab'"]),
    ("SET('x','y','z')", TEXT, ["''", "'x'", "'x,z'", "'y,z'"]),
    ("ENUM('red','green','Blue')", TEXT, ["'red'", "'green'", "'Blue'"]),
    ("JSON", JSON, ["'null'", "'[1, 2.5, \"a\"]'", "'{\"a\": null, \"b\": {\"c\": [true]}}'", "'\"text\"'", "'-3'"]),
]

LITERALS = {
    INT: ["0", "1", "-1", "2", "7", "100", "2147483648", "9223372036854775807", "18446744073709551615"],
    DECIMAL: ["0.0", "1.5", "-2.75", "0.001", "12345678901234567890.123"],
    DOUBLE: ["1e0", "-2.5e0", "1e-3", "1e300"],
    TEXT: ["''", "'a'", "'abc'", "'ABC'", "'12'", "'2020-02-29'", "'x,y'", "'%b_'", "'☃'"],
    BYTES: ["X'61'", "X'00ff'"],
    DATE: ["DATE'2020-02-29'", "DATE'1999-12-31'", "DATE'9999-12-31'"],
    DATETIME: ["TIMESTAMP'2020-02-29 12:34:56'", "TIMESTAMP'2013-06-01 00:00:00.5'"],
    TIME: ["TIME'12:34:56'", "TIME'-01:00:00'", "TIME'00:00:00.25'"],
    YEAR: ["2000", "2013"],
    JSON: ["JSON_ARRAY(1, 'a', NULL)", "JSON_OBJECT('a', 1)"],
}

NUMBER = (INT, DECIMAL, DOUBLE)
SMALL = "small"  # a small whole number: sizes, positions, numbers of digits
ANY = (INT, DECIMAL, DOUBLE, TEXT, DATE, DATETIME, TIME, YEAR)

# What a call looks like, the kinds of its operands, and the kind of its result: a kind, or the number of the operand
# that it is like.
Form = tuple[str, tuple, object]
CALLS: list[Form] = [
    ("({} + {})", (NUMBER, NUMBER), 0), ("({} - {})", (NUMBER, NUMBER), 0), ("({} * {})", (NUMBER, NUMBER), 0),
    ("({} / {})", (NUMBER, NUMBER), DECIMAL), ("({} DIV {})", ((INT, DECIMAL), (INT, DECIMAL)), INT),
    ("({} % {})", ((INT, DECIMAL), (INT, DECIMAL)), 0), ("(-{})", (NUMBER,), 0),
    ("({} & {})", (INT, INT), INT), ("({} | {})", (INT, INT), INT), ("({} ^ {})", (INT, INT), INT),
    ("({} << {})", (INT, SMALL), INT), ("({} >> {})", (INT, SMALL), INT), ("(~{})", (INT,), INT),
    ("ABS({})", (NUMBER,), 0), ("SIGN({})", (NUMBER,), INT), ("CEILING({})", (NUMBER,), 0), ("FLOOR({})", (NUMBER,), 0),
    ("ROUND({})", (NUMBER,), 0), ("ROUND({}, {})", ((INT, DECIMAL), SMALL), 0), ("TRUNCATE({}, {})", ((INT, DECIMAL), SMALL), 0),
    ("MOD({}, {})", ((INT, DECIMAL), (INT, DECIMAL)), 0), ("SQRT({})", (NUMBER,), DOUBLE), ("POW({}, {})", (NUMBER, SMALL), DOUBLE),
    ("GREATEST({}, {})", (INT, INT), INT), ("LEAST({}, {})", (INT, INT), INT),
    ("GREATEST({}, {})", (TEXT, TEXT), TEXT), ("LEAST({}, {})", (DATE, DATE), DATE),
    ("CRC32({})", (TEXT,), INT), ("CONV({}, 10, 16)", (INT,), TEXT), ("HEX({})", ((INT, TEXT, BYTES),), TEXT), ("BIN({})", (INT,), TEXT),
    ("BIT_COUNT({})", (INT,), INT), ("FORMAT({}, 2)", ((INT, DECIMAL),), TEXT),
    ("CONCAT({}, {})", ((TEXT, INT, DECIMAL, DATE), TEXT), TEXT), ("CONCAT_WS('-', {}, {})", (TEXT, (TEXT, INT)), TEXT),
    ("UPPER({})", (TEXT,), TEXT), ("LOWER({})", (TEXT,), TEXT), ("LENGTH({})", ((TEXT, BYTES),), INT), ("CHAR_LENGTH({})", (TEXT,), INT),
    ("LEFT({}, {})", (TEXT, SMALL), TEXT), ("RIGHT({}, {})", (TEXT, SMALL), TEXT), ("SUBSTRING({}, {})", (TEXT, SMALL), TEXT),
    ("SUBSTRING({}, {}, {})", (TEXT, SMALL, SMALL), TEXT), ("SUBSTRING_INDEX({}, {}, {})", (TEXT, TEXT, SMALL), TEXT),
    ("LPAD({}, {}, {})", (TEXT, SMALL, TEXT), TEXT), ("RPAD({}, {}, {})", (TEXT, SMALL, TEXT), TEXT),
    ("TRIM({})", (TEXT,), TEXT), ("LTRIM({})", (TEXT,), TEXT), ("TRIM(LEADING {} FROM {})", (TEXT, TEXT), TEXT),
    ("REPLACE({}, {}, {})", (TEXT, TEXT, TEXT), TEXT), ("REVERSE({})", (TEXT,), TEXT), ("REPEAT({}, {})", (TEXT, SMALL), TEXT),
    ("INSTR({}, {})", (TEXT, TEXT), INT), ("LOCATE({}, {}, {})", (TEXT, TEXT, SMALL), INT), ("FIELD({}, {}, {})", (TEXT, TEXT, TEXT), INT),
    ("FIND_IN_SET({}, {})", (TEXT, TEXT), INT), ("ELT({}, {}, {})", (SMALL, TEXT, TEXT), TEXT), ("STRCMP({}, {})", (TEXT, TEXT), INT),
    ("ASCII({})", (TEXT,), INT), ("ORD({})", (TEXT,), INT), ("SPACE({})", (SMALL,), TEXT), ("INSERT({}, {}, {}, {})", (TEXT, SMALL, SMALL, TEXT), TEXT),
    ("QUOTE({})", (TEXT,), TEXT), ("TO_BASE64({})", (TEXT,), TEXT), ("MD5({})", (TEXT,), TEXT), ("SHA1({})", (TEXT,), TEXT),
    ("({} LIKE {})", (TEXT, TEXT), INT), ("({} NOT LIKE {})", (TEXT, TEXT), INT),
    ("YEAR({})", ((DATE, DATETIME),), INT), ("MONTH({})", ((DATE, DATETIME),), INT), ("DAYOFMONTH({})", ((DATE, DATETIME),), INT),
    ("DAYOFWEEK({})", ((DATE, DATETIME),), INT), ("DAYOFYEAR({})", ((DATE, DATETIME),), INT), ("WEEKDAY({})", ((DATE, DATETIME),), INT),
    ("WEEK({}, 3)", ((DATE, DATETIME),), INT), ("YEARWEEK({})", ((DATE, DATETIME),), INT), ("QUARTER({})", ((DATE, DATETIME),), INT),
    ("HOUR({})", ((TIME, DATETIME),), INT), ("MINUTE({})", ((TIME, DATETIME),), INT), ("SECOND({})", ((TIME, DATETIME),), INT),
    ("MICROSECOND({})", ((TIME, DATETIME),), INT), ("TO_DAYS({})", ((DATE, DATETIME),), INT), ("LAST_DAY({})", ((DATE, DATETIME),), DATE),
    ("DATE({})", (DATETIME,), DATE), ("TIME({})", (DATETIME,), TIME), ("DATEDIFF({}, {})", ((DATE, DATETIME), (DATE, DATETIME)), INT),
    ("({} + INTERVAL {} DAY)", ((DATE, DATETIME), SMALL), 0), ("({} - INTERVAL {} MONTH)", ((DATE, DATETIME), SMALL), 0),
    ("({} + INTERVAL {} SECOND)", (DATETIME, SMALL), DATETIME), ("TIMESTAMPDIFF(HOUR, {}, {})", (DATETIME, DATETIME), INT),
    ("DATE_FORMAT({}, '%Y-%m-%d %H:%i:%s %j %W')", ((DATE, DATETIME),), TEXT), ("TIME_TO_SEC({})", (TIME,), DECIMAL),
    ("SEC_TO_TIME({})", (SMALL,), TIME), ("MAKEDATE({}, {})", (YEAR, SMALL), DATE), ("EXTRACT(YEAR_MONTH FROM {})", ((DATE, DATETIME),), INT),
    ("CAST({} AS SIGNED)", ((DECIMAL, TEXT, DATE, TIME),), INT), ("CAST({} AS CHAR)", (ANY,), TEXT),
    ("CAST({} AS DECIMAL(20,4))", ((INT, DECIMAL, TEXT),), DECIMAL), ("CAST({} AS DATE)", (DATETIME,), DATE), ("CAST({} AS DATETIME)", (DATE,), DATETIME),
    ("JSON_EXTRACT({}, '$.a')", (JSON,), JSON), ("JSON_UNQUOTE(JSON_EXTRACT({}, '$[0]'))", (JSON,), TEXT), ("JSON_TYPE({})", (JSON,), TEXT),
    ("EXP({})", (SMALL,), DOUBLE), ("LN({})", (NUMBER,), DOUBLE), ("LOG2({})", (NUMBER,), DOUBLE), ("LOG10({})", (NUMBER,), DOUBLE),
    ("LOG({}, {})", (SMALL, NUMBER), DOUBLE), ("RADIANS({})", (NUMBER,), DOUBLE), ("DEGREES({})", (SMALL,), DOUBLE), ("ATAN2({}, {})", (SMALL, SMALL), DOUBLE),
    ("INTERVAL({}, {}, {})", (INT, SMALL, SMALL), INT), ("OCT({})", (INT,), TEXT), ("CONV({}, 16, 10)", (TEXT,), TEXT), ("CONV({}, 36, -2)", (TEXT,), TEXT),
    ("FORMAT({}, {})", ((INT, DECIMAL), SMALL), TEXT), ("UNHEX({})", (TEXT,), BYTES), ("SHA2({}, 256)", (TEXT,), TEXT), ("SOUNDEX({})", (TEXT,), TEXT),
    ("MAKE_SET({}, {}, {})", (SMALL, TEXT, TEXT), TEXT), ("EXPORT_SET({}, {}, {}, '-', 5)", (SMALL, TEXT, TEXT), TEXT), ("INET_NTOA({})", (INT,), TEXT),
    ("INET_ATON({})", (TEXT,), INT), ("TRIM(TRAILING {} FROM {})", (TEXT, TEXT), TEXT), ("TRIM(BOTH {} FROM {})", (TEXT, TEXT), TEXT), ("BIT_LENGTH({})", (TEXT,), INT),
    ("ADDTIME({}, {})", ((TIME, DATETIME), TIME), 0), ("SUBTIME({}, {})", ((TIME, DATETIME), TIME), 0), ("TIMEDIFF({}, {})", (TIME, TIME), TIME),
    ("MAKETIME({}, {}, {})", (SMALL, SMALL, SMALL), TIME), ("PERIOD_ADD(202001, {})", (SMALL,), INT), ("FROM_DAYS(TO_DAYS({}) + {})", ((DATE, DATETIME), SMALL), DATE),
    ("TO_SECONDS({})", ((DATE, DATETIME),), INT), ("DAYNAME({})", ((DATE, DATETIME),), TEXT), ("MONTHNAME({})", ((DATE, DATETIME),), TEXT),
    ("TIME_FORMAT({}, '%H:%i:%s %f')", (TIME,), TEXT), ("DATE_FORMAT({}, '%a %b %c %D %e %f %h %k %l %p %r %T %U %u %V %v %w %X %x %y %%')", ((DATE, DATETIME),), TEXT),
    ("STR_TO_DATE({}, '%Y-%m-%d')", (TEXT,), DATE), ("UNIX_TIMESTAMP({})", (DATE,), INT), ("FROM_UNIXTIME({})", (SMALL,), DATETIME),
    ("CONVERT_TZ({}, '+00:00', '+05:30')", (DATETIME,), DATETIME), ("({} + INTERVAL {} HOUR)", (DATETIME, SMALL), DATETIME), ("({} - INTERVAL {} MICROSECOND)", (DATETIME, SMALL), DATETIME),
    ("({} + INTERVAL {} WEEK)", ((DATE, DATETIME), SMALL), 0), ("({} + INTERVAL {} QUARTER)", ((DATE, DATETIME), SMALL), 0), ("({} - INTERVAL {} YEAR)", ((DATE, DATETIME), SMALL), 0),
    ("DATE_ADD({}, INTERVAL '1:2' MINUTE_SECOND)", (DATETIME,), DATETIME), ("TIMESTAMPDIFF(MONTH, {}, {})", ((DATE, DATETIME), (DATE, DATETIME)), INT),
    ("TIMESTAMPDIFF(SECOND, {}, {})", (DATETIME, DATETIME), INT), ("EXTRACT(DAY_SECOND FROM {})", (DATETIME,), INT), ("EXTRACT(HOUR_MICROSECOND FROM {})", (TIME,), INT),
    ("WEEK({}, {})", ((DATE, DATETIME), SMALL), INT), ("CAST({} AS TIME)", (DATETIME,), TIME), ("CAST({} AS UNSIGNED)", (INT,), INT), ("CAST({} AS DOUBLE)", ((INT, DECIMAL),), DOUBLE),
    ("({} REGEXP '^[a-c]')", (TEXT,), INT), ("CASE {} WHEN {} THEN {} ELSE {} END", (INT, INT, TEXT, TEXT), TEXT), ("CASE {} WHEN {} THEN {} END", (TEXT, TEXT, INT), INT),
    ("INTERVAL({}, {}, {})", (NUMBER, NUMBER, NUMBER), INT), ("FIELD({}, {}, {})", (INT, (INT, DECIMAL), INT), INT), ("CAST({} AS DECIMAL(65,30))", ((INT, DECIMAL),), DECIMAL),
    ("GREATEST({}, {})", (DECIMAL, (INT, DECIMAL)), DECIMAL), ("LEAST({}, {}, {})", (DECIMAL, INT, DECIMAL), DECIMAL), ("IFNULL({}, {})", (INT, DECIMAL), DECIMAL),
    ("JSON_LENGTH({})", (JSON,), INT), ("JSON_VALID({})", (TEXT,), INT), ("JSON_DEPTH({})", (JSON,), INT), ("JSON_KEYS({})", (JSON,), JSON),
]
# Operators over two operands of one kind, and conditions over any.
COMPARISONS = ["=", "<>", "<", "<=", ">", ">=", "<=>"]
AGGREGATES: list[Form] = [
    ("COUNT({})", (ANY,), INT), ("COUNT(DISTINCT {})", (ANY,), INT), ("SUM({})", ((INT, DECIMAL),), DECIMAL), ("AVG({})", ((INT, DECIMAL),), DECIMAL),
    ("MIN({})", (ANY,), 0), ("MAX({})", (ANY,), 0), ("BIT_OR({})", (INT,), INT), ("BIT_AND({})", (INT,), INT), ("SUM(DISTINCT {})", ((INT, DECIMAL),), DECIMAL),
    ("BIT_XOR({})", (INT,), INT), ("STDDEV({})", ((INT, DECIMAL),), DOUBLE), ("VAR_SAMP({})", ((INT, DECIMAL),), DOUBLE),
    ("GROUP_CONCAT({0} ORDER BY {0})", ((INT, TEXT),), TEXT), ("AVG(DISTINCT {})", ((INT, DECIMAL),), DECIMAL),
]
WINDOWS: list[Form] = [
    ("ROW_NUMBER() OVER (ORDER BY {}, {{key}})", (ANY,), INT), ("RANK() OVER (ORDER BY {})", (ANY,), INT),
    ("DENSE_RANK() OVER (PARTITION BY {} ORDER BY {})", (ANY, ANY), INT), ("SUM({}) OVER (PARTITION BY {})", ((INT, DECIMAL), ANY), DECIMAL),
    ("LAG({}) OVER (ORDER BY {{key}})", (ANY,), 0), ("LEAD({}, 2) OVER (ORDER BY {{key}})", (ANY,), 0),
    ("COUNT({}) OVER (ORDER BY {{key}} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)", (ANY,), INT),
    ("FIRST_VALUE({}) OVER (PARTITION BY {} ORDER BY {{key}})", (ANY, ANY), 0),
    ("LAST_VALUE({}) OVER (ORDER BY {{key}} ROWS BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING)", (ANY,), 0),
    ("NTH_VALUE({}, 2) OVER (PARTITION BY {} ORDER BY {{key}})", (ANY, ANY), 0), ("NTILE(3) OVER (ORDER BY {}, {{key}})", (ANY,), INT),
    ("PERCENT_RANK() OVER (ORDER BY {})", (ANY,), DOUBLE), ("CUME_DIST() OVER (PARTITION BY {} ORDER BY {})", (ANY, ANY), DOUBLE),
    ("MIN({}) OVER (ORDER BY {{key}} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)", (ANY,), 0), ("LAG({}, 0) OVER (ORDER BY {{key}})", (ANY,), 0),
    ("AVG({}) OVER (ORDER BY {{key}})", ((INT, DECIMAL),), DECIMAL),
]


@dataclass(frozen=True)
class Expr:
    """An expression: a form with holes, and what stands in them."""

    form: str
    kind: str
    operands: tuple[Expr, ...] = ()

    def __str__(self) -> str:
        return self.form.format(*self.operands) if self.operands else self.form

    def smaller(self) -> Iterator[Expr]:
        """Expressions of the same kind with less in them, the smallest first."""
        if not self.operands:
            return
        for operand in self.operands:
            if operand.kind == self.kind:
                yield operand
        for at, operand in enumerate(self.operands):
            for less in operand.smaller():
                yield replace(self, operands=(*self.operands[:at], less, *self.operands[at + 1 :]))


@dataclass
class Table:
    """A table: its columns as (name, type, kind), and its rows as literals."""

    name: str
    columns: list[tuple[str, str, str]]
    rows: list[list[str]]

    def create(self) -> list[str]:
        columns = ", ".join(f"{name} {kind}" for name, kind, _ in self.columns)
        rows = ", ".join(f"({', '.join([str(at), *row])})" for at, row in enumerate(self.rows, 1))
        made = [f"CREATE TABLE {self.name} (id INT PRIMARY KEY, {columns})"]
        return made + ([f"INSERT INTO {self.name} VALUES {rows}"] if self.rows else [])


@dataclass(frozen=True)
class Query:
    """A query by its clauses; `keys` make the order of its rows total."""

    shown: tuple[Expr, ...]
    tables: str
    keys: tuple[str, ...] = ()
    where: Expr | None = None
    groups: tuple[Expr, ...] = ()
    having: Expr | None = None
    distinct: bool = False
    rollup: bool = False
    limit: int | None = None
    union: Query | None = None
    all: bool = False
    hides: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        words = ["SELECT DISTINCT" if self.distinct else "SELECT", ", ".join(map(str, self.shown)), "FROM", self.tables]
        if self.where:
            words.append(f"WHERE {self.where}")
        if self.groups:
            words.append("GROUP BY " + ", ".join(map(str, self.groups)) + (" WITH ROLLUP" if self.rollup else ""))
        if self.having:
            words.append(f"HAVING {self.having}")
        if self.union:
            words.append(f"UNION {'ALL ' if self.all else ''}{self.union}")
        if self.keys:
            words.append("ORDER BY " + ", ".join(self.keys))
            if self.limit is not None:
                words.append(f"LIMIT {self.limit}")
        return " ".join(words)

    @property
    def ordered(self) -> bool:
        return bool(self.keys)

    def smaller(self) -> Iterator[Query]:
        """Queries with one thing less, those that lose most first."""
        if self.union:
            yield replace(self, union=None)
        for clause in ("where", "having", "limit"):
            if getattr(self, clause) is not None:
                yield replace(self, **{clause: None})
        if self.rollup:
            yield replace(self, rollup=False)
        if self.distinct:
            yield replace(self, distinct=False)
        if len(self.shown) > 1 and not self.union:
            for at in range(len(self.shown)):
                yield replace(self, shown=self.shown[:at] + self.shown[at + 1 :])
        for at, expr in enumerate(self.shown):
            if not self.union:
                for less in expr.smaller():
                    yield replace(self, shown=(*self.shown[:at], less, *self.shown[at + 1 :]))
        for clause in ("where", "having"):
            if expr := getattr(self, clause):
                for less in expr.smaller():
                    yield replace(self, **{clause: less})


class Grammar:
    """All that one seed says."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        # What queries within expressions read.
        self.known: list[Table] = []

    def tables(self, count: int = 2) -> list[Table]:
        self.known = [self.table(f"t{at}") for at in range(count)]
        return self.known

    def table(self, name: str) -> Table:
        chosen = self.random.sample(TYPES, self.random.randint(4, 9))
        columns = [(f"{kind[0]}{at}", sql, kind) for at, (sql, kind, _) in enumerate(chosen)]
        value = lambda edges: "NULL" if self.random.random() < 0.15 else self.random.choice(edges)  # noqa: E731
        rows = [[value(edges) for _, _, edges in chosen] for _ in range(self.random.choice([0, 1, 5, 12, 40]))]
        return Table(name, columns, rows)

    def query(self, tables: list[Table]) -> Query:
        scope = {"a": self.random.choice(tables)}
        text = f"{scope['a'].name} a"
        if self.random.random() < 0.35:
            scope["b"] = self.random.choice(tables)
            join = self.random.choice(["JOIN", "LEFT JOIN"])
            text += f" {join} {scope['b'].name} b ON {self.condition(scope, 1)}"
        where = self.condition(scope, 2) if self.random.random() < 0.5 else None
        make = self.random.choice([self.plain, self.plain, self.grouped, self.total, self.distinct, self.windowed, self.united])
        return replace(make(scope, text), where=where)

    def plain(self, scope: dict, text: str) -> Query:
        keys = tuple(f"{alias}.id" for alias in scope)
        shown = tuple(self.expr(self.kind(), scope, 3) for _ in range(self.random.randint(1, 4)))
        return Query(shown, text, keys, limit=self.random.choice([None, None, 0, 3, 1000]))

    def grouped(self, scope: dict, text: str) -> Query:
        by = tuple(self.column(scope, None) for _ in range(self.random.randint(1, 2)))
        shown = (*by, *(self.aggregate(scope) for _ in range(self.random.randint(1, 3))))
        having = Expr("{} > {}", INT, (Expr("COUNT(*)", INT), Expr(self.random.choice("01"), INT)))
        return Query(
            shown, text, groups=by, having=having if self.random.random() < 0.2 else None, rollup=self.random.random() < 0.2
        )

    def total(self, scope: dict, text: str) -> Query:
        return Query(tuple(self.aggregate(scope) for _ in range(self.random.randint(1, 4))), text)

    def distinct(self, scope: dict, text: str) -> Query:
        return Query(tuple(self.expr(self.kind(), scope, 1) for _ in range(self.random.randint(1, 2))), text, distinct=True)

    def united(self, scope: dict, text: str) -> Query:
        """Two queries with values of the same kinds; the second one perhaps of all rows."""
        kinds = [self.kind() for _ in range(self.random.randint(1, 3))]
        other = {"a": self.random.choice(self.known)}
        values = [self.expr(kind, other, 1) for kind in kinds]
        if self.random.random() < 0.4:
            values = [Expr(self.random.choice(["MIN({})", "MAX({})"]), value.kind, (value,)) for value in values]
        where = self.condition(other, 1) if self.random.random() < 0.5 else None
        union = Query(tuple(values), f"{other['a'].name} a", where=where)
        shown = tuple(self.expr(kind, scope, 2) for kind in kinds)
        return Query(shown, text, union=union, all=self.random.random() < 0.6)

    def windowed(self, scope: dict, text: str) -> Query:
        key = ", ".join(f"{alias}.id" for alias in scope)
        form, kinds, kind = self.random.choice(WINDOWS)
        operands = tuple(self.column(scope, self.pick(kinds[at])) for at in range(len(kinds)))
        result = operands[kind].kind if isinstance(kind, int) else kind
        window = Expr(form.format(*operands).replace("{key}", key), result)
        return Query((*[Expr(f"{alias}.id", INT) for alias in scope], window), text, tuple(f"{alias}.id" for alias in scope))

    def aggregate(self, scope: dict) -> Expr:
        if self.random.random() < 0.15:
            return Expr("COUNT(*)", INT)
        form, kinds, kind = self.random.choice(AGGREGATES)
        operand = self.expr(self.pick(kinds[0]), scope, 1)
        return Expr(form, operand.kind if kind == 0 else kind, (operand,))

    def inner(self, scope: dict) -> tuple[str, dict]:
        """The FROM of a query within another, and what is known there, its own table last."""
        alias, table = f"s{len(scope)}", self.random.choice(self.known)
        return f"{table.name} {alias}", {**scope, alias: table}

    def asking(self, scope: dict, depth: int) -> Expr:
        """A condition with a query in it, half of them over columns outside of the query."""
        text, within = self.inner(scope)
        where = self.condition(within if self.random.random() < 0.5 else self.alone(within), depth)
        if self.random.random() < 0.4:
            return Expr(f"({self.random.choice(['EXISTS', 'NOT EXISTS'])} (SELECT 1 FROM {text} WHERE {{}}))", INT, (where,))
        kind = self.kind()
        one, found = self.expr(kind, scope, depth), self.expr(kind, self.alone(within), depth)
        compared = [f"{word} {which}" for word in ("<", "<=", ">", ">=") for which in ("ANY", "ALL")]
        word = self.random.choice(["IN", "IN", "NOT IN", "NOT IN", "= ANY", "<> ALL", *compared])
        return Expr(f"({{}} {word} (SELECT {{}} FROM {text} WHERE {{}}))", INT, (one, found, where))

    def scalar(self, kind: str, scope: dict, depth: int) -> Expr:
        """A query in the place of a value."""
        text, within = self.inner(scope)
        where = self.condition(within if self.random.random() < 0.5 else self.alone(within), depth)
        word = self.random.choice(["MIN", "MAX"] if kind != INT else ["MIN", "MAX", "COUNT", "BIT_OR"])
        return Expr(f"(SELECT {word}({{}}) FROM {text} WHERE {{}})", kind, (self.expr(kind, self.alone(within), depth), where))

    @staticmethod
    def alone(scope: dict) -> dict:
        """The last table of a scope."""
        return dict([list(scope.items())[-1]])

    def condition(self, scope: dict, depth: int) -> Expr:
        if depth > 0 and self.random.random() < 0.06:
            return self.asking(scope, depth - 1)
        chance = self.random.random()
        if depth > 0 and chance < 0.3:
            word = self.random.choice(["AND", "OR", "XOR"])
            return Expr(f"({{}} {word} {{}})", INT, (self.condition(scope, depth - 1), self.condition(scope, depth - 1)))
        if depth > 0 and chance < 0.36:
            return Expr("(NOT {})", INT, (self.condition(scope, depth - 1),))
        kind = self.kind()
        one, two = self.expr(kind, scope, depth), self.expr(kind, scope, depth)
        if chance < 0.45:
            return Expr(self.random.choice(["({} IS NULL)", "({} IS NOT NULL)"]), INT, (one,))
        if chance < 0.55:
            word = self.random.choice(["IN", "NOT IN"])
            return Expr(f"({{}} {word} ({{}}, {{}}))", INT, (one, two, self.expr(kind, scope, 0)))
        if chance < 0.62:
            return Expr("({} BETWEEN {} AND {})", INT, (one, two, self.expr(kind, scope, 0)))
        return Expr(f"({{}} {self.random.choice(COMPARISONS)} {{}})", INT, (one, two))

    def kind(self) -> str:
        return self.random.choice([INT, INT, DECIMAL, DECIMAL, TEXT, TEXT, DATE, DATETIME, TIME, DOUBLE])

    def pick(self, kinds: object) -> str:
        return self.random.choice(kinds) if isinstance(kinds, tuple) else kinds

    def column(self, scope: dict, kind: str | None) -> Expr:
        """A column of a kind, of any but JSON where none is asked for, or a literal where there is none."""
        found = [
            Expr(f"{alias}.{name}", of)
            for alias, table in scope.items()
            for name, _, of in table.columns
            if (of == kind if kind else of not in (JSON, BYTES))
        ]
        return self.random.choice(found) if found else Expr(self.random.choice(LITERALS[kind or INT]), kind or INT)

    def expr(self, kind: str, scope: dict, depth: int) -> Expr:
        if kind == SMALL:
            return Expr(str(self.random.choice([0, 1, 2, 3, 5, 10, -1, -2])), INT)
        if depth > 0 and self.random.random() < 0.03:
            return self.scalar(kind, scope, depth - 1)
        chance = self.random.random()
        if depth <= 0 or chance < 0.25:
            return self.column(scope, kind) if self.random.random() < 0.8 else Expr(self.random.choice([*LITERALS[kind], "NULL"]), kind)
        if chance < 0.36:
            parts = (self.condition(scope, depth - 1), self.expr(kind, scope, depth - 1), self.expr(kind, scope, depth - 1))
            return Expr(self.random.choice(["IF({}, {}, {})", "CASE WHEN {} THEN {} ELSE {} END"]), kind, parts)
        if chance < 0.44:
            form = self.random.choice(["COALESCE({}, {})", "IFNULL({}, {})", "NULLIF({}, {})"])
            return Expr(form, kind, (self.expr(kind, scope, depth - 1), self.expr(kind, scope, depth - 1)))
        if not forms_of(kind):
            return self.column(scope, kind)
        form, kinds, result = self.random.choice(forms_of(kind))
        wanted = [kind if at == result and isinstance(result, int) else self.pick(kinds[at]) for at in range(len(kinds))]
        return Expr(form, kind, tuple(self.expr(each, scope, depth - 1) for each in wanted))

@cache
def forms_of(kind: str) -> list[Form]:
    """The calls whose result can be of a kind."""

    def results(call: Form) -> object:
        return call[1][call[2]] if isinstance(call[2], int) else call[2]

    return [call for call in CALLS if kind == results(call) or isinstance(results(call), tuple) and kind in results(call)]



if __name__ == "__main__":
    # The statements of so many seeds, with so many queries each: a corpus for whoever has no server to compare with.
    seeds, queries = map(int, sys.argv[1:3])
    print("-- python tests/differential/grammar.py", seeds, queries)
    for seed in range(1, seeds + 1):
        grammar = Grammar(seed)
        tables = grammar.tables()
        for table in tables:
            print(f"DROP TABLE IF EXISTS {table.name}", *table.create(), sep="\n")
        for _ in range(queries):
            print(grammar.query(tables))
