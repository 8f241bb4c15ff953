"""Settings of a writer of captures."""

from cutthrough.storage.settings import Settings

SETTINGS = Settings(database="", program="p", count=100, bytes=1 << 20, age=60.0,
                    credentials=False, fields=(), query=(), json=())
