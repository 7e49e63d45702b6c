"""YAML with line numbers, so that errors can name the place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from ottla.spark.pipelines.errors import PipelineError

_KINDS: Final = {dict: "a mapping of keys to values", list: "a list", str: "a string", bool: "true or false"}


class SpecError(PipelineError):
    """An error in the file: its line, its key, and the reason."""

    def __init__(self, file: Path, line: int, path: str, reason: str) -> None:
        super().__init__(f"{file}:{line}: {path + ': ' if path else ''}{reason}")


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the document with its place. Mappings and lists contain `Value` objects again."""

    file: Path
    line: int
    path: str
    content: Any

    def error(self, reason: str) -> SpecError:
        return SpecError(self.file, self.line, self.path, reason)

    def text(self) -> str:
        """A string; a number or a boolean is converted."""
        if isinstance(self.content, dict | list) or self.content is None:
            raise self._misfit(str)
        return str(self.content).lower() if isinstance(self.content, bool) else str(self.content)

    def truth(self) -> bool:
        if not isinstance(self.content, bool):
            raise self._misfit(bool)
        return self.content

    def choice(self, *allowed: str) -> str:
        text = self.text()
        if text not in allowed:
            raise self.error(f"{text!r} is not one of {', '.join(allowed)}{_meant(text, allowed)}")
        return text

    def items(self) -> list[Value]:
        """The values of a list; a string is a list of one."""
        if isinstance(self.content, list):
            return self.content
        if isinstance(self.content, str):
            return [self]
        raise self._misfit(list)

    def mapping(self) -> dict[str, Value]:
        if not isinstance(self.content, dict):
            raise self._misfit(dict)
        return self.content

    def section(self, known: Iterable[str]) -> Section:
        """A mapping that may contain only these keys."""
        names = list(known)
        for key, value in self.mapping().items():
            if key not in names:
                hint = _meant(key, names) or f"; use one of {', '.join(names)}"
                raise value.error(f"unknown key{hint}")
        return Section(self)

    def _misfit(self, wanted: type) -> SpecError:
        found = "nothing" if self.content is None else _KINDS.get(type(self.content), "a number")
        return self.error(f"must be {_KINDS[wanted]}, not {found}")


class Section:
    """A mapping whose keys were checked."""

    def __init__(self, value: Value) -> None:
        self.value = value
        self._keys = value.mapping()

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def get(self, key: str) -> Value | None:
        return self._keys.get(key)

    def text(self, key: str) -> str | None:
        value = self.get(key)
        return None if value is None else value.text()

    def texts(self, key: str) -> dict[str, str]:
        """A mapping of strings; empty if it is missing."""
        value = self.get(key)
        return {} if value is None else {name: inner.text() for name, inner in value.mapping().items()}

    def one_of(self, *keys: str) -> str:
        """The one of these keys that is present."""
        there = [key for key in keys if key in self._keys]
        if len(there) != 1:
            names = f"{', '.join(keys[:-1])} and {keys[-1]}"
            if there:
                raise self._keys[there[1]].error(f"only one of {names} can be given")
            raise self.value.error(f"one of {names} is required")
        return there[0]


def load(file: Path) -> Value:
    """Loads a file. Raises `SpecError` if it is not YAML."""
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise PipelineError(f"{file} is not valid UTF-8 (at byte {error.start})") from None
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            raise SpecError(file, 1, "", "the file is empty. Create an example with `ottla pipeline new --yaml`")
        return _value(loader, root, file, "")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        raise SpecError(file, mark.line + 1 if mark else 1, "", f"is not valid YAML: {reason}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise SpecError(file, 1, "", f"is not valid YAML: {error}") from None
    finally:
        loader.dispose()


def _value(loader: yaml.SafeLoader, node: yaml.Node, file: Path, path: str) -> Value:
    line = node.start_mark.line + 1
    match node:
        case yaml.MappingNode():
            content: Any = {}
            for key_node, inner in node.value:
                key = str(loader.construct_object(key_node, deep=True))
                place = f"{path}.{key}" if path else key
                if key in content:
                    raise SpecError(file, key_node.start_mark.line + 1, place, "is given twice")
                made = _value(loader, inner, file, place)
                # The line of the key: a block string begins below it.
                content[key] = Value(file, key_node.start_mark.line + 1, place, made.content)
        case yaml.SequenceNode():
            content = [_value(loader, inner, file, f"{path}[{index}]") for index, inner in enumerate(node.value)]
        case _:
            content = loader.construct_object(node, deep=True)
    return Value(file, line, path, content)


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
