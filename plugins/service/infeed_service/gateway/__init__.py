"""Gateway to pipelines whose batches are made by the workers of the tf.data service."""
