"""No command is forgotten by the tests of a base install. This one needs no installation, so it runs with the unit
tests."""

from tests.package.commands import COMMANDS, every_command


def test_every_command_is_tried() -> None:
    assert every_command() == set(COMMANDS)
