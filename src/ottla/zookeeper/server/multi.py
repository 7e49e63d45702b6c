"""Several operations in one request: all of them or none (multi), or several reads (multiRead)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.base.coordination import CoordinationError, Delete
from ottla.zookeeper.protocol.jute import JuteReader, JuteWriter, Record
from ottla.zookeeper.protocol.messages import (
    MULTI_END,
    CreateRequest,
    ErrorResult,
    MultiHeader,
    OpCode,
    PathResponse,
    PathStatResponse,
    SetDataRequest,
    StatResponse,
    VersionedPathRequest,
    ZooKeeperCode,
)
from ottla.zookeeper.server.operations import (
    OPERATIONS,
    Asked,
    Body,
    RefusedError,
    code_of,
    prepared_create,
    prepared_set,
    stat_of,
)
from ottla.zookeeper.server.sessions import Session
from ottla.zookeeper.transaction import Transaction, check_operation, check_path

if TYPE_CHECKING:
    from ottla.zookeeper.server.core import Connection

Act = Callable[[Transaction], Record | None]


class _FailedError(Exception):
    """The operation with that index cannot be done."""

    def __init__(self, index: int, code: ZooKeeperCode) -> None:
        super().__init__(index, code)
        self.index = index
        self.code = code


def multi(asked: Asked) -> Body:
    """A failure is no error of the request: the results say which operation failed, and how."""
    prepared = list(_prepared(asked.connection, asked.session, asked.reader))
    codes = [code for code, _, _ in prepared]

    def act_all(transaction: Transaction) -> list[Record | None]:
        results = []
        for index, (_, _, act) in enumerate(prepared):
            try:
                results.append(act(transaction))
            except (CoordinationError, ValueError, RefusedError) as error:
                raise _FailedError(index, code_of(error)) from error
        return results

    writer = JuteWriter()
    try:
        results = asked.core.write([path for _, path, _ in prepared if path], act_all, asked.session.session_id)
    except _FailedError as failed:
        for index in range(len(codes)):
            _write_error(writer, _code_beside(index, failed))
    else:
        for code, result in zip(codes, results, strict=True):
            MultiHeader(code, False, 0).write(writer)
            if result is not None:
                result.write(writer)
    MULTI_END.write(writer)
    return writer.body()


def _prepared(connection: Connection, session: Session, reader: JuteReader) -> Iterator[tuple[int, str, Act]]:
    """Each operation: its code, the path that it needs to be read in advance, and what it does."""
    while not (header := MultiHeader.read(reader)).is_done:
        path, act = _one(connection, session, header.operation, reader)
        yield header.operation, path, act


def _one(connection: Connection, session: Session, code: int, reader: JuteReader) -> tuple[str, Act]:
    match code:
        case OpCode.CREATE | OpCode.CREATE2:
            request = CreateRequest.read(reader)
            return _checked(request.path, lambda: _creating(request, session, connection, code))
        case OpCode.SET_DATA:
            to_set = SetDataRequest.read(reader)
            return _checked(to_set.path, lambda: _setting(to_set))
        case OpCode.DELETE:
            to_delete = VersionedPathRequest.read(reader)
            return _checked(to_delete.path, lambda: _deleting(to_delete))
        case OpCode.CHECK:
            to_check = VersionedPathRequest.read(reader)
            return _checked(to_check.path, lambda: _checking(to_check))
        case _:
            raise RefusedError(ZooKeeperCode.UNIMPLEMENTED)


def _checked(path: str, prepare: Callable[[], Act]) -> tuple[str, Act]:
    """What is refused without looking at the tree is refused in its turn, after the operations before it."""
    try:
        return path, prepare()
    except (ValueError, RefusedError) as error:
        refusal = error

        def refuse(_: Transaction) -> None:
            raise refusal

        return "", refuse


def _creating(request: CreateRequest, session: Session, connection: Connection, code: int) -> Act:
    create = prepared_create(request, session, connection)

    def act(transaction: Transaction) -> Record:
        path, node = create(transaction)
        return PathStatResponse(path, stat_of(node)) if code == OpCode.CREATE2 else PathResponse(path)

    return act


def _setting(request: SetDataRequest) -> Act:
    act = prepared_set(request)
    return lambda transaction: StatResponse(stat_of(act(transaction)))


def _deleting(request: VersionedPathRequest) -> Act:
    check_operation(Delete(request.path))
    return lambda transaction: transaction.delete(request.path, request.version)


def _checking(request: VersionedPathRequest) -> Act:
    check_path(request.path)

    def act(transaction: Transaction) -> None:
        transaction.expect(request.path, request.version)

    return act


def _code_beside(index: int, failed: _FailedError) -> int:
    if index < failed.index:
        return ZooKeeperCode.OK
    return failed.code if index == failed.index else ZooKeeperCode.RUNTIME_INCONSISTENCY


def _write_error(writer: JuteWriter, code: int) -> None:
    MultiHeader(OpCode.ERROR, False, code).write(writer)
    ErrorResult(code).write(writer)


def multi_read(asked: Asked) -> Body:
    """Each read succeeds or fails for itself."""
    writer = JuteWriter()
    while not (header := MultiHeader.read(asked.reader)).is_done:
        if header.operation not in (OpCode.GET_DATA, OpCode.GET_CHILDREN):
            raise RefusedError(ZooKeeperCode.UNIMPLEMENTED)
        try:
            result = OPERATIONS[header.operation](asked)
        except (CoordinationError, ValueError) as error:
            _write_error(writer, code_of(error))
        else:
            MultiHeader(header.operation, False, 0).write(writer)
            if isinstance(result, Record):
                result.write(writer)
    MULTI_END.write(writer)
    return writer.body()
