"""The one list that routing, the OpenAPI document, metrics and tests go by."""

from amv.server.api import ROUTES as MEMORY_ROUTES
from amv.server.guarding import GUARD_ROUTES

ROUTES = (*MEMORY_ROUTES, *GUARD_ROUTES)
