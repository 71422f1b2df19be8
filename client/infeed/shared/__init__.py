"""Values of both ends: errors, specs, finish transforms, reports, and their verdict."""
