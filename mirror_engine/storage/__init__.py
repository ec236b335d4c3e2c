"""Storage of the landing zone: the port, local folders, retries and read-only views."""
