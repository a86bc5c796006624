"""A short share of the nemeses: one round of each fault that is over in seconds, with each workload in turn."""

from pathlib import Path

import pytest

from faults import FAULTS
from harness import absent
from hosts import Hosts, may_make_namespaces
from rounds import play
from workloads import WORKLOADS

SEED = 1


@pytest.fixture(scope="module")
def hosts(isobar: Path, tmp_path_factory: pytest.TempPathFactory):
    if not may_make_namespaces():
        absent("the right to make network namespaces")
    with Hosts(isobar, tmp_path_factory.mktemp("hosts"), number=1) as running:
        yield running


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number, fault", enumerate(FAULTS), ids=lambda value: str(value).replace(" ", "-"))
def test_a_fault_costs_no_acknowledged_commit(hosts: Hosts, number: int, fault: str):
    result = play(hosts, number, SEED, list(WORKLOADS)[number % len(WORKLOADS)], fault)
    assert not result.wrong, f"{result.workload}, {fault} ({result.victim}): {result.wrong}\n{hosts.story(15)}"
    assert result.outcomes["ok"] > 20, result.outcomes
