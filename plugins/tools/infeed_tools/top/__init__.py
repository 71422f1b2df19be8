"""The tool `infeed top`: what a server does, live."""
