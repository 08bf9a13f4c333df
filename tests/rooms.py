"""Which unit tests look at a room: its own, and those of the rooms that use it.

`python -m tests.rooms ROOM` prints their folders, or says which rooms there are: `make quick` and `make mutants` run
them.
"""

import sys

# Rooms whose tests stand in other folders than tests/<room> alone. Tests of what several rooms share stand where it is
# used, too.
_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "contracts": ("contracts", "wire", "laws", "worker", "gateway", "qos", "meta", "statera"),
    "engine": ("engine", "sim"),
    "gateway": ("gateway", "shortpath"),
    "lab": ("sim", "placement", "experiments", "perception", "prediction"),
    "laws": ("laws", "loadgen", "worker", "gateway", "qos", "meta", "host"),
    "loadgen": ("loadgen", "experiments"),
    "operator": ("mesh", "console", "gateway"),
    "runtime": ("runtime", "worker", "gateway", "console"),
    "sim": ("sim", "experiments"),
    "wire": ("wire", "runtime", "worker", "gateway"),
    "worker": ("worker", "shortpath", "meta"),
}
_ALONE = (
    "benchmarks", "console", "experiments", "host", "mesh", "meta", "perception", "plugins", "prediction", "qos",
    "statera",
)  # fmt: skip
TESTS: dict[str, tuple[str, ...]] = {
    room: tuple(f"tests/{folder}" for folder in folders)
    for room, folders in sorted((_ELSEWHERE | {room: (room,) for room in _ALONE}).items())
}


def main(arguments: list[str]) -> None:
    room = arguments[0] if arguments else ""
    if room not in TESTS:
        raise SystemExit(f"ROOM={room} is not a room with tests: choose one of {', '.join(TESTS)}")
    print(*TESTS[room])


if __name__ == "__main__":
    main(sys.argv[1:])
