"""How documents of JSON begin: by their type, or by their first octets."""

import re

# Types of JSON; bodies of other types may have it too
JSON = re.compile(r"[/+.-]((nd)?json|csp-report)", re.I)
# The start of a document, behind a guard against its use as a script
BEGIN = re.compile(
    rb"[\xef\xbb\xbf\s\x1e]*+(?:\)\]\}'?,?|while\s?\((?:1|true)\);|for\s?\(;;\);|"
    rb"&&&[A-Z]{1,20}&&&|throw\s[^\[{\"\r\n]{1,60})?\s*+[\[{]")
# Behind the bracket of a document, and not in a form
QUOTED = re.compile(rb"\s*+[\"\[{]")
# The start of a script: a call of a function with a document (JSONP), perhaps behind
# comments and a look whether the function is there
_NAME = rb"[\w.$]{1,100}(?:\[[\"'][\w.$-]{1,100}[\"']\])?\s*+"
CALL = re.compile(
    rb"(?:[\xef\xbb\xbf\s;]*+(?:/\*[^*]{0,200}\*/|//[^\r\n]{0,200}[\r\n])){0,9}"
    rb"[\xef\xbb\xbf\s;]*+(?:(?:typeof\s++)?%s(?:===?\s*+[\"']function[\"']\s*+)?&&\s*+)?"
    rb"%s\(\s*+(?=[\[{])" % (_NAME, _NAME))
