"""The tool `infeed demo`: from files to a trained model, with a server in another process."""
