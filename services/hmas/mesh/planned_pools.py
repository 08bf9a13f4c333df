"""What `hmas up --plan` is told: a plan, the catalogue of its types and the cards that there are; and its files."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hmas.contracts.pool_plan import Budget, Catalogue, PoolPlan


def budget_of(text: str) -> Budget:
    """Reads cards such as 16xh100. Raises ValueError."""
    found = re.fullmatch(r"(\d{1,5})x([A-Za-z0-9][A-Za-z0-9_-]*)", text.strip())
    if found is None or not int(found[1]):
        raise ValueError(f"--gpus {text!r}: use a number of cards and their kind, such as 16xh100")
    return Budget(found[2].lower(), int(found[1]))


def cards_taken(plans: Sequence[PoolPlan], catalogue: Catalogue) -> tuple[Budget, ...]:
    """Returns the cards that plans take, of each kind. Raises ValueError for a type that the catalogue has not."""
    cards = Counter[str]()
    for group in (group for plan in plans for group in plan.groups):
        kind = catalogue.named(group.type)
        cards[kind.hardware] += group.count * kind.gpus
    return tuple(Budget(*each) for each in cards.items())


@dataclass(frozen=True, slots=True)
class PlanFolder:
    """The files of a plan that is carried out, in the data folder of its mesh."""

    folder: Path

    @property
    def plan(self) -> Path:
        """The operator's plan, which the controller reads again when it changes."""
        return self.folder / "plan.yaml"

    @property
    def first(self) -> Path:
        """The plan that the mesh began with."""
        return self.folder / "first.yaml"

    @property
    def catalogue(self) -> Path:
        return self.folder / "catalogue.yaml"

    def engines(self, number: int) -> Path:
        """Returns the file of the engines of a plan's pool, by which its workers find them."""
        return self.folder / f"pool-{number}.json"

    def write(self, path: Path, text: str) -> None:
        """Writes a file as a whole, so that nobody reads a half of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)


@dataclass(frozen=True, slots=True)
class PlannedPools:
    """The plan that a mesh begins with, the catalogue of its types, and the cards that there are."""

    plans: tuple[PoolPlan, ...]
    catalogue: Catalogue
    budgets: tuple[Budget, ...]

    @property
    def cards(self) -> str:
        """The cards that there are, such as 16xh100,8xl40s."""
        return ",".join(f"{each.gpus}x{each.hardware}" for each in self.budgets)

    def pools(self) -> dict[str, str]:
        """Returns the pool of each type that one of the pools can have. A type that the plan does not name goes to the
        first pool that serves its model."""
        named = {group.type: each.pool for each in self.plans for group in each.groups}
        models: dict[str, str] = {}
        for name, pool in named.items():
            models.setdefault(self.catalogue.named(name).model, pool)
        return {each.name: models[each.model] for each in self.catalogue.types if each.model in models} | named

    def settings(self, folder: PlanFolder) -> dict[str, str]:
        """Returns the settings of the controller that carries the plan out."""
        return {
            "HMAS_CATALOGUE": str(folder.catalogue),
            "HMAS_PLAN": "scale",
            "HMAS_PLAN_BUDGET": self.cards,
            "HMAS_PLAN_FILE": str(folder.plan),
        }
