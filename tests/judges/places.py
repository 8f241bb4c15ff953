"""Where the judges' programs are installed."""

from tests.support.proxy import ROOT

HOME = ROOT / "build" / "judges"
