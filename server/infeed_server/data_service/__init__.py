"""TensorFlow's tf.data service: its dispatcher and workers as roles, and the gateway to them."""
