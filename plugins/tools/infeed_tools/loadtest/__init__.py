"""The tool `infeed loadtest`: simulated trainers, which show how many real ones can be fed."""
