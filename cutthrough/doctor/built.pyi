mode: str
flags: str
compiler: str
optimised: bool
assertions: bool
line_events: bool
sanitized: bool
