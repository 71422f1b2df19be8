"""TensorFlow adapters: datasets and eager tensors."""
