"""The tool `infeed audit`: counts of every sample id of a pipeline, over ranks and epochs."""
