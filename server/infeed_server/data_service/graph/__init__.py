"""Pipelines as graphs of TensorFlow operations, which the workers of the tf.data service run."""

from infeed_server.data_service.graph.build import plan_data_service
from infeed_server.data_service.graph.plan import GRAPH_VERSION, DataServicePlan, Variant
from infeed_server.data_service.graph.unsupported import LIMIT_BYTES

__all__ = ["GRAPH_VERSION", "LIMIT_BYTES", "DataServicePlan", "Variant", "plan_data_service"]
