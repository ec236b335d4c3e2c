"""Why a table is as it is: its files are replayed in memory, and nothing is changed."""
