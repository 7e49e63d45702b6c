"""New topics and partitions can be used when the admin returns."""

from __future__ import annotations

from ottla.client.administer import NewTopic
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResponse,
)
from ottla.wire.messages.create_topics import CreatedTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.schema import Request
from support.clients.scripted_broker import Answer, ScriptedBroker
from unit.client.administer.scripted_admin import admin_of, run

LOOKS = 4


def test_the_admin_waits_until_a_broker_has_learnt_of_it() -> None:
    broker = ScriptedBroker(topics={})
    looks = 0

    def script(request: Request) -> Answer | None:
        nonlocal looks
        match request:
            case MetadataRequest(topics=[_]):
                looks += 1
                if looks == LOOKS:
                    broker.topics["new"] = 1
                elif looks == 2 * LOOKS:
                    broker.topics["new"] = 3
            case CreateTopicsRequest():
                return CreateTopicsResponse(topics=[CreatedTopic(name="new", configs=None)])
            case CreatePartitionsRequest():
                return CreatePartitionsResponse(results=[CreatePartitionsTopicResponse(name="new")])
        return None

    broker.script = script

    async def scenario() -> None:
        async with broker, admin_of(broker) as admin:
            await admin.create_topics([NewTopic("new", 1)], validate_only=True)
            assert looks == 0
            await admin.create_topics([NewTopic("new", 1)])
            assert looks == LOOKS
            await admin.create_partitions({"new": 3}, validate_only=True)
            assert looks == LOOKS
            await admin.create_partitions({"new": 3})
            assert looks == 2 * LOOKS

    run(scenario)
