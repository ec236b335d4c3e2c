"""Says what the service would make of what a publisher landed, and changes nothing."""
