"""Pipelines as pure TensorFlow datasets, for TensorFlow's own tf.data service to run."""

from infeed_server.pipeline.spread.choice import plan_spread
from infeed_server.pipeline.spread.plan import GRAPH_VERSION, SpreadPlan, Variant
from infeed_server.pipeline.spread.refusals import LIMIT_BYTES

__all__ = ["GRAPH_VERSION", "LIMIT_BYTES", "SpreadPlan", "Variant", "plan_spread"]
