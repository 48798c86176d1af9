"""Typed requests and responses of the service, shared by the HTTP interface, the clients and the library.

The limits and descriptions in `requests` and `responses` are annotations, from which the OpenAPI document is generated.
`checks` validates what an annotation cannot express (sizes in bytes, distinct ids), and converts and decodes requests.
"""

from .checks import *  # noqa: F403
from .experiments import *  # noqa: F403
from .requests import *  # noqa: F403
from .reranking import *  # noqa: F403
from .responses import *  # noqa: F403
