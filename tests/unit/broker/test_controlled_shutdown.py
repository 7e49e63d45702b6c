"""A broker that stops asks the controller until others lead its partitions, or gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.configs.cluster_settings import ClusterSettings
from ottla.broker.controlled_shutdown import shut_down
from ottla.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ottla.wire.peer import AnyResponse, PeerError
from ottla.wire.schema import Request

DONE = ControlledShutdownResponse()
STILL_LEADS = ControlledShutdownResponse(remaining_partitions=[RemainingPartition(topic_name="t", partition_index=3)])
REFUSED = ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
NO_ANSWER = PeerError("the connection broke")


class Controllers:
    """Answers as told, never for None; `moves_to` is the controller after the first question."""

    def __init__(
        self,
        answers: Sequence[ControlledShutdownResponse | PeerError | None],
        controller_id: int = 2,
        moves_to: int = 2,
    ) -> None:
        self.answers = list(answers)
        self.controller_id = controller_id
        self.moves_to = moves_to
        self.asked: list[tuple[int, int]] = []
        self.timeout_s = 30.0

    async def send(
        self,
        request: Request,
        response: type[AnyResponse],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> AnyResponse:
        assert isinstance(request, ControlledShutdownRequest)
        assert version is None
        assert timeout_s == self.timeout_s
        self.asked.append((self.controller_id, request.broker_epoch))
        self.controller_id = self.moves_to
        answer = self.answers.pop(0)
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, PeerError):
            raise answer
        assert isinstance(answer, response)
        return answer

    async def version_of(self, request: type[Request]) -> int:
        return request.versions.high

    def close(self) -> None:
        pass


def stop(
    controllers: Controllers,
    *,
    backoff_ms: int = 1,
    timeout_ms: int = 30_000,
    alone_after: int = 99,
    is_connected: bool = True,
) -> bool:
    """No other broker is there after that many questions."""
    config = BrokerConfig({"zookeeper.connect": "127.0.0.1:1", "log.dirs": str(Path("logs").absolute())})
    settings = replace(ClusterSettings.of(config), shutdown_backoff_ms=backoff_ms)
    settings = replace(settings, controller_socket_timeout_ms=timeout_ms)
    return asyncio.run(
        shut_down(
            controllers,
            lambda: controllers.controller_id,
            1,
            lambda: 7,
            lambda: len(controllers.asked) >= alone_after,
            settings,
            lambda: is_connected,
        )
    )


def test_success_at_once() -> None:
    controllers = Controllers([DONE])
    assert stop(controllers)
    assert controllers.asked == [(2, 7)]


@pytest.mark.parametrize("fault", [STILL_LEADS, REFUSED, NO_ANSWER])
def test_it_is_tried_again(fault: ControlledShutdownResponse | PeerError) -> None:
    controllers = Controllers([fault, DONE])
    assert stop(controllers)
    assert len(controllers.asked) == 2


def test_three_tries(caplog: pytest.LogCaptureFixture) -> None:
    controllers = Controllers([STILL_LEADS] * 3)
    assert not stop(controllers)
    assert len(controllers.asked) == 3
    assert "no other broker can lead 1 partitions: t-3" in caplog.text


def test_a_controller_that_takes_too_long_is_not_asked_again() -> None:
    controllers = Controllers([NO_ANSWER] * 3)
    controllers.timeout_s = 0.0
    assert not stop(controllers, timeout_ms=0)
    assert len(controllers.asked) == 1


def test_a_new_controller_is_asked_at_once() -> None:
    """The test would take an hour otherwise."""
    controllers = Controllers([NO_ANSWER, DONE], moves_to=3)
    assert stop(controllers, backoff_ms=3_600_000)
    assert [controller for controller, _ in controllers.asked] == [2, 3]


def test_nobody_is_asked_without_a_controller(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ottla.broker.controlled_shutdown._ELECTION_S", 0.001)
    controllers = Controllers([], controller_id=-1)
    assert not stop(controllers)
    assert "the cluster has no controller now" in caplog.text


@pytest.mark.parametrize("alone_after", [0, 1])
def test_the_last_broker_does_not_wait(caplog: pytest.LogCaptureFixture, alone_after: int) -> None:
    caplog.set_level("INFO")
    controllers = Controllers([STILL_LEADS])
    assert not stop(controllers, backoff_ms=3_600_000, alone_after=alone_after)
    assert len(controllers.asked) == alone_after
    assert "no other broker is there" in caplog.text


def test_without_zookeeper_nobody_waits_for_a_controller_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The test would take half a minute otherwise."""
    monkeypatch.setattr("ottla.broker.controlled_shutdown._WITHOUT_TREE_S", 0.01)
    controllers = Controllers([None])
    assert not stop(controllers, is_connected=False)
    assert "ZooKeeper cannot be reached" in caplog.text


def test_without_zookeeper_a_controller_that_is_gone_is_not_asked_again() -> None:
    controllers = Controllers([NO_ANSWER])
    assert not stop(controllers, backoff_ms=3_600_000, is_connected=False)


def test_a_controller_that_answers_is_believed_without_zookeeper_too() -> None:
    assert stop(Controllers([DONE]), is_connected=False)
