"""The table of `hmas eval perception`."""

import io

from rich.console import Console

from hmas_lab.perception.cli import figure_table


def test_long_names_leave_room_for_the_values() -> None:
    told = io.StringIO()
    Console(file=told, width=80).print(figure_table({"task": {"by_source": {"a source's name " * 12: 0.5}}}))
    assert "0.5" in told.getvalue()
