"""What a browser asks on the page What-if, and what the console keeps of the answers."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args
from urllib.parse import parse_qsl

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from hmas.contracts.control import TopologyName
from hmas.contracts.rehearsal import Rehearsal
from hmas.entry_points import known_topology

Minutes = Literal["5", "15", "60"]
Objective = Literal["", "requests", "tokens"]
Engines = Literal["", "-1", "+1"]
MINUTES, OBJECTIVES, ENGINES = map(get_args, (Minutes, Objective, Engines))
MAX_KEPT = 8  # answers


class WhatIfQuestion(BaseModel):
    """The last minutes of a pool and a change of what is in force; an empty field changes nothing. `slo` is as
    `hmas whatif --slo` takes it."""

    model_config = ConfigDict(frozen=True)

    pool: str = Field("", max_length=300)
    minutes: Minutes = "5"
    topology: Annotated[TopologyName, AfterValidator(known_topology)] | Literal[""] = ""
    objective: Objective = ""
    engines: Engines = ""
    slo: str = Field("", max_length=120)

    def options(self) -> list[str]:
        """Returns the options of `hmas whatif`."""
        changes = {"topology": self.topology, "objective": self.objective, "engines": self.engines, "slo": self.slo}
        told = {"pool": self.pool, "last": f"{self.minutes}m"} | {
            name: value for name, value in changes.items() if value
        }
        return [f"--{name}={value}" for name, value in told.items()]


def question_of(choice: str) -> WhatIfQuestion:
    """Returns the question that an address has (`pool=m&minutes=5&topology=edf`); fields that cannot be read are left
    out."""
    told = dict(parse_qsl(choice))
    try:
        return WhatIfQuestion.model_validate(told)
    except ValidationError as error:
        wrong = {str(each["loc"][0]) for each in error.errors()}
        return WhatIfQuestion.model_validate({name: value for name, value in told.items() if name not in wrong})


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """The answer to a question and when it came, Unix s; without `found`, `error` says why there is none."""

    at_s: float
    found: Rehearsal | None = None
    in_force: str = ""
    error: str = ""


@dataclass(slots=True)
class WhatIfBook:
    """The question that is being answered, and the last answers. `lacks` says what is not installed for any."""

    lacks: str = ""
    running: WhatIfQuestion | None = None
    began_s: float = 0.0
    told: OrderedDict[WhatIfQuestion, WhatIfAnswer] = field(default_factory=OrderedDict)

    def begin(self, now_s: float, question: WhatIfQuestion) -> None:
        self.running, self.began_s = question, now_s

    def end(self, told: WhatIfAnswer) -> None:
        """Keeps the answer to the question that was being answered."""
        if self.running is None:
            return
        self.told.pop(self.running, None)
        self.told[self.running] = told
        while len(self.told) > MAX_KEPT:
            self.told.popitem(last=False)
        self.running = None
