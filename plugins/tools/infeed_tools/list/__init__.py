"""The tool `infeed list`: the pipelines of servers, and how the servers differ."""
