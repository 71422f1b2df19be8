"""Changes and comparisons of runs, by arithmetic on definitions: `infeed amend` and `diff`."""
