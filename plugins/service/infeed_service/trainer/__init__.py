"""The trainer's side: datasets that read the workers directly."""
