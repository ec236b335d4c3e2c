"""One file per command; each parses, calls one function, prints and exits."""
