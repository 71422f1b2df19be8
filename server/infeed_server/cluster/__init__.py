"""TensorFlow's data service: its processes, and what a server asks of them."""
