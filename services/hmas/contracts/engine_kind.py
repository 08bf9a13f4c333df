"""The kind of an engine: what decides how long a request takes there."""

from dataclasses import dataclass

MAX_KINDS = 8  # of one pool for which a request is predicted; those beyond count as these do in the mean


@dataclass(frozen=True, slots=True)
class EngineKind:
    """The model that an engine serves and its hardware, as `EngineInfo` tells them. `model` empty: the one that the
    pool is named after; `hardware` empty: unknown."""

    model: str = ""
    hardware: str = ""


UNKNOWN_KIND = EngineKind()
