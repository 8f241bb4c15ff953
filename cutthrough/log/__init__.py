"""The access log, its formats and sinks, the error log, and standard error."""
