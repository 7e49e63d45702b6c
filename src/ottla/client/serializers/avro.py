"""Values as Avro, with fastavro: one object per record, without a container file."""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

from fastavro import schemaless_reader, schemaless_writer

from ottla.client.serializers.avro_schemas import AgreedSchema, AvroFraming, AvroSchema, SchemaSource


class AvroSerializer:
    """Serializes the types that the schema describes: a dict for a record, and so on; dates, decimals and UUIDs by
    logical types.

    A dict with a field that the schema does not have is refused, so that no field is lost silently.
    """

    __slots__ = ("_framing", "_parsed", "schema")
    name: Final = "avro"

    def __init__(self, schema: SchemaSource, framing: AvroFraming | None = None) -> None:
        self.schema = AvroSchema(schema)
        self._parsed = self.schema.parsed
        self._framing = framing

    @property
    def accepts(self) -> str:
        return f"data of the schema {self.schema.name}"

    def __call__(self, topic: str, value: Any) -> bytes:
        out = BytesIO()
        if self._framing is not None:
            out.write(self._framing.header(topic, self.schema))
        schemaless_writer(out, self._parsed, value, strict_allow_default=True)
        return out.getvalue()


class AvroDeserializer:
    """Deserializes data of one schema as if it had been written with another: Avro's schema evolution.

    `schema` is the schema of the results. If the data was written with another, pass that as `written_with`, or pass a
    `framing` if each record names its schema; with neither, all data was written with `schema`. With only a framing,
    each record is returned as it was written.
    """

    __slots__ = ("_framing", "_reader", "schema")
    name: Final = "avro"

    def __init__(
        self,
        schema: SchemaSource | None = None,
        *,
        written_with: SchemaSource | None = None,
        framing: AvroFraming | None = None,
    ) -> None:
        if written_with is not None and framing is not None:
            raise ValueError("give either written_with or a framing: both determine the writer's schema")
        self.schema = None if schema is None else AvroSchema(schema)
        """The reader's schema."""
        self._reader = None if self.schema is None else self.schema.parsed
        if framing is None:
            wrote = self.schema if written_with is None else AvroSchema(written_with)
            if wrote is None:
                raise ValueError("give a schema, or a framing that finds it: Avro needs the writer's schema")
            framing = AgreedSchema(wrote)
        self._framing = framing

    @property
    def accepts(self) -> str:
        return "Avro" if self.schema is None else f"Avro that can be read as {self.schema.name}"

    def __call__(self, topic: str, data: bytes) -> Any:
        writer, start = self._framing.written_with(topic, data)
        stream = BytesIO(data)
        stream.seek(start)
        value = schemaless_reader(stream, writer.parsed, self._reader)
        if stream.tell() != len(data):
            raise ValueError(
                f"ends after {stream.tell()} bytes; it was written with a different schema than {writer.name}"
            )
        return value
