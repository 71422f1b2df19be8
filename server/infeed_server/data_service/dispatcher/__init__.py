"""The dispatcher of the tf.data service: `infeed dispatcher`."""
