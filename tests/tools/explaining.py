"""Policies and lines of a log for tests of explain and suggest."""

from cutthrough.generation.policy_files import load_rules

#: Who asks, in a policy
ALICE = """
[users.alice]
password = "$2b$04$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW"
"""


def line_of(policy, name):
    rules = load_rules(str(policy)).rules
    return next(rule.source for rule in rules if rule.name == name)


def entry(reason="ok", user="alice", method="CONNECT", host="site.example", port=443,
          **more):
    return {"reason": reason, "client": "127.0.0.1", "user": user, "method": method,
            "host": host, "port": port, "peer": None} | more
