/* Blocks that are launched as clusters lie within one of the groups that a device's multiprocessors are built in, so
 * some multiprocessors stay idle where no more clusters fit. Pure. */
#pragma once

enum { CLUSTERS_BLOCKS_MOST = 8 };

/* Multiprocessors of `sms` that clusters of so many blocks (1..8) can use, where a block fills one. */
double clusters_usable(int sms, int blocks);
