"""Redactors of fields, queries and bodies."""

from cutthrough.exchange.redaction.redactor import Options, Redactor


def redactor(**fields):
    return Redactor(Options(**fields))
