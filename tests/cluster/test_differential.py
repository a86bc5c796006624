"""A short share of the random queries: rows, columns on one node and on three, and MariaDB say the same."""

from pathlib import Path

import pytest

from compare import compare


@pytest.mark.timeout(600)
def test_random_queries_mean_the_same_everywhere(isobar: Path, tmp_path: Path, client):
    client("mariadbd", "/usr/sbin/mariadbd")
    out = tmp_path / "differences"
    out.mkdir()
    run = compare(isobar, tmp_path, out, seed=1, queries=800, quiet=True)
    shown = "\n\n".join(path.read_text(encoding="utf-8") for path in sorted(out.iterdir()))
    assert not run.shapes and not run.counts["connections lost"], shown
    assert run.counts["answered"] > 500, f"too few had an answer: {run.counts}"
