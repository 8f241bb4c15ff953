"""Hooks of recordings: what is kept, and what is changed when it is replayed.

The configuration names the class, on PYTHONPATH:

    recording_directory = "/var/lib/cutthrough/recordings"
    recording_hooks = "recordings:Hooks"
"""

from msgspec.structs import replace

from cutthrough.recording.model import Recording, Request, Response


class Hooks:
    def on_record(self, recording: Recording) -> Recording | None:
        """Keeps no failures, and tags the others by team."""
        if recording.response.status >= 500:
            return None
        team = recording.request.field("x-team") or "none"
        return replace(recording, tags=(*recording.tags, f"team-{team}"))

    def on_replay(self, request: Request, recording: Recording) -> Response | None:
        """Says that an answer is a recorded one."""
        response = recording.response
        return replace(response, fields=(
            *response.fields, ("X-Recording", str(recording.number))))
