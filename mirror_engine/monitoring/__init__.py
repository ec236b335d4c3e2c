"""Turns events and the ledger into what people and Fabric's own tools read."""
