"""The tool `infeed profile`: the cost of each stage, this host's rate, and advice."""
