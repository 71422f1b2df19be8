"""The `tfds` source: folders prepared by TensorFlow Datasets."""
