"""Settings of a Django project whose database is the cluster under test, by pymysql in mysqlclient's place."""

import os

import pymysql

# Django asks for a version of mysqlclient; pymysql stands in for it.
pymysql.version_info = (2, 2, 1, "final", 0)
pymysql.install_as_MySQLdb()

SECRET_KEY = "tests only"
INSTALLED_APPS = ["shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = False
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.mysql",
        "NAME": "dj",
        "HOST": "127.0.0.1",
        "PORT": os.environ["ISOBAR_PORT"],
        "USER": "root",
        "OPTIONS": {"charset": "utf8mb4"},
    }
}
