"""Decoding of image files into pixels, by TensorFlow operations alone: both engines run them."""
