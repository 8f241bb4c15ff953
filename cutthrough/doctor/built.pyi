mode: str
flags: str
libssl: str
compiler: str
optimised: bool
assertions: bool
line_events: bool
sanitized: bool
