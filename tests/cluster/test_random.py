"""A short share of what is chosen at random: queries beside MariaDB, faults of nodes, damage to files.

Always the same seeds, so that a failure here is the change's; `make soak` and its parts take others, for as long as one
wants. A failure prints what the tool printed, with the seed.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from harness import absent

TESTS = Path(__file__).resolve().parents[1]
sys.path.append(str(TESTS / "nemeses"))

from hosts import may_make_namespaces  # noqa: E402


def run(tool: str, *options: object) -> None:
    command = [sys.executable, TESTS / tool, *options]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, f"{done.stdout[-4_000:]}\n{done.stderr[-4_000:]}"


@pytest.mark.timeout(600)
def test_random_queries_mean_the_same_on_rows_on_columns_and_to_mariadb(isobar: Path, client, tmp_path: Path):
    client("mariadbd", "/usr/sbin/mariadbd")
    run("differential/compare.py", "--isobar", isobar, "--queries", 1_200, "--workers", 3, "--seed", 1, "--out", tmp_path)


@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_and_nothing_wrong_is_read_under_random_faults(isobar: Path):
    if not may_make_namespaces():
        absent("ip, or the right to make network namespaces,")
    run("nemeses/rounds.py", "--isobar", isobar, "--rounds", 5, "--seed", 1)


@pytest.mark.timeout(600)
def test_flipped_bits_and_cut_files_are_noticed_and_mended(isobar: Path):
    run("nemeses/flips.py", "--isobar", isobar, "--flips", 20, "--seed", 1)
