"""The tool `infeed list`: the pipelines of servers, and differences between the servers."""
