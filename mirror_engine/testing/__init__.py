"""Lets a publisher's tests run against the mirror."""
