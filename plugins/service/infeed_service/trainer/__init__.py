"""The trainer's side: datasets read directly from the workers."""
