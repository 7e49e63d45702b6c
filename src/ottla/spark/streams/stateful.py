"""Applies a stateful processor to the groups of a streaming DataFrame.

The same as `GroupedData.transformWithState` with rows, which insists on pandas when the query is built, although
neither Spark nor its workers use pandas for rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import GroupedData
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor


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

    adapter = TransformWithStateInPandasUdfUtils(processor, time_mode)
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
