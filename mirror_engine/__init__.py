"""The open mirroring engine: a Fabric Open Mirroring landing zone becomes Delta tables."""
