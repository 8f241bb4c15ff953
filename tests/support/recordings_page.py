"""The page of recordings, and the questions that it asks."""

import json

from tests.support.admin import AUTHORIZED


def ask(operator, method, path, content=None):
    connection = operator.connection()
    try:
        connection.request(method, path, content and json.dumps(content), AUTHORIZED)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    return answer.status, json.loads(text) if answer.status == 200 else text


def get(operator, path):
    status, answer = ask(operator, "GET", path)
    assert status == 200, answer
    return answer
