"""Annotated first configurations for `cutthrough init --for`.

Each is a folder's files by their names, in which {folder} is its path, and {shell} its
path in a command. What is secret is made anew each time and stands in files of its own.
"""

from typing import NamedTuple


class Template(NamedTuple):
    config: str
    policy: str
    after: tuple[str, ...]                   # next steps, a line each
    places: tuple[tuple[str, str], ...] = ()    # places of files elsewhere


_LOGIN = """\
user = "me"
password_file = "{folder}/password"
"""
_ADMIN = """\
admin_token_file = "{folder}/admin-token"
"""
_USERS = """\
# One line a user, as htpasswd writes it: cutthrough passwd ann --file {shell}/users
users_file = "{folder}/users"
"""

TEMPLATES = {
    "laptop": Template(
        """\
# See your own traffic: docs/traffic.md, docs/capture.md
listen = ["127.0.0.1:8888"]
"""
        + _LOGIN
        + """
# Your own machines and containers may be reached; "on" refuses private addresses
address_floor = "off"
policy = "{folder}/policy.toml"

# The page /traffic, for holders of the token, and the live page
admin = "127.0.0.1:9128"
"""
        + _ADMIN
        + """
# Captured exchanges; the oldest are deleted
capture_file = "{folder}/flows.db"
capture_count = 10000
redact_query = ["token", "api_key", "access_token"]

# To look into HTTPS: cutthrough ca init --dir {shell}/ca, have your programs trust
# {folder}/ca/ca.pem (docs/ca.md), and take away the # here and in policy.toml
# intercept_ca = "{folder}/ca"
""",
        """\
default = "deny"

[[rules]]
name = "all"
action = "allow"
capture = "full"            # "head": without bodies
# tls = "intercept_http"    # opens HTTPS: docs/interception.md
""",
        ("http://127.0.0.1:9128/traffic shows the traffic; its token is in "
         "{folder}/admin-token",)),
    "team": Template(
        """\
# One door to the internet for a team: docs/policy.md, docs/limits.md, docs/deploy.md
listen = ["0.0.0.0:3128"]
"""
        + _USERS
        + """
policy = "{folder}/policy.toml"
# Destinations with private addresses are refused; a rule's `addresses` opens some
address_floor = "on"
# A changed file is in force some seconds later, and no tunnel ends
watch = true

access_log = "{folder}/access.log"
access_log_format = "json"  # docs/logs.md; squid's, W3C's, CSV and others exist too

# Metrics for Prometheus, and the live page; on another address a token is asked for
admin = "127.0.0.1:9128"
"""
        + _ADMIN
        + """
# Beyond this a client address is answered 429
max_connections_per_client = 500

# A listener with TLS, so that passwords are not sent in the clear: docs/tls.md
# [[listeners]]
# address = "0.0.0.0:3129"
# protocols = ["http", "http2", "tls"]
# certificates = ["{folder}/proxy.pem"]
# certificate_keys = ["{folder}/proxy.key"]
""",
        """\
# The first rule that matches decides: `cutthrough explain` shows which one does
default = "deny"

[groups]
developers = ["me"]

[limits.default]
tunnels = 500
requests_per_second = 200

[[rules]]
name = "never"
action = "deny"
hosts = ["metadata.google.internal", ".onion"]

[[rules]]
name = "web"
action = "allow"
groups = ["developers"]
ports = [80, 443]
""",
        ("`cutthrough suggest --log {shell}/access.log` proposes rules for what was "
         "refused",)),
    "ci": Template(
        """\
# The hosts that a job may reach, and no more: docs/policy.md. Jobs run on this host.
listen = ["127.0.0.1:3128"]
"""
        + _LOGIN
        + """
policy = "{folder}/policy.toml"
address_floor = "on"
access_log = "{folder}/access.log"
access_log_format = "json"
# The end of the job ends the proxy's tunnels
drain_timeout = "5s"
""",
        """\
default = "deny"

[lists]
# Replace it by the hosts of your package managers; refused ones are in the log
registries = ["packages.example.com"]
sources = ["github.com", "codeload.github.com", ".githubusercontent.com", "gitlab.com"]

[limits.default]
tunnels = 200

[[rules]]
name = "packages and sources"
action = "allow"
hosts = ["@registries", "@sources"]
ports = [443]
methods = ["CONNECT"]
# The name inside must be the name asked for
sni = "match"
""",
        ("`cutthrough suggest --log {shell}/access.log` shows what a job was "
         "refused",)),
    "kubernetes": Template(
        """\
# For deploy/kubernetes of the source tree, which mounts these files so: docs/deploy.md
listen = ["0.0.0.0:3128"]
"""
        + _USERS
        + """
policy = "{folder}/policy.toml"
# The addresses of pods, services and metadata are refused
address_floor = "on"
# A changed ConfigMap is in force some seconds later
watch = true
workers = 2                 # one for each CPU of the pod; "auto" counts the node's

access_log = "-"
access_log_format = "json"
error_log_format = "json"

# Probes (/readyz, /healthz) and Prometheus (/metrics); changes take the token
admin = "0.0.0.0:9128"
"""
        + _ADMIN
        + """
# Less than terminationGracePeriodSeconds
drain_timeout = "5m"
""",
        """\
default = "deny"

[limits.default]
tunnels = 500

[[rules]]
name = "web"
action = "allow"
ports = [80, 443]
""",
        ("kubectl create configmap cutthrough --from-file={shell}/cutthrough.toml "
         "--from-file={shell}/policy.toml",
         "kubectl create secret generic cutthrough --from-file={shell}/users "
         "--from-file={shell}/admin-token"),
        (("policy.toml", "/etc/cutthrough/config"),
         ("users", "/etc/cutthrough/secrets"),
         ("admin-token", "/etc/cutthrough/secrets"))),
    "recording": Template(
        """\
# Record the answers of an API, and replay them: docs/recording.md
listen = ["127.0.0.1:8888"]
"""
        + _LOGIN
        + """
address_floor = "off"
policy = "{folder}/policy.toml"
recording_directory = "{folder}/recordings"
recording_session = "default"

# The page /recordings, for holders of the token
admin = "127.0.0.1:9128"
"""
        + _ADMIN
        + """
# To record HTTPS: cutthrough ca init --dir {shell}/ca, and take away the # here and in
# policy.toml
# intercept_ca = "{folder}/ca"

# A sample of a route. A client with a base URL in place of a proxy asks this listener,
# and the rule `sample` of policy.toml leads its requests to the origin
[[listeners]]
address = "127.0.0.1:8889"
auth = "none"

[origins.sample]
urls = ["https://httpbin.org"]
host = "url"                # the field Host that the origin gets

# What makes two requests alike, of the hosts and paths that are named here
# [recording_routes.sample]
# paths = ["/api/*"]
# body = "json"
# ignored_paths = ["$.time"]
# ignored_query = ["utm_*"]
""",
        """\
default = "deny"

[[rules]]
name = "sample"
action = "allow"
hosts = ["127.0.0.1", "localhost"]      # of the base URL
paths = ["/api/**"]
origin = "sample"
recording = "record"        # "replay", "cache" and "spy": docs/recording.md

# Requests of clients with this proxy
[[rules]]
name = "proxied"
action = "allow"
users = ["me"]
recording = "record"
# tls = "intercept"
""",
        ("curl http://127.0.0.1:8889/api/items is recorded; `cutthrough mode replay "
         "--directory {shell}/recordings` replays it",)),
}
