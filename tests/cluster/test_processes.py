"""The playground as a program: ports, children, endings."""

import os
import signal
import subprocess

import pytest

from harness import Cluster, gone
from playground import free_port_base


@pytest.fixture
def own(isobar, tmp_path):
    """A cluster that a test may ruin: one row node and one columnar node."""
    cluster = Cluster(isobar, tmp_path / "data", row=1, columnar=1)
    yield cluster.start()
    cluster.stop()


def test_a_busy_port_names_the_flag(own: Cluster, tmp_path):
    command = [own.isobar, "playground", "--data", tmp_path / "other", "--port-base", str(own.port_base)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "--port-base" in done.stderr and str(own.port_base) in done.stderr
    assert own.sql("SELECT 1") == [(1,)], "the first cluster does not notice"


def test_children_die_with_a_killed_playground(own: Cluster):
    pids = own.pids()
    assert sorted(pids) == ["columnar-1", "row-1", "sql"]
    own.kill_supervisor()
    assert gone(pids)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_in_order(own: Cluster, how):
    pids = own.pids()
    own.process.send_signal(how)
    assert own.process.wait(30) == 0
    assert gone(pids)


def test_ctl_says_what_it_cannot_reach(isobar):
    port = free_port_base()
    command = [isobar, "ctl", "status", "--placement", f"127.0.0.1:{port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stderr.startswith("isobar: ")


def test_a_wrong_config_is_one_clear_error(isobar, tmp_path):
    config = tmp_path / "node.toml"
    for text, names in (("role = 'row'", "data_dir"), ("rolle = 1", "rolle"), ("", "role")):
        config.write_text(text)
        done = subprocess.run([isobar, "serve", "--config", config], capture_output=True, text=True, timeout=30)
        assert done.returncode == 1
        assert names in done.stderr and str(config) in done.stderr
    missing = subprocess.run([isobar, "serve", "--config", tmp_path / "none"], capture_output=True, text=True, timeout=30)
    assert missing.returncode == 1 and str(tmp_path / "none") in missing.stderr
    assert os.listdir(tmp_path) == ["node.toml"]
