"""Compare the tables that Fabric made of a landing zone with dry runs of it."""
