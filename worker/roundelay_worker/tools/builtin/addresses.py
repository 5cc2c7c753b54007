"""Says which addresses are of the public internet.

Our own lists, from IANA's special-purpose registries: ``ipaddress.is_global`` differs between patch
releases of Python, and knows nothing of addresses that embed another one.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

_REFUSED_V4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",  # public by number, but Azure's metadata and DNS inside its networks
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
_GLOBAL_V6: Final = IPv6Network("2000::/3")
_REFUSED_V6: Final = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
"""What DNS64 answers for public hosts in a network without IPv4; the last 32 bits are the IPv4 address."""


def is_public(address: str) -> bool:
    """Say whether ``address``, a literal, is a public unicast address; what is no address is not."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return _is_public_v4(parsed) if isinstance(parsed, IPv4Address) else _is_public_v6(parsed)


def is_loopback(address: str) -> bool:
    """Say whether ``address`` is the machine itself."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _is_public_v4(address: IPv4Address) -> bool:
    return not any(address in network for network in _REFUSED_V4)


def _is_public_v6(address: IPv6Address) -> bool:
    if address.scope_id:
        return False
    if address in _MAPPED or address in _NAT64:
        return _is_public_v4(IPv4Address(int(address) & 0xFFFFFFFF))
    return address in _GLOBAL_V6 and not any(address in network for network in _REFUSED_V6)
