"""A worker of the tf.data service: `infeed worker`."""
