"""Facts for `cutthrough run` and the plugin of pytest about the APIs that are recorded
most, if no configuration is given: the parts of a request that do not count, and those
of it and its answer that are not kept, beside credentials."""

import importlib.util

PRESETS = r"""
recording_redact_fields = ["openai-organization", "openai-project",
    "anthropic-organization-id", "stripe-account", "x-oauth-client-id"]
recording_redact_json = ["$..client_secret"]
# Tokens of GitHub, secret keys of Stripe
recording_redact_body = ['\b(?:gh[oprsu]|github_pat|[rs]k_[a-z]{4}|whsec)_\w{16}\w*']

[recording_routes.openai]
hosts = ["api.openai.com", "*.openai.azure.com"]
body = "json"
ignored_paths = ["$.user", "$.metadata", "$.safety_identifier", "$.prompt_cache_key"]

[recording_routes.anthropic]
hosts = ["api.anthropic.com"]
body = "json"
ignored_paths = ["$.metadata"]

[recording_routes.github]
hosts = ["api.github.com", "uploads.github.com"]
body = "json"

[recording_routes.stripe]
hosts = ["api.stripe.com"]
body = "form"
"""


# Lines that need a package
_NEEDS = {"recording_redact_body": "re2"}


def presets() -> str:
    """The text of a configuration; without a line if its package, of
    `cutthrough[recording]`, is not installed."""
    absent = tuple(key for key, package in _NEEDS.items()
                   if importlib.util.find_spec(package) is None)
    return "\n".join(line for line in PRESETS.splitlines()
                     if not line.startswith(absent))
