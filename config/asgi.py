"""The web process: `/v1` and its kin go straight to the gateway, everything else but `/healthz` to Django."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any, cast

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from django.conf import settings
from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

from config import tracing
from config.page_bodies import limited
from gateway.app import PREFIXES
from gateway.app import application as models_application
from gateway.cors import with_cors
from gateway.http import Receive, Scope, Send, send_answer
from gateway.runtime import Runtime, RuntimeSettings, set_runtime
from playground import generation, own_tasks

gateway_application = with_cors(models_application, origins=settings.CORS_ALLOWED_ORIGINS)


async def lifespan(receive: Receive, send: Send) -> None:
    running: Runtime | None = None
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            try:
                running = Runtime(RuntimeSettings.from_django())
                running.relay.log = tracing.traced(running.relay.log)
                await running.start()
            except (ValueError, OSError) as error:
                # A configuration that cannot be served: the text says which file and what.
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            set_runtime(running)
            generation.start_up()
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, running.reload_upstreams)
            await send({"type": "lifespan.startup.complete"})
        else:
            if running:
                await generation.shut_down()
                await own_tasks.shut_down()
                await running.stop()
                tracing.flush(running.relay.log)
            set_runtime(None)
            await send({"type": "lifespan.shutdown.complete"})
            return


def application(scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, Any]:
    if scope["type"] == "lifespan":
        return lifespan(receive, send)
    path = scope["path"]
    if path == "/healthz":
        # Here, because a page takes many turns of the loop: under load whoever asks would take the process for dead.
        return send_answer(send, status=200, headers=[(b"content-type", b"text/plain")], body=b"ok")
    if path.startswith(PREFIXES) or path == "/v1":
        return gateway_application(scope, receive, send)
    return django_application(scope, limited(scope, receive), cast(Any, send))
