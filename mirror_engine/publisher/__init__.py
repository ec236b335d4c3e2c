"""Tools for people who write publishers: validate, trace, diff, failure scenarios and a pytest plugin."""
