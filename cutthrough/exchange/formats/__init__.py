"""Exchanges in other programs' files: HTTP Archives and dumps of mitmproxy."""
