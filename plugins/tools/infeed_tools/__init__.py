"""Commands that prepare data and measure pipelines: a folder each."""
