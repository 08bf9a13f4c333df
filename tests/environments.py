"""`python -m tests.environments`: the venvs of other programs, which the suites of engines, tools and recipes make when
they begin, made ahead. A suite that begins meanwhile waits for its own. What cannot be had is told, and its tests skip.
"""

from collections.abc import Callable
from functools import partial

from tests.engines import environment, sglang_environment
from tests.engines.environment import Unavailable
from tests.recipes.environment import LANGCHAIN, LITELLM, programs
from tests.tools.environment import PROGRAMS, NotInstalled, program

ALL: dict[str, Callable[[], object]] = {
    "vLLM": environment.ready,
    "SGLang": sglang_environment.ready,
    "vLLM's NIXL": lambda: environment.ready().nixl_env(),
    "vLLM's tuning": lambda: environment.ready().tuning_env(),
    **{name: partial(programs, name) for name in (LANGCHAIN, LITELLM)},
    **{name: partial(program, name) for name in PROGRAMS},
}


def main() -> None:
    for name, make in ALL.items():
        try:
            make()
        except (Unavailable, NotInstalled) as reason:
            print(f"{name} cannot be had here: {reason}")


if __name__ == "__main__":
    main()
