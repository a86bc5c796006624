"""A MariaDB server of a test's own, in a folder of its own: the other side of every comparison.

It must never listen anywhere but on loopback, nor outlive its test.
"""

import shutil
import socket
import subprocess
from pathlib import Path

import pymysql

from harness import wait_until


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class MariaDb:
    """A MariaDB server of our own."""

    def __init__(self, program: str, folder: Path):
        self.port, self.folder = free_port(), folder
        install = shutil.which("mariadb-install-db") or "mysql_install_db"
        # A MariaDB that starts clears its temporary directory of others' tables, so each has its own.
        data = [f"--datadir={folder}/data", f"--tmpdir={folder}", "--user=root"]
        subprocess.run(
            [install, "--no-defaults", *data, "--skip-test-db", "--auth-root-authentication-method=normal"],
            check=True, capture_output=True, timeout=120,
        )
        words = ["--bind-address=127.0.0.1", f"--port={self.port}", f"--socket={folder}/s", f"--pid-file={folder}/pid"]
        words += ["--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=2", "--skip-log-bin"]
        self.process = subprocess.Popen(
            [program, "--no-defaults", *data, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_until("MariaDB answers", lambda: self.connect().close() or True, 60)

    def connect(self, **more):
        options = dict(autocommit=True, charset="utf8mb4", connect_timeout=10, read_timeout=60, ssl_disabled=True)
        connection = pymysql.connect(host="127.0.0.1", port=self.port, user="root", **{**options, **more})
        connection.cursor().execute("SET time_zone = '+00:00'")
        return connection

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
