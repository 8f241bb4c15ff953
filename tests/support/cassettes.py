"""Cassettes of VCR and of programs like it, as imports take them."""

import json

CASSETTE = """\
interactions:
- request:
    body: !!python/unicode 'a=1'
    headers:
      Accept: ['*/*']
      X: [a, b]
    method: POST
    uri: https://a.example/x?q=1
  response:
    body: {string: !!binary "/wA="}
    headers:
      content-type: [text/plain]
    status: {code: 200, message: OK}
- request: {body: null, headers: {}, method: GET, uri: 'ftp://a/'}
  response: {body: {string: ''}, headers: {}, status: {code: 200, message: OK}}
version: 1
"""
# Version 1.7 of tornado's client: fields are a list of tuples
OF_TORNADO = """\
interactions:
- request:
    body: null
    headers: {}
    method: GET
    uri: http://a.example/
  response:
    body: {string: !!python/unicode 'not found'}
    headers:
    - !!python/tuple
      - Content-Length
      - ['9']
    - !!python/tuple
      - Set-Cookie
      - ['a=1; path=/', 'b=2;
          path=/x']
    status: {code: 404, message: Not Found}
version: 1
"""
# Versions 4.1 to 5.1 of httpx: the content is decoded, its fields are as they came
OF_OLD_HTTPX = """\
interactions:
- request:
    body: ''
    headers:
      host:
      - a.example
    method: GET
    uri: https://a.example/gzip
  response:
    content: "{\\n  \\"gzipped\\": true}\\n"
    headers:
      Content-Encoding:
      - gzip
      Content-Length:
      - '230'
      Content-Type:
      - application/json
    http_version: HTTP/1.1
    status_code: 200
version: 1
"""
# Versions up to 8.0: a request's body that was a file, and one that was an iterator
OF_FILES = """\
interactions:
- request:
    body: !!python/object/new:_io.BytesIO
      state: !!python/tuple
      - !!binary |
        YWJj
      - 0
      - null
    headers: {}
    method: POST
    uri: http://a.example/file
  response: {body: {string: ''}, headers: {}, status: {code: 204, message: null}}
- request:
    body: !!python/object/apply:builtins.iter
      args:
      - - !!binary |
          YWI=
        - c
      state: 0
    headers: {}
    method: POST
    uri: http://a.example/iterator
  response: {body: {}, headers: {}, status: {code: 200, message: OK}}
version: 1
"""
GO = """\
version: 2
interactions:
- id: 0
  request: {url: 'http://a.example/x', method: '', headers: {A: ['1']}, body: ''}
  response: {status: 302 Found, code: 302, headers: {Location: [/y]}, body: '',
             trailer: {T: ['1']}, content_length: 0}
"""
RUBY = """\
---
http_interactions:
- request:
    method: :post
    uri: http://a.example/x
    body: {encoding: US-ASCII, string: a=1}
    headers: {Accept: ['*/*']}
  response:
    status: {code: 200, message: OK}
    headers: {}
    body: {encoding: ASCII-8BIT, string: !binary "/wA="}
    http_version:
  recorded_at: Tue, 01 Nov 2011 04:58:44 GMT
recorded_with: VCR 2.0.0
"""
BETAMAX = json.dumps({"recorded_with": "betamax/0.4.2", "http_interactions": [{
    "recorded_at": "2013-09-28T01:25:38",
    "request": {"method": "GET", "uri": "http://a.example/x", "body": "",
                "headers": {"Accept": "*/*"}},
    "response": {"status": {"code": 200, "message": "OK"}, "url": "http://a.example/x",
                 "headers": {}, "body": {"encoding": "utf-8", "string": "é"}}}]})


def cassette(request=None, **response):
    """One interaction, as the serializer for JSON writes it."""
    return json.dumps({"version": 1, "interactions": [{
        "request": {"method": "GET", "uri": "http://a.example/", "body": None,
                    "headers": {}, **(request or {})},
        "response": {"status": {"code": 200, "message": "OK"}, "headers": {},
                     "body": {"string": ""}, **response}}]}).encode()
