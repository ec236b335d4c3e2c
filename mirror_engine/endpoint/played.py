"""Plays the faults that a request meets, around what the request asks for (endpoint chapter 10)."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING

from mirror_engine.endpoint import batch, blob, dfs, reading
from mirror_engine.endpoint import fault_words as words
from mirror_engine.endpoint.address import segments_of
from mirror_engine.endpoint.cut import Cut
from mirror_engine.endpoint.faults import EndpointFault, Fault
from mirror_engine.endpoint.stamps import NS_A_SECOND, stamped
from mirror_engine.endpoint.work import quick

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from starlette.responses import Response

    from mirror_engine.endpoint.call import Call
    from mirror_engine.endpoint.lake import Lake
    from mirror_engine.endpoint.routes import Operation
    from mirror_engine.endpoint.switches import FaultSwitch

_CALLED: Mapping[Operation, str] = {
    dfs.create: words.CREATE,
    dfs.append: words.APPEND,
    dfs.flush: words.FLUSH,
    dfs.rename: words.RENAME,
    dfs.delete: words.DELETE,
    blob.delete: words.DELETE,
    dfs.lease: words.LEASE,
    dfs.list_paths: words.LIST,
    blob.list_blobs: words.LIST,
    dfs.set_properties: words.METADATA,
    blob.set_metadata: words.METADATA,
    blob.put: words.PUT,
    blob.put_block: words.BLOCK,
    blob.put_block_list: words.BLOCK_LIST,
    blob.copy: words.COPY,
    reading.read: words.READ,
    reading.properties: words.HEAD,
    batch.batch: words.BATCH,
}
_THROTTLED = {429: Fault.THROTTLED, 503: Fault.SERVER_BUSY}
CHALLENGE = 'Bearer authorization_uri="https://login.microsoftonline.com/common", error="invalid_token"'


async def played(lake: Lake, call: Call, operation: Operation) -> Operation:
    """The operation, with the faults around it that this request meets; the one named first is the outermost.

    Raises:
        EndpointFault: INVALID_URI, PATH_NOT_FOUND, as the path is none.
    """
    if not lake.switches.faults:
        return operation
    path = "/".join(segments_of(call.raw_path))
    for switch in reversed(lake.switches.at(call.method, path, await _operations(lake, call, operation))):
        operation = _PLAYS[switch.fault](switch, operation)
    return operation


async def _operations(lake: Lake, call: Call, operation: Operation) -> set[str]:
    """What a request does, in a user's words."""
    called = _CALLED.get(operation)
    if called == words.CREATE and call.query["resource"].lower() == "directory":
        called = words.FOLDER
    if called == words.DELETE and await quick(_is_folder, lake, call):
        called = words.DROP
    flushes = {words.FLUSH} if called == words.APPEND and call.flag("flush") else set()
    return flushes | ({called} if called else set())


def _is_folder(lake: Lake, call: Call) -> bool:
    try:
        return lake.properties(lake.address(call.raw_path)).is_folder
    except EndpointFault:
        return False


def _throttle(switch: FaultSwitch, _: Operation) -> Operation:
    async def refused(_: Lake, __: Call) -> Response:
        headers = {"Retry-After": str(switch.options["retry-after"])}
        raise EndpointFault(_THROTTLED[int(switch.number("status"))], headers=headers)

    return refused


def _token_expired(_: FaultSwitch, __: Operation) -> Operation:
    async def refused(_: Lake, __: Call) -> Response:
        raise EndpointFault(Fault.UNAUTHORIZED, "The token has expired.", {"WWW-Authenticate": CHALLENGE})

    return refused


def _lost_request(_: FaultSwitch, __: Operation) -> Operation:
    async def lost(_: Lake, __: Call) -> Response:
        raise Cut

    return lost


def _cut_body(switch: FaultSwitch, operation: Operation) -> Operation:
    async def until(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        left = int(switch.number("bytes"))
        async for piece in pieces:
            yield piece[:left]
            left -= len(piece)
            if left <= 0:
                break
        raise Cut

    async def cut(lake: Lake, call: Call) -> Response:
        if call.is_empty:
            raise Cut
        return await operation(lake, replace(call, body=until(call.body)))

    return cut


def _lost_response(_: FaultSwitch, operation: Operation) -> Operation:
    async def lost(lake: Lake, call: Call) -> Response:
        await operation(lake, call)
        raise Cut

    return lost


def _slow_flush(switch: FaultSwitch, operation: Operation) -> Operation:
    async def slow(lake: Lake, call: Call) -> Response:
        await asyncio.sleep(switch.number("seconds"))
        return await operation(lake, call)

    return slow


def _poll_mid_upload(_: FaultSwitch, operation: Operation) -> Operation:
    async def polled(lake: Lake, call: Call) -> Response:
        response = await operation(lake, call)
        item = lake.address(call.raw_path).item
        if item:
            await quick(lake.switches.poll, item)
        return response

    return polled


def _folder_in_use(_: FaultSwitch, __: Operation) -> Operation:
    async def refused(_: Lake, __: Call) -> Response:
        raise EndpointFault(Fault.FOLDER_IN_USE)

    return refused


def _delay_visibility(switch: FaultSwitch, operation: Operation) -> Operation:
    async def delayed(lake: Lake, call: Call) -> Response:
        address = await quick(lake.destination, call.raw_path)
        if await quick(lake.stands, address):
            return await operation(lake, call)  # a name that is known already
        sights, late = str(switch.options["from"]).split(","), lake.switches.late
        late.hide(address.path, sights)
        try:
            response = await operation(lake, call)
        except BaseException:
            late.show(address.path)
            raise
        late.hide(address.path, sights, switch.number("seconds"))
        return response

    return delayed


def _detect_delay(switch: FaultSwitch, operation: Operation) -> Operation:
    async def delayed(lake: Lake, call: Call) -> Response:
        address = await quick(lake.address, call.raw_path)
        ghost = await quick(lake.ghost, address)
        lake.switches.late.linger(ghost, switch.number("seconds"))
        try:
            return await operation(lake, call)
        except BaseException:
            lake.switches.late.vanish(ghost)
            raise

    return delayed


def _same_mtime(switch: FaultSwitch, operation: Operation) -> Operation:
    def first(true_ns: int) -> int:
        return int(switch.options.setdefault("since", true_ns - true_ns % NS_A_SECOND))

    return _stamping(first, operation)


def _shuffle_ties(switch: FaultSwitch, operation: Operation) -> Operation:
    drawn = random.Random(int(switch.number("seed")) * 1_000_003 + switch.seen)  # noqa: S311 - repeatable

    def shuffled(true_ns: int) -> int:
        return true_ns - true_ns % NS_A_SECOND + drawn.randrange(NS_A_SECOND)

    return _stamping(shuffled, operation)


def _stamping(stamp: Callable[[int], int], operation: Operation) -> Operation:
    async def timed(lake: Lake, call: Call) -> Response:
        with stamped(stamp):
            return await operation(lake, call)

    return timed


_PLAYS: Mapping[str, Callable[[FaultSwitch, Operation], Operation]] = {
    "throttle": _throttle,
    "token_expired": _token_expired,
    "lost_request": _lost_request,
    "cut_body": _cut_body,
    "lost_response": _lost_response,
    "slow_flush": _slow_flush,
    "poll_mid_upload": _poll_mid_upload,
    "folder_in_use": _folder_in_use,
    "delay_visibility": _delay_visibility,
    "detect_delay": _detect_delay,
    "same_mtime": _same_mtime,
    "shuffle_ties": _shuffle_ties,
}
