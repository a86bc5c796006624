"""Real applications on MariaDB and on Isobar: installed, migrated and used by the same steps, then their tables compared.

    make applications APPLICATIONS="django knex"

Each folder here is an application: what it is installed from (`requirements.txt` or `package.json`) and its steps
(`application.py` or `application.mjs`), which print what each of them gave. The same steps run against both servers; after the first
part of them the server is restarted. An application is whole when every step gives what it gives on MariaDB, and all
tables hold the same but for columns that it names as its own affair (times, random keys).

What was found is kept, and what is there is not done again: a run that was broken off goes on. It must never listen
anywhere but on loopback, nor touch a server that it did not start.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
SHARED = HERE / "shared"
sys.path.insert(0, str(HERE.parents[1] / "examples/quickstart"))
from playground import Playground, free_port_base  # noqa: E402

import pymysql  # noqa: E402

# Seconds that installing, or the steps of one phase, may take.
MOST_SECONDS = {"install": 900, "first": 600, "second": 300}
DATABASE = "application"


class MariaDb:
    """A MariaDB server of a run's own."""

    name = "MariaDB"

    def __init__(self, folder: Path):
        self.folder, self.port = folder, free_port_base()
        install = shutil.which("mariadb-install-db") or "mysql_install_db"
        self.data = [f"--datadir={folder}/data", f"--tmpdir={folder}", "--user=root"]
        words = ["--skip-test-db", "--auth-root-authentication-method=normal"]
        subprocess.run([install, "--no-defaults", *self.data, *words], check=True, capture_output=True, timeout=120)

    def start(self) -> None:
        words = ["--bind-address=127.0.0.1", f"--port={self.port}", f"--socket={self.folder}/s", "--skip-log-bin"]
        program = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
        quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        command = [program, "--no-defaults", *self.data, *words, f"--pid-file={self.folder}/pid"]
        self.process = subprocess.Popen(command, **quiet)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Isobar:
    """A playground of one row node that answers MySQL clients itself."""

    name = "Isobar"

    def __init__(self, isobar: Path, folder: Path):
        self.playground = Playground(isobar, folder / "data", row=1, columnar=0, sql=0)
        self.port = self.playground.mysql_port

    def start(self) -> None:
        self.playground.start()

    def stop(self) -> None:
        self.playground.stop()


def connect(port: int) -> pymysql.connections.Connection:
    """A session of root's, once the server answers."""
    deadline = time.monotonic() + 90
    while True:
        try:
            return pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True, charset="utf8mb4")
        except pymysql.err.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def installed(application: Path, cache: Path) -> list[str]:
    """Installs an application, unless it is; the command that runs its steps."""
    requirements, package = application / "requirements.txt", application / "package.json"
    source = requirements if requirements.exists() else package
    home = cache / f"{application.name}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    done, python = home / "installed", home / "bin/python"
    options = dict(check=True, timeout=MOST_SECONDS["install"], stdin=subprocess.DEVNULL)
    if source == requirements:
        if not done.exists():
            shutil.rmtree(home, ignore_errors=True)
            venv.create(home, with_pip=True)
            subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], **options)
            done.touch()
        return [str(python), str(application / "application.py")]
    if not done.exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        shutil.copy(package, home)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=home, **options)
        done.touch()
    # Modules are found above the file that asks for them.
    for file in (application / "application.mjs", SHARED / "steps.mjs"):
        shutil.copy(file, home)
    return ["node", str(home / "application.mjs")]


def steps(command: list[str], phase: str, port: int) -> dict[str, dict]:
    """What each step of a phase gave."""
    environment = {**os.environ, "PORT": str(port), "DATABASE": DATABASE, "PYTHONPATH": str(SHARED)}
    try:
        run = subprocess.run(
            [*command, phase], env=environment, capture_output=True, text=True, timeout=MOST_SECONDS[phase],
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"(the phase)": {"error": f"took longer than {MOST_SECONDS[phase]} s"}}
    found = {}
    for line in run.stdout.splitlines():
        try:
            step = json.loads(line)
        except ValueError:
            continue
        if isinstance(step, dict) and "step" in step:
            found[step.pop("step")] = step
    if run.returncode:
        found["(the phase)"] = {"error": (run.stderr.strip().splitlines() or ["no reason given"])[-1][:300]}
    return found


def tables(port: int, ignored: list[str]) -> dict[str, list]:
    """Rows of all tables but for some columns, as texts, in an order."""
    found = {}
    with connect(port) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s "
            "ORDER BY table_name, ordinal_position", (DATABASE,),
        )  # fmt: skip
        columns: dict[str, list[str]] = {}
        for table, column in cursor.fetchall():
            if f"{table}.{column}" not in ignored and f"*.{column}" not in ignored:
                columns.setdefault(table, []).append(column)
        for table, names in columns.items():
            listed = ", ".join(f"`{name}`" for name in names)
            cursor.execute(f"SELECT {listed} FROM `{DATABASE}`.`{table}`")
            found[table] = sorted([repr(value) for value in row] for row in cursor.fetchall())
    return found


def tried(server: MariaDb | Isobar, command: list[str], ignored: list[str]) -> dict:
    """All of an application's steps on one server, restarted in between."""
    server.start()
    try:
        with connect(server.port) as connection:
            connection.cursor().execute(f"CREATE DATABASE {DATABASE}")
        found = steps(command, "first", server.port)
        server.stop()
        server.start()
        connect(server.port).close()
        found |= steps(command, "second", server.port)
        return {"steps": found, "tables": tables(server.port, ignored)}
    finally:
        server.stop()


def compared(name: str, peer: dict, own: dict) -> dict:
    """How far an application came, and its first differences."""
    fine = {step: gave for step, gave in peer["steps"].items() if "error" not in gave}
    differences = []
    for step, gave in fine.items():
        got = own["steps"].get(step, {"error": "was not reached"})
        if got != gave:
            shown = got.get("error") or f"gave {json.dumps(got.get('value'))[:80]}, not {json.dumps(gave.get('value'))[:80]}"
            differences.append(f"{step}: {shown}")
    for step, gave in own["steps"].items():
        if "error" in gave and step not in peer["steps"]:
            differences.append(f"{step}: {gave['error']}")
    unlike = [table for table, rows in peer["tables"].items() if own["tables"].get(table) != rows]
    equal = len(peer["tables"]) - len(unlike)
    same = len(fine) - sum(1 for step in fine if own["steps"].get(step) != fine[step])
    return {
        "application": name, "steps": len(peer["steps"]), "peer": len(fine), "own": same,
        "tables": f"{equal} of {len(peer['tables'])}", "unlike": unlike, "differences": differences,
        "whole": not differences and not unlike,
    }  # fmt: skip


def tested(application: Path, options: argparse.Namespace) -> dict:
    command = installed(application, options.cache)
    ignored = json.loads((application / "ignored.json").read_text()) if (application / "ignored.json").exists() else []
    found = {}
    for make in (MariaDb, lambda folder: Isobar(options.isobar, folder)):  # type: Callable
        with TemporaryDirectory(prefix="isobar-application-") as folder:
            server = make(Path(folder))
            print(f"{application.name} on {server.name} …", file=sys.stderr, flush=True)
            found[server.name] = tried(server, command, ignored)
    return compared(application.name, found["MariaDB"], found["Isobar"])


def main() -> None:
    every = sorted(folder.parent.name for folder in HERE.glob("*/application.*"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--isobar", type=Path, required=True, help="the binary")
    add("--applications", nargs="*", default=every, choices=every, metavar="NAME", help=f"which ({' '.join(every)})")
    add("--cache", type=Path, default=Path("~/.cache/isobar/applications").expanduser(), help="where they are installed")
    add("--found", type=Path, help="where what was found is kept (in the cache)")
    add("--again", action="store_true", help="do again what has been done with this binary")
    options = parser.parse_args()
    for tool in ("mariadb-install-db", "npm", "node"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is not installed: apt-get install mariadb-server npm")
    binary = hashlib.sha256(options.isobar.read_bytes()).hexdigest()[:12]
    kept = options.found or options.cache / f"found-{binary}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(kept.read_text()) if kept.exists() and not options.again else {}
    for name in options.applications or every:
        if name not in found:
            found[name] = tested(HERE / name, options)
            kept.write_text(json.dumps(found, indent=1))
    print("| application | steps | right on Isobar, of those on MariaDB | tables alike | whole | first difference |")
    print("|---|---|---|---|---|---|")
    for name, one in sorted(found.items()):
        first = (one["differences"] or [f"table {table}" for table in one["unlike"]] or [""])[0].replace("|", "\\|")
        whole = "yes" if one["whole"] else "no"
        print(f"| {name} | {one['steps']} | {one['own']} of {one['peer']} | {one['tables']} | {whole} | {first[:160]} |")


if __name__ == "__main__":
    main()
