"""The HTTP service (extra ``serve``): ``app.create_app`` makes it, ``run.serve`` runs it."""
