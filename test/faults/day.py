"""Compares what a rail has moved with what a merchant downloads, to the cent.

usage: day.py JOURNAL CSV...

JOURNAL has lines of "session id, payment reference, cents, refund reference", the last one empty for a payment; cents are negative if the rail has sent
the money back. Each CSV is one day, as `kubectl merchant payments export` writes it. The exit code is 1 if a payment or a refund is missing, is there
twice, was not moved, or has another amount.
"""

import csv
import sys
from collections import Counter
from decimal import Decimal


def read_journal(name):
    moved = Counter()
    with open(name, newline="") as file:
        for session, reference, cents, refund in csv.reader(file):
            moved[session, reference, refund] += int(cents)
    return Counter({movement: cents for movement, cents in moved.items() if cents})  # without payments of lost sessions


def read_days(names, complain):
    net = Counter()
    for name in names:
        with open(name, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["kind"] == "payment" and row["status"] != "COMPLETED":
                    continue
                movement = row["sessionId"], row["paymentRef"], row["refundRef"]
                cents = Decimal(row["amount"]) * 100
                if cents != int(row["amountCents"]) or cents != Decimal(row["net"]) * 100 or movement in net:
                    complain(f"{movement}: a second line, or {row['amount']} is not {row['amountCents']} cents or {row['net']} net")
                if (row["kind"] == "refund") != bool(row["refundRef"]) or (row["kind"] == "refund") != (cents < 0):
                    complain(f"{movement}: {row['kind']} of {row['amount']}")
                net[movement] += int(cents)
    return net


def main(journal, *days):
    wrong = []
    moved, net = read_journal(journal), read_days(days, wrong.append)
    for movement in sorted(moved.keys() | net.keys()):
        if moved[movement] != net[movement]:
            wrong.append(f"{movement}: {moved[movement]} cents moved, {net[movement]} in the CSV")
    if sum(moved.values()) != sum(net.values()):
        wrong.append(f"{sum(moved.values())} cents moved in all, {sum(net.values())} in the CSV")
    refunds = [cents for cents in net.values() if cents < 0]
    print(
        f"{len(moved)} movements, {len(net)} in {len(days)} CSV; {len(refunds)} refunds of {Decimal(-sum(refunds)) / 100}, "
        f"{Decimal(sum(net.values())) / 100} are left in all"
    )
    for line in wrong[:20]:
        print(line)
    return 1 if wrong else 0


sys.exit(main(*sys.argv[1:]))
