"""The `dataset` source: a user's tf.data.Dataset."""
