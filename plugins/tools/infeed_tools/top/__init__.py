"""The tool `infeed top`: a server's status, live."""
