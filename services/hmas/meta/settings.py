"""Settings of the meta controller, read once at its start."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from hmas import entry_points
from hmas.contracts.cadences import FORETELL_S
from hmas.contracts.control import INITIAL_TOPOLOGY, MAX_VALID_FOR_S, Hints, TopologyName
from hmas.entry_points import PluginMakers, known_topology
from hmas.laws.plan_steps import alike_types
from hmas.meta.agent.config import (
    ForetellingConfig,
    LayoutConfig,
    MetaConfig,
    PlanActs,
    PlanConfig,
    RehearsalConfig,
    RulesConfig,
)
from hmas.meta.agent.selectors.table import ASKED, SELECTORS, check_selector
from hmas.meta.plan_inputs import read_budgets
from hmas.runtime.catalogue_file import read_catalogue
from hmas.runtime.settings import RuntimeSettings


class MetaSettings(RuntimeSettings):
    """Settings of the meta controller: the selector, its period and its guards."""

    grpc_host: str = Field("127.0.0.1", description="Address on which the gRPC service Meta listens")
    grpc_port: int = Field(0, ge=0, le=65535, description="Port of the Meta service; 0 picks a free one")
    selector: str = Field(
        "auto",
        description="What proposes topologies: rules or llm (a language model); auto is llm if HMAS_LLM_URL is set and "
        "rules otherwise",
    )
    rehearse: Literal["on", "off"] = Field(
        "off",
        description="on: a topology is switched only if a simulation of the last minutes predicts a clear gain; off: a "
        "proposal is applied at once",
    )
    rehearsal_profile: str = Field(
        "",
        description="Profile of the engines that rehearsals simulate: a name, or a file of `hmas calibrate`; empty: "
        "fitted to their measured pace",
    )
    rehearsal_cpu_share: float = Field(
        0.25, gt=0, le=1, description="Share of one core that rehearsals may take on average"
    )
    rehearsal_window_s: float = Field(
        300.0, ge=30, le=3600, description="Seconds of past requests that a rehearsal replays"
    )
    foretell: Literal["on", "off"] = Field(
        "on",
        description="on: where the mesh only observes, a simulation of the last minutes says each minute what "
        "scheduling would bring, within HMAS_REHEARSAL_CPU_SHARE; off: nothing says it",
    )
    llm_url: str = Field(
        "", description="Base URL of the selector's OpenAI-compatible endpoint, such as http://host:8000/v1"
    )
    llm_model: str = Field("", description="Name of the selector's language model at HMAS_LLM_URL")
    llm_api_key_file: Path | None = Field(None, description="File that holds the API key for HMAS_LLM_URL")
    llm_timeout_s: float = Field(
        10.0, gt=0, description="Seconds that the language model's answer may take; after that the rules decide"
    )
    meta_period_s: float = Field(15.0, gt=0, description="Seconds between two decisions about a pool's topology")
    min_dwell_s: float = Field(
        30.0, ge=0, description="Minimum number of seconds between two switches of a pool's topology"
    )
    usual_topology: TopologyName = Field(
        INITIAL_TOPOLOGY,
        description="Topology with which a pool begins, and that the rules use where the view calls for no other",
    )
    objective: Literal["requests", "tokens"] = Field(
        "requests",
        description="What MaxOnTime maximises: requests that are on time, or their service gain in tokens (ESG)",
    )
    slack_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of the slack of the requests before it that MaxOnTime lets a shorter one take by going "
        "first, where work arrives evenly (less where it comes in bursts); 0 dispatches by deadline alone",
    )
    layout: Literal["mixed", "auto", "tags"] = Field(
        "auto",
        description="How requests share a pool's engines. With mixed all share all engines. With auto the controller "
        "splits them by TPOT SLO where the measured pace says that more are on time then and most clients state their "
        "SLOs. With tags it also does where perception has to tell them",
    )
    catalogue: Path | None = Field(
        None,
        description="File of the instance types that plans are made of, as `hmas profile fit` writes it; without one "
        "the controller plans no engines",
    )
    plan: PlanActs = Field(
        PlanActs.ADVISE,
        description="How far the controller follows its plan of the engines. With advise it only tells the plan. With "
        "routing it also changes pace classes. With scale it also says step by step, in the metric "
        "hmas_plan_replicas, how many engines of each type should run",
    )
    plan_budget: str = Field(
        "", description="Cards that a plan may use, such as 16xh100,8xh200, by the names that HMAS_CATALOGUE has"
    )
    plan_file: Path | None = Field(
        None, description="File with an operator's plan, which outranks all others while it exists"
    )
    plan_search_s: float = Field(
        600.0, ge=0.0, description="Seconds between two searches for a better plan of the engines; 0: none are made"
    )
    topology_valid_for_s: float = Field(
        15.0, gt=0.5, le=MAX_VALID_FOR_S, description="Seconds for which workers obey a decision if no new one comes"
    )

    @model_validator(mode="after")
    def _names_are_known_and_llm_is_complete(self) -> "MetaSettings":
        try:
            selectors = PluginMakers(entry_points.SELECTORS, SELECTORS)
            check_selector(self.chosen_selector, selectors)
            if not self.asks_llm:
                _ = selectors[self.chosen_selector]  # imports it
        except ValueError as error:
            raise ValueError(f"HMAS_SELECTOR: {error}, or auto") from error
        try:
            known_topology(self.usual_topology)
        except ValueError as error:
            raise ValueError(f"HMAS_USUAL_TOPOLOGY: {error}") from error
        if self.asks_llm and not self.llm_url:
            raise ValueError("HMAS_SELECTOR=llm needs HMAS_LLM_URL, which is empty: set it, or set HMAS_SELECTOR=rules")
        if self.asks_llm and not self.llm_model:
            raise ValueError("HMAS_LLM_MODEL is empty: set it to the name of the language model at HMAS_LLM_URL")
        self.plan_config()
        return self

    @property
    def chosen_selector(self) -> str:
        if self.selector != "auto":
            return self.selector
        return "llm" if self.llm_url else "rules"

    @property
    def asks_llm(self) -> bool:
        return self.chosen_selector in ASKED

    def llm_api_key(self) -> str:
        """Returns the API key from `llm_api_key_file`, or "none" if no file is set. Raises OSError if the file cannot
        be read."""
        return self.llm_api_key_file.read_text().strip() if self.llm_api_key_file is not None else "none"

    def layout_config(self) -> LayoutConfig:
        config = LayoutConfig(adaptive=self.layout != "mixed")
        return replace(config, least_stated=0.0) if self.layout == "tags" else config

    def plan_config(self) -> PlanConfig:
        """Returns what plans are made of. Raises ValueError if the catalogue cannot be read, or the settings do not fit
        together."""
        if self.catalogue is None:
            if self.plan is not PlanActs.ADVISE or self.plan_file is not None:
                raise ValueError("HMAS_PLAN and HMAS_PLAN_FILE need HMAS_CATALOGUE, which is not set")
            return PlanConfig()
        try:
            catalogue = read_catalogue(self.catalogue)
        except OSError as error:
            raise ValueError(f"HMAS_CATALOGUE: {error}") from error
        if (alike := alike_types(catalogue)) is not None:
            raise ValueError(f"HMAS_CATALOGUE: engines of {alike[0]} and {alike[1]} cannot be told apart: keep one")
        budgets = read_budgets(self.plan_budget, {each.hardware for each in catalogue.types})
        return PlanConfig(catalogue=catalogue, budgets=budgets, acts=self.plan, search_every_s=self.plan_search_s)

    def meta_config(self) -> MetaConfig:
        return MetaConfig(
            selector=self.chosen_selector,
            rules=RulesConfig(
                usual=self.usual_topology,
                hints=Hints(by_tokens=self.objective == "tokens", slack_share=self.slack_share),
            ),
            decide_every_s=self.meta_period_s,
            min_dwell_s=self.min_dwell_s,
            ask_timeout_s=self.llm_timeout_s,
            valid_for_s=self.topology_valid_for_s,
            rehearsal=RehearsalConfig(
                enabled=self.rehearse == "on", cpu_share=self.rehearsal_cpu_share, window_s=self.rehearsal_window_s
            ),
            foretelling=ForetellingConfig(
                enabled=self.foretell == "on", every_s=FORETELL_S, window_s=self.rehearsal_window_s
            ),
            layout=self.layout_config(),
            plan=self.plan_config(),
        )
