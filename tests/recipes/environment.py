"""Programs that tests run beside the mesh, each in a venv of its own outside the work tree: the products that
docs/recipes.md puts around it, and what would bring too many packages into the project's own."""

import sys
from pathlib import Path

from tests.engines.environment import alone, cache_dir, done, mark, remake, run

# Their dependencies are the newest that they allow, as somebody who installs them gets them.
LITELLM = "litellm[proxy]==1.108.7"
LANGCHAIN = "langchain-openai==1.7.4"


def programs(requirement: str) -> Path:
    """The programs of a venv that holds one product, which is made if it is not there yet. Raises Unavailable."""
    folder = cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    venv = folder / requirement.partition("==")[0].partition("[")[0]
    with alone(folder):
        if not done(venv, requirement):
            remake(venv)
            run([sys.executable, "-m", "venv", str(venv)])
            run([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", requirement])
            mark(venv, requirement)
    return venv / "bin"
