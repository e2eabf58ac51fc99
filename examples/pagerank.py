"""PageRank as a feedback loop: rank flows along links, round after round, until what is left is not worth sending.

    lockstep run pagerank.py --replicas 2
    sqlite3 out/ranks.db "select page, round(rank, 4) from ranks order by rank desc"

Every page begins with an equal share of rank. In each round a page keeps what it has received, and passes 85 % of it
on to the pages that it links to, in equal parts. What is passed on comes in again in the next epoch (through a journal:
kill a replica in the middle of it and nothing is lost or counted twice). A page's rank is all that it ever received.
"""

import lockstep as ls
from lockstep import F

DAMPING, WORTH_SENDING = 0.85, 1e-6
LINKS = {
    "home": ["about", "products", "blog"],
    "about": ["home"],
    "products": ["home", "cart"],
    "cart": ["home", "products"],
    "blog": ["home", "post"],
    "post": ["blog", "products", "about"],
}
SHARES = "page string, mass double, round bigint"


def passed_on(share):
    """What a page sends along each of its links."""
    links = LINKS[share["page"]]
    return [{"page": to, "mass": DAMPING * share["mass"] / len(links), "round": share["round"]} for to in links]


def one_round(shares):
    """What goes round again, and what leaves: here everything that was received, to be added up."""
    received = shares.key_by("page", "round").agg(mass=F.sum("mass")).select("page", "mass", "round")
    again = received.flat_map(passed_on, schema=SHARES).filter(F.col("mass") > WORTH_SENDING)
    return again, received


job = ls.Job("pagerank")

first = [{"page": page, "mass": (1 - DAMPING) / len(LINKS)} for page in LINKS]
pages = job.source("pages", ls.collection(first, schema="page string, mass double"))

ranks = pages.iterate(one_round, rounds=200).key_by("page").agg(rank=F.sum("mass"))
ranks.to(ls.sqlite("out/ranks.db", table="ranks", key="page"), name="ranks")
