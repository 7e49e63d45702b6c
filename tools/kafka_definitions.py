"""Compare our message declarations with Kafka's own definitions, field by field and version by version.

Kafka's definitions are JSON inside its jars; both sides are brought into one form, the fields of one version with
everything that decides their bytes or their meaning, and every difference becomes a line with its name.

    python tools/kafka_definitions.py DIRECTORY…     directories with common/message/*.json, or the jars themselves

Where two directories define a version of a message, the one named last decides.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.wire.schema import UNSET, Field, Kind, Message, Request, Response, Struct, WireType
from ottla.wire.versions import Versions

_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*')
_PRIMITIVES = {
    "bool": Kind.BOOL,
    "int8": Kind.INT8,
    "int16": Kind.INT16,
    "uint16": Kind.UINT16,
    "int32": Kind.INT32,
    "uint32": Kind.UINT32,
    "int64": Kind.INT64,
    "float64": Kind.FLOAT64,
    "uuid": Kind.UUID,
    "string": Kind.STRING,
    "bytes": Kind.BYTES,
    "records": Kind.RECORDS,
}


@dataclass(frozen=True, slots=True)
class FieldForm:
    """A field in one version. `default` and `ignorable` also count where the version lacks the field."""

    name: str
    type: str
    present: bool
    nullable: bool
    tag: int | None
    default: str
    ignorable: bool
    key: bool
    never_compact: bool
    inner: tuple[FieldForm, ...]


def snake_case(name: str) -> str:
    """`ISRNodeId` and `IsrNodeId` → `isr_node_id`: our spelling of Kafka's names, which is mechanical."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


# --- Kafka's side ---------------------------------------------------------------------------------------------------


def load_definitions(source: Path) -> dict[str, dict[str, Any]]:
    """Every definition in a jar, or in a directory that one was unpacked to, by message name."""
    definitions = {}
    for text in _definition_texts(source):
        plain = _COMMENT.sub(lambda found: found.group(1) or "", text)
        definition = json.loads(plain)
        definitions[definition["name"]] = definition
    if not definitions:
        raise FileNotFoundError(f"no message definitions (common/message/*.json) in {source}")
    return definitions


def _definition_texts(source: Path) -> Iterator[str]:
    if source.is_dir():
        for path in sorted(source.glob("common/message/*.json")):
            yield path.read_text("utf-8")
        return
    with zipfile.ZipFile(source) as jar:
        for name in jar.namelist():
            if re.fullmatch(r"common/message/\w+\.json", name):
                yield jar.read(name).decode("utf-8")


def defined_form(definition: Mapping[str, Any], version: int) -> tuple[FieldForm, ...]:
    structs = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
    return tuple(_defined_field(field, version, structs) for field in definition["fields"])


def _defined_field(field: Mapping[str, Any], version: int, structs: Mapping[str, Any]) -> FieldForm:
    type_name: str = field["type"]
    is_array, element = type_name.startswith("[]"), type_name.removeprefix("[]")
    is_struct = element not in _PRIMITIVES
    nullable = version in Versions.parse(field.get("nullableVersions", "none"))
    inner = field.get("fields") or structs.get(element, ()) if is_struct else ()
    kind = "struct" if is_struct else _PRIMITIVES[element].name.lower()
    return FieldForm(
        name=snake_case(field["name"]),
        type=f"[]{kind}" if is_array else kind,
        present=version in Versions.parse(field.get("versions") or field["taggedVersions"]),
        nullable=nullable,
        tag=field.get("tag") if "tag" in field else None,
        default=_defined_default(field, is_array, is_struct, element),
        ignorable=bool(field.get("ignorable", False)),
        key=bool(field.get("mapKey", False)),
        never_compact=field.get("flexibleVersions") == "none",
        inner=tuple(_defined_field(each, version, structs) for each in inner),
    )


def _defined_default(field: Mapping[str, Any], is_array: bool, is_struct: bool, element: str) -> str:
    text = field.get("default", "")
    if text == "null":
        return "null"
    if is_array:
        return "[]"
    if is_struct:
        return "struct"
    match element:
        case "bool":
            return str(text in (True, "true")).lower()
        case "float64":
            return repr(float(text or 0))
        case "string":
            return repr(text)
        case "bytes":
            return repr(text.encode())
        case "records":
            return "null"
        case "uuid":
            return "zero" if not text else str(text)
        case _:
            return str(int(str(text), 0) if text != "" else 0)


# --- our side -------------------------------------------------------------------------------------------------------


def declared_form(struct: type[Struct], version: int) -> tuple[FieldForm, ...]:
    return tuple(_declared_field(field, version) for field in struct.fields)


def _declared_field(field: Field, version: int) -> FieldForm:
    element = field.type.element or field.type
    kind = element.kind.name.lower()
    return FieldForm(
        name=field.name.removesuffix("_"),
        type=f"[]{kind}" if field.type.kind is Kind.ARRAY else kind,
        present=version in field.versions,
        nullable=version in field.nullable,
        tag=field.tag,
        default=_declared_default(field, field.type),
        ignorable=field.ignorable,
        key=field.key,
        never_compact=field.never_compact,
        inner=declared_form(element.struct_class(), version) if element.kind is Kind.STRUCT else (),
    )


def _declared_default(field: Field, wire_type: WireType) -> str:
    if field.default is UNSET or (field.absent_is_none and not field.nullable):
        return "struct"
    if field.default is None:
        return "null"
    match wire_type.kind:
        case Kind.ARRAY:
            return repr(field.default)
        case Kind.BOOL:
            return str(field.default).lower()
        case Kind.UUID:
            return "zero" if not any(field.default) else field.default.hex()
        case _:
            return repr(field.default)


# --- the comparison -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Defined:
    """A version of a message in a source. Kafka 4 numbers a coordinator's keys apart from their versions, which are
    all 0; 3.9 and we have one number for both, and that is what the record holds."""

    source: Path
    definition: Mapping[str, Any]
    own_version: int

    @property
    def version(self) -> int:
        key = self.definition["apiKey"] if self.definition["type"] == "coordinator-key" else 0
        return int(self.own_version + key)


def differences(message: type[Message], defined: Defined, newest: Mapping[str, bool]) -> list[str]:
    """What our declaration of a version has otherwise than Kafka's definition of it, a sentence each.

    Whether a field is ignorable is no matter of the versions that have it: `newest` tells it for each field, as the
    newest definition says in which a version lacks the field.
    """
    definition, version = defined.definition, defined.version
    flexible = defined.own_version in Versions.parse(definition.get("flexibleVersions", "none"))
    found = []
    if flexible != (version in message.flexible):
        found.append(f"flexible here: {version in message.flexible}, in Kafka: {flexible}")
    unstable = (
        definition.get("latestVersionUnstable", False) and defined.own_version == defined_versions(definition).high
    )
    if unstable != (version in message.unstable):
        found.append(f"unstable here: {version in message.unstable}, in Kafka: {unstable}")
    if issubclass(message, Request | Response) and message.api_key != definition["apiKey"]:
        found.append(f"the api key is {message.api_key} here and {definition['apiKey']} in Kafka")
    theirs = defined_form(definition, defined.own_version)
    _compare(definition["name"], declared_form(message, version), theirs, newest, found)
    return found


def ignorable_fields(definition: Mapping[str, Any]) -> Iterator[tuple[str, bool, bool]]:
    """Every field of a definition by its path: whether it is ignorable, and whether some version lacks it."""
    forms = [defined_form(definition, version) for version in defined_versions(definition)]
    yield from _ignorable_fields(definition["name"], forms)


def _ignorable_fields(path: str, forms: list[tuple[FieldForm, ...]]) -> Iterator[tuple[str, bool, bool]]:
    for versions_of_field in zip(*forms, strict=True):
        field = versions_of_field[0]
        where = f"{path}.{field.name}"
        yield where, field.ignorable, not all(form.present for form in versions_of_field)
        yield from _ignorable_fields(where, [form.inner for form in versions_of_field])


def _compare(
    path: str,
    ours: tuple[FieldForm, ...],
    theirs: tuple[FieldForm, ...],
    newest: Mapping[str, bool],
    found: list[str],
) -> None:
    our_order = [field.name for field in ours if field.present and field.tag is None]
    their_order = [field.name for field in theirs if field.present and field.tag is None]
    our_fields, their_fields = {f.name: f for f in ours}, {f.name: f for f in theirs}
    for name in our_fields.keys() | their_fields.keys():
        mine, other = our_fields.get(name), their_fields.get(name)
        where = f"{path}.{name}"
        if mine is None or (not mine.present and other is not None and other.present):
            if other is not None and other.present:
                found.append(f"{where}: Kafka has this field in this version ({other.type}), ours does not")
            continue
        if other is None or not other.present:
            if mine.present:
                found.append(f"{where}: ours has this field in this version, Kafka does not")
            continue
        for aspect in ("type", "nullable", "tag", "default", "ignorable", "key", "never_compact"):
            here, there = getattr(mine, aspect), getattr(other, aspect)
            if aspect == "ignorable":
                there = newest.get(where, there)
            found += [f"{where}: {aspect} is {here!r} here and {there!r} in Kafka"] if here != there else []
        if mine.type.endswith("struct"):
            _compare(where, mine.inner, other.inner, newest, found)
    if set(our_order) == set(their_order) and our_order != their_order:
        found.append(f"{path}: the order of fields is {our_order} here and {their_order} in Kafka")


def defined_versions(definition: Mapping[str, Any]) -> Versions:
    return Versions.parse(definition["validVersions"])


def report(messages: Mapping[str, type[Message]], sources: list[Path]) -> list[str]:
    """All differences between the given declarations and the definitions in the sources, the last of which decides."""
    by_name: dict[str, dict[int, Defined]] = {}
    newest: dict[str, bool] = {}
    for source in sources:
        for name, definition in load_definitions(source).items():
            for own_version in defined_versions(definition):
                defined = Defined(source, definition, own_version)
                by_name.setdefault(name, {})[defined.version] = defined
            for path, ignorable, decides in ignorable_fields(definition):
                if decides or path not in newest:
                    newest[path] = ignorable
    lines = []
    for name, message in sorted(messages.items()):
        versions = by_name.get(name, {})
        lines += [f"{name} v{v}: Kafka has this version, ours does not" for v in versions if v not in message.versions]
        for version in message.versions:
            if version not in versions:
                lines.append(f"{name} v{version}: ours has this version, Kafka does not")
                continue
            found = differences(message, versions[version], newest)
            lines += [f"{name} v{version} ({versions[version].source.name}): {line}" for line in found]
    return lines


def main() -> int:
    from ottla.wire.registry import all_messages

    lines = report(all_messages(), [Path(argument) for argument in sys.argv[1:]])
    print("\n".join(lines) or "every declaration agrees with Kafka's definitions")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
