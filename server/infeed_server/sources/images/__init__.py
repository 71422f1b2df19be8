"""The `images` source: image files."""
