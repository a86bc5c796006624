"""Clusters for tests, and their logs beside a failure."""

import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

import shared_classes
from harness import Bank, Cluster, absent

ROOT = Path(__file__).resolve().parents[2]
JDBC_DRIVERS = ["com.mysql:mysql-connector-j:9.5.0", "org.mariadb.jdbc:mariadb-java-client:3.5.3"]
FLIGHT_DRIVER = "org.apache.arrow:flight-sql-jdbc-driver:18.3.0"

# The tests' Java machines live for seconds and spend them compiling: the first of the two compilers alone is a third
# faster.
os.environ.setdefault("JDK_JAVA_OPTIONS", shared_classes.OPTIONS)
# Beside the interpreter, where `make test` puts it.
if (ARCHIVE := Path(sys.prefix) / "spark.jsa").exists():
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-XX:SharedArchiveFile={ARCHIVE}")


def pytest_addoption(parser: pytest.Parser) -> None:
    cache = Path(os.environ.get("ISOBAR_CACHE", Path.home() / ".cache/isobar"))
    target = Path(os.environ.get("CARGO_TARGET_DIR", cache / "target"))
    jar = ROOT / "spark-connector/target/isobar-spark-runtime-4.2_2.13.jar"
    parser.addoption("--isobar", type=Path, default=target / "debug/isobar", help="the isobar binary")
    parser.addoption("--jar", type=Path, default=jar, help="the Spark connector's runtime jar")


@pytest.fixture(scope="session")
def isobar(request: pytest.FixtureRequest) -> Path:
    path = request.config.getoption("--isobar").resolve()
    assert path.is_file(), f"{path} is missing: build it with `make build`"
    return path


@pytest.fixture(scope="session")
def jar(request: pytest.FixtureRequest) -> Path:
    path = request.config.getoption("--jar").resolve()
    assert path.is_file(), f"{path} is missing: build it with `make jar`"
    return path


@pytest.fixture(scope="session")
def jars() -> Path:
    """The JDBC drivers' folder."""
    return filled("jdbc", JDBC_DRIVERS)


@pytest.fixture(scope="session")
def flight_jars() -> Path:
    """The folder of Arrow Flight SQL's JDBC driver, apart from MySQL's."""
    return filled("jdbc-flight", [FLIGHT_DRIVER])


def filled(name: str, artifacts: list[str]) -> Path:
    """A folder filled from Maven; kept outside the checkout."""
    folder = Path(os.environ.get("ISOBAR_CACHE", Path.home() / ".cache/isobar")) / name
    for artifact in artifacts:
        if not list(folder.glob(artifact.split(":")[1] + "*.jar")):
            plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
            command = ["mvn", "-q", "-B", plugin, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
            subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=140)
    return folder


@pytest.fixture(scope="session")
def shared(isobar: Path, tmp_path_factory: pytest.TempPathFactory):
    """One cluster for all modules that kill nothing and change nothing for everybody."""
    data = tmp_path_factory.mktemp("shared")
    with Cluster(isobar, data) as running:
        yield running
    shutil.rmtree(data, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, isobar: Path, tmp_path_factory: pytest.TempPathFactory):
    """The cluster of a module's tests: the shared one, without a trace of other modules, or one of its own where the
    module is marked `own_cluster`."""
    if request.node.get_closest_marker("own_cluster"):
        data = tmp_path_factory.mktemp("cluster")
        with Cluster(isobar, data) as running:
            yield running
        shutil.rmtree(data, ignore_errors=True)
        return
    running = request.getfixturevalue("shared")
    running.clear()
    before = running.pids()
    yield running
    assert running.pids() == before, "a node of the shared cluster ended: mark the module own_cluster, or mend the node"


@pytest.fixture
def bank(cluster: Cluster, request: pytest.FixtureRequest) -> Bank:
    """A bank of its own, with columnar replicas, not yet busy."""
    bank = Bank(cluster, "b_" + request.node.name.split("[")[0][-50:])
    bank.open()
    return bank


@pytest.fixture
def client():
    """Finds a client program by its names; a missing one skips the test, or fails it under REQUIRE_CLIENTS=1."""

    def find(*names: str) -> str:
        for name in names:
            path = shutil.which(name)
            if path:
                return path
        absent(names[0])

    return find


# The longest modules, which begin first.
LONGEST = ["test_reconciliation", "test_bench", "test_scripts", "test_random", "test_resource_groups", "test_spark"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {module: place for place, module in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONGEST)))


class ByModule(LoadScopeScheduling):
    """Workers take modules whole, for their fixtures are dear. Groups by marks would do, but xdist 3.8 finds none in pytest 9.2."""

    def _split_scope(self, nodeid: str) -> str:
        module = Path(nodeid.partition("::")[0]).stem
        if module in ("test_reconciliation", "test_random"):
            return nodeid
        return f"{module}-{zlib.crc32(nodeid.encode()) % 2}" if module == "test_scripts" else module


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByModule:
    config.option.loadscopereorder = False
    return ByModule(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    if not report.failed:
        return report
    for name, running in getattr(item, "funcargs", {}).items():
        if isinstance(running, Cluster):
            report.sections.append((name, running.story(lines=60)))
            report.sections.append((f"{name}'s status", running.status_text()))
    return report
