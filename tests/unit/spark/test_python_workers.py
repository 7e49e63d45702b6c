"""How Python workers are started, and reached."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pyspark
import pytest

from ottla.spark import daemon as ours
from ottla.spark import python_workers
from ottla.spark.daemon import FOR_TASKS
from ottla.spark.python_workers import lean_home, quieten_planner, worker_settings
from ottla.spark.quiet_workers import quieten

SOCKETS = "spark.python.unix.domain.socket.dir"


@pytest.fixture(autouse=True)
def _no_home_and_an_empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_sockets_are_in_a_private_directory_that_is_removed_at_exit() -> None:
    program = f"from ottla.spark.python_workers import worker_settings as w; print(w()[{SOCKETS!r}], w()[{SOCKETS!r}])"
    first, again = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert first == again
    assert not Path(first).exists()
    assert Path(worker_settings()[SOCKETS]).stat().st_mode & 0o777 == 0o700


def test_a_path_that_is_too_long_for_a_socket_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("deep" * 25)
    deep.mkdir()
    monkeypatch.setattr(python_workers, "socket_folder", lambda: str(deep))
    assert worker_settings() == {"spark.python.daemon.module": "ottla.spark.daemon"}


def test_while_java_starts_sparks_home_has_no_python_of_its_own() -> None:
    for _ in range(2):  # the second finds it made
        with lean_home():
            home = Path(os.environ["SPARK_HOME"])
            assert (home / "jars").samefile(Path(pyspark.__file__).parent / "jars")
            assert (home / "bin" / "spark-submit").exists()
            assert not (home / "python").exists()
        assert "SPARK_HOME" not in os.environ


def test_a_home_that_is_named_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with lean_home():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_where_no_home_can_be_made_sparks_own_is_used(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    with lean_home():
        assert "SPARK_HOME" not in os.environ


def test_a_home_that_leads_elsewhere_is_not_used(tmp_path: Path) -> None:
    with lean_home():
        home = Path(os.environ["SPARK_HOME"])
    (home / "jars").unlink()
    (home / "jars").symlink_to(tmp_path)
    with lean_home():
        assert "SPARK_HOME" not in os.environ


def test_a_pyspark_that_only_this_process_finds_is_no_reason_for_another_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere" / "pyspark"
    (elsewhere / "jars").mkdir(parents=True)
    monkeypatch.setattr(pyspark, "__file__", str(elsewhere / "__init__.py"))
    with lean_home():
        assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("PYTHONPATH", str(elsewhere.parent))
    with lean_home():
        assert "SPARK_HOME" in os.environ


def test_a_worker_may_be_ahead_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "_serve", lambda sock, authenticated: 3 if authenticated else sock.fileno())
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        assert ours.serve_with_room(here, True) == 3
        room = here.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        most = int(Path("/proc/sys/net/core/wmem_max").read_text())
        assert room >= min(most, 4 * 1024 * 1024)


def test_a_worker_without_java_ends_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(broken: bool, authenticated: bool) -> int:
        if broken:
            raise BrokenPipeError
        return 5 if authenticated else 0

    def leave(code: int) -> None:
        raise SystemExit(code)

    daemon = ModuleType("daemon")
    daemon.worker = serve  # type: ignore[attr-defined]
    quieten(daemon)
    monkeypatch.setattr(os, "_exit", leave)
    assert daemon.worker(False, True) == 5
    with pytest.raises(SystemExit):
        daemon.worker(True, True)


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """What a process says that has loaded what workers need, then two that it forks, then another and itself. It has
    the number of threads for numpy that Spark sets."""
    program = (
        "import os, sys; from ottla.spark.daemon import load; load('pyspark.worker');"
        f"print(len(os.listdir('/proc/self/task')), *[name in sys.modules for name in {FOR_TASKS!r}], flush=True)\n"
        "for _ in range(2):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        import numpy, random\n"
        "        print(numpy.random.random(), random.random())\n"
        "        break\n"
        "    os.waitpid(pid, 0)\n"
        "else:\n"
        "    import numpy\n"
        "    numpy.random.seed(1)\n"
        "    pid = os.fork()\n"
        "    if pid: os.waitpid(pid, 0)\n"
        "    print(numpy.random.random())\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    return result.stdout.splitlines()


def test_what_is_loaded_before_workers_are_forked_starts_no_thread(loaded: list[str]) -> None:
    assert loaded[0].split() == ["1", *(["True"] * len(FOR_TASKS))]


def test_workers_draw_different_random_numbers(loaded: list[str]) -> None:
    numbers = " ".join(loaded[1:3]).split()
    assert len(numbers) == len(set(numbers)) == 4


def test_a_program_that_seeds_and_then_forks_draws_what_it_has_seeded(loaded: list[str]) -> None:
    assert len(set(loaded[3:])) == 1
    assert len(loaded) == 5


def test_a_process_that_plans_is_quietened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def worker(_sock: object, _authenticated: bool) -> int:
        raise BrokenPipeError

    daemon = ModuleType("__main__")
    daemon.worker = worker  # type: ignore[attr-defined]
    codes: list[int] = []
    monkeypatch.setitem(sys.modules, "__main__", daemon)
    monkeypatch.setattr(os, "_exit", codes.append)
    quieten_planner()
    assert daemon.worker is worker, "it is not PySpark's daemon"
    daemon.__spec__ = ModuleSpec("pyspark.daemon", None)
    quieten_planner()
    quietened = daemon.worker
    quieten_planner()
    assert daemon.worker is quietened
    quietened(None, False)
    assert codes == [1]
