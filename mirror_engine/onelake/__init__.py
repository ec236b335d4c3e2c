"""A OneLake on this machine: its dialects, spoken over a `WritableStorage`; knows nothing of the engine."""
