"""Door 1: the landing zone's files."""
