"""The catalogue of instance types as a YAML file. Unknown fields and wrong values are errors that name type and field.

```yaml
source: fitted by `hmas profile fit`
types:
  qwen3-32b-fp8-trtllm-h100-tp1:      # lower-case letters, digits and -, as names in Kubernetes
    model: Qwen/Qwen3-32B-fp8
    hardware: h100
    gpus: 1
    step: {c0_s: 0.0139, c_p_s: 7.1e-05, c_d_s: 6.3e-05, c_k_s: 3.9e-08}  # StepCostModel; c_pp_s is 0 if left out
    kv_tokens: 282000
    origin: measured                  # from here on, what is left out has the default of `InstanceType`
    error: 0.028
    start_s: 120.0
```
"""

from collections.abc import Iterable
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from hmas.contracts.pool_plan import Catalogue, CostOrigin, InstanceType
from hmas.contracts.step_cost import StepCostModel

MAX_BYTES = 2**20
MAX_TYPES = 1000
MAX_FAULTS = 10  # that a message lists
SHIPPED = "catalogue.yaml"  # beside this module

_TypeName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
_Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]
_Cost = Annotated[float, Field(ge=0.0, le=1e3)]
_Count = Annotated[int, Field(ge=1, le=2**40)]
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=False)


class _Step(BaseModel):
    model_config = _STRICT
    c0_s: Annotated[float, Field(gt=0.0, le=1e3)]
    c_p_s: _Cost
    c_d_s: _Cost
    c_k_s: _Cost
    c_pp_s: _Cost = 0.0


class _Type(BaseModel):
    model_config = _STRICT
    model: _Text
    hardware: _Text
    gpus: Annotated[int, Field(ge=1, le=1024)]
    step: _Step
    kv_tokens: _Count
    max_num_seqs: _Count = 256
    max_num_batched_tokens: _Count = 2048
    start_s: Annotated[float, Field(ge=0.0, le=86_400.0)] = 120.0
    usd_h: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0
    origin: CostOrigin = CostOrigin.ASSUMED
    error: Annotated[float, Field(ge=0.0, le=1e3)] | None = None


class _File(BaseModel):
    model_config = _STRICT
    source: Annotated[str, StringConstraints(max_length=1000)] = ""
    types: Annotated[dict[_TypeName, _Type], Field(min_length=1, max_length=MAX_TYPES)]


def read_catalogue(path: Path) -> Catalogue:
    """Reads a catalogue. Raises ValueError that names the file, the types and the fields at fault, and OSError."""
    with path.open("rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise ValueError(f"the catalogue {path} has more than {MAX_BYTES} bytes: split it")
    try:
        return parse_catalogue(text.decode("utf-8"))
    except ValueError as error:  # of the encoding, too
        raise ValueError(f"the catalogue {path} is not valid: {error}") from None


def shipped_catalogue() -> Catalogue:
    """Returns the catalogue that comes with the package, fitted to published measurements."""
    return parse_catalogue((files("hmas.runtime") / SHIPPED).read_text(encoding="utf-8"))


def parse_catalogue(text: str) -> Catalogue:
    """Returns the catalogue of a YAML text. Raises ValueError that names the types and fields at fault."""
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"it is not YAML: {str(error) or 'it is nested too deeply'}") from None
    if not isinstance(document, dict):
        raise ValueError("it must be a mapping with `types`, a mapping of names to instance types")
    try:
        found = _File.model_validate(document)
    except ValidationError as error:
        raise ValueError(_told(error)) from None
    return Catalogue(types=tuple(_typed(name, each) for name, each in found.types.items()), source=found.source)


def _typed(name: str, form: _Type) -> InstanceType:
    if form.max_num_batched_tokens < form.max_num_seqs:
        raise ValueError(f"types.{name}: max_num_batched_tokens must be at least max_num_seqs, {form.max_num_seqs}")
    fields = dict(form) | {"step": StepCostModel(**dict(form.step))}
    return InstanceType(name=name, **fields)


def _told(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_input=False)
    told = [f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in faults[:MAX_FAULTS]]
    more = len(faults) - MAX_FAULTS
    return "; ".join([*told, *([f"and {more} more"] if more > 0 else [])])


def render_catalogue(catalogue: Catalogue, comment: str = "") -> str:
    """Returns a catalogue as text that `parse_catalogue` reads, below the lines of a comment."""
    body = {"source": catalogue.source, "types": {each.name: _plain(each) for each in catalogue.types}}
    text = _commented(comment.splitlines()) + yaml.safe_dump(body, sort_keys=False, width=120)
    parse_catalogue(text)  # proves that what is written can be read
    return text


def _plain(kind: InstanceType) -> dict[str, Any]:
    body = asdict(kind) | {"origin": kind.origin.value}
    del body["name"]
    return body


def _commented(lines: Iterable[str]) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)
