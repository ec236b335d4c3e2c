"""Deletion vectors: the rows of a data file that are gone (Delta protocol, "Deletion Vectors").

Marks are row numbers from 0 within one data file. A vector's body is the magic number, then 64-bit Roaring in its
portable form. In a file, each body comes between its size and its CRC-32, both big endian.
"""

from __future__ import annotations

import base64
import string
import struct
import uuid
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from mirror_engine.errors import TableDamaged
from mirror_engine.tables.log.table_path import file_in, read_range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror_engine.tables.changes.net_changes import Integers
    from mirror_engine.tables.log.table_path import TablePath

    Descriptor: TypeAlias = Mapping[str, Any]  # of a vector, as an `add` or `remove` action holds it


_MAGIC = struct.pack("<i", 1681511377)
_FILE_VERSION = b"\x01"
_SIZE_BYTES = 4
_Z85_ID = 20  # letters of an id
_DIGITS, _SMALL, _LARGE = string.digits, string.ascii_lowercase, string.ascii_uppercase
_Z85 = f"{_DIGITS}{_SMALL}{_LARGE}.-:+=^!/*?&<>()[]{{}}@%$#"
_B85 = f"{_DIGITS}{_LARGE}{_SMALL}!#$%&()*+-;<=>?@^_`{{|}}~"  # Python's alphabet
_ODD = (ValueError, KeyError, TypeError, AttributeError, struct.error)  # of a descriptor or a file that is none
_FROM_Z85, _TO_Z85 = str.maketrans(_Z85, _B85), str.maketrans(_B85, _Z85)


def vector_file(vector: Descriptor) -> str | None:
    """The path of a vector's file from the table's folder; None where the vector is elsewhere."""
    if vector.get("storageType") != "u":
        return None
    prefix, text = vector["pathOrInlineDv"][:-_Z85_ID], vector["pathOrInlineDv"][-_Z85_ID:]
    name = f"deletion_vector_{uuid.UUID(bytes=_from_z85(text))}.bin"
    return f"{prefix}/{name}" if prefix else name


def read_vector(folder: TablePath, vector: Descriptor) -> Integers:
    """The marks of a vector.

    Raises:
        TableDamaged: its file is missing or elsewhere, or its content is not what the log says.
        OSError, StorageUnavailable: it cannot be read.
    """
    from mirror_engine.tables.log.roaring import deserialized  # noqa: PLC0415 - imports NumPy, which a look needs not

    try:
        where = vector_place(folder, vector)
        if where is None:
            body, where = _from_z85(vector["pathOrInlineDv"]), folder
        else:
            start, length = vector.get("offset") or len(_FILE_VERSION), vector["sizeInBytes"] + 2 * _SIZE_BYTES
            framed = read_range(where, start, length)
            size, body, checksum = framed[:_SIZE_BYTES], framed[_SIZE_BYTES:-_SIZE_BYTES], framed[-_SIZE_BYTES:]
            if size != struct.pack(">i", vector["sizeInBytes"]) or checksum != struct.pack(">I", zlib.crc32(body)):
                raise TableDamaged(where, "the size or checksum of a deletion vector is wrong")
        if body[: len(_MAGIC)] != _MAGIC:
            raise TableDamaged(where, "a deletion vector has an unknown format")
        marks = deserialized(body[len(_MAGIC) :])
    except FileNotFoundError:
        raise TableDamaged(where, "the Delta log names this deletion vector, but it is missing") from None
    except _ODD as error:
        raise _unreadable(folder, error) from None
    if len(marks) != vector["cardinality"]:
        raise TableDamaged(where, "a deletion vector and the log differ in the number of marked rows")
    return marks


@dataclass(frozen=True)
class NewVectors:
    """A file of vectors for one commit."""

    name: str  # from the table's folder
    content: bytes
    descriptors: Sequence[Descriptor]


def new_vectors(marks: Sequence[Integers]) -> NewVectors:
    """One file with a vector for each group of marks, in their order."""
    from mirror_engine.tables.log.roaring import serialized  # noqa: PLC0415 - as above

    identity = uuid.uuid4()
    reference = base64.b85encode(identity.bytes).decode().translate(_TO_Z85)
    content = bytearray(_FILE_VERSION)
    descriptors: list[Descriptor] = []
    for each in marks:
        body = _MAGIC + serialized(each)
        placed = {"storageType": "u", "pathOrInlineDv": reference, "offset": len(content)}
        descriptors.append({**placed, "sizeInBytes": len(body), "cardinality": len(each)})
        content += struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    return NewVectors(f"deletion_vector_{identity}.bin", bytes(content), descriptors)


def vector_place(folder: TablePath, vector: Descriptor) -> TablePath | None:
    """Return where a vector's file is; None if the vector is in the log itself.

    Raises:
        TableDamaged: it is outside of the table's folder, or the log does not say where it is.
    """
    try:
        if vector["storageType"] == "i":
            return None
        name = vector_file(vector)
        if name is None:
            name = unquote(vector["pathOrInlineDv"])
    except _ODD as error:
        raise _unreadable(folder, error) from None
    return file_in(folder, name)


def _unreadable(folder: TablePath, error: Exception) -> TableDamaged:
    return TableDamaged(folder, f"a deletion vector cannot be read: {type(error).__name__}")


def _from_z85(text: str) -> bytes:
    return base64.b85decode(text.translate(_FROM_Z85))
