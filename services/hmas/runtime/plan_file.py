"""Plans as YAML files: the engines that each pool is to have, in the order in which pace classes get them, and which
classes these are.

```yaml
llama-70b:                            # the pool
  engines:
    llama-70b-h100-tp4: 1             # an instance type of the catalogue, and how many of it
    llama-70b-h100-tp2: 2
  split:                              # left out: all requests share all engines
    cuts_s: [0.02]                    # requests with a TPOT SLO of at most 20 ms have the first class
    engines: [1, 2]                   # how many engines each class has
```
"""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from hmas.contracts.control import MAX_CUTS, Split
from hmas.contracts.pool_plan import Catalogue, Group, PoolPlan

MAX_BYTES = 2**20
MOST = 10_000  # instances of a type

_Cut = Annotated[float, Field(gt=0.0, le=1e3)]
_Class = Annotated[int, Field(ge=1, le=MOST, strict=True)]
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Split(BaseModel):
    model_config = _STRICT
    cuts_s: Annotated[tuple[_Cut, ...], Field(min_length=1, max_length=MAX_CUTS)]
    engines: tuple[_Class, ...]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if any(a >= b for a, b in pairwise(self.cuts_s)):
            raise ValueError("cuts_s must ascend")
        if len(self.engines) != len(self.cuts_s) + 1:
            raise ValueError("engines must have one number more than cuts_s")
        return self


class _Pool(BaseModel):
    model_config = _STRICT
    engines: Annotated[dict[str, Annotated[int, Field(ge=0, le=MOST, strict=True)]], Field(min_length=1)]
    split: _Split | None = None


_PLANS: TypeAdapter[dict[str, _Pool]] = TypeAdapter(Annotated[dict[str, _Pool], Field(min_length=1)])


def read_plan(path: Path, catalogue: Catalogue) -> tuple[PoolPlan, ...]:
    """Reads a plan whose instance types are of that catalogue. Raises ValueError that names the file, the pool and what
    is wrong with it, and OSError."""
    with path.open("rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise ValueError(f"the plan {path} has more than {MAX_BYTES} bytes: name the types once for each pool")
    try:
        return parse_plan(text.decode("utf-8"), catalogue)
    except ValueError as error:  # of the encoding, too
        raise ValueError(f"the plan {path} is not valid: {error}") from None


def parse_plan(text: str, catalogue: Catalogue) -> tuple[PoolPlan, ...]:
    """Returns the plans of a YAML text, one for each pool. Raises ValueError that names the pool at fault."""
    try:
        pools = _PLANS.validate_python(yaml.safe_load(text))
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"it is not YAML: {str(error) or 'it is nested too deeply'}") from None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"]) or "it"
        told = fault["msg"].removeprefix("Value error, ")
        raise ValueError(f"{where}: {told}: use `pool: {{engines: {{type: count}}}}`") from None
    return tuple(_plan(name, pool, catalogue) for name, pool in pools.items())


def rendered_plan(plans: Iterable[PoolPlan]) -> str:
    """Returns plans as the text that `parse_plan` reads."""
    return yaml.safe_dump({each.pool: _fields(each) for each in plans}, sort_keys=False)


def _fields(plan: PoolPlan) -> dict[str, object]:
    fields: dict[str, object] = {"engines": {each.type: each.count for each in plan.groups}}
    if plan.split.cuts_s:
        fields["split"] = {"cuts_s": list(plan.split.cuts_s), "engines": list(plan.split.engines)}
    return fields


def _plan(name: str, pool: _Pool, catalogue: Catalogue) -> PoolPlan:
    try:
        models = {catalogue.named(each).model for each in pool.engines}
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if len(models) > 1:
        raise ValueError(f"{name}: a pool serves one model, and these types serve {', '.join(sorted(models))}")
    groups = tuple(Group(each, count) for each, count in pool.engines.items() if count)
    if not groups:
        raise ValueError(f"{name}: at least one engine must stay")
    split = Split() if pool.split is None else Split(pool.split.cuts_s, pool.split.engines)
    engines = sum(each.count for each in groups)
    if split.cuts_s and sum(split.engines) != engines:
        raise ValueError(f"{name}: the split has {sum(split.engines)} engines, and the pool {engines}")
    return PoolPlan(pool=name, groups=groups, split=split)
