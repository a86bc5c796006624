"""The disk of the nemeses: what a power loss takes, and what it must leave."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import disk

# Writes as nodes do, with every call that the preloaded library sees; then it is killed.
NODE = """
import os, signal, sys
folder = sys.argv[1]
def file(name): return os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT)
log = file("log")
os.write(log, b"synced " * 100)
os.fdatasync(log)
os.write(log, b"lost " * 1000)
os.pwrite(log, b"LOST", 0)
grown = file("grown")
os.posix_fallocate(grown, 0, 4096)
os.fsync(grown)
os.ftruncate(grown, 10)
renamed = file("new")
os.writev(renamed, [b"never ", b"synced"])
os.rename(f"{folder}/new", f"{folder}/renamed")
gone = file("gone")
os.write(gone, b"removed")
os.unlink(f"{folder}/gone")
os.write(file("whole"), b"all of it")
os.fsync(os.open(f"{folder}/whole", os.O_RDONLY))
os.close(os.open(f"{folder}/whole", os.O_WRONLY | os.O_TRUNC))
os.kill(os.getpid(), signal.SIGKILL)
"""
SYNCED = {"log": b"synced " * 100, "grown": bytes(4096), "renamed": b"", "whole": b"all of it"}


class Nothing(random.Random):
    """A disk that wrote nothing of what was not synced."""

    def choice(self, options):
        return "nothing" if "nothing" in options else super().choice(options)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return disk.build(tmp_path_factory.mktemp("library"))


def run(folder: Path, library: Path) -> tuple[Path, Path]:
    data, logs = folder / "data", folder / "logs"
    data.mkdir()
    environment = os.environ | disk.environment(data, logs) | {"LD_PRELOAD": str(library)}
    done = subprocess.run([sys.executable, "-c", NODE, str(data)], env=environment, timeout=20, stderr=subprocess.PIPE)
    assert done.returncode == -9, done.stderr
    return data, logs


def test_what_was_not_synced_is_gone_and_what_was_is_there(tmp_path: Path, library: Path):
    data, logs = run(tmp_path, library)
    assert (data / "log").read_bytes().startswith(b"LOST"), "a kill alone loses nothing"
    assert disk.lose(data, logs, Nothing()) == "5 unsynced writes of 4 files"
    assert {path.name: path.read_bytes() for path in data.iterdir()} == SYNCED
    assert list(logs.iterdir()) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_synced_byte_is_never_lost(tmp_path: Path, library: Path, seed: int):
    data, logs = run(tmp_path, library)
    disk.lose(data, logs, random.Random(seed))
    log = (data / "log").read_bytes()
    assert log[4:700] == SYNCED["log"][4:], "only bytes that were written again may differ"
    assert log[:4] in (b"sync", b"LOST")
    assert (data / "whole").read_bytes() in (b"", b"all of it")
    assert set((data / "renamed").read_bytes()) <= set(b"never synced\0")


def test_a_full_disk_takes_no_writes(tmp_path: Path, library: Path):
    data, logs = tmp_path / "data", tmp_path / "logs"
    data.mkdir()
    environment = os.environ | disk.environment(data, logs) | {"LD_PRELOAD": str(library)}
    (logs / "full").touch()
    code = "import os, sys; os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), b'x')"
    done = subprocess.run([sys.executable, "-c", code, str(data / "f")], env=environment, timeout=20, capture_output=True)
    assert b"No space left on device" in done.stderr
