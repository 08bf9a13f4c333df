"""The prediction agent, which batches queries for a cost model and corrects it by what workers measure."""

from hmas.prediction.agent.agent import PredictionAgent, PredictionConfig

__all__ = ["PredictionAgent", "PredictionConfig"]
