"""The `tfds` source: folders that TensorFlow Datasets prepared."""
