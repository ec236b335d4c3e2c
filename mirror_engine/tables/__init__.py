"""Door 2: the mirrored tables, and the only place with Spark."""
