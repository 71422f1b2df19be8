"""What operators talk to: health, metrics and the small HTTP server that shows both."""
