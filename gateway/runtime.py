"""What one web process holds while it serves: catalog, upstreams, relay, keys, journal."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from billing.journal import Fsync, Journal
from billing.shipping import Shipper
from gateway.admission import NO_SITE_LIMITS, Admission, Ask, Expected, SiteLimits, Ticket
from gateway.caller import Caller
from gateway.catalog import BUNDLED, Catalog, Model, load
from gateway.chat import chat_job, expected_of
from gateway.credentials import KeyRing
from gateway.gates import Counters, LocalGates
from gateway.guarded_transport import GuardedTransport
from gateway.key_epochs import epoch_reader
from gateway.pdfs import Pdfs
from gateway.portable import adapt
from gateway.redis_gates import RedisGates
from gateway.relay import Answer, Job, Relay, RelaySettings
from gateway.request_log import RequestLog
from gateway.schema import ChatRequest, Json, parse_chat_request, to_json
from gateway.spaces import Spaces
from gateway.ssrf import Network
from gateway.transport import Transport
from gateway.upstreams import Upstream, Upstreams, configured

log = logging.getLogger("gateway")


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    data_dir: Path
    catalog: Catalog
    upstreams: tuple[Upstream, ...]
    relay: RelaySettings
    journal_fsync: Fsync
    limits: SiteLimits = NO_SITE_LIMITS
    redis_url: str = ""
    lease_seconds: int = 60
    dedicated_allow: tuple[Network, ...] = ()
    trusted_proxies: tuple[Network, ...] = ()
    log_requests: bool = True
    wrong_key_rpm: int = 0

    @classmethod
    def from_django(cls) -> RuntimeSettings:
        """Raises CatalogError and UpstreamsError with the file and entry at fault."""
        files = [BUNDLED, settings.CATALOG_FILE] if settings.CATALOG_FILE else [BUNDLED]
        upstreams = configured(
            file=settings.UPSTREAMS_FILE,
            url=settings.UPSTREAM_URL,
            api_key=settings.UPSTREAM_API_KEY,
            demo_url=settings.DEMO_URL,
        )
        return cls(
            data_dir=settings.DATA_DIR,
            catalog=load(*files),
            upstreams=tuple(upstreams),
            relay=RelaySettings(
                request_timeout_seconds=settings.REQUEST_TIMEOUT_SECONDS,
                drain_when_client_leaves=settings.DISCONNECT_POLICY == "drain",
            ),
            journal_fsync=settings.JOURNAL_FSYNC,
            limits=SiteLimits(
                ip_rpm=settings.RATE_LIMIT_IP_RPM,
                process_concurrency=settings.RATE_LIMIT_PROCESS_CONCURRENCY,
                site_concurrency=settings.RATE_LIMIT_SITE_CONCURRENCY,
            ),
            redis_url=settings.REDIS_URL,
            lease_seconds=settings.RATE_LIMIT_LEASE_SECONDS,
            dedicated_allow=settings.DEDICATED_ALLOW,
            trusted_proxies=settings.TRUSTED_PROXIES,
            log_requests=settings.LOG_REQUESTS,
            wrong_key_rpm=settings.RATE_LIMIT_WRONG_KEY_RPM,
        )


class Runtime:
    def __init__(self, config: RuntimeSettings, *, transport: Transport | None = None) -> None:
        self.catalog = config.catalog
        self.journal = Journal(config.data_dir / "journal", fsync=config.journal_fsync)
        self.shipper = Shipper(self.journal)
        self.request_log = RequestLog() if config.log_requests else None
        self.trusted_proxies = config.trusted_proxies
        self.pdfs = Pdfs()
        self.transport = transport or Transport()
        self.upstreams = Upstreams(config.upstreams, catalog=config.catalog, transport=self.transport)
        self.relay = Relay(upstreams=self.upstreams, transport=self.transport, log=self.journal, settings=config.relay)
        self.epoch = epoch_reader(config.redis_url)
        self.keys = KeyRing(self.epoch.read, wrong_rpm=config.wrong_key_rpm)
        self.spaces = Spaces(
            epoch=self.epoch.read,
            transport=GuardedTransport(allowed=config.dedicated_allow),
            log=self.journal,
            read_timeout_seconds=config.relay.request_timeout_seconds,
        )

        counters: Counters = (
            RedisGates(config.redis_url, lease_seconds=config.lease_seconds) if config.redis_url else LocalGates()
        )
        self.admission = Admission(counters, limits=config.limits)

    async def start(self) -> None:
        await self.upstreams.start()
        await self.admission.start()
        self.shipper.start()

    async def stop(self) -> None:
        if self.request_log:
            self.request_log.flush()
        await self.upstreams.stop()
        await self.admission.stop()
        await self.transport.aclose()
        await self.spaces.aclose()
        await self.pdfs.aclose()
        await self.epoch.aclose()
        # The loop has nothing else to do: the last records are shipped before the process goes.
        self.shipper.stop()
        self.journal.close()

    def reload_upstreams(self) -> None:
        """Read the configuration of upstreams again; a wrong one is said in the log and changes nothing."""
        try:
            upstreams = RuntimeSettings.from_django().upstreams
        except ValueError as error:
            log.error("upstreams were not reloaded: %s", error)
            return
        self.upstreams.replace(upstreams)
        log.info("upstreams reloaded: %s", ", ".join(upstream.name for upstream in upstreams))

    def models_for(self, caller: Caller) -> list[Model]:
        """What the caller may use and some upstream serves now."""
        allowed = caller.allowance.models
        return [model for model in self.upstreams.models() if not allowed or model.id in allowed]

    async def begin(
        self, job: Job, *, caller: Caller, expected: Expected, address: str = "", epoch: bytes = b""
    ) -> tuple[Answer, Ticket]:
        """The one way to a model server: through the gates, into the journal. Raises CallError where it is barred, and
        StaleKey as `Admission.admit` does."""
        ask = Ask(job.called, job.model, address, self.upstreams.concurrency_of(job.model), expected)
        ticket = await self.admission.admit(caller, ask, epoch=epoch)
        call = self.relay.accept(job, caller=caller, ticket=ticket)
        return self.relay.open(job, call=call), ticket

    def parse_chat(self, document: Json, *, caller: Caller, portable: bool | None = None) -> ChatRequest:
        """The checked request; `portable` None leaves it to the caller's key whether it is adapted first."""
        adapted: list[str] = []
        if caller.portable if portable is None else portable:
            name = document.get("model")
            model = self.upstreams.card(name) if isinstance(name, str) else None
            if model is not None and model.is_chat:
                document, adapted = adapt(document, model)
        request = parse_chat_request(document, find_model=self.upstreams.card)
        request.adapted = adapted
        return request

    async def chat(self, *, caller: Caller, body: Json) -> Answer:
        """A chat completion in process, admitted: enter the answer and iterate over the stream's chunks as objects.

        Raises CallError for what the gateway refuses; entering raises it for what the backend refuses.
        """
        document = {**body, "stream": True, "stream_options": {"include_usage": True}}
        request = self.parse_chat(document, caller=caller)
        expected = expected_of(request, len(to_json(document)))
        answer, _ = await self.begin(chat_job(request), caller=caller, expected=expected)
        return answer


_current: Runtime | None = None


def runtime() -> Runtime:
    """This process's runtime. Only a process that serves has one."""
    if _current is None:
        raise RuntimeError("no gateway runs in this process")
    return _current


def has_runtime() -> bool:
    return _current is not None


def set_runtime(value: Runtime | None) -> None:
    global _current
    _current = value
