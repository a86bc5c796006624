"""Clients people have: what each does with a cluster, step by step, as a table of what works."""

import datetime
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import adbc_driver_flightsql.dbapi as flight_sql
import duckdb
import pandas
import polars
import pyarrow
import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from clients_table import Steps
from harness import EVERY_TYPE, Cluster, absent

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests/clients"


def run(command: list, timeout: float = 100, **more) -> str:
    """A program's output; its end without success is an error."""
    done = subprocess.run(
        [str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, **more
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


class Base(orm.DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(50), index=True)
    born: orm.Mapped[datetime.date | None]
    books: orm.Mapped[list["Book"]] = orm.relationship(
        back_populates="author", primaryjoin="Author.id == foreign(Book.author_id)", order_by="Book.id"
    )


class Book(Base):
    __tablename__ = "book"
    __table_args__ = (sa.UniqueConstraint("author_id", "title"),)
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    author_id: orm.Mapped[int]
    title: orm.Mapped[str] = orm.mapped_column(sa.String(100))
    price: orm.Mapped[Decimal] = orm.mapped_column(sa.Numeric(8, 2))
    at: orm.Mapped[datetime.datetime]
    author: orm.Mapped[Author] = orm.relationship(
        back_populates="books", primaryjoin="Author.id == foreign(Book.author_id)"
    )


@pytest.mark.parametrize("driver", ["pymysql", "mysqlconnector"])
def test_sqlalchemy(cluster: Cluster, driver: str):
    cluster.sql("DROP DATABASE IF EXISTS orm", "CREATE DATABASE orm")
    engine = sa.create_engine(f"mysql+{driver}://root@127.0.0.1:{cluster.mysql_port}/orm")
    steps = Steps(f"SQLAlchemy {sa.__version__} ({driver})", {})

    def write() -> None:
        at = datetime.datetime(2020, 1, 1)
        with orm.Session(engine) as session:
            ann = Author(name="ann", born=datetime.date(1970, 1, 2))
            ann.books = [Book(title=title, price=Decimal(price), at=at) for title, price in (("x", "1.50"), ("y", "2.50"))]
            session.add_all([ann, Author(name="bob")])
            session.commit()
            ann.books[0].price = Decimal("9.99")
            with session.begin_nested():
                session.add(Author(name="cid"))
            session.commit()

    def read() -> None:
        with orm.Session(engine) as session:
            count = sa.select(Author.name, sa.func.count(Book.id), sa.func.sum(Book.price))
            rows = session.execute(count.join(Author.books, isouter=True).group_by(Author.name).order_by(Author.name)).all()
            assert rows == [("ann", 2, Decimal("12.49")), ("bob", 0, None), ("cid", 0, None)], rows
            ann = session.scalars(sa.select(Author).options(orm.selectinload(Author.books)).where(Author.name == "ann")).one()
            assert [book.title for book in ann.books] == ["x", "y"]
            with_books = sa.select(Author.name).where(sa.exists().where(Book.author_id == Author.id))
            assert session.scalars(with_books).all() == ["ann"]
            locked = session.scalars(sa.select(Author).order_by(Author.id).limit(1).with_for_update()).one()
            session.delete(ann.books[1])
            session.commit()
            assert locked.name == "ann" and session.scalar(sa.select(sa.func.count()).select_from(Book)) == 1

    def reflect() -> None:
        inspector = sa.inspect(engine)
        assert sorted(inspector.get_table_names()) == ["author", "book"]
        columns = {column["name"]: str(column["type"]) for column in inspector.get_columns("book")}
        assert columns["price"] == "DECIMAL(8, 2)" and columns["title"] == "VARCHAR(100)", columns
        assert inspector.get_pk_constraint("book")["constrained_columns"] == ["id"]
        assert [index["column_names"] for index in inspector.get_indexes("author")] == [["name"]]
        assert inspector.get_unique_constraints("book")[0]["column_names"] == ["author_id", "title"]
        assert inspector.get_foreign_keys("book") == []
        metadata = sa.MetaData()
        metadata.reflect(engine)
        assert sorted(metadata.tables) == ["author", "book"]

    steps.step("create tables", lambda: Base.metadata.create_all(engine))
    steps.step("ORM: write, savepoint, update", write)
    steps.step("ORM: join, aggregate, exists, lock, delete", read)
    steps.step("reflection", reflect)
    steps.step("drop tables", lambda: Base.metadata.drop_all(engine))
    engine.dispose()
    steps.check(5)


def test_django(cluster: Cluster, tmp_path: Path):
    project = tmp_path / "project"
    subprocess.run(["cp", "-r", PROGRAMS / "django", project], check=True, timeout=10)
    cluster.sql("DROP DATABASE IF EXISTS dj", "CREATE DATABASE dj")
    steps = Steps("Django 5.2 (pymysql)", {})
    environment = {**os.environ, "ISOBAR_PORT": str(cluster.mysql_port), "ISOBAR_PROJECT": str(project)}
    steps.lines(run([sys.executable, project / "work.py"], env=environment, cwd=project))
    steps.check(8)


def test_mysqlclient(cluster: Cluster):
    # The module is compiled for the system's Python, and is not in this environment.
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import MySQLdb"], capture_output=True, timeout=30).returncode != 0:
        absent("python3-mysqldb")
    steps = Steps("mysqlclient 1.4.6", {})
    steps.lines(run([python, PROGRAMS / "mysqlclient/work.py", cluster.mysql_port]))
    steps.check(8)


def test_mycli(cluster: Cluster, tmp_path: Path):
    program = Path(sys.executable).parent / "mycli"
    cluster.sql("CREATE DATABASE IF NOT EXISTS my", "CREATE TABLE IF NOT EXISTS my.t (id INT PRIMARY KEY, s TEXT)")
    words = ["--no-warn", "-h", "127.0.0.1", "-P", cluster.mysql_port, "-u", "root", "-D", "my", "--format", "csv"]
    steps = Steps("mycli", {})

    def check_query(statement: str, expected: str) -> None:
        done = run([program, *words, "-e", statement], env={**os.environ, "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"})
        assert expected in done, done

    steps.step("query", lambda: check_query("SELECT 6 * 7 AS answer", "42"))
    steps.step("tables", lambda: check_query("SHOW TABLES", "Tables_in_my"))
    steps.step("describe", lambda: check_query("DESCRIBE t", "PRI"))
    steps.check(3)


@pytest.mark.timeout(300)
def test_adbc_flight_sql(cluster: Cluster, flight_jars: Path):
    cluster.sql(
        "CREATE DATABASE adbc",
        "CREATE TABLE adbc.t (id INT PRIMARY KEY, name VARCHAR(20), pay DECIMAL(10,2), hired DATE, at DATETIME(6))",
        "INSERT INTO adbc.t VALUES (1, 'ann ☃', 1.50, '2020-01-01', '2020-01-02 03:04:05.000006'),"
        " (2, NULL, NULL, NULL, NULL)",
    )
    cluster.replicate("adbc.t")
    cluster.sql(*EVERY_TYPE)
    cluster.sql(
        "CREATE TABLE adbc.rows_only (a INT, b INT, j JSON, PRIMARY KEY (b, a))",
        "CREATE VIEW adbc.paid AS SELECT id, pay FROM adbc.t",
        "CREATE USER few IDENTIFIED BY 'secret'",
        "GRANT SELECT ON adbc.t TO few",
    )
    cluster.replicate("typed.t")
    steps = Steps("ADBC Flight SQL", {})
    everything = "SELECT * FROM adbc.t ORDER BY id"
    with flight_sql.connect(f"grpc://{cluster.flight[0]}", db_kwargs={"username": "root", "password": ""}, autocommit=True) as c:

        def arrow() -> None:
            with c.cursor() as cursor:
                cursor.execute(everything)
                assert cursor.fetch_arrow_table().column("pay").to_pylist() == [Decimal("1.50"), None]

        def into_pandas() -> None:
            frame = pandas.read_sql(everything, c)
            assert list(frame["name"].isna()) == [False, True] and frame["pay"][0] == Decimal("1.50"), frame

        def into_polars() -> None:
            frame = polars.read_database(everything, c)
            assert frame["at"][0] == datetime.datetime(2020, 1, 2, 3, 4, 5, 6) and frame["name"][0] == "ann ☃", frame

        def into_duckdb() -> None:
            # A connection of its own: one result left unread on the process's would refuse whoever asks it next.
            with c.cursor() as cursor, duckdb.connect() as database:
                cursor.execute(everything)
                rows = cursor.fetch_record_batch()
                found = database.execute('SELECT COUNT(*), COUNT(name), SUM(pay), MAX("at") FROM rows').fetchone()
                del rows  # it is the statement that names it
            assert found == (2, 1, Decimal("1.50"), datetime.datetime(2020, 1, 2, 3, 4, 5, 6)), found

        def wrong() -> None:
            try:
                with c.cursor() as cursor:
                    cursor.execute("SELECT nosuch FROM adbc.t")
            except flight_sql.Error as error:
                assert "nosuch" in str(error)
            else:
                raise AssertionError("no error")

        steps.step("query into Arrow", arrow)
        steps.step("query into pandas", into_pandas)
        steps.step("query into polars", into_polars)
        steps.step("query into DuckDB", into_duckdb)
        steps.step("an error is raised", wrong)


        def objects(connection=c, **arguments) -> list:
            """Of each database its name, and of each table its name, type and columns; None for what was not requested."""
            (only,) = connection.adbc_get_objects(**arguments).read_all().to_pylist()
            assert only["catalog_name"] == "def", only
            if only["catalog_db_schemas"] is None:
                return None
            return [
                (
                    schema["db_schema_name"],
                    schema["db_schema_tables"]
                    and [
                        (
                            table["table_name"],
                            table["table_type"],
                            table["table_columns"] and [column["column_name"] for column in table["table_columns"]],
                        )
                        for table in schema["db_schema_tables"]
                    ],
                )
                for schema in only["catalog_db_schemas"]
            ]

        def same(got: object, want: object) -> None:
            assert got == want, got

        columns = {"paid": ["id", "pay"], "rows_only": ["a", "b", "j"], "t": ["id", "name", "pay", "hired", "at"]}
        listed = [("paid", "VIEW"), ("rows_only", "TABLE"), ("t", "TABLE")]

        def depths() -> None:
            same(objects(depth="catalogs"), None)
            databases = sorted(row[0] for row in cluster.sql("SHOW DATABASES"))
            same([name for name, _ in objects(depth="db_schemas")], databases)
            shallow = objects(depth="tables", db_schema_filter="adbc")
            same(shallow, [("adbc", [(name, kind, None) for name, kind in listed])])
            deep = objects(depth="all", db_schema_filter="adbc")
            same(deep, [("adbc", [(name, kind, columns[name]) for name, kind in listed])])

        def filtered() -> None:
            def names(**arguments) -> list[str]:
                found = dict(objects(depth="tables", db_schema_filter="adbc", **arguments))["adbc"]
                return [name for name, *_ in found or []]

            same(names(table_name_filter="%o%"), ["rows_only"])
            same(names(table_name_filter="_"), ["t"])
            same(names(table_types_filter=["VIEW"]), ["paid"])
            same(names(table_types_filter=["TABLE"], table_name_filter="%a%"), [])
            same(names(table_name_filter="nosuch"), [])

        def schemas() -> None:
            for name in ("adbc.t", "typed.t"):
                database, table = name.split(".")
                schema = c.adbc_get_table_schema(table, db_schema_filter=database)
                with c.cursor() as cursor:
                    cursor.execute(f"SELECT * FROM {name}")
                    read = cursor.fetch_arrow_table().schema
                assert schema.equals(read, check_metadata=True), f"{name}: {schema}, not {read}"
            try:
                c.adbc_get_table_schema("nosuch", db_schema_filter="adbc")
            except flight_sql.Error:
                return
            raise AssertionError("a table that is not there has a schema")

        def few_privileges() -> None:
            login = {"username": "few", "password": "secret"}
            with flight_sql.connect(f"grpc://{cluster.flight[0]}", db_kwargs=login, autocommit=True) as few:
                seen = dict(objects(few, depth="tables"))
                shown = sorted(row[0] for row in cluster.sql("SHOW DATABASES", user="few", password="secret"))
                same(sorted(seen), shown)
                same(sorted(seen), ["adbc", "information_schema"])
                same(seen["adbc"], [("t", "TABLE", None)])

        def info() -> None:
            server = c.adbc_get_info()
            same(server["vendor_name"], "Isobar")
            assert server["vendor_version"][0].isdigit(), server

        def bound() -> None:
            values = (7, "it's", Decimal("1.50"), datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3, 4, 5), None)
            types = [pyarrow.int64(), pyarrow.string(), pyarrow.decimal128(5, 2), pyarrow.date32(), pyarrow.timestamp("us"), None]
            arrays = [pyarrow.array([v], t) if t else pyarrow.nulls(1) for v, t in zip(values, types, strict=True)]
            row = pyarrow.record_batch(arrays, names=[str(at) for at in range(len(arrays))])
            text = "SELECT ? + 1, ?, ? * 2, CAST(? AS DATE), CAST(? AS DATETIME), ? IS NULL"
            with c.cursor() as cursor:
                cursor.execute(text, row)
                same(cursor.fetchone(), (8, "it's", Decimal("3.00"), values[3], values[4], 1))

        def unbound() -> None:
            with c.cursor() as cursor:
                cursor.adbc_prepare("SELECT ?")
                try:
                    cursor.execute("SELECT ?")
                except flight_sql.Error as error:
                    assert "takes 1 parameters" in str(error), error
                else:
                    raise AssertionError("a query ran without its parameter")

        steps.step("parameters of every kind", bound)
        steps.step("a missing parameter is an error", unbound)
        steps.step("get_objects by depth", depths)
        steps.step("get_objects by pattern and type", filtered)
        steps.step("get_objects with few privileges", few_privileges)
        steps.step("get_table_schema is a query's", schemas)
        steps.step("table types", lambda: same(c.adbc_get_table_types(), ["TABLE", "VIEW"]))
        steps.step("get_info", info)
    steps.check(13)

    # Every query is a prepared statement to it.
    steps = Steps("Arrow Flight SQL JDBC 18.3.0", {})
    command = ["java", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", f"{flight_jars}/*", PROGRAMS / "java/FlightSql.java"]
    steps.lines(run([*command, cluster.flight[0], "few", "secret"]))
    steps.check(10)


def test_go_sql_driver(cluster: Cluster, tmp_path: Path):
    go = next((p for p in ("/usr/local/go/bin/go", "/usr/bin/go") if Path(p).is_file()), None)
    if go is None:
        pytest.skip("Go is not installed")
    steps = Steps("go-sql-driver/mysql 1.9.3", {})
    program = tmp_path / "client"
    run([go, "build", "-o", program, "."], cwd=PROGRAMS / "go", timeout=140)
    steps.lines(run([program, f"127.0.0.1:{cluster.mysql_port}"]))
    steps.check(12)


JDBC = {
    "mysql": ["", "useServerPrepStmts=true&rewriteBatchedStatements=true", "useCursorFetch=true&useServerPrepStmts=true"],
    "mariadb": ["", "useServerPrepStmts=true", "allowMultiQueries=true&useBulkStmts=true"],
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("driver", JDBC)
def test_jdbc(cluster: Cluster, jars: Path, driver: str):
    url = f"jdbc:{driver}://127.0.0.1:{cluster.mysql_port}/"
    name = {"mysql": "MySQL Connector/J 9.5.0", "mariadb": "MariaDB Connector/J 3.5.3"}[driver]
    steps = Steps(name, {})
    steps.lines(run(["java", "-cp", f"{jars}/*", PROGRAMS / "java/Client.java", url, *JDBC[driver]]))
    steps.check(30)


@pytest.mark.timeout(200)
def test_sysbench(cluster: Cluster, client):
    program = client("sysbench")
    cluster.sql("DROP DATABASE IF EXISTS sb", "CREATE DATABASE sb")
    # Two threads of libmariadb's that connect at the same time may load its plugin for the greeting's way of
    # authentication at once; the one that comes second offers "dummy_fallback_auth" and waits for another to be named.
    words = ["--db-driver=mysql", "--mysql-host=127.0.0.1", f"--mysql-port={cluster.mysql_port}", "--mysql-user=root"]
    words += ["--mysql-db=sb", "--tables=1", "--table-size=300", "--threads=2", "--time=10", "--events=10"]
    steps = Steps("sysbench 1.0.20", {})
    scripts = sorted(path.stem for path in Path("/usr/share/sysbench").glob("oltp_*.lua") if path.stem != "oltp_common")
    assert len(scripts) >= 8, scripts
    for script in scripts:
        run([program, *words, script, "prepare"])
        for mode in ("auto", "disable"):

            def works(mode: str = mode) -> None:
                done = run([program, *words, f"--db-ps-mode={mode}", script, "run"])
                assert "total number of events:              10" in done, done

            steps.step(f"{script}, --db-ps-mode={mode}", works)
        run([program, *words, script, "cleanup"])
    steps.check(16)


def test_mysqldump(cluster: Cluster, client, tmp_path: Path):
    dump, restore = client("mariadb-dump", "mysqldump"), client("mariadb", "mysql")
    where = ["--no-defaults", "-h", "127.0.0.1", "-P", cluster.mysql_port, "-u", "root"]
    cluster.sql(
        "CREATE DATABASE source",
        "CREATE TABLE source.t (id INT PRIMARY KEY AUTO_INCREMENT, s VARCHAR(20) NOT NULL DEFAULT 'x', d DECIMAL(8,2),"
        " at DATETIME(6), seen TIMESTAMP DEFAULT CURRENT_TIMESTAMP, KEY by_s (s))",
        "INSERT INTO source.t (s, d, at) VALUES ('a''b\\\\', 1.5, '2020-01-02 03:04:05.000006'), ('☃', NULL, NULL)",
        "CREATE TABLE source.u (a INT, b TEXT, e ENUM('x','it''s\\\\') NOT NULL DEFAULT 'it''s\\\\', s SET('p','q'))",
        "INSERT INTO source.u (a, b, s) VALUES (1, 'x', 'q,p'), (NULL, '', NULL)",
    )
    locks = "LOCK TABLES is refused by name: dump with --single-transaction --skip-add-locks"
    steps = Steps("mysqldump (MariaDB's 10.11)", {"dump as it comes": locks})
    plain = ["--single-transaction", "--skip-add-locks"]

    def copy(name: str, *more: str, first: str = "") -> None:
        text = run([dump, *where, *plain, *more, "source"])
        assert ("LOCK TABLES" in text.replace("UNLOCK TABLES", "")) == ("--add-locks" in more)
        cluster.sql(f"CREATE DATABASE {name}")
        (tmp_path / "dump.sql").write_text(text, encoding="utf-8")
        begin = [f"--init-command={first}"] if first else []
        words = [str(word) for word in (restore, *where, *begin, name)]
        with (tmp_path / "dump.sql").open() as file:
            done = subprocess.run(words, stdin=file, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        for table in ("t", "u"):
            rows = [cluster.sql(f"SELECT * FROM {base}.{table} ORDER BY 1") for base in ("source", name)]
            assert rows[0] == rows[1] and len(rows[0]) == 2, rows
            shown = [cluster.sql(f"SHOW CREATE TABLE {base}.{table}")[0][1] for base in ("source", name)]
            assert shown[0] == shown[1], shown

    steps.step("dump as it comes", lambda: run([dump, *where, "source"]))
    steps.step("dump in one transaction, restore, compare", lambda: copy("restored", "--skip-disable-keys"))
    steps.step("restore with DISABLE KEYS", lambda: copy("restored_keys"))
    accepted = "SET tidb_enable_noop_functions = 'ON'"
    steps.step("restore with LOCK TABLES", lambda: copy("restored_locks", "--add-locks", first=accepted))
    steps.check(4)


def test_the_programs_that_come_with_the_server(cluster: Cluster, client, tmp_path: Path):
    where = ["--no-defaults", "-h", "127.0.0.1", "-P", cluster.mysql_port, "-u", "root"]
    cluster.sql(
        "CREATE DATABASE tools",
        "CREATE TABLE tools.t (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(20), KEY by_name (name))",
    )
    (tmp_path / "t.txt").write_text("1\tone\n2\t\\N\n", encoding="utf-8")
    steps = Steps("mysqladmin, mysqlimport, mysqlshow, mysqlcheck, mysqlslap (MariaDB's 10.11)", {})

    def program(name: str, *words: object) -> str:
        return run([client(f"mariadb-{name}", f"mysql{name}"), *where, *words])

    def administer() -> None:
        assert "alive" in program("admin", "ping") and "Uptime:" in program("admin", "status")
        assert "8.0.11-isobar" in program("admin", "version") and "max_allowed_packet" in program("admin", "variables")
        program("admin", "create", "made")
        program("admin", "-f", "drop", "made")
        for command in ("reload", "refresh", "flush-tables", "flush-logs", "flush-privileges"):
            program("admin", command)
        assert "show processlist" in program("admin", "processlist").lower()

    def load() -> None:
        assert "Records: 2" in program("import", "--local", "tools", tmp_path / "t.txt")
        assert "Records: 2" in program("import", "--local", "--replace", "tools", tmp_path / "t.txt")
        assert cluster.sql("SELECT * FROM tools.t ORDER BY id") == [(1, "one"), (2, None)]

    def show() -> None:
        assert "tools" in program("show") and "by_name" in program("show", "-k", "tools", "t")
        counted = program("show", "-vv", "tools").split()
        assert counted[counted.index("t") + 1 :][:4] == ["|", "2", "|", "2"], counted
        assert [word for word in program("show", "mysql").split() if word.isalpha()][-1] == "user"

    def check() -> None:
        # All that there is, with the databases that no table is stored in.
        found = program("check", "--all-databases")
        assert ["tools.t", "OK"] in map(str.split, found.splitlines()) and "rror" not in found, found
        assert "OK" in program("check", "--analyze", "tools") and "OK" in program("check", "--optimize", "tools")

    def slap() -> None:
        words = ["--auto-generate-sql", "--concurrency=4", "--iterations=1", "--number-of-queries=80"]
        assert "Number of clients running queries: 4" in program("slap", *words)

    steps.step("mysqladmin administers", administer)
    steps.step("mysqlimport loads and replaces", load)
    steps.step("mysqlshow shows", show)
    steps.step("mysqlcheck checks, analyzes, optimizes", check)
    steps.step("mysqlslap makes load", slap)
    steps.check(5)
