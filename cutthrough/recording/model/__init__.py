"""A recording, and the work on its parts: heads, bodies, templates, secrets.

The three types are for `recording_hooks`: docs/recording.md.
"""

from cutthrough.recording.model.recording import Recording as Recording
from cutthrough.recording.model.recording import Request as Request
from cutthrough.recording.model.recording import Response as Response
