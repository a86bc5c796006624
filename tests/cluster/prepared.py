"""Prepared statements over one of pymysql's connections, which has none of its own: parameters and rows in binary.

It must know the protocol only, and nothing of Isobar: what a server sends is decoded as MySQL's documents have it.
"""

import datetime
import struct
from decimal import Decimal

from pymysql.connections import Connection
from pymysql.constants import FIELD_TYPE
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

PREPARE, EXECUTE, CLOSE = 0x16, 0x17, 0x19
UNSIGNED_FLAG, UNSIGNED_PARAMETER, BYTES = 32, 0x8000, 63
INTEGERS = {
    FIELD_TYPE.TINY: "b",
    FIELD_TYPE.SHORT: "h",
    FIELD_TYPE.YEAR: "h",
    FIELD_TYPE.INT24: "i",
    FIELD_TYPE.LONG: "i",
    FIELD_TYPE.LONGLONG: "q",
}
DECIMALS = (FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL)
DATETIMES = (FIELD_TYPE.DATE, FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP)


class Single(float):
    """A parameter that is sent as a FLOAT of four bytes."""


def execute(connection: Connection, sql: str, parameters: tuple = ()) -> list[tuple]:
    """Prepares, executes and closes one statement; its rows."""
    connection._execute_command(PREPARE, sql)
    head = connection._read_packet().get_all_data()
    number, columns, wanted = struct.unpack_from("<IHH", head, 1)
    for count in (wanted, columns):
        if count:
            _fields(connection, count)
    assert wanted == len(parameters), f"{wanted} parameters are wanted: {sql}"
    connection._execute_command(EXECUTE, struct.pack("<IBI", number, 0, 1) + _bound(parameters))
    rows = _rows(connection, connection._read_packet())
    connection._execute_command(CLOSE, struct.pack("<I", number))
    return rows


def _fields(connection: Connection, count: int) -> list[FieldDescriptorPacket]:
    fields = [connection._read_packet(FieldDescriptorPacket) for _ in range(count)]
    assert connection._read_packet().is_eof_packet()
    return fields


def _rows(connection: Connection, first: MysqlPacket) -> list[tuple]:
    if first.is_ok_packet():
        return []
    fields = _fields(connection, first.read_length_encoded_integer())
    rows = []
    while not (packet := connection._read_packet()).is_eof_packet():
        packet.advance(1)
        nulls = int.from_bytes(packet.read((len(fields) + 9) // 8), "little")
        rows.append(tuple(None if nulls >> at + 2 & 1 else _value(packet, field) for at, field in enumerate(fields)))
        assert not packet._data[packet._position :], "a row is longer than its columns"
    return rows


def _value(packet: MysqlPacket, field: FieldDescriptorPacket) -> object:
    kind = field.type_code
    if kind in INTEGERS:
        code = INTEGERS[kind].upper() if field.flags & UNSIGNED_FLAG else INTEGERS[kind]
        return packet.read_struct("<" + code)[0]
    if kind in (FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE):
        return packet.read_struct("<f" if kind == FIELD_TYPE.FLOAT else "<d")[0]
    data = packet.read_length_coded_string()
    if kind in DATETIMES:
        parts = struct.unpack(f"<{'HBBBBBI'[: {4: 3, 7: 6, 11: 7}[len(data)]]}", data)
        return datetime.date(*parts) if kind == FIELD_TYPE.DATE else datetime.datetime(*parts)
    if kind == FIELD_TYPE.TIME:
        negative, days, hours, minutes, seconds, micros = struct.unpack("<BIBBBI", data.ljust(12, b"\0"))
        span = datetime.timedelta(days, seconds, micros, 0, minutes, hours)
        return -span if negative else span
    if kind in DECIMALS:
        return Decimal(data.decode("ascii"))
    # JSON has the number of binary strings for its character set, and is a text.
    return data if kind == FIELD_TYPE.BIT or (field.charsetnr == BYTES and kind != FIELD_TYPE.JSON) else data.decode()


def _bound(parameters: tuple) -> bytes:
    """NULL bitmap, types and values."""
    if not parameters:
        return b""
    nulls = sum(1 << at for at, value in enumerate(parameters) if value is None)
    sent = [_parameter(value) for value in parameters]
    types = b"".join(struct.pack("<H", kind) for kind, _ in sent)
    values = b"".join(data for _, data in sent)
    return nulls.to_bytes((len(parameters) + 7) // 8, "little") + b"\1" + types + values


def _parameter(value: object) -> tuple[int, bytes]:
    """Type and bytes of a parameter, by its type in Python."""
    match value:
        case None:
            return FIELD_TYPE.NULL, b""
        case Single():
            return FIELD_TYPE.FLOAT, struct.pack("<f", value)
        case float():
            return FIELD_TYPE.DOUBLE, struct.pack("<d", value)
        case int() if value >= 2**63:
            return FIELD_TYPE.LONGLONG | UNSIGNED_PARAMETER, struct.pack("<Q", value)
        case int():
            return FIELD_TYPE.LONGLONG, struct.pack("<q", value)
        case Decimal():
            return FIELD_TYPE.NEWDECIMAL, _sized(f"{value:f}".encode())
        case str():
            return FIELD_TYPE.VAR_STRING, _sized(value.encode())
        case bytes():
            return FIELD_TYPE.BLOB, _sized(value)
        case datetime.datetime():
            day = (value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
            return FIELD_TYPE.DATETIME, b"\x0b" + struct.pack("<HBBBBBI", *day)
        case datetime.date():
            return FIELD_TYPE.DATE, b"\x04" + struct.pack("<HBB", value.year, value.month, value.day)
        case datetime.timedelta():
            span = abs(value)
            (minutes, seconds), sign = divmod(span.seconds, 60), value < datetime.timedelta()
            parts = (sign, span.days, minutes // 60, minutes % 60, seconds, span.microseconds)
            return FIELD_TYPE.TIME, b"\x0c" + struct.pack("<BIBBBI", *parts)
    raise TypeError(f"no parameter: {value!r}")


def _sized(data: bytes) -> bytes:
    """Bytes with their length before them."""
    length = len(data)
    if length < 251:
        return bytes([length]) + data
    return (b"\xfc" + struct.pack("<H", length) if length < 65_536 else b"\xfe" + struct.pack("<Q", length)) + data
