"""Tools that look at a mirror: validate, trace, diff, compare, pull."""
