"""Settings of Statera, read once at its start."""

from pydantic import Field

from hmas.contracts.control import MAX_VALID_FOR_S
from hmas.runtime.settings import RuntimeSettings
from hmas.statera.agent.config import FenceConfig, NRunConfig, NRunRule, StateraConfig


class StateraSettings(RuntimeSettings):
    """Settings of Statera: the fence, the outer loop and the utilisation band."""

    tuple_valid_for_s: float = Field(
        5.0,
        gt=0.5,
        le=MAX_VALID_FOR_S,
        description="Seconds for which a worker obeys a control tuple if no new one comes",
    )
    fence_epsilon: float = Field(
        0.1, gt=0, lt=0.5, description="Share of requests whose output may be longer than their length bound"
    )
    n_min: int = Field(1, gt=0, description="Lowest N_run (most sequences in flight) that Statera sets for an engine")
    min_prefill_chunk: int = Field(
        1, ge=0, description="Tokens by which the lower bound of B_token exceeds the number of running requests"
    )
    n_run_rule: NRunRule = Field(
        NRunRule.STEP,
        description="What limits the requests that run in an engine. With engine it is the engine's own limit. With "
        "step no more run, besides, than a step has time for within the TPOT SLO that is worth keeping. With band it "
        "is a loop on utilisation, beside another on B_token, as in H-MAS Algorithm 2 (docs/results/regulator.md)",
    )
    outer_unconditional: bool = Field(
        False,
        description="With n_run_rule band, move N_run even while B_token is not at its bound, as Algorithm 2 is "
        "printed",
    )
    u_high: float = Field(0.95, gt=0.1, le=1.5, description="Upper edge of the utilisation band")
    band_width: float = Field(0.1, gt=0, lt=1, description="Upper minus lower edge of the utilisation band")

    def statera_config(self) -> StateraConfig:
        band = NRunConfig(
            rule=self.n_run_rule,
            u_high=self.u_high,
            width=self.band_width,
            n_min=self.n_min,
            min_prefill_chunk=self.min_prefill_chunk,
            unconditional=self.outer_unconditional,
        )
        return StateraConfig(
            fence=FenceConfig(epsilon=self.fence_epsilon),
            band=band,
            valid_for_s=self.tuple_valid_for_s,
        )
