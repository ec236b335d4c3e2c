"""Says why a table is what it is: its files are replayed once more, beside the Delta table, and nothing is changed."""
