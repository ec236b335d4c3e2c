"""Delta tables: change files to rows, rows to net changes, net changes to commits; the only package with Spark."""
