"""The gateway: pipelines whose batches the workers of the tf.data service make."""
