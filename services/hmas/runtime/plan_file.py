"""Plans as YAML files: the engines that each pool is to have, in the order in which pace classes get them.

```yaml
llama-70b:                            # the pool
  llama-70b-h100-tp4: 1               # an instance type of the catalogue, and how many of it
  llama-70b-h100-tp2: 2
```
"""

from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from hmas.contracts.pool_plan import Catalogue, Group, PoolPlan

MAX_BYTES = 2**20
MOST = 10_000  # instances of a type

_Counts = Annotated[dict[str, Annotated[int, Field(ge=0, le=MOST, strict=True)]], Field(min_length=1)]
_PLANS: TypeAdapter[dict[str, _Counts]] = TypeAdapter(Annotated[dict[str, _Counts], Field(min_length=1)])


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
        raise ValueError(f"{where}: {fault['msg']}: use `pool: {{type: count}}`") from None
    return tuple(_plan(pool, counts, catalogue) for pool, counts in pools.items())


def _plan(pool: str, counts: dict[str, int], catalogue: Catalogue) -> PoolPlan:
    try:
        models = {catalogue.named(name).model for name in counts}
    except ValueError as error:
        raise ValueError(f"{pool}: {error}") from None
    if len(models) > 1:
        raise ValueError(f"{pool}: a pool serves one model, and these types serve {', '.join(sorted(models))}")
    groups = tuple(Group(name, count) for name, count in counts.items() if count)
    if not groups:
        raise ValueError(f"{pool}: at least one engine must stay")
    return PoolPlan(pool=pool, groups=groups)
