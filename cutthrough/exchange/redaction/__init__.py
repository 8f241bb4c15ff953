"""Removes secrets from heads, bodies and messages, for captures and recordings (R79).

    redactor     the secrets, and their stand-ins
    spellings    keys of URLs and forms, in every spelling
    beginnings   of documents of JSON
    documents    paths in JSON, also inside its strings
    members      keys of JSON in text that is no document
    parts        multipart bodies, and streams of events
"""
