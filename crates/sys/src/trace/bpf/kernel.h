/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* What the program needs of the kernel's interface (linux/bpf.h, bpf-helpers(7)): no header of any package is needed
 * to compile it, so that clang alone is enough. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

/* enum bpf_map_type */
#define MAP_HASH 1
#define MAP_ARRAY 2
#define MAP_PERCPU_ARRAY 6
#define MAP_RINGBUF 27
/* Flags of updates and records. */
#define UPDATE_ANY 0
#define RING_NO_WAKEUP 1

/* How maps are declared: the numbers become types, which the loader reads from the BTF. */
#define NUMBER(name, value) int (*name)[value]
#define TYPE(name, of) of *name

/* Helpers by their number (enum bpf_func_id). */
static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static u64 (*now_ns)(void) = (void *)5;
static u32 (*cpu_number)(void) = (void *)8;
static u64 (*current_pid_tgid)(void) = (void *)14;
static long (*current_comm)(void *buffer, u32 size) = (void *)16;
static long (*read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static void *(*ring_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*ring_submit)(void *data, u64 flags) = (void *)132;

/* The members that are read; where they lie in the running kernel the loader finds in its BTF (CO-RE). */
struct task_struct {
	int pid;
	int tgid;
} __attribute__((preserve_access_index));

/* Arguments of a raw tracepoint: those of TP_PROTO in the kernel's include/trace/events. */
struct raw_arguments {
	u64 args[4];
};
