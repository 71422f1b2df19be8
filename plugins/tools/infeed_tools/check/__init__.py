"""The tool `infeed check`: files of pipelines without TensorFlow, and data sample by sample."""
