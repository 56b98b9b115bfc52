"""The pages of the dashboard behind the list of runs."""

from starlette.routing import Route

from tequio.views.web.pages import compare, models, new, partition, run, tree

ROUTES = (
    Route("/run/{run:path}", run.show),
    Route("/events/{run:path}", run.stream),
    Route("/compare", compare.show),
    Route("/partition", partition.show),
    Route("/models", models.show_all),
    Route("/model/{name}", models.show),
    Route("/tree/{run:path}", tree.show),
    Route("/drawing/{run:path}", tree.drawing),
    Route("/new", new.show),
    Route("/new/fields", new.fields),
    Route("/start", new.start, methods=["POST"]),
    Route("/stop/{run:path}", run.stop, methods=["POST"]),
    Route("/resume/{run:path}", run.resume, methods=["POST"]),
)
