"""Our blocking clients to their end: closed, interrupted, forked, or left open when the interpreter ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap

import pytest

from ottla import Admin, Consumer, TopicPartition
from support.clients.peers import Peer

BOUND_S = 60
IGNORE_FORKS = "ignore:This process:DeprecationWarning"  # Python 3.12 warns of every fork beside threads

PRELUDE = """
    import os, signal, sys
    from ottla import Admin, Consumer, Producer, TopicPartition
    from ottla.client.errors import ClosedError, ForkedError
    # A test run in the background hands on that Ctrl-C is to be ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    bootstrap, topic = sys.argv[1:]
    producer = Producer(bootstrap_servers=bootstrap)
    producer.send_and_wait(topic, b"first", partition=0)
    consumer = Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    admin = Admin(bootstrap_servers=bootstrap)

    def consume():
        while not (records := consumer.poll(1)):
            pass
        return b" ".join(record.value for record in records).decode()

    uses = {
        "send": lambda: producer.send(topic, b"next", partition=0),
        "send_and_wait": lambda: producer.send_and_wait(topic, b"next", partition=0),
        "flush": lambda: producer.flush(),
        "partitions_for": lambda: producer.partitions_for(topic),
        "poll": lambda: consumer.poll(1),
        "position": lambda: consumer.position(TopicPartition(topic, 0)),
        "assignment": lambda: consumer.assignment(),
        "list_topics": lambda: admin.list_topics(),
    }

    def refused(error):
        for name, use in uses.items():
            try:
                use()
            except error:
                continue
            print(name, "is not refused", flush=True)
"""


def start(peer: Peer, topic: str, program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-W",
            IGNORE_FORKS,
            "-c",
            textwrap.dedent(PRELUDE) + textwrap.dedent(program),
            peer.bootstrap,
            topic,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=BOUND_S)
    finally:
        process.kill()
        process.communicate()
    return process.returncode, out, err


def test_a_closed_client_refuses_everything(broker: Peer, topic: str) -> None:
    program = """
        print(consume())
        for client in (producer, consumer, admin):
            client.close()
            client.close()
        refused(ClosedError)
    """
    assert outcome(start(broker, topic, program)) == (0, "first\n", "")


def test_a_forked_child_is_refused_and_the_parent_goes_on(broker: Peer, topic: str) -> None:
    program = """
        print(consume(), flush=True)
        child = os.fork()
        if child == 0:
            refused(ForkedError)
            for client in (producer, consumer, admin):
                client.close()
            with Producer(bootstrap_servers=bootstrap) as own:
                own.send_and_wait(topic, b"child's", partition=0)
            sys.exit(7)
        _, status = os.waitpid(child, 0)
        print("child", os.waitstatus_to_exitcode(status), consume())
        producer.send_and_wait(topic, b"parent's", partition=0)
        print(consume(), topic in str(admin.list_topics()))
        for client in (producer, consumer, admin):
            client.close()
    """
    expected = "first\nchild 7 child's\nparent's True\n"
    assert outcome(start(broker, topic, program)) == (0, expected, "")


def test_clients_left_open_keep_no_interpreter_from_its_end(broker: Peer, topic: str) -> None:
    assert outcome(start(broker, topic, "print(consume())")) == (0, "first\n", "")


@pytest.mark.parametrize("wait", ["consumer.poll()", "consumer.poll(1000)", "next(iter(consumer))"])
def test_ctrl_c_ends_a_poll_that_waits(broker: Peer, topic: str, wait: str) -> None:
    program = f"""
        try:
            print(consume(), flush=True)
            {wait}
        except KeyboardInterrupt:
            producer.send_and_wait(topic, b"still at work", partition=0)
            print(consume())
    """
    process = start(broker, topic, program)
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], BOUND_S)[0]
    assert process.stdout.readline() == "first\n"
    os.kill(process.pid, signal.SIGINT)
    assert outcome(process) == (0, "still at work\n", "")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_program_that_ends_without_close_leaves_its_groups(broker: Peer, topic: str, protocol: str) -> None:
    program = f"""
        def work():
            members = [Consumer(bootstrap_servers=bootstrap, group_id=topic, group_protocol="{protocol}") for _ in "ab"]
            for member in members:
                member.subscribe([topic])
            while not any(member.assignment() for member in members):
                for member in members:
                    member.poll(0.05)
            print("joined")

        work()
        sys.exit(3)
    """
    assert outcome(start(broker, topic, program)) == (3, "joined\n", "")
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert admin.describe_consumer_groups([topic])[topic].members == ()


def test_a_program_that_ends_without_close_sends_what_is_left(broker: Peer, topic: str) -> None:
    program = """
        busy = Producer(bootstrap_servers=bootstrap, linger_ms=60_000)
        for index in range(100):
            busy.send(topic, b"%d" % index, partition=0)
        sys.exit(3)
    """
    assert outcome(start(broker, topic, program)) == (3, "", "")
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values: list[bytes | None] = []
        while len(values) < 101:
            values += [record.value for record in consumer.poll(1)]
    assert values == [b"first", *(b"%d" % index for index in range(100))]


def test_a_program_that_ends_without_close_says_what_was_lost(broker: Peer, topic: str) -> None:
    program = """
        lost = Producer(bootstrap_servers=bootstrap, linger_ms=60_000)
        lost.send(topic, b"lost", partition=0)
        lost._core.sender.look = lambda: None  # nothing is sent any more
    """
    code, printed, told = outcome(start(broker, topic, program))
    assert (code, printed) == (0, "")
    assert "not all of its records were delivered before the program ended" in told
