"""What the command line says when it is asked for help, or when something is wrong with it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ottla
from ottla.cli.main import run
from ottla.cli.output import counted, show_rows, size_text
from ottla.cli.session import parse_assignments

Capture = pytest.CaptureFixture[str]

COMMANDS = [
    "start",
    "cluster",
    "cluster problems",
    "cluster log-dirs",
    "reassign plan",
    "reassign run",
    "reassign list",
    "reassign cancel",
    "elect preferred",
    "elect unclean",
    "topics create",
    "topics list",
    "topics describe",
    "topics alter",
    "topics delete",
    "topics delete-records",
    "configs describe",
    "configs set",
    "configs unset",
    "groups list",
    "groups describe",
    "groups reset-offsets",
    "groups reset",
    "groups delete",
    "groups delete-offsets",
    "transactions list",
    "transactions describe",
    "transactions describe-producers",
    "transactions find-hanging",
    "transactions abort",
    "transactions fence",
    "produce",
    "consume",
    "pipeline run",
    "pipeline new",
    "log dump",
    "demo",
    "version",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: Capture) -> None:
    assert run([*command.split(), "--help"]) == 0
    output = capsys.readouterr().out
    assert f"Usage: ottla {command}" in output
    assert re.findall(r"<[a-z]+", output) == [], "types beside options"


def test_help_names_every_command(capsys: Capture) -> None:
    assert run(["--help"]) == 0
    output = capsys.readouterr().out
    assert all(command.split()[0] in output for command in COMMANDS)
    assert "<bool>" not in output


def test_help_needs_neither_client_nor_broker() -> None:
    """They take longer to import than one wants to wait for help."""
    code = (
        "import sys\nfrom ottla.cli.main import run\nrun(['--help'])\n"
        "heavy = [name for name in sys.modules if name.startswith(('ottla.wire', 'ottla.client', 'ottla.broker'))]\n"
        "sys.exit(', '.join(heavy) or None)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["version"], ["--version"], ["-V"], ["--version", "nonsense"]])
def test_version(arguments: list[str], capsys: Capture) -> None:
    assert run(arguments) == 0
    assert capsys.readouterr().out.startswith(f"ottla {ottla.__version__} on Python 3.")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-b", "127.0.0.1:1", "topics", "list"], "127.0.0.1:1: connection refused"),
        (["topics", "list", "-b", "127.0.0.1:1"], "127.0.0.1:1: connection refused"),
        (["topics", "list", "-b", "nonsense"], "'nonsense' is not the address of a broker"),
        (["topics", "list", "-b", ","], "the list of brokers is empty"),
        (["topics", "create", "t", "--config", "retention.ms"], "'retention.ms' is not of the form KEY=VALUE"),
        (["topics", "alter", "t"], "Nothing to alter"),
        (["configs", "describe"], "Give exactly one of --topic"),
        (["configs", "set", "a=b", "--topic", "t", "--broker", "1"], "Give exactly one of --topic"),
        (["consume", "t", "--from-beginning", "--offset", "3"], "only one of --from-beginning, --offset and --since"),
        (["consume"], "No topic given: name a topic or use --pattern"),
        (["consume", "t", "--offset", "soon"], "--offset must be earliest, latest or an integer, not 'soon'"),
        (["consume", "t", "--pattern", "("], "--pattern: '(' is not a regular expression"),
        (["consume", "t", "--group", "g", "--offset", "3"], "--offset 3 cannot be used with --group"),
        (["consume", "t", "--until", "2999-01-01"], "--until '2999-01-01' is in the future"),
        (["consume", "t", "--until", "now", "--follow"], "--until and --follow cannot be used together"),
        (["topics", "delete-records", "t"], "Give exactly one of --before"),
        (["topics", "delete-records", "t", "--before", "soon"], "'soon' is not a time"),
        (["topics", "list", "-X", "linger"], "'linger' is not of the form KEY=VALUE"),
        (["-X", "request.timout.ms=1", "topics", "list"], "did you mean request.timeout.ms?"),
        (["topics", "list", "-X", "linger.ms=1"], "linger.ms: unknown admin config; only producers have it"),
        (["consume", "t", "--since", "soon"], "'soon' is not a time"),
        (["consume", "t", "--format", "%y"], "Unknown field %y in --format '%y'"),
        (["consume", "t", "--format", "%v", "--json"], "--json and --format cannot be used together"),
        (["produce", "t", "-H", "x"], "--header: 'x' is not a header"),
        (["start", "--override", "log.retention.hour=1"], "log.retention.hour"),
        (["start", "--override", "nonsense"], "nonsense"),
        (["start", "no-such-file.properties"], "no-such-file.properties"),
        (["start", "--brokers", "3", "no-such-file.properties"], "no-such-file.properties"),
        (["start", "--brokers", "3", "-o", "broker.id=1"], "broker.id: it cannot be set together with --brokers"),
        (["start", "--brokers", "3", "-o", "num.partition=1"], "did you mean num.partitions?"),
        (["start", "--brokers", "3", "--port", "65534"], "need ports above 65535"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(arguments: list[str], reason: str, capsys: Capture) -> None:
    assert run(arguments) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("Error: ")
    assert reason in output.err
    assert output.err.endswith((".\n", "?\n"))
    assert "Traceback" not in output.err


def test_help_does_not_break_lines_where_the_source_does(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["elect", "unclean", "--help"]) == 0
    assert "are gone, including acknowledged ones." in capsys.readouterr().out


def test_a_wrong_config_names_the_right_one(capsys: Capture) -> None:
    assert run(["start", "--override", "log.retention.hour=1"]) == 1
    assert "log.retention.hours" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nonsense"], ["topics", "create"], ["produce", "t", "--compression", "rar"]])
def test_a_wrong_command_line_has_its_own_exit_code(arguments: list[str], capsys: Capture) -> None:
    assert run(arguments) == 2
    assert "Usage: ottla" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["topcs", "list"], "Did you mean 'topics'?"),
        (["list"], "Did you mean 'topics list' or 'groups list' or 'transactions list' or 'reassign list'?"),
        (["describe", "orders"], "Did you mean 'topics describe'"),
        (["topics", "reset"], "Did you mean 'groups reset'"),
        (["topics", "lst"], "Did you mean 'list'?"),
        (["topics", "create", "t", "--partition", "3"], "--partitions"),
    ],
)
def test_what_was_perhaps_meant(arguments: list[str], suggestion: str, capsys: Capture) -> None:
    assert run(arguments) == 2
    assert suggestion in re.sub(r"[\s│]+", " ", capsys.readouterr().err)


@pytest.mark.parametrize("arguments", [["produce", "t", "-z", "rar"], ["transactions", "list", "--state", "rar"]])
def test_a_wrong_choice_is_said_in_plain_words(arguments: list[str], capsys: Capture) -> None:
    assert run(arguments) == 2
    assert re.search(r"for '--[^:]*: 'rar' is not one of 'n?[eo]", capsys.readouterr().err)


def test_no_configs_are_no_empty_table(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.configs.with_admin", lambda *_: {})
    monkeypatch.setattr("ottla.cli.output.is_terminal", lambda: True)
    assert run(["configs", "describe", "--topic", "t"]) == 0
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "No configs are set for topic t. Use --all to show the defaults.\n")


def test_debug_shows_where_it_came_from() -> None:
    with pytest.raises(Exception, match="connection refused"):
        run(["--debug", "-b", "127.0.0.1:1", "topics", "list"])


def test_the_environment_names_the_cluster(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "127.0.0.1:2")
    assert run(["topics", "list"]) == 1
    assert "127.0.0.1:2" in capsys.readouterr().err
    assert run(["topics", "list", "-b", "127.0.0.1:3"]) == 1
    assert "127.0.0.1:3" in capsys.readouterr().err


def test_python_runs_the_package() -> None:
    command = [sys.executable, "-m", "ottla", "topics", "list", "-b", "127.0.0.1:1"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: No broker can be reached")


def test_a_missing_file_is_named(tmp_path: Path, capsys: Capture) -> None:
    assert run(["produce", "t", "--file", str(tmp_path / "absent")]) == 2
    assert "absent" in re.sub(r"\W", "", capsys.readouterr().err)  # a box around it may break the path


def test_in_a_pipe_rows_are_lines_with_tabs(capsys: Capture) -> None:
    show_rows(("a", "b", "c"), [(1, None, [2, 3]), ("x\ty", True, "z")])
    assert capsys.readouterr().out == "1\t-\t2,3\nx y\tyes\tz\n"


def test_at_a_terminal_rows_are_a_table(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("ottla.cli.output.is_terminal", lambda: True)
    show_rows(("topic", "count"), [("[bold]orders[/]", 3), ("payments", 12)], title="all")
    title, _, heading, _, first, second = (line.rstrip() for line in capsys.readouterr().out.splitlines()[:6])
    assert title == "all"
    assert heading.split() == ["topic", "count"]
    # Numbers stand under each other, and what is no markup of ours is shown as it is.
    assert first.split() == ["[bold]orders[/]", "3"]
    assert len(first) == len(second)


@pytest.mark.parametrize("width", [80, 60, 56, 50, 46])
def test_a_narrow_terminal_breaks_headings_between_words_before_cells(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("ottla.cli.output.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    show_rows(("broker", "address", "status", "out of sync"), [(1, "127.0.0.1:29092", "controller", 0)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert [line.split() for line in lines if "127" in line] == [["1", "127.0.0.1:29092", "controller", "0"]]
    assert {"broker", "address", "status", "out", "of", "sync"} <= set(" ".join(lines).split())


def test_sizes() -> None:
    assert [size_text(size) for size in (0, 1023, 1024, 1536, 200 * 1024, 5 * 1024**3, 2**70)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "200 KiB",
        "5.0 GiB",
        "1048576 PiB",
    ]


def test_counts() -> None:
    counts = [counted(count, "record") for count in (0, 1, 2, 1000)]
    assert counts == ["0 records", "1 record", "2 records", "1,000 records"]


def test_assignments() -> None:
    assert parse_assignments(["a=b", " c = d=e ", "f="]) == {"a": "b", "c": " d=e ", "f": ""}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["topics", "create", "x", "--partitions", "many"], "'many' is not a whole number"),
        (["topics", "create", "x", "--partitions", "0"], "0 is less than 1, the minimum"),
        (["topics", "create", "x", "--partitions", "1.5"], "'1.5' is not a whole number"),
    ],
)
def test_wrong_values_of_options_are_told_in_plain_words(arguments: list[str], told: str, capsys: Capture) -> None:
    assert run(arguments) == 2
    error = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert told in error
    assert "Input" not in error
