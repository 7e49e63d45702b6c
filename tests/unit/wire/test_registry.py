"""What the registry derives from the declarations."""

from __future__ import annotations

import subprocess
import sys

from ottla.wire.registry import all_messages, apis
from ottla.wire.shape import tagged_fields


def test_a_request_and_its_response_have_the_same_versions() -> None:
    for api in apis().values():
        assert api.request.versions == api.response.versions
        assert (
            api.request.__name__.removesuffix("Request") == api.response.__name__.removesuffix("Response") == api.name
        )


def test_tags_are_unique_and_only_in_flexible_versions() -> None:
    for message in all_messages().values():
        for version in message.versions:
            tags = [field.tag for field in tagged_fields(message, version)]
            assert len(tags) == len(set(tags))
            assert not tags or version in message.flexible


def test_importing_every_declaration_compiles_nothing() -> None:
    # Importing runs each module's own code by `exec`, and so do dataclasses; what we generate says what it is.
    program = """
import builtins
compiled, run = [], builtins.exec
def watch(code, *scopes):
    if not isinstance(code, str) and code.co_filename.startswith(("<init", "<read", "<write")):
        compiled.append(code)
    return run(code, *scopes)
builtins.exec = watch
from ottla.wire import registry
from ottla.wire.codec import encode
registry.apis()
print(len(compiled))
encode(registry.all_messages()["ApiVersionsRequest"](), 0)
print(len(compiled))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["0", "2"]  # then a constructor and a writer
