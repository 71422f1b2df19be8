"""The order of the data of runs: commands that look at it and change it, and their calls."""
