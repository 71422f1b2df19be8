"""The tool `infeed audit`: counts of a pipeline's sample ids, over all ranks and epochs."""
