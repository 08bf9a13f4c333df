"""The layouts that `hmas pin --layout` understands."""

import pytest

from hmas.contracts.control import MAX_CUTS, Split
from hmas.operator.pin import parse_layout


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("mixed", Split()),
        ("84:1", Split((0.084,), (1, 1))),
        ("84:1,111.5:2", Split((0.084, 0.1115), (1, 2, 1))),
    ],
)
def test_a_layout_is_bounds_in_ms_with_engines(text: str, split: Split) -> None:
    assert parse_layout(text) == split


@pytest.mark.parametrize(
    "text",
    ["", "84", "84:0", "84:x", "0:1", "-5:1", "111:1,84:1", "84:1,84:1", "nan:1", "inf:1",
     ",".join(f"{i}:1" for i in range(1, MAX_CUTS + 2))],
)  # fmt: skip
def test_what_is_no_layout_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="is not a layout: use `mixed`, or ascending bounds"):
        parse_layout(text)
