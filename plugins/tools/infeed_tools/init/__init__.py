"""The tool `infeed init`: starter files, with pipelines for the data at a path."""
