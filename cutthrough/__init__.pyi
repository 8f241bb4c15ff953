from cutthrough.activity.events import Connection as Connection
from cutthrough.activity.events import Exchange as Exchange
from cutthrough.config.config import Config as Config
from cutthrough.config.config import ConfigError as ConfigError
from cutthrough.config.options import Options as Options
from cutthrough.embed import Embedded as Embedded
from cutthrough.embed import serve as serve
from cutthrough.filters.flow import Flow as Flow
from cutthrough.filters.flow import Headers as Headers
from cutthrough.filters.flow import WebSocketMessage as WebSocketMessage
from cutthrough.generation.hook import Request as Request
from cutthrough.policy.decision_cache import Decision as Decision

__all__ = ["Config", "ConfigError", "Connection", "Decision", "Embedded", "Exchange",
           "Flow", "Headers", "Options", "Request", "WebSocketMessage", "__version__",
           "serve"]

__version__: str

def why_unbuilt(error: ModuleNotFoundError) -> str: ...
