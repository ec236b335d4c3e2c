"""Every state of the disk that a power cut may leave: recorded, enumerated, and opened with the engine."""
