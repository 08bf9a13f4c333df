"""An engine's image gets a copy of `hmas` alone, none of its packages: what it loads there must do without them."""

import shutil
from pathlib import Path

import pytest

from tests.package.conftest import Installed

pytestmark = [pytest.mark.package, pytest.mark.timeout(900)]

LOAD = """
import pkgutil, sys
sys.path.insert(0, sys.argv[1])
import hmas.plugins.vllm as plugin
for module in pkgutil.iter_modules(plugin.__path__, "hmas.plugins.vllm."):
    try:
        __import__(module.name)
    except ModuleNotFoundError as error:
        assert error.name.partition(".")[0] == "vllm", error
try:
    plugin.HmasAsyncScheduler
except ModuleNotFoundError as error:
    assert error.name.partition(".")[0] == "vllm", error
else:
    raise AssertionError("it needs no vLLM?")
print(*sorted(m for m in sys.modules if m.partition(".")[0] == "hmas"))
"""


def test_a_copy_of_the_package_is_all_the_scheduler_needs(base: Installed, tmp_path: Path) -> None:
    (site,) = (base.venv / "lib").glob("python3.*/site-packages/hmas")
    shutil.copytree(site, tmp_path / "hmas")
    done = base.run("python", "-I", "-S", "-c", LOAD, str(tmp_path))
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    assert "hmas.plugins.vllm.block" in loaded
    assert not [m for m in loaded if m != "hmas" and not m.startswith("hmas.plugins")]
