"""The tool `infeed loadtest`: simulated trainers that show how many real ones servers can feed."""
