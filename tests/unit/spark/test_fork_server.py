"""Processes that are forked instead of started: they are what was asked for, and end when they should."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.spark import fork_launcher, fork_server, python_workers
from ottla.spark.fork_server import Request, Server, start_server
from ottla.spark.python_workers import environment_of_java
from ottla.spark.sessions import _prepare_environment
from support.waiting import wait_until

IS_FORKED = "import sys; print('pyspark.worker' in sys.modules)"
WAITS = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"


def started() -> Server:
    server = start_server(tempfile.mkdtemp(prefix="ottla-"))  # short: pytest's own are too long for a socket
    assert server is not None
    return server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = started()
    yield server
    server.close()


def ran(
    server: Server, *arguments: str, environment: Mapping[str, str] | None = None, **options: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [server.script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
        cwd=options.get("cwd"),
        input=options.get("input"),
    )


def test_a_process_has_its_own_streams_directory_environment_and_arguments(server: Server, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import os, sys\n"
        "print(__name__, sys.argv[1:], os.getcwd(), os.environ['MINE'], sys.stdin.read())\n"
        "print('an error', file=sys.stderr)\n"
        "sys.exit(7)\n"
    )
    there = {"MINE": "a\nb", "PYTHONPATH": "/nowhere"}
    result = ran(server, "-m", "mine", "x", "", "y z", environment=there, cwd=str(tmp_path), input="text")
    assert result.stdout == f"__main__ ['x', '', 'y z'] {tmp_path} a\nb text\n"
    assert (result.stderr, result.returncode) == ("an error\n", 7)


def test_modules_are_found_where_the_environment_says(server: Server, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("name = 'found'")
    text = "import beside, sys; print(beside.name, sys.executable)"
    result = ran(server, "-c", text, environment={"PYTHONPATH": str(tmp_path)})
    assert result.stdout.split() == ["found", sys.executable]
    assert "No module named 'beside'" in ran(server, "-c", text).stderr


def test_the_server_has_no_thread(server: Server) -> None:
    assert ran(server, "-c", IS_FORKED).stdout == "True\n"  # it has loaded everything
    result = ran(server, "-c", "import os; print(len(os.listdir(f'/proc/{os.getppid()}/task')))")
    assert result.stdout == "1\n"


def test_arrow_finds_what_it_imports_with_its_first_array(server: Server) -> None:
    text = (
        "import sys; before = set(sys.modules); import pyarrow; pyarrow.array([1]).to_numpy()\n"
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before} - {'pyarrow'}))"
    )
    assert ran(server, "-c", text).stdout == "[]\n"


def test_what_a_first_connection_needs_is_loaded(server: Server) -> None:
    text = (
        "import sys\n"
        "from ottla.wire import codec, registry\n"
        "print(registry.apis.cache_info().currsize)\n"
        "apis = {api.name: api for api in registry.apis().values()}\n"
        "misses = codec._reader.cache_info().misses\n"
        "for name in ('ListOffsets', 'EndTxn', 'DescribeConfigs', 'ListTransactions'):\n"
        "    codec.prepare(apis[name].request, apis[name].versions.high)\n"
        "codec.prepare(apis['InitProducerId'].response, 5)\n"
        "codec.prepare(apis['OffsetCommit'].response, 9)\n"
        "print(codec._reader.cache_info().misses - misses)\n"
    )
    assert ran(server, "-c", text).stdout.split() == ["1", "0"]


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "PYTHONWARNINGS", "OMP_NUM_THREADS"])
def test_what_cannot_be_changed_any_more_takes_a_new_python(server: Server, name: str) -> None:
    value = {"PYTHONWARNINGS": "ignore"}.get(name, "3")
    result = ran(server, "-c", f"{IS_FORKED}; import os; print(os.environ[{name!r}])", environment={name: value})
    assert result.stdout.split() == ["False", value]


@pytest.mark.parametrize(
    ("arguments", "here", "is_possible"),
    [
        (["-m", "pyspark.daemon"], {}, True),
        (["-m", "pyspark.daemon"], {"PYTHONPATH": "/a", "PYTHON_WORKER_FACTORY_SECRET": "x", "HOME": "/b"}, True),
        (["-m", "pyspark.daemon"], {"OMP_NUM_THREADS": "1"}, True),
        (["-m", "pyspark.daemon"], {"OMP_NUM_THREADS": "2"}, False),
        (["program.py", "x"], {}, False),
        (["-m"], {}, False),
    ],
)
def test_which_requests_are_possible(arguments: list[str], here: Mapping[str, str], is_possible: bool) -> None:
    assert Request("/", arguments, here, ()).is_possible({"OMP_NUM_THREADS": "1"}) is is_possible


def test_workers_of_pysparks_daemon_are_quiet_from_the_beginning(server: Server) -> None:
    says = "import pyspark.daemon as daemon, sys\ndaemon.manager = lambda: print(vars(daemon.worker), sys.argv[1:])\n"
    become = "from ottla.spark import fork_server\nfork_server.become(fork_server.Request('/', %r, {}, ()), [])\n"
    result = ran(server, "-c", says + become % ["-m", "pyspark.daemon", "x"])
    assert (result.stdout, result.stderr) == ("{'is_quiet': True} ['x']\n", "")


def test_what_pyspark_prints_about_stateful_functions_is_dropped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text("import sys\nprint('Starting.')\nprint('an error', file=sys.stderr)\n")
    become = f"fork_server.become(fork_server.Request({str(tmp_path)!r}, ['-m', 'chatty'], {{}}, ()), [])\n"
    renamed = "from ottla.spark import fork_server\nfork_server._CHATTY = 'chatty'\n"
    result = ran(server, "-c", renamed + become)
    assert (result.stdout, result.stderr) == ("", "an error\n")


def test_a_process_ends_with_the_program_that_spark_knows(server: Server) -> None:
    with subprocess.Popen([server.script, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert pid != program.pid
        program.kill()
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the process to end")


def test_a_server_ends_after_its_processes_and_then_there_is_still_python() -> None:
    server = started()
    with subprocess.Popen([server.script, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline()
        server.let_end()
        wait_until(lambda: ran(server, "-c", IS_FORKED).stdout == "False\n", "the server to take no more")
        assert server.is_running
    assert program.returncode == 0
    server.close()
    assert ran(server, "-c", IS_FORKED).stdout == "False\n"


@pytest.fixture
def forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[fork_server._Forks, str]]:
    """What serves requests, in this process, and its address."""
    monkeypatch.chdir(tmp_path)  # its own path may be too long for a socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind("fork")
        listening.listen()
        forks = fork_server._Forks(listening, os.getppid())
        yield forks, "fork"
        for one in (forks._selector, forks._awake, forks._wake):
            one.close()


def test_a_program_becomes_python_if_no_process_can_be_forked(
    forks: tuple[fork_server._Forks, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    serving, address = forks

    def full() -> int:
        raise BlockingIOError(errno.EAGAIN, "too many processes")

    monkeypatch.setattr(os, "fork", full)
    with ThreadPoolExecutor(1) as threads:
        code = threads.submit(fork_launcher.run, address, ["-c", "pass"])
        assert serving._accept() is None
        assert code.result(10) is None


def test_streams_of_a_program_that_ends_too_early_are_closed(forks: tuple[fork_server._Forks, str]) -> None:
    serving, address = forks
    before = set(Path("/proc/self/fd").iterdir())
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as program:
        program.connect(address)
        socket.send_fds(program, [(100).to_bytes(4, "big") + b"/"], [0, 1, 2])
    assert serving._accept() is None
    assert set(Path("/proc/self/fd").iterdir()) == before


@pytest.mark.parametrize("python", ["", "/with a space/python", "/" + "deep/" * 30 + "python"])
def test_no_script_can_start_such_a_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str) -> None:
    monkeypatch.setattr(sys, "executable", python)
    assert start_server(str(tmp_path)) is None


def test_other_machines_are_not_told_of_the_script(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_workers, "_fork_server", server)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
    with environment_of_java(server.script):
        assert os.environ["PYSPARK_DRIVER_PYTHON"] == server.script
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "jupyter"
    for python, expected in [(server.script, sys.executable), ("/usr/bin/python3", "/usr/bin/python3")]:
        monkeypatch.setenv("PYSPARK_PYTHON", python)
        _prepare_environment("spark://host:7077", {}, sys.executable)
        assert os.environ["PYSPARK_PYTHON"] == expected


def test_what_is_loaded_exists() -> None:
    for name in fork_server.LOADED:
        __import__(name)
