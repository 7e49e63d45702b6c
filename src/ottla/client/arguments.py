"""Checks the arguments of public methods: a wrong type raises a `TypeError` that names the parameter.

`checked` reads the annotations of a method once, and checks arguments against them at each call. It is for methods that
send requests or are rarely called; methods that are called for every record do their own, cheaper checks.

Annotations mean what people expect: a str is not an iterable of str, a bool is not an int, NumPy integers are ints, and
a pair can stand for a `TopicPartition`. The contents of an iterator are not checked, so that it is not consumed.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, Final, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from ottla.base.ids import TopicPartition
from ottla.client.errors import ArgumentTypeError

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

_PAIR: Final = 2


def wrong_type(parameter: str, given: object, expected: str) -> ArgumentTypeError:
    """Returns the error to raise."""
    return ArgumentTypeError(f"{parameter} must be {expected}, not {type(given).__name__}")


def whole_number(parameter: str, given: object) -> int:
    """The integer, including NumPy's; a bool is rejected."""
    if given.__class__ is int:
        return given
    if isinstance(given, bool):
        raise wrong_type(parameter, given, "an int")
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise wrong_type(parameter, given, "an int") from None


def seconds(parameter: str, given: object) -> float | None:
    """The number of seconds, including NumPy's; None is left as it is."""
    if given is None or given.__class__ is float:
        return given
    if isinstance(given, bool) or not hasattr(given, "__float__"):
        raise wrong_type(parameter, given, "a number of seconds or None")
    return float(given)


# By annotations.


def check_fields(instance: object) -> None:
    """Rejects fields of a dataclass that do not match their annotations; for its `__post_init__`."""
    cls: Any = type(instance)
    for name, hint in _field_hints(cls).items():
        _check(f"{name} of {cls.__name__}", getattr(instance, name), hint)


@functools.cache
def _field_hints(cls: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(cls)


def checks_arguments(*names: str) -> Callable[[C], C]:
    """A class decorator that checks the arguments of the named methods, inherited ones included; of all public
    coroutine functions if none is named."""

    def decorate(cls: C) -> C:
        chosen = names or [
            name for name, method in inspect.getmembers(cls, inspect.iscoroutinefunction) if not name.startswith("_")
        ]
        for name in chosen:
            setattr(cls, name, checked(getattr(cls, name)))
        return cls

    return decorate


def checked(method: F) -> F:
    """Wraps the method so that it rejects arguments that do not match its annotations."""
    signature = inspect.signature(method)

    @functools.cache
    def hints() -> dict[str, Any]:
        found = get_type_hints(method)
        return {name: found[name] for name in signature.parameters if name in found}

    def check(args: tuple[object, ...], keywords: dict[str, object]) -> None:
        # What does not fit the signature at all is refused by Python itself, in its own words.
        given = signature.bind_partial(*args, **keywords).arguments
        for name, hint in hints().items():
            if name in given:
                _check(name, given[name], hint)

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def later(*args: Any, **keywords: Any) -> Any:
            check(args, keywords)
            return await method(*args, **keywords)

        return later  # type: ignore[return-value]

    @functools.wraps(method)
    def now(*args: Any, **keywords: Any) -> Any:
        check(args, keywords)
        return method(*args, **keywords)

    return now  # type: ignore[return-value]


def _check(parameter: str, given: object, hint: Any) -> None:
    if _fits(given, hint):
        return
    for one in get_args(hint) if _is_union(hint) else (hint,):
        inner = _first_wrong(given, one)
        if inner is not None:
            raise ArgumentTypeError(f"{parameter} must be {_words(hint)}, but contains {inner[0]!r}")
    raise wrong_type(parameter, given, _words(hint))


def _first_wrong(given: object, hint: Any) -> tuple[object] | None:
    """The first element of a container that does not match."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind is None or not parts or not _is_container(given, kind) or not isinstance(given, Collection):
        return None
    if isinstance(given, Mapping):
        return next(
            ((one,) for pair in given.items() for one, part in zip(pair, parts, strict=False) if not _fits(one, part)),
            None,
        )
    return next(((one,) for one in given if not _fits(one, parts[0])), None)


def _fits(given: object, hint: Any) -> bool:
    if hint is Any or hint is object or isinstance(hint, TypeVar):
        return True
    if hint is None or hint is NoneType:
        return given is None
    if _is_union(hint):
        return any(_fits(given, one) for one in get_args(hint))
    if hint is int:
        return hasattr(given, "__index__") and not isinstance(given, bool)
    if hint is float:
        return hasattr(given, "__float__") and not isinstance(given, bool)
    if hint is TopicPartition:
        return isinstance(given, tuple) and len(given) == _PAIR and _fits(given[0], str) and _fits(given[1], int)
    kind: Any = get_origin(hint) or hint
    if not isinstance(kind, type):
        return True  # Literal and the like: the method itself says what is wrong.
    if kind is Callable:
        return callable(given)
    if kind.__module__.startswith("ottla.") and Protocol in kind.__mro__:
        return True
    if kind is tuple or not get_args(hint):
        return isinstance(given, kind)
    return _is_container(given, kind) and _first_wrong(given, hint) is None


def _is_container(given: object, kind: type) -> bool:
    return isinstance(given, kind) and not (isinstance(given, str | bytes) and issubclass(kind, Iterable))


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _words(hint: Any) -> str:
    """The annotation in words."""
    if hint is None or hint is NoneType:
        return "None"
    if _is_union(hint):
        *first, last = (_words(one) for one in get_args(hint))
        return f"{', '.join(first)} or {last}" if first else last
    kind, parts = get_origin(hint) or hint, get_args(hint)
    name = getattr(kind, "__name__", str(kind))
    article = "an" if name[0] in "aeiouAEIOU" else "a"
    if kind is tuple:
        return f"a tuple of {' and '.join(_bare(part) for part in parts)}"
    if isinstance(kind, type) and issubclass(kind, Mapping) and len(parts) == _PAIR:
        return f"a mapping of {_bare(parts[0])} to {_bare(parts[1])}"
    if isinstance(kind, type) and issubclass(kind, Iterable) and parts:
        return f"{article} {name.lower()} of {_bare(parts[0])}"
    return f"{article} {name}"


def _bare(hint: Any) -> str:
    if hint is Any or hint is object:
        return "anything"
    return _words(hint).removeprefix("an ").removeprefix("a ")
