"""The arguments of `cutthrough bundle`."""

import argparse


def add_bundle(verb: argparse.ArgumentParser) -> None:
    actions = verb.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        parser = actions.add_parser(
            name, help=text, description=text, allow_abbrev=False)
        parser.set_defaults(own=parser)
        return parser

    sub = add("key", "make a key for signatures, and print the line of bundle_key")
    sub.add_argument("file", metavar="FILE", help="file for the private key, which "
                     "must not exist")
    sub = add("build", "pack and sign a directory")
    sub.add_argument("directory", metavar="DIR", help="cutthrough.toml, policy, lists "
                     "and users; hidden files stay out")
    sub.add_argument("-o", "--output", metavar="FILE", required=True,
                     help="file of the bundle")
    sub.add_argument("--key", metavar="FILE", required=True, help="the private key")
    sub.add_argument("--revision", metavar="TEXT", default="", help="its name for "
                     "people [made of the content]")
    sub.add_argument("--serial", metavar="N", type=int, help="its number, which has to "
                     "grow [the time in seconds]")
    sub.add_argument("--canary", metavar="PERCENT", type=int, help="only so many of a "
                     "hundred hosts take it [all]")
    sub = add("verify", "verify a bundle, and print its manifest's main points; exit 1 "
              "if it is not sound")
    sub.add_argument("file", metavar="FILE", help="file of the bundle")
    sub.add_argument("--key", metavar="KEY", required=True, action="append",
                     help="public key, as in bundle_key; repeatable")
    sub.add_argument("--host", metavar="NAME", help="say also if this host takes it")
