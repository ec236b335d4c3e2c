"""The whole engine simulated from one seed: `python -m simulation --seeds 1000`."""
