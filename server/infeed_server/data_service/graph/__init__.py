"""Pipelines as graphs of TensorFlow operations, which the workers of the tf.data service run."""

from infeed_server.data_service.graph.build import plan_data_service
from infeed_server.data_service.graph.plan import DataServicePlan, Variant

__all__ = ["DataServicePlan", "Variant", "plan_data_service"]
