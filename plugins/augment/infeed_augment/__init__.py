"""Augmentations of pictures: one file for each transform or family of transforms."""
