import pyarrow as pa
import pytest

from mirror_engine.tables.arrow_types import arrow_type, delta_type

WORDS = (
    "string binary byte short integer long float double boolean date timestamp timestamp_ntz decimal(38,10)".split()  # noqa: SIM905 - reads as the list it is
)


@pytest.mark.parametrize("word", WORDS)
def test_every_type_word_has_one_arrow_type_and_comes_back_from_it(word):
    assert delta_type(arrow_type(word)) == word


@pytest.mark.parametrize("word", ["void", "array<int>", "decimal", "int", ""])
def test_an_unknown_word_is_refused(word):
    with pytest.raises(ValueError, match="no mirrored column"):
        arrow_type(word)


@pytest.mark.parametrize(
    "arrow",
    [
        pa.uint8(),
        pa.null(),
        pa.float16(),
        pa.large_string(),
        pa.timestamp("ns", "UTC"),
        pa.timestamp("us", "Europe/Vienna"),
        pa.list_(pa.int8()),
        pa.decimal128(5, -2),
    ],
)
def test_an_arrow_type_that_needs_conversion_has_no_word(arrow):
    assert delta_type(arrow) is None
