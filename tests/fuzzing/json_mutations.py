"""Changes JSON where it is JSON: doubled and missing names, other values, depth, huge numbers, half surrogates."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fuzzing.bytes_mutations import LONGEST, mutated_bytes

if TYPE_CHECKING:
    from random import Random


class _Raw(str):
    """JSON as it is to be written."""

    __slots__ = ()


class _Pairs(list[Any]):
    """An object's names and values: a name may be there twice."""


ODD = (
    *("null", "true", "[]", "{}", '""', "0", "-1", "1.5", "1e400", "-1e400", "NaN", "Infinity", "9" * 25, "1" * 5000),
    *(
        r'"\ud800"',
        r'"\udc00x"',
        r'"\u0000"',
        '"a\\nb"',
        '"true"',
        '[""]',
        "[null]",
        "[[]]",
        '{"a":1}',
        '"' + "x" * 70000 + '"',
    ),
    *(
        "[" * 200 + "]" * 200,
        "[" * 2000 + "]" * 2000,
        '{"a":' * 900 + "1" + "}" * 900,
        "0.1e1000000000",
        "1e-1000000000",
    ),
    *("2147483648", "9223372036854775808", "18446744073709551616", "-9223372036854775809", '"1"', '"../x"', '"/"'),
)


def mutated_json(content: bytes, random: Random) -> bytes:
    """The content after one change of its values or names; of its bytes where it is no JSON."""
    try:
        value = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_Pairs)
        many = max(2, min(300, LONGEST // (len(content) + 1)))  # or what grows once grows for ever
        return _written(_changed(value, random, many), random).encode("utf-8", "surrogatepass")[:LONGEST]
    except (ValueError, RecursionError):
        return mutated_bytes(content, random)


def _changed(value: Any, random: Random, many: int) -> Any:  # noqa: PLR0911 - one line per kind of change
    """The value with one change somewhere in it."""
    if isinstance(value, _Pairs) and value and random.random() < 0.85:
        at = random.randrange(len(value))
        name, inner = value[at]
        match random.randrange(8):
            case 0:
                return _Pairs([*value, (name, _changed(inner, random, many))])
            case 1:
                return _Pairs(value[:at] + value[at + 1 :])
            case 2:
                spelled = random.choice((name.upper(), name.swapcase(), "", f"{name}\ud800", random.choice(value)[0]))
                return _Pairs([*value[:at], (spelled, inner), *value[at + 1 :]])
            case _:
                return _Pairs([*value[:at], (name, _changed(inner, random, many)), *value[at + 1 :]])
    if isinstance(value, list) and value and random.random() < 0.7:
        at = random.randrange(len(value))
        part = value[at : at + 1] * random.choice((0, 2, many)) or [_changed(value[at], random, many)]
        return type(value)([*value[:at], *part, *value[at + 1 :]])
    if isinstance(value, str) and random.random() < 0.5:
        return mutated_bytes(value.encode("utf-8", "surrogatepass"), random).decode("utf-8", "replace")
    return _Raw(random.choice(ODD))


def _written(value: Any, random: Random) -> str:
    match value:
        case _Raw():
            return str(value)
        case _Pairs():
            return "{" + ",".join(f"{json.dumps(name)}:{_written(inner, random)}" for name, inner in value) + "}"
        case list():
            return "[" + ",".join(_written(inner, random) for inner in value) + "]"
        case _:
            return json.dumps(value, ensure_ascii=random.random() < 0.5)
