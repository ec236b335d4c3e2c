"""Row markers as a file holds them: every width and text become int8, every value the protocol lacks is refused."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.errors import PublisherError
from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.landing_zone.diagnostics import diagnose

_KNOWN = [marker.value for marker in RowMarker]
_KNOWN_BYTES = bytes(_KNOWN)
_SHORT_INTEGER = re.compile(r"[+-]?[0-9]{1,6}")


def effective(markers: pa.Array, path: str, first_row: int) -> pa.Array:
    """The markers as int8 (LZ-4.11).

    Args:
        markers: integers of any width, decimals without fraction, text, or all NULL.
        path: for messages.
        first_row: the number of the first of them within the file, from 1.

    Raises:
        PublisherError: ME037, a marker is NULL or anything but 0, 1, 2, 4 (LZ-4.12).
    """
    if pa.types.is_integer(markers.type) and not markers.null_count:
        wide = markers.to_numpy()
        narrow = wide.astype(np.int8)
        if (narrow == wide).all() and not narrow.tobytes().translate(None, _KNOWN_BYTES):
            return pa.Array.from_buffers(pa.int8(), len(narrow), [None, pa.py_buffer(narrow)])
    words = list(map(str, _KNOWN)) if pa.types.is_string(markers.type) else _KNOWN
    known = (
        pc.is_in(markers, value_set=pa.array(words).cast(markers.type)) if markers.null_count < len(markers) else None
    )
    fault = 0 if known is None and len(markers) else pc.index(known, False).as_py() if known is not None else -1
    if fault >= 0:
        value = _shown(markers[fault].as_py())
        raise PublisherError(diagnose("ME037", path, row=first_row + fault, value=value))
    return markers.cast(pa.int8())


def _shown(value: object) -> str:
    """A marker as a message may hold it: a short integer, never a cell that slipped into the column."""
    if value is None:
        return "NULL"
    text = str(value)
    return text if _SHORT_INTEGER.fullmatch(text) else "no short integer"
