/* What is stored where: names → contents (by hash) → parts in slabs. Pure: no I/O, no device; the descriptors of slabs
 * are numbers to it. */
#pragma once

#include "../../../proto/extents.h"
#include "../../../proto/gemm.h"
#include "../../../proto/limits.h"
#include "../../../proto/status.h"
#include "../../../proto/wire/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CATALOG_HASH_BYTES = 32 };

/* Whose a weight is and who may see it: what is lent together must have this in common. */
struct catalog_class {
  uint32_t owner;
  enum message_mode mode; /* MODE_DEFAULT: no class; whatever there is */
};

/* Device memory that holds weights. Whoever is lent one part of it can read, and on a GPU write, all of it, for as long
 * as it lives: from then on no range is used twice. */
struct catalog_slab {
  uint32_t id, device;
  uint64_t bytes;
  int fd;                  /* owned by whoever added the slab */
  struct catalog_class of; /* nothing of another class ever lay in it; of none, it is never lent */
  bool lent;               /* somebody was given its descriptor */
  uint64_t fresh;          /* nothing was ever taken from here on */
  struct extents extents;
};

/* A copy (replicas) or a range of rows (split) of a weight, on one device. No two parts share a device. */
struct catalog_part {
  uint32_t device, slab, layout;
  uint64_t offset, bytes;
  int64_t n_begin, n_count;
  uint64_t checksum; /* of its bytes, as the backend makes it; 0: none is known */
};

/* The numbers are kept with the catalog. */
enum catalog_hash_kind { CATALOG_HASH_SEQUENTIAL = 0, CATALOG_HASH_TREE = 1 };

/* By what a load that has been made is found again. */
enum catalog_mark {
  CATALOG_FILES,   /* of which files, as they looked from outside, and how: stamp.h */
  CATALOG_NUMBERS, /* of which numbers, and how: what the loader's `hash` is for these */
  CATALOG_MARKS,
};
struct catalog_stamp {
  bool known;
  uint8_t bytes[CATALOG_HASH_BYTES];
};

/* One content where it lies, whatever its names. The same content may lie elsewhere once more. */
struct catalog_weight {
  uint32_t id; /* never reused */
  uint8_t hash[CATALOG_HASH_BYTES];
  uint32_t hash_kind;                         /* enum catalog_hash_kind: how it was made */
  struct catalog_stamp stamps[CATALOG_MARKS]; /* of the latest load that made it */
  struct gemm_weight shape;
  enum message_placement placement;
  uint32_t part_count;
  struct catalog_part parts[LIMIT_PARTS];
  uint32_t names;   /* that stand for it */
  uint32_t handles; /* that sessions have open */
  uint32_t borrows; /* of sessions that map it themselves */
  bool withdrawn;   /* its bytes are not those that were loaded */
  bool unverified;  /* it was given back while no worker could compare them */
};

struct catalog_name {
  char *text; /* owned */
  uint32_t owner;
  enum message_mode mode;        /* PRIVATE or ALL */
  struct catalog_weight *weight; /* not owned */
};

/* Who asks: owners and admins may change a name. */
struct catalog_user {
  uint32_t uid;
  bool admin;
};

struct catalog {
  uint64_t epoch;             /* numbers of slabs mean the same where this is equal; 0: not chosen yet */
  struct catalog_name *names; /* owned; ordered bytewise */
  size_t name_count, name_capacity;
  struct catalog_weight **weights; /* owned; ordered by hash, and by id */
  size_t weight_count, weight_capacity;
  struct catalog_slab **slabs; /* owned; ordered by id */
  size_t slab_count, slab_capacity;
  uint32_t last_weight, last_slab;
};

void catalog_init(struct catalog *catalog);
void catalog_free(struct catalog *catalog);

/* ---- names */

const struct catalog_name *catalog_find(const struct catalog *catalog, const char *name);
/* Index of the first name greater than `name`; name_count where there is none. */
size_t catalog_after(const struct catalog *catalog, const char *name);
/* The same, where `user` may use it: NOT_FOUND or PERMISSION otherwise. */
MUST_CHECK enum status catalog_look_up(const struct catalog *catalog, const char *name, struct catalog_user user,
                                       const struct catalog_name **out, struct error *error);
bool catalog_may_use(const struct catalog_name *name, struct catalog_user user);
/* What a load asks for its name. */
struct catalog_wish {
  const char *name;
  bool replace; /* even where the name stands for other content */
  enum message_mode mode;
  struct catalog_user user;
};
/* What the name has, or will have once it is named as wished. */
struct catalog_class catalog_class_of(const struct catalog_name *name);
struct catalog_class catalog_class_wished(const struct catalog *catalog, const struct catalog_wish *wish);
bool catalog_class_equal(struct catalog_class a, struct catalog_class b);
/* Whether the name may come to stand for the content of that hash, with that mode: for `weight`, or where that is NULL
 * for one that is not stored yet. EXISTS, or PERMISSION, where it may not. */
MUST_CHECK enum status catalog_may_name(const struct catalog *catalog, const struct catalog_wish *wish,
                                        const uint8_t *hash, const struct catalog_weight *weight, struct error *error);
/* Makes the name stand for `weight`. *before is the content that it stood for, NULL where there is none or where it is
 * the same. The owner of a name that stays is not changed. */
MUST_CHECK enum status catalog_name(struct catalog *catalog, const struct catalog_wish *wish,
                                    struct catalog_weight *weight, struct catalog_weight **before, struct error *error);
/* Drops a name. *weight is what it stood for; its parts stay until the caller removes it. */
MUST_CHECK enum status catalog_unname(struct catalog *catalog, const char *name, struct catalog_user user,
                                      struct catalog_weight **weight, struct error *error);

/* Makes all names of that class that stand for `from` stand for `to`; how many there were. */
uint32_t catalog_move_names(struct catalog *catalog, struct catalog_weight *from, struct catalog_class of,
                            struct catalog_weight *to);

/* What clients are told of a name. Handles and `shared` are left 0. */
void catalog_describe(const struct catalog_name *name, struct message_weight_info *out);

/* ---- contents */

/* The first weight of that content, or with `before` the next one behind it; NULL: none. */
struct catalog_weight *catalog_find_hash(const struct catalog *catalog, const uint8_t *hash,
                                         const struct catalog_weight *before);
/* The same by the stamp, in any order; NULL where that is not known. */
struct catalog_weight *catalog_find_stamp(const struct catalog *catalog, enum catalog_mark mark,
                                          const struct catalog_stamp *stamp, const struct catalog_weight *before);
/* Whether any content is known by the hash that earlier versions made. */
bool catalog_has_old_hash(const struct catalog *catalog);
/* NULL: none has that number. */
struct catalog_weight *catalog_find_id(const struct catalog *catalog, uint32_t id);
/* A number for a weight that is about to be stored. */
uint32_t catalog_next_weight(struct catalog *catalog);
/* Takes a copy of `weight`; with no names and no handles. */
MUST_CHECK enum status catalog_add(struct catalog *catalog, const struct catalog_weight *weight,
                                   struct catalog_weight **out, struct error *error);
/* What it holds is not what was loaded: nothing finds it by that content any more. */
void catalog_disown(struct catalog *catalog, struct catalog_weight *weight);
/* Nothing may stand for it any more. Its extents stay taken. */
void catalog_remove(struct catalog *catalog, struct catalog_weight *weight);
/* No name, handle or borrow stands for it. */
bool catalog_unused(const struct catalog_weight *weight);
uint64_t catalog_weight_bytes(const struct catalog_weight *weight); /* all parts */
/* What stands under names of this user: content under several counts as often. */
struct catalog_holding {
  uint64_t names, bytes; /* bytes of devices */
};
struct catalog_holding catalog_owner_holds(const struct catalog *catalog, uint32_t owner);

/* ---- slabs */

uint32_t catalog_next_slab(struct catalog *catalog);
MUST_CHECK enum status catalog_slab_add(struct catalog *catalog, uint32_t id, uint32_t device, uint64_t bytes, int fd,
                                        struct error *error);
/* The slab must be empty; its descriptor is the caller's to close. */
void catalog_slab_remove(struct catalog *catalog, uint32_t id);
struct catalog_slab *catalog_slab_find(const struct catalog *catalog, uint32_t id);
/* Takes room in any slab of the device that is of that class. NOT_FOUND where another slab is needed. */
MUST_CHECK enum status catalog_take(struct catalog *catalog, uint32_t device, struct catalog_class of, uint64_t bytes,
                                    uint64_t align, uint32_t *slab, uint64_t *offset, struct error *error);
/* Gives room back; true where the slab is empty now. */
bool catalog_give(struct catalog *catalog, uint32_t slab, uint64_t offset);

/* Whether the memory of the weight may be lent to who may use names of that class: slabs of that class hold it, and no
 * name of another stands for anything in them. */
bool catalog_lendable(const struct catalog *catalog, const struct catalog_weight *weight, struct catalog_class of);
/* The slabs of such a weight count as lent from now on; true where one did not before. */
bool catalog_lend(struct catalog *catalog, const struct catalog_weight *weight);
/* Whether a name of that class may stand for the weight: not where a slab of it is lent as another's. */
bool catalog_may_share(const struct catalog *catalog, const struct catalog_weight *weight, struct catalog_class of);

struct catalog_usage {
  uint64_t slabs, used, lent; /* bytes of one device */
};
struct catalog_usage catalog_device_usage(const struct catalog *catalog, uint32_t device);

/* Rows of W that each of at most `parts` devices takes: multiples of 128, so that scale blocks stay whole and columns
 * of y begin at aligned addresses. Fills n_begin and n_count; returns how many parts there are. */
uint32_t catalog_split(int64_t n, uint32_t parts, struct catalog_part *out);
