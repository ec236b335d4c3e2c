"""Puts an endpoint and the engines behind it together, for one STORE."""
