"""The data order of runs: commands that inspect and change it, and their calls to servers."""
