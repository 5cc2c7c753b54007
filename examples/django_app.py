"""The web app on Django, in one file: ``pip install roundelay django``, then ``python django_app.py runserver``.

Open localhost:8000 and ask: the page shows the text while the model writes it. In a real project the views and URLs
go where they belong, and the user is ``request.user``.
"""

import json
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from roundelay import Client, IdempotencyConflict, InvalidSubmission, Job, MessageNotFound, ServiceUnavailable

if not settings.configured:
    settings.configure(DEBUG=True, SECRET_KEY="an example", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"])  # noqa: S106

client = Client.from_env()  # connects at its first use, and survives a fork

REPLIES = {InvalidSubmission: 422, MessageNotFound: 404, IdempotencyConflict: 409, ServiceUnavailable: 503}
View = Callable[..., HttpResponseBase]

PAGE = """<!doctype html><title>Ask</title>
<form><input name="text" autofocus><button>Ask</button></form>
<p id="shown" style="white-space: pre-wrap"></p>
<script>
const form = document.querySelector("form"), shown = document.getElementById("shown")
form.onsubmit = async event => {
  event.preventDefault()
  const reply = await fetch("/messages", {method: "POST", body: JSON.stringify({text: form.text.value})})
  const {message_id, error} = await reply.json()
  if (error) return shown.textContent = error
  const updates = new EventSource(`/messages/${message_id}/updates`)
  const forget = () => shown.textContent = ""
  updates.addEventListener("turn_started", forget)
  updates.addEventListener("text_reset", forget)
  updates.addEventListener("text_delta", event => shown.textContent += JSON.parse(event.data).text)
  updates.addEventListener("ended", event => {
    shown.textContent = JSON.parse(event.data).answer.text
    updates.close()
  })
}
</script>
"""


def errors_as_replies(view: View) -> View:
    """Turn the client's errors into statuses; their texts are safe to show."""

    @wraps(view)
    def guarded(request: HttpRequest, **parts: str) -> HttpResponseBase:
        try:
            return view(request, **parts)
        except tuple(REPLIES) as error:
            status = next(status for kind, status in REPLIES.items() if isinstance(error, kind))
            return JsonResponse({"error": str(error)}, status=status)

    return guarded


def own_job(request: HttpRequest, message_id: str) -> Job:
    """Return the handle of a message of this user; those of others are not found."""
    job = client.get(message_id)
    if job.state().user_id != request.COOKIES.get("user"):
        raise MessageNotFound("no such message")
    return job


@require_GET
def page(request: HttpRequest) -> HttpResponse:
    """Show a page that asks, and who is now signed in."""
    response = HttpResponse(PAGE)
    response.set_cookie("user", request.COOKIES.get("user", "u1"))
    return response


@require_POST
@errors_as_replies
def submit(request: HttpRequest) -> JsonResponse:
    """Store the message and return at once."""
    body = _json(request.body)
    job = client.submit(
        body.get("text", ""),
        conversation_id=body.get("conversation_id"),
        user_id=request.COOKIES.get("user"),
        idempotency_key=body.get("key"),
    )
    return JsonResponse({"message_id": job.message_id, "conversation_id": job.conversation_id}, status=202)


def _json(text: bytes) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise InvalidSubmission("the body is a JSON object with the text")
    return body


@require_http_methods(["GET", "DELETE"])
@errors_as_replies
def message(request: HttpRequest, message_id: str) -> JsonResponse:
    """Return where the message stands, or cancel it."""
    job = own_job(request, message_id)
    if request.method == "DELETE":
        return JsonResponse({"cancelled": job.cancel()}, status=202)
    return JsonResponse(job.state().model_dump(mode="json"))


@require_GET
@errors_as_replies
def updates(request: HttpRequest, message_id: str) -> StreamingHttpResponse:
    """Stream the updates; a browser that reconnects says which one it saw last."""
    last = request.headers.get("last-event-id", "0")
    stream = events(own_job(request, message_id), int(last) if last.isdecimal() else 0)
    response = StreamingHttpResponse(stream, content_type="text/event-stream")
    response["cache-control"], response["x-accel-buffering"] = "no-store", "no"
    return response


def events(job: Job, after: int) -> Iterator[str]:
    """Return the updates as server-sent events; those without a number keep the number before."""
    for update in job.follow(after=after):
        number = f"id: {update.seq}\n" if update.seq else ""
        yield f"{number}event: {update.kind}\ndata: {update.to_json()}\n\n"


urlpatterns = [
    path("", page),
    path("messages", submit),
    path("messages/<message_id>", message),
    path("messages/<message_id>/updates", updates),
]

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
