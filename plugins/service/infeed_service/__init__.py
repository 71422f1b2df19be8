"""TensorFlow's data service as an engine of infeed: dispatcher, workers, gateway and trainer."""
