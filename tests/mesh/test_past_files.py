"""Files of past requests: what is not to be believed, or would be left out, is refused in words."""

from pathlib import Path

import pytest

from hmas.mesh import past_files
from hmas.mesh.past_files import Past, read_past, write_own

LINE = '{"timestamp": %s, "input_length": %s, "output_length": %s, "hash_ids": []}\n'


def test_lengths_and_times_are_read_in_order_of_arrival(tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    file.write_text(LINE % (2000, 20, 2) + LINE % (1000, 10, 0))
    rows = read_past(file).rows
    assert [(row.prompt_tokens, row.output_tokens) for row in rows] == [(10, 1), (20, 2)]
    assert rows[1].arrival_s - rows[0].arrival_s == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("figures", "name"),
    [(("NaN", 1, 1), "timestamp"), ((-1, 1, 1), "timestamp"), ((0, "1e999", 1), "input_length"),
     ((0, 1, "Infinity"), "output_length"), ((0, "true", 1), "input_length"), ((0, 2**40, 1), "input_length")],
)  # fmt: skip
def test_a_figure_that_cannot_be_true_is_named_with_its_line(
    tmp_path: Path, figures: tuple[object, ...], name: str
) -> None:
    file = tmp_path / "m.jsonl"
    file.write_text(LINE % (0, 1, 1) + LINE % figures)
    with pytest.raises(ValueError, match=f"line 2: .*`{name}` must be a number from 0 to"):
        read_past(file)


@pytest.mark.parametrize("own", [True, False])
def test_a_file_of_too_many_requests_is_refused_and_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    monkeypatch.setattr(past_files, "MAX_ROWS", 2)
    mooncake, file = tmp_path / "m.jsonl", tmp_path / "past"
    for count in (2, 3):
        mooncake.write_text(LINE % (0, 1, 1) * count)
        file.write_bytes(mooncake.read_bytes())
        if own:
            monkeypatch.setattr(past_files, "MAX_ROWS", 3)
            past = read_past(mooncake)
            monkeypatch.setattr(past_files, "MAX_ROWS", 2)
            write_own(Past(pool="m", in_force=past.in_force, rows=past.rows), file)
        if count == 2:
            assert len(read_past(file).rows) == 2
            continue
        with pytest.raises(ValueError, match="holds more than 2 requests: remove the oldest ones"):
            read_past(file)
