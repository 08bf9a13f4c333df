"""A data folder in which another user has had a hand is refused, and what he put there leads no write elsewhere."""

import os
import pwd
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hmas.gateway.usage.book import UNKNOWN_USE, UsageBook
from hmas.gateway.usage.files import UsageFiles
from hmas.mesh.doctor import check_data_dir
from hmas.mesh.state import NoMesh, read_state, sole_owner
from tests.builders.telemetry import request_settled

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
OTHER = pwd.getpwnam("nobody").pw_uid
PRECIOUS = "what nobody may lose"


def foreign_folder(folder: Path, precious: Path) -> None:
    folder.mkdir(mode=0o777)
    os.chown(folder, OTHER, -1)


def foreign_link_to_the_folder(folder: Path, precious: Path) -> None:
    folder.symlink_to(precious.parent)
    os.lchown(folder, OTHER, -1)


def foreign_link(name: str) -> Callable[[Path, Path], None]:
    def plant(folder: Path, precious: Path) -> None:
        folder.mkdir()
        folder.chmod(0o1777)  # as /tmp is
        (folder / name).symlink_to(precious)
        os.lchown(folder / name, OTHER, -1)

    return plant


@as_root
@pytest.mark.parametrize(
    "plant",
    [foreign_folder, foreign_link_to_the_folder, *map(foreign_link, ("lock", "mesh.tmp", ".probe", "secrets", "logs"))],
)
def test_what_another_user_put_there_is_refused(tmp_path: Path, plant: Callable[[Path, Path], None]) -> None:
    precious = tmp_path / "home" / "precious"
    precious.parent.mkdir()
    precious.write_text(PRECIOUS)
    folder = tmp_path / "data"
    plant(folder, precious)
    with pytest.raises(ValueError, match=r"belongs to another user.* --data-dir"), sole_owner(folder):
        pass
    assert check_data_dir(folder).verdict == "fail"
    assert precious.read_text() == PRECIOUS
    assert os.listdir(precious.parent) == ["precious"]


@as_root
def test_a_mesh_that_another_user_tells_of_is_not_believed(tmp_path: Path) -> None:
    """Its file would name the server to which the contents of any file are shown as a password."""
    (tmp_path / "mesh.json").write_text("{}")
    os.chown(tmp_path / "mesh.json", OTHER, -1)
    with pytest.raises(NoMesh, match="belongs to another user"):
        read_state(tmp_path)


def test_a_folder_of_ones_own_is_taken_whatever_its_mode_and_behind_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "disk", tmp_path / "data"
    real.mkdir()
    real.chmod(0o777)
    link.symlink_to(real)
    with sole_owner(link):
        assert real.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(real)


async def test_a_file_of_usage_takes_the_place_of_a_link(tmp_path: Path) -> None:
    precious, folder, book = tmp_path / "precious", tmp_path / "usage", UsageBook()
    precious.write_text(PRECIOUS)
    files = UsageFiles(folder, "g1", book, clock=lambda: 0.0)
    link = folder / "usage-1970-01-01.g1.csv"
    link.symlink_to(precious)
    book.count(0.0, UNKNOWN_USE, request_settled(), "ok")
    await files.write()
    assert precious.read_text() == PRECIOUS
    assert not link.is_symlink()
    assert link.read_text().count("\n") == 2
