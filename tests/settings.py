"""The product's settings for tests in this process: a data folder of their own, quick password hashes."""

import os
import tempfile

os.environ["DATA_DIR"] = tempfile.mkdtemp(prefix="token-factory-tests-")

from config.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
CELERY_BROKER_URL = "memory://"
