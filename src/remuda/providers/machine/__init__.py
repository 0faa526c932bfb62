"""The generic machine provider: NodeDriver → kinds → `<Driver>Machine` → Job → server."""
