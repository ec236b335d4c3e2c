"""Test publishers: pytest plugin, failure scenarios, landing zone writer, OneLake in a test, cases."""
