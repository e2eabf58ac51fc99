import time
import pyarrow as pa, pyarrow.parquet as pq
import lockstep as ls
from tests.spark.conftest import *
def test_m(trial, tmp_path):
    t=tmp_path/"t.parquet"; pq.write_table(pa.table({"key": list(range(1000)), "bonus": list(range(1000))}), t)
    for with_table in (False, True, False, True):
        job=ls.Job("m"); s=job.source("left", ls.journal("left", schema="k bigint, n bigint"))
        if with_table: s=s.join(ls.table(t), on={"k":"key"})
        s.to(ls.files("o"))
        ran=trial(job, folder=f"p{with_table}{time.time_ns()}"); r=ran.start(partitions=1)
        ts=[]
        for e in range(12):
            a=time.time(); ran.epoch(left=[{"k":i,"n":i} for i in range(100)]); ts.append(round(time.time()-a,2))
        print(with_table, ts)
        ran.stop()
