"""What a program with mysqlclient (MySQLdb, over libmariadb) does with a server: one line of JSON for each thing, and
whether it worked. Run by the system's Python, which has the module as a Debian package.
"""

import datetime
import json
import sys
from contextlib import closing
from decimal import Decimal

import MySQLdb
import MySQLdb.cursors
from MySQLdb.constants import CLIENT, FIELD_TYPE

WHERE = {"host": "127.0.0.1", "port": int(sys.argv[1]), "user": "root", "charset": "utf8mb4"}
AT = datetime.datetime(2020, 1, 2, 3, 4, 5, 6)
ROWS = [
    (1, "ann ☃", Decimal("1.50"), datetime.date(2020, 1, 1), AT, datetime.timedelta(hours=30, seconds=2), b"\x00\xff", 1.5),
    (2, None, None, None, None, None, None, None),
]


def step(did, work):
    try:
        work()
        error = ""
    except Exception as problem:  # noqa: BLE001: whatever it is, it is the outcome
        error = repr(problem)
    print(json.dumps({"did": did, "error": error}))


def same(got, want):
    assert got == want, f"{got!r} is not {want!r}"


def connect(**more):
    return MySQLdb.connect(**WHERE, **more)


def define():
    with closing(connect()) as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS db")
        cursor.execute("CREATE DATABASE db")
        cursor.execute(
            "CREATE TABLE db.t (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(20), pay DECIMAL(10,2), hired DATE,"
            " at DATETIME(6), late TIME(6), raw VARBINARY(9), score DOUBLE, UNIQUE KEY (name))"
        )


def write():
    connection = connect(db="db")
    with connection.cursor() as cursor:
        same(cursor.executemany("INSERT INTO t VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", ROWS), 2)
        cursor.execute("INSERT INTO t (name) VALUES ('bob')")
        same(cursor.lastrowid, 3)
    connection.commit()
    with connection.cursor() as cursor:
        same(cursor.execute("DELETE FROM t WHERE id IN (1, 2)"), 2)
    connection.rollback()
    with connection.cursor() as cursor:
        same(cursor.execute("DELETE FROM t WHERE id = 3"), 1)
    connection.commit()
    connection.close()


def read():
    connection = connect(db="db")
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM t ORDER BY id")
        same(list(cursor.fetchall()), ROWS)
        kinds = [FIELD_TYPE.LONG, FIELD_TYPE.VAR_STRING, FIELD_TYPE.NEWDECIMAL, FIELD_TYPE.DATE, FIELD_TYPE.DATETIME]
        kinds += [FIELD_TYPE.TIME, FIELD_TYPE.VAR_STRING, FIELD_TYPE.DOUBLE]
        same([column[1] for column in cursor.description], kinds)
    connection.close()


def stream():
    connection = connect(db="db", cursorclass=MySQLdb.cursors.SSDictCursor)
    with connection.cursor() as cursor:
        cursor.execute("SELECT a.id, b.name FROM t a JOIN t b ON b.id = 1 ORDER BY a.id")
        same(cursor.fetchone(), {"id": 1, "name": "ann ☃"})
        same(cursor.fetchone(), {"id": 2, "name": "ann ☃"})
        same(cursor.fetchone(), None)
    connection.close()


def wrong():
    connection = connect(db="db")
    for statement, kind, code in (
        ("INSERT INTO t (name) VALUES ('ann ☃')", MySQLdb.IntegrityError, 1062),
        ("SELECT nosuch FROM t", MySQLdb.OperationalError, 1054),
        ("SELEC 1", MySQLdb.ProgrammingError, 1064),
        ("SELECT * FROM nosuch", MySQLdb.ProgrammingError, 1146),
        ("INSERT INTO t (name) VALUES (REPEAT('x', 21))", MySQLdb.DataError, 1406),
    ):
        try:
            connection.cursor().execute(statement)
        except kind as error:
            same(error.args[0], code)
        else:
            raise AssertionError(f"no error: {statement}")
    same(connection.cursor().execute("SELECT 1"), 1)
    connection.close()


def warned():
    connection = connect(db="db")
    cursor = connection.cursor()
    cursor.execute("INSERT IGNORE INTO t (id, name) VALUES (1, 'again')")
    same(connection.warning_count(), 1)
    same(connection.show_warnings()[0][1], 1062)
    connection.close()


def several():
    # Over libmariadb, whose version looks to it like one of a MySQL before 4.1, the module does not ask by itself.
    connection = connect(db="db", client_flag=CLIENT.MULTI_STATEMENTS | CLIENT.MULTI_RESULTS)
    cursor = connection.cursor()
    cursor.execute("SELECT 1; SELECT 2, 3")
    same(cursor.fetchall(), ((1,),))
    same(cursor.nextset(), 1)
    same(cursor.fetchall(), ((2, 3),))
    same(cursor.nextset(), None)
    connection.close()


def others():
    connection = connect(db="db")
    connection.ping()
    connection.change_user("root", "", "db")
    connection.select_db("information_schema")
    assert connection.stat() and connection.thread_id() > 0 and connection.get_server_info()
    connection.autocommit(True)
    same(connection.get_autocommit(), True)
    connection.close()


step("define", define)
step("write, commit, roll back", write)
step("read every kind of value", read)
step("stream rows as dictionaries", stream)
step("errors have their classes and numbers", wrong)
step("warnings", warned)
step("several statements at once", several)
step("ping, change user, database, status, autocommit", others)
