"""Policies with a group of parents, and the parents that were used."""

OPEN = 'address_floor = "off"\nconnect_ports = "any"\n'


def group(*names: str, name: str = "corp", **more: object) -> str:
    lines = "".join(f"{key} = {value!r}\n" for key, value in more.items())
    return f"[groups.{name}]\nparents = {list(names)!r}\n{lines}"


def used(proxy, client_of, n: int, target: str = "127.0.0.1:4711",
         step: int = 0) -> list[str]:
    """Makes n tunnels; returns the parents that they went through. `step`: to ports
    that are so far apart."""
    proxy.mark()
    host, port = target.split(":")
    for i in range(n):
        client_of(proxy).tunnel(f"{host}:{int(port) + i * step}").close()
    records = sorted(
        proxy.wait_log(n), key=lambda record: int(record["id"].split("-")[1]))
    return [record.get("parent") for record in records]
