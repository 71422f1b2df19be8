"""The store of the sample cache: samples by index, in memory or in files, without TensorFlow."""
