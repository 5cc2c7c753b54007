"""Base URLs and keys as people write them."""

from collections.abc import Collection

from roundelay_worker.providers.base import ModelFailure


def trimmed(base_url: str, versions: Collection[str] = ()) -> str:
    """Return the URL without trailing slashes and without one trailing version (such as ``v1``) of those given.

    Raise ModelFailure (``bad_request``) if it is not an http or https URL.
    """
    url = base_url.strip().rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ModelFailure("bad_request", "The base URL of the model must begin with http:// or https://.")
    for version in versions:
        if url.endswith(f"/{version}"):
            return url.removesuffix(f"/{version}").rstrip("/")
    return url


def key_headers(name: str, api_key: str) -> dict[str, str]:
    """Return the headers of every request, with the key, if there is one, as ``authorization`` or as it stands."""
    headers = {"content-type": "application/json", "accept": "text/event-stream, application/json"}
    if key := api_key.strip():
        headers[name] = f"Bearer {key}" if name == "authorization" else key
    return headers
