"""Doors to the C of cutthrough, for the tests alone: the program does not need them.

One .pyx for each package, which cimports from it; `tests.doors.wire` imports like any
module. Importing this package compiles stale modules, in the mode of the build in
place, because the layout of structs depends on the mode. The modules lie below build/:
setup.py does not know them, and no wheel holds them.
"""

from cutthrough.doctor.built import mode
from tests.support.compiled import built_doors

__path__.append(str(built_doors(mode)))
