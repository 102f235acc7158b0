"""Lists at the end the slowest files, and what was skipped and why.

With OSCAR_TESTS_COMPLETE=1 only a missing GPU may skip.

.ci/run has two runs: OSCAR_TESTS_PASSED, the first's junitxml, leaves out of the second the tests of hardware
that passed, even if another Python ran them. No option: pytest takes a file behind an unknown one for a test.
"""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, settings

from needs import NO_GPU, needs
from oscar.errors import OscarError
from oscar_hdl.flow.elaboration import shallow_stacks
from oscar_lab.lab.hold import PREFIX
from oscar_lab.lab.network import HostNetwork
from oscar_sim.seeds import VARIABLE, dice, told

# Drawing and the first call, which compiles, may take long on a busy machine.
settings.register_profile("oscar", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("oscar")

COMPLETE = os.environ.get("OSCAR_TESTS_COMPLETE", "") not in ("", "0")
PASSED = os.environ.get("OSCAR_TESTS_PASSED")
BUDGET_S = 20.0  # of a file: 10 minutes of two cores are shared by some 130 files
SLOWEST = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds", type=int, default=0, metavar="N", help="run what takes a seed, N times, and nothing else"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "seeded: takes the run's seed (set where the fixture `seed` is used)")
    told()  # one seed for all processes of a run
    shallow_stacks()
    # Triton asks when it is imported, which torch does in any test: kernels of this process are interpreted.
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With --seeds, give all seeds to tests that take one: all processes find the same ones."""
    count, many = metafunc.config.getoption("seeds"), dice("seeds")
    if count and "seed" in metafunc.fixturenames:
        numbers = [many.randrange(10**10) for _ in range(count)]
        metafunc.parametrize("seed", numbers, indirect=True, scope="module")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seeded = [item for item in items if "seed" in getattr(item, "fixturenames", ())]
    for item in seeded:
        item.add_marker("seeded")
    if config.getoption("seeds"):
        _keep(config, items, seeded)
    if PASSED:
        known = _passed(Path(PASSED))
        _keep(config, items, [item for item in items if item.nodeid not in known])


def _keep(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    staying = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in staying])
    items[:] = kept


def _passed(report: Path) -> set[str]:
    """Return the tests of hdl and sim that passed: none is another with extras, but by what skipped it."""
    found = set()
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.get("classname", "").replace(".", "/")
        if file.startswith(("tests/hdl/", "tests/sim/")) and not len(case):
            found.add(f"{file}.py::{case.get('name')}")
    return found


@pytest.fixture(scope="module")
def seed(request: pytest.FixtureRequest) -> Iterator[int]:
    """The run's seed, new in each run; with --seeds, one after another.

    What is drawn by oscar_sim.seeds, here and in child processes, follows it. A test that calls that asks for
    this fixture, by name or by usefixtures, so that it is listed (`pytest -m seeded`) and says its seed.
    """
    before = str(told())
    os.environ[VARIABLE] = str(getattr(request, "param", before))
    yield told()
    os.environ[VARIABLE] = before


@pytest.fixture
def draw(seed: int) -> random.Random:
    """Random numbers of the run's seed."""
    return random.Random(seed)


@pytest.fixture(autouse=True)
def _seed_is_shown(request: pytest.FixtureRequest) -> None:
    if "seed" in request.fixturenames:
        print(f"{VARIABLE}={request.getfixturevalue('seed')}")


def _skipped(config: pytest.Config) -> Counter[str]:
    """Return how often each reason was given; a file skipped as a whole counts once."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter else []  # workers of xdist have no reporter
    return Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if COMPLETE and exitstatus == pytest.ExitCode.OK and set(_skipped(session.config)) - {NO_GPU}:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _files_by_time(terminalreporter: pytest.TerminalReporter) -> list[tuple[str, float]]:
    """Return the files of a run with their seconds, the slowest first."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    return seconds.most_common()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    files = _files_by_time(terminalreporter)
    if len(files) > 1:
        terminalreporter.section(f"slowest files, of a budget of {BUDGET_S:.0f} s each")
        for file, seconds in files[:SLOWEST]:
            terminalreporter.line(f"{seconds:6.1f} s  {file}", yellow=seconds > BUDGET_S)
    counts = _skipped(config)
    if not counts:
        return
    terminalreporter.section("skipped")
    for reason, count in counts.most_common():
        terminalreporter.line(f"{count:4}  {reason}")
    if set(counts) - {NO_GPU}:
        if COMPLETE:
            terminalreporter.line(f"OSCAR_TESTS_COMPLETE is set: only '{NO_GPU}' may be a reason", red=True)
        else:
            terminalreporter.line("`make everything` installs all that tests can use")


@pytest.fixture
def alone() -> Iterator[None]:
    """Let a test make a lab's network, or skip it; tests of other processes that make one wait for it."""
    needs("ip", "tc")
    if os.geteuid() != 0:
        pytest.skip("network namespaces take root: run the tests as root")
    with open("/run/oscar-lab-tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with HostNetwork(2) as network:
                network.shape(1e9)
        except OscarError as error:
            pytest.skip(f"no network can be made: {error}")
        yield
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        assert PREFIX not in listed
