"""The bundle of a start: the last good one, so that a start needs no server; else the
present one of the source, whatever its canary says."""

import asyncio

from cutthrough.bundle.archive import Bundle, read_bundle
from cutthrough.bundle.cache import CURRENT, GOOD, Cache
from cutthrough.bundle.manifest import BundleError, Manifest
from cutthrough.config.bundles import BundleSource
from cutthrough.config.option import ConfigError
from cutthrough.log.stderr import say


def provide(source: BundleSource) -> None:
    """Has `current` name a bundle. Raises ConfigError if the directory cannot be used,
    and OSError if there is no bundle: it may come later."""
    cache = Cache(source.cache)
    try:
        cache.open()
    except OSError as error:
        raise ConfigError("", "bundle_cache", error.strerror or str(error)) from None
    except BundleError as error:
        raise ConfigError("", "bundle_cache", str(error)) from None
    manifest = None
    try:
        manifest = cache.verify(GOOD, source.key)
    except BundleError as error:
        say(f"bundle: the last good one cannot be used: {error}")
    if manifest is None:
        manifest = fetch_first(source, cache)
    cache.point(CURRENT, manifest.serial)
    say(f"bundle: {manifest.label}")


def fetch_first(source: BundleSource, cache: Cache) -> Manifest:
    """Raises OSError."""
    # Imported here, because other starts need no client
    from cutthrough.bundle.fetch import FetchError

    try:
        bundle = asyncio.run(_fetch(source))
        cache.unpack(bundle)
    except (FetchError, BundleError) as error:
        raise OSError(f"no bundle: {error}; and none in {cache.directory}") from None
    return bundle.manifest


async def _fetch(source: BundleSource) -> Bundle:
    """Raises FetchError and BundleError."""
    from cutthrough.bundle.fetch import fetch, make_context

    fetched = await fetch(source, "", make_context(source))
    assert fetched is not None               # no ETag was sent
    return read_bundle(fetched.data, source.key)
