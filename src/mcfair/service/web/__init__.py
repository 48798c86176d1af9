"""The HTTP interface of the service: an ASGI application, and the stock server that `mcfair serve` runs it on."""
