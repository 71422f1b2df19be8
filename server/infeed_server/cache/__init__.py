"""The sample cache's store: samples by index, in memory or in files, without TensorFlow."""
