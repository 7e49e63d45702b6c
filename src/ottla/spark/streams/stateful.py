"""Applies a stateful processor to the groups of a streaming DataFrame.

The same as `GroupedData.transformWithState` with rows, which insists on pandas when the query is built, although
neither Spark nor its workers use pandas for rows.

Also makes sure that what a processor raises can be told: PySpark sends tracebacks as UTF-8, and if one contains a lone
surrogate, as JSON can, it fails in the middle, and the query waits forever.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import StructType

from ottla.base.errors import OttlaError

if TYPE_CHECKING:
    from pyspark.sql import GroupedData


def transform_with_state(
    groups: GroupedData,
    processor: StatefulProcessor,
    schema: StructType,
    *,
    output_mode: str = "append",
    time_mode: str = "None",
    event_time_column: str = "",
) -> DataFrame:
    """Calls the processor for each group that has rows in a micro-batch; `schema` is that of the rows it yields.

    In output mode `append`, several of these can follow each other in one query.
    """
    from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasUdfUtils
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    adapter = TransformWithStateInPandasUdfUtils(Telling(processor), time_mode)
    function = UserDefinedFunction(
        adapter.transformWithStateUDF,
        returnType=schema,
        evalType=PythonEvalType.SQL_TRANSFORM_WITH_STATE_PYTHON_ROW_UDF,
    )
    internal: Any = groups  # PySpark's own method uses these attributes
    frame: DataFrame = internal._df
    column: Any = function(*[frame[name] for name in frame.columns])
    session: Any = frame.sparkSession
    output_type = session._jsparkSession.parseDataType(schema.json())
    transformed = internal._jgd.transformWithStateInPySpark(
        column._jc, output_type, output_mode, time_mode, None, event_time_column
    )
    return DataFrame(transformed, session)


def printable(text: str) -> str:
    """The text with lone surrogates written as escapes, so that it has a form in UTF-8."""
    return text.encode(errors="backslashreplace").decode()


class ProcessorError(OttlaError):
    """What a processor has raised, as text."""


class Telling(StatefulProcessor):
    """A processor whose errors have texts that PySpark can send."""

    def __init__(self, processor: StatefulProcessor) -> None:
        self._processor = processor

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._processor.init(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, N803
        return _told(self._processor.handleInputRows(key, rows, timerValues))

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        return _told(self._processor.handleExpiredTimer(key, timerValues, expiredTimerInfo))

    def close(self) -> None:
        self._processor.close()


def _told(rows: Iterator[Row]) -> Iterator[Row]:
    try:
        yield from rows
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        if printable(text) == text:
            raise
        raise ProcessorError(printable(f"{error}\n\n{text}")) from None
