"""Dates and numbers in Chinese, as data is written: long numbers in groups of three, no leading zeros in words."""

SHORT_DATE_FORMAT = "Y-m-d"
SHORT_DATETIME_FORMAT = "Y-m-d H:i"
MONTH_DAY_FORMAT = "n月j日"
THOUSAND_SEPARATOR = ","
NUMBER_GROUPING = 3
