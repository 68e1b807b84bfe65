"""Where a run takes place: a store with its servers, proxies and disks, which belong to nobody else."""
