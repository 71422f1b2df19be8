"""Augmentations of pictures: a file for each transform, or for a family of them."""
