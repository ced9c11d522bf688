"""Django's settings. Every value a deployment may change comes from the environment (see `.env.example`)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import django_stubs_ext
from django.utils.csp import CSP
from django.utils.translation import gettext_lazy as _

from config.cache import cache_from_url
from config.databases import database_from_url
from config.env import environment
from config.mailers import mailer_from_url
from config.oidc import oidc_provider, origin_of
from config.secrets import secret_key

django_stubs_ext.monkeypatch()

BASE_DIR = Path(__file__).resolve().parent.parent
env = environment(BASE_DIR)

# -- where things are kept ---------------------------------------------------------------------
DATA_DIR = BASE_DIR / (env.path("DATA_DIR", "var", help="Folder of everything that must outlive the process.") or "var")
DATA_DIR.mkdir(parents=True, exist_ok=True)
DATABASE_URL = env.text("DATABASE_URL", help="postgres://user:password@host:5432/name; SQLite in DATA_DIR without it.")
DATABASES = {"default": database_from_url(DATABASE_URL, data_dir=DATA_DIR)}
REDIS_URL = env.text(
    "REDIS_URL", help="redis://host:6379/0: broker and signals between processes; needed for more than one web process."
)

CACHES = {"default": cache_from_url(REDIS_URL)}

# -- the site ----------------------------------------------------------------------------------
DEBUG = env.flag("DEBUG", False, help="Django's debug pages. Never on a reachable address.")
SECRET_KEY = secret_key(
    env.text("SECRET_KEY", help="Signs sessions; made and kept in DATA_DIR when empty."), data_dir=DATA_DIR
)
SITE_NAME = env.text("SITE_NAME", "Token Factory", help="Name shown in the pages and mails.")
SITE_URL = env.text("SITE_URL", "http://localhost:8000", help="Public address, scheme included.").rstrip("/")
ALLOWED_HOSTS = env.items(
    "ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]", help="Host names the pages answer to, comma-separated."
)
HTTPS = SITE_URL.startswith("https://")
CSRF_TRUSTED_ORIGINS = [SITE_URL]
if HTTPS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

INSTALLED_APPS = [
    "servestatic",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.usersessions",
    "django_htmx",
    "config.apps.ConfigConfig",
    "accounts",
    "billing",
    "gateway",
    "playground",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "accounts.middleware.CurrentTeamMiddleware",
    "config.page_bodies.BodyLimitMiddleware",
]
ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "config.templates.Templates",
        "NAME": "django",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "config.context.site",
            ],
            "libraries": {"lucide": "config.icons"},
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# The proxy in front redirects to https; the gateway's own paths never do.
SILENCED_SYSTEM_CHECKS = ["security.W008"]

# -- security ----------------------------------------------------------------------------------
SECURE_CSP = {
    "default-src": [CSP.NONE],
    "script-src": [CSP.SELF],
    "style-src": [CSP.SELF],
    "img-src": [CSP.SELF, "data:"],
    "font-src": [CSP.SELF],
    "connect-src": [CSP.SELF],
    "media-src": [CSP.SELF, "blob:"],
    "manifest-src": [CSP.SELF],
    "form-action": [CSP.SELF],
    "base-uri": [CSP.NONE],
    "frame-ancestors": [CSP.NONE],
}
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_NAME = "tf_session"
CSRF_COOKIE_NAME = "tf_csrf"

# -- people ------------------------------------------------------------------------------------
AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_REDIRECT_URL = "/playground/"
LOGIN_URL = "account_login"
ACCOUNT_ADAPTER = "accounts.adapter.AccountAdapter"
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = env.choice(
    "EMAIL_VERIFICATION",
    "optional",
    ["none", "optional", "mandatory"],
    help="Whether a new e-mail address must be confirmed: none, optional or mandatory (before signing in).",
)
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if HTTPS else "http"
ACCOUNT_LOGOUT_ON_GET = False
ACCOUNT_USER_DISPLAY = "accounts.people.display_name"
MFA_ADAPTER = "accounts.second_factors.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["recovery_codes", "totp", "webauthn"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = SITE_NAME
MFA_TOTP_TOLERANCE = 1  # a phone's clock may be half a minute off
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = not HTTPS  # browsers themselves allow it on localhost alone
OIDC_SERVER_URL = env.text(
    "OIDC_SERVER_URL", help="Address of an OpenID Connect provider people may sign in with; none without it."
)
OIDC_NAME = env.text("OIDC_NAME", "Single sign-on", help="How the sign-in page calls the provider.")
SOCIALACCOUNT_PROVIDERS = oidc_provider(
    OIDC_SERVER_URL,
    client_id=env.text("OIDC_CLIENT_ID", help="This site's client id at OIDC_SERVER_URL."),
    secret=env.text("OIDC_CLIENT_SECRET", help="This site's client secret at OIDC_SERVER_URL."),
    name=OIDC_NAME,
)
SOCIALACCOUNT_ADAPTER = "accounts.adapter.SocialAccountAdapter"
# The provider is the operator's own: whose address it says to have verified is that account's owner.
SOCIALACCOUNT_EMAIL_AUTHENTICATION = SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True
if OIDC_SERVER_URL:
    # Browsers hold the redirect that follows the sign-in form to form-action.
    SECURE_CSP["form-action"] = [CSP.SELF, origin_of(OIDC_SERVER_URL)]
SIGN_UP = env.choice("SIGN_UP", "open", ["open", "invite", "closed"], help="Who may sign up: open, invite or closed.")
EMAIL_URL = env.text("EMAIL_URL", help="smtp://user:password@host:587; mails are printed to the console without it.")
MAILERS = {"default": mailer_from_url(EMAIL_URL)}
DEFAULT_FROM_EMAIL = env.text("DEFAULT_FROM_EMAIL", "token-factory@localhost", help="Sender of the mails.")
TEAMS_PER_PERSON = env.integer(
    "TEAMS_PER_PERSON", 10, help="Teams a person can make besides his own: each has the site's points. 0 is no limit."
)
TEAM_TIME_ZONE = env.text("TEAM_TIME_ZONE", "Asia/Shanghai", help="Time zone of a new team.")

# -- the gateway -------------------------------------------------------------------------------
UPSTREAM_URL = env.text(
    "UPSTREAM_URL", help="Base address of one OpenAI-compatible server, e.g. http://10.0.0.5:8000/v1."
)
UPSTREAM_API_KEY = env.text("UPSTREAM_API_KEY", help="Key sent to UPSTREAM_URL.")
DEMO_URL = env.text("DEMO_URL", help="Base address of a running demo backend; set by manage.py up.")
DEMO_LOG = env.path("DEMO_LOG", help="File to which manage.py up lets the demo backend write one line a request.")
UPSTREAMS_FILE = env.path("UPSTREAMS_FILE", help="upstreams.toml: several upstreams and replicas.")
CATALOG_FILE = env.path(
    "CATALOG_FILE", help="A TOML file of model cards that replaces or extends the built-in catalog."
)
REQUEST_TIMEOUT_SECONDS = env.integer(
    "REQUEST_TIMEOUT_SECONDS",
    600,
    minimum=1,
    help="Whole non-streaming request; silence between two chunks of a stream.",
)
DRAIN_SECONDS = env.integer("DRAIN_SECONDS", 30, help="How long SIGTERM waits for open answers.")
DISCONNECT_POLICY = env.choice(
    "DISCONNECT_POLICY",
    "drain",
    ["drain", "cancel"],
    help="What happens upstream when a streaming client leaves: drain or cancel.",
)
DISCONNECT_DRAIN_SECONDS = env.integer(
    "DISCONNECT_DRAIN_SECONDS", 30, help="How long a stream that is drained is read on at most after its client left."
)
KEEP_ALIVE_SECONDS = env.integer(
    "KEEP_ALIVE_SECONDS", 15, minimum=1, help="Silence within a stream after which a keep-alive goes to the client."
)
MAX_BODY_MIB = env.integer("MAX_BODY_MIB", 20, minimum=1, help="Largest request body, in MiB.")
MAX_DOCUMENT_MIB = env.integer(
    "MAX_DOCUMENT_MIB", 50, minimum=1, help="Largest body of OCR and systemone, and largest document, in MiB."
)
JOURNAL_FSYNC: Literal["never", "second", "always"] = env.choice(  # type: ignore[assignment]
    "JOURNAL_FSYNC",
    "second",
    ["never", "second", "always"],
    help="When the journal is forced to disk: never, second or always.",
)

# -- limits; 0 turns one off -------------------------------------------------------------------
RATE_LIMIT_KEY_RPM = env.integer(
    "RATE_LIMIT_KEY_RPM", 30, help="Requests a minute per key, where the key has no limit of its own."
)
RATE_LIMIT_IP_RPM = env.integer("RATE_LIMIT_IP_RPM", 120, help="Requests a minute per client address.")
RATE_LIMIT_WRONG_KEY_RPM = env.integer(
    "RATE_LIMIT_WRONG_KEY_RPM", 60, help="Unknown API keys a minute per client address and web process."
)
RATE_LIMIT_TEAM_RPM = env.integer(
    "RATE_LIMIT_TEAM_RPM", 0, help="Requests a minute per team, where the team has no limit of its own."
)
RATE_LIMIT_KEY_CONCURRENCY = env.integer("RATE_LIMIT_KEY_CONCURRENCY", 8, help="Requests in flight per key.")
RATE_LIMIT_PROCESS_CONCURRENCY = env.integer(
    "RATE_LIMIT_PROCESS_CONCURRENCY", 0, help="Requests in flight per web process."
)
RATE_LIMIT_SITE_CONCURRENCY = env.integer(
    "RATE_LIMIT_SITE_CONCURRENCY", 0, help="Requests in flight on the whole site."
)
RATE_LIMIT_LEASE_SECONDS = env.integer(
    "RATE_LIMIT_LEASE_SECONDS",
    60,
    minimum=1,
    help="How long what a killed web process had in flight still counts (with Redis).",
)
TEAM_POINTS_LIMIT = env.decimal(
    "TEAM_POINTS_LIMIT", "10", help="Points a period per team, where the team has no limit of its own."
)
TEAM_POINTS_PERIOD = env.choice(
    "TEAM_POINTS_PERIOD",
    "day",
    ["day", "month", "rolling"],
    help="Period of the points: day, month (both in the team's zone) or rolling.",
)
REQUEST_LOG_DAYS = env.integer(
    "REQUEST_LOG_DAYS", 0, help="Days that single requests are kept, at least 2; charges and sums stay. 0 keeps all."
)
TRUSTED_PROXIES = env.networks(
    "TRUSTED_PROXIES", help="Networks of the proxies whose X-Forwarded-For is believed, comma-separated."
)
DEDICATED_ALLOW = env.networks(
    "DEDICATED_ALLOW",
    "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7",
    help="Private networks in which teams' dedicated endpoints may stand; public addresses always may.",
)

CORS_ALLOWED_ORIGINS = env.items(
    "CORS_ALLOWED_ORIGINS", help="Origins whose pages may call /v1 from the browser with a key, comma-separated."
)
METRICS_NETWORKS = env.networks(
    "METRICS_NETWORKS", "127.0.0.0/8,::1/128", help="Networks that may read /metrics, comma-separated."
)
LOG_REQUESTS = env.flag(
    "LOG_REQUESTS", True, help="One line of JSON on standard error for each request to the gateway."
)

# -- Celery ------------------------------------------------------------------------------------
CELERY_BROKER_URL = REDIS_URL or "folder://localhost//"

# -- language, time, files ---------------------------------------------------------------------
LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
LANGUAGE_COOKIE_NAME = "tf_language"
FORMAT_MODULE_PATH = ["config.formats"]
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"
# Served straight from the apps and packages: nothing to collect before a start.
SERVESTATIC_USE_FINDERS = True
SERVESTATIC_AUTOREFRESH = False
STATICFILES_DIRS = [BASE_DIR / "static"]
# The form of a decision: 64 questions of 255 options, each with its meaning.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 40_000

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"without_tokens": {"()": "config.logs.WithoutTokens"}},
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
    "loggers": {
        "httpx": {"level": "WARNING"},
        "uvicorn": {"level": "WARNING"},
        "django.request": {"level": "ERROR", "filters": ["without_tokens"]},
        "django.security.csrf": {"filters": ["without_tokens"]},
    },
}
