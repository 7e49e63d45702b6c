"""How commands are declared: command groups, and the options shared by all commands that connect to a cluster.

`Commands` is a `typer.Typer` whose help shows no type next to a flag, and which also suggests commands from other
groups for a mistyped one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from ottla.cli.session import CLUSTER_OPTIONS, settings_of

_TYPE_NAMES: Final[dict[object, str]] = {int: "N", float: "N", str: "TEXT", Path: "PATH"}


_WRONG_VALUES: Final = {
    "int_parsing": "{input!r} is not a whole number",
    "int_from_float": "{input!r} is not a whole number",
    "float_parsing": "{input!r} is not a number",
    "greater_than_equal": "{input} is less than {ge:g}, the minimum",
    "less_than_equal": "{input} is greater than {le:g}, the maximum",
    "enum": "{input!r} is not one of {expected}",
    "literal_error": "{input!r} is not one of {expected}",
    "value_error": "{error}",
}
"""What typer says in the words of the library that it checks values with, by that library's kind of error."""


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _named(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = _in_plain_words(error)
            raise


class _CommandGroup(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _named(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except typer.BadParameter:
            raise
        except Exception as error:
            message = getattr(error, "message", None)
            if isinstance(message, str) and "Did you mean" not in message and args:
                elsewhere = _commands_like(args[0], ctx.find_root().command)
                if elsewhere:
                    error.message = f"{message} Did you mean {' or '.join(map(repr, elsewhere))}?"  # type: ignore[attr-defined]
            raise


class Commands(typer.Typer):
    """A command group."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            cls=_CommandGroup,
            rich_markup_mode="rich",
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
            **{"no_args_is_help": True, **settings},
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """The help of a command is its docstring."""

        def register(function: Any) -> Any:
            given = {"cls": _Command, "help": _reflowed(inspect.getdoc(function) or ""), **settings}
            return super(Commands, self).command(name, **given)(function)

        return register


def on_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the cluster options to a command. Their values are stored in the settings of its context, which must be its
    first argument."""
    signature = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def called(context: typer.Context, **arguments: Any) -> None:
        settings_of(context).choose(**{name: arguments.pop(name) for name in CLUSTER_OPTIONS})
        command(context, **arguments)

    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in CLUSTER_OPTIONS.items()
    ]
    parameters = [*signature.parameters.values(), *options]
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called


def _in_plain_words(error: typer.BadParameter) -> str:
    errors = getattr(error.__cause__, "errors", None)
    for one in errors() if callable(errors) else ():
        words = _WRONG_VALUES.get(one.get("type", ""))
        if words is not None:
            return words.format(input=one.get("input"), **one.get("ctx", {}))
    return error.message


def _reflowed(text: str) -> str:
    """With one line per paragraph: otherwise, the help would break where the source does."""
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in text.split("\n\n"))


def _named(parameters: list[Any]) -> list[Any]:
    """What the help shows next to each parameter: nothing for a flag or an argument, a short type name for a value."""
    for one in parameters:
        if one.param_type_name == "argument":
            one.display_type_rich = lambda ctx: None  # noqa: ARG005
        elif one.metavar is None:
            one.metavar = "" if getattr(one, "is_flag", False) else _type_name(one)
    return parameters


def _type_name(option: Any) -> str | None:
    """None if the type is unknown."""
    descriptor = getattr(option, "type_descriptor", None)
    if choices := getattr(descriptor, "choices", None):
        return "|".join(str(choice.value) for choice in choices)
    annotation = getattr(descriptor, "annotation", None)
    inner = getattr(annotation, "__args__", None) or (annotation,)
    return next((name for kind, name in _TYPE_NAMES.items() if kind in inner), None)


def _commands_like(word: str, root: Any) -> list[str]:
    """Subcommands with a name similar to this word, as you would type them."""
    found: dict[str, list[str]] = {}
    for group_name, group in root.commands.items():
        for name in getattr(group, "commands", {}):
            found.setdefault(name, []).append(f"{group_name} {name}")
    return [command for name in get_close_matches(word, found, n=2, cutoff=0.75) for command in found[name]]
