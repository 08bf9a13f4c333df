"""A request as agents see it: what the gateway knows at its arrival, its tags and its predicted cost.

The true output length is not among it: no decision sees it before the request settles.
"""

from dataclasses import dataclass
from enum import StrEnum

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.job import NO_CHAIN, JobFacts, PrefixChain


class TaskType(StrEnum):
    """Task types of H-MAS Table 6, and `unknown` for requests that perception could not tag with enough confidence
    (§3.2)."""

    QA = "QA"
    DIALOGUE = "Dialogue"
    TRANSLATION = "Translation"
    EXTRACTION = "Extraction"
    PARAPHRASING = "Paraphrasing"
    CODE_GENERATION = "CodeGeneration"
    INSTRUCTION_FOLLOWING = "InstructionFollowing"
    SUMMARIZATION = "Summarization"
    LETTER_DRAFTING = "LetterDrafting"
    MATH_REASONING = "MathReasoning"
    ESSAY_GENERATION = "EssayGeneration"
    LONG_FORM_GENERATION = "LongFormGeneration"
    RESEARCH_AND_COMMUNICATION = "ResearchAndCommunication"
    UNKNOWN = "unknown"


class TagSource(StrEnum):
    """What made the tags: a kind of perception backend, or the prior."""

    MODEL = "model"
    GENERATIVE = "generative"
    RULES = "rules"
    PRIOR = "prior"


@dataclass(frozen=True, slots=True)
class Slo:
    """The service level objective of one request, in seconds.

    `ttlt_s` None means `ttft_s + tpot_s * n` (DESIGN §8). `whole` is true where only the last token is judged:
    requests without `stream`, and those that state nothing but a TTLT.
    """

    ttft_s: float
    tpot_s: float
    ttlt_s: float | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as the gateway received it."""

    id: str
    model: str
    tenant: str
    flow: str
    prompt_tokens: int
    max_tokens: int | None  # a client's upper bound, never a prediction; 0 if nothing is generated, as for embeddings
    stream: bool
    slo: Slo
    # The SLO came from the client or the tenant; if false, it is a default that perception's task type may refine.
    slo_stated: bool
    priority: int  # in vLLM's polarity (lower is earlier), already clamped by the tenant's ceiling
    weight: float  # the tenant's share weight (> 0)
    importance: float  # Eq. 14's imp_r in [0.5, 1]
    arrival_s: float  # its arrival at the gateway on the local clock
    relegate: bool = True  # false: the tenant prefers a refusal to a late answer
    prefix: PrefixChain = NO_CHAIN  # the chain of its prompt, empty where nothing is known of it
    job: JobFacts | None = None  # what is known of its job; None unless its client speaks of one

    @property
    def prefill_only(self) -> bool:
        """Whether the engine computes the prompt and generates nothing, as for embeddings."""
        return self.max_tokens == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """What perception says of a request: x_r = [tau, SLO_ttft, SLO_tpot, priority, l_pred] (H-MAS §3.2).

    `output_tokens` is l_pred, the predicted median of the output length; `output_tokens_p90` is its 90 % quantile.
    `confidence` in [0, 1] is that of the task type. `version` names the predictor, so that errors of two versions are
    never calibrated together.
    """

    task: TaskType
    slo: Slo
    output_tokens: float
    output_tokens_p90: float
    confidence: float
    source: TagSource
    version: str


@dataclass(frozen=True, slots=True)
class Cost:
    """Predicted service times in s, both without queueing: of the prefill (`ttft_s`) and of each output token
    (`tpot_s`)."""

    ttft_s: float
    tpot_s: float

    def total_s(self, output_tokens: float) -> float:
        """Returns the predicted service time in s: T_tot = t_ttft + t_tpot * l_pred (H-MAS §3.2)."""
        return self.ttft_s + self.tpot_s * output_tokens


@dataclass(frozen=True, slots=True)
class KindCost:
    """A request's cost on engines of one kind."""

    kind: EngineKind
    cost: Cost


@dataclass(frozen=True, slots=True)
class Annotation:
    """The tags and the costs that cognition adds to a request, and `utility`, the weight that the operator gives to
    requests of the tagged type (H-MAS Eq. 1); None: 1. `costs` has one for each kind of engine of the pool, at least
    one and at most `MAX_KINDS`; `hmas.laws.kind_costs` says which of them counts where."""

    tags: Tags
    costs: tuple[KindCost, ...]
    utility: float | None = None
