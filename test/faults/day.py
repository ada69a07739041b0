"""Compares what a rail has moved with what a merchant downloads, to the cent.

usage: day.py JOURNAL CSV...

JOURNAL has lines of "session id, payment reference, cents"; cents are negative if the rail has sent the money back. Each CSV is one day, as
`kubectl merchant payments export` writes it. The exit code is 1 if a payment is missing, is there twice, was not moved, or has another amount.
"""

import csv
import sys
from collections import Counter
from decimal import Decimal


def read_journal(name):
    moved = Counter()
    with open(name, newline="") as file:
        for session, reference, cents in csv.reader(file):
            moved[session, reference] += int(cents)
    return +moved  # without what was sent back


def read_days(names, complain):
    paid = Counter()
    for name in names:
        with open(name, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["status"] != "COMPLETED":
                    continue
                payment = row["sessionId"], row["paymentRef"]
                cents = Decimal(row["amount"]) * 100
                if cents != int(row["amountCents"]) or payment in paid:
                    complain(f"{payment}: a second line, or {row['amount']} is not {row['amountCents']} cents")
                paid[payment] += int(cents)
    return paid


def main(journal, *days):
    wrong = []
    moved, paid = read_journal(journal), read_days(days, wrong.append)
    for payment in sorted(moved.keys() | paid.keys()):
        if moved[payment] != paid[payment]:
            wrong.append(f"{payment}: {moved[payment]} cents moved, {paid[payment]} in the CSV")
    if sum(moved.values()) != sum(paid.values()):
        wrong.append(f"{sum(moved.values())} cents moved in all, {sum(paid.values())} in the CSV")
    print(f"{len(moved)} payments moved, {len(paid)} in {len(days)} CSV, {Decimal(sum(paid.values())) / 100} in all")
    for line in wrong[:20]:
        print(line)
    return 1 if wrong else 0


sys.exit(main(*sys.argv[1:]))
