"""Values that both ends share: errors, specs, finish transforms, reports and the verdict."""
