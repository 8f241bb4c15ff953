"""A listener for each way in that clients of others have."""

from tests.support.certificates import authority, localhost

# The ports of CONFIG, in its order
OPEN, KNOWN, TLS, CERTIFICATE, BALANCED = range(5)


def configuration() -> str:
    made = localhost()
    port = '[[listeners]]\naddress = "127.0.0.1:0"\n'
    tls = (port + f'certificates = ["{made.certificate}"]\n'
           f'certificate_keys = ["{made.key}"]\n')
    return "".join((
        'proxy_protocol_from = ["127.0.0.1"]\naddress_floor = "off"\n'
        'connect_ports = "any"\n',
        port, 'protocols = ["http", "socks5", "socks4"]\nauth = "none"\nudp = true\n',
        port, 'protocols = ["http", "socks5"]\n',
        tls, tls, f'client_ca = "{authority().own.certificate}"\n'
        'client_certificate = "required"\n',
        port, "proxy_protocol = true\n"))
