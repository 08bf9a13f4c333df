"""The linear cost profiles, which predict costs where no trained model answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hmas.contracts.request import Cost
from hmas.prediction.agent.backend import CostQuery

VERSION = "linear-1"
_NUMBERS = ("prefill_base", "prefill_per_token", "decode_base", "decode_per_running")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearProfile:
    """A cost that is linear in prompt tokens and running requests; the coefficients are in s. The profile applies to
    queries whose model's and hardware's names contain `model` and `hardware` (lower case); empty applies to all."""

    model: str
    hardware: str
    prefill_base: float
    prefill_per_token: float
    decode_base: float
    decode_per_running: float

    def matches(self, query: CostQuery) -> bool:
        return self.model in query.model.lower() and self.hardware in query.hardware.lower()

    def cost(self, query: CostQuery) -> Cost:
        """Returns the cost of a query. The request itself decodes beside those that already run."""
        return Cost(
            self.prefill_base + self.prefill_per_token * query.prompt_tokens,
            self.decode_base + self.decode_per_running * (query.running + 1),
        )


def profiles_from(rows: object) -> tuple[LinearProfile, ...]:
    """Reads the rows of a file of cost profiles. Raises ValueError that says which row is wrong and how."""
    if not isinstance(rows, list) or not rows:
        raise ValueError("a file of cost profiles must be a list of at least one row")
    profiles = tuple(_profile(number, row) for number, row in enumerate(rows, 1))
    if profiles[-1].model or profiles[-1].hardware:
        raise ValueError("the last row must apply to all models and hardware: give it an empty model and hardware")
    return profiles


def _profile(number: int, row: Any) -> LinearProfile:
    if not isinstance(row, Mapping):
        raise ValueError(f"row {number} must be a mapping of fields, not {row!r}")
    expected = {"model", "hardware", *_NUMBERS}
    if set(row) != expected:
        raise ValueError(f"row {number} must have exactly the fields {', '.join(sorted(expected))}")
    for name in _NUMBERS:
        value = row[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < float("inf"):
            raise ValueError(f"row {number}: {name} must be seconds, 0 or more, not {value!r}")
    numbers = {name: float(row[name]) for name in _NUMBERS}
    return LinearProfile(model=str(row["model"]).lower(), hardware=str(row["hardware"]).lower(), **numbers)


class LinearCostModel:
    version = VERSION

    def __init__(self, profiles: Sequence[LinearProfile]) -> None:
        self.profiles = tuple(profiles)

    def predict(self, queries: Sequence[CostQuery]) -> list[Cost]:
        """Returns the cost of each query by the first profile that applies to it."""
        return [next(p for p in self.profiles if p.matches(query)).cost(query) for query in queries]
