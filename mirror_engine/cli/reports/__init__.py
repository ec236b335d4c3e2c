"""What `validate` says, in the forms that other programs read: a file each, `render(verdicts) -> str`."""
