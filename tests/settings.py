"""The product's settings for tests in this process: a data folder of their own, quick password hashes."""

import atexit
import os
import shutil
import tempfile

os.environ["DATA_DIR"] = tempfile.mkdtemp(prefix="token-factory-tests-")

from config.settings import *  # noqa: F403
from config.settings import DATABASES

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
CELERY_BROKER_URL = "memory://"

# SQLite in a file, as it runs: in memory Django neither closes connections nor waits for locks.
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["TEST"] = {"NAME": f"{os.environ['DATA_DIR']}/test.sqlite3"}

# Real web processes serve the static files; here each of a test's many clients would look for all of them.
SERVESTATIC_USE_FINDERS = SERVESTATIC_USE_STATIC_ROOT = False


def _remove_folder(folder: str, maker: int) -> None:
    """When this process ends, and not when one does that was forked from it."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


atexit.register(_remove_folder, os.environ["DATA_DIR"], os.getpid())
