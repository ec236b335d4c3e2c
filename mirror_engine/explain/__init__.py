"""The long form of every diagnostic: a Markdown page for each code, and the protocol's own sentences behind it."""
