/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* What the programs keep and write. User space reads it: records.rs must change together with it. */
#pragma once

#include "kernel.h"

#define CALLS 512
#define ROWS 256
#define CPU_STATES 1

/* Set by the loader. */
/* For each system call: 0 if it is not wanted, else 1 + its place among the wanted ones. */
const volatile u8 place_of[CALLS] = {};
/* Whether every call, run and softirq becomes a record. */
const volatile u8 picture = 0;

enum kind { CALL = 1, RUN, SOFTIRQ, FORK, NAME, EXIT, LOST };
/* How a thread was away from its CPU during a call. */
enum away { WAITED = 1, PREEMPTED = 2, UNFINISHED = 4, BEGAN_BEFORE = 8 };

/* A followed thread. */
struct thread {
	u64 call_from_ns;
	u64 run_from_ns;
	u32 process;
	u16 place; /* of the call it is in, 0 if none */
	u16 number;
	u8 away;
	u8 until_exec; /* it is still the tracer's own copy */
	u8 began_before; /* the call it is in: before it was followed */
	u8 unused[5];
};

struct record {
	u8 kind;
	u8 away;
	u16 number;
	u32 thread;
	u32 process;
	s32 value; /* what the call returned, or the CPU */
	u64 from_ns;
	u64 to_ns;
};

struct name_record {
	struct record head;
	char name[16];
};

/* Durations: exact below 32 ns, then 32 steps an octave up to 2^40 ns (18 minutes). */
#define STEPS 32
#define STEP_BITS 5
#define OCTAVES 36
#define BUCKETS (STEPS * OCTAVES)

struct row {
	u64 count;
	u64 preempted;
	u64 total_ns;
	u64 max_ns;
	u64 bytes;
	u32 buckets[BUCKETS];
};

/* Kept by every CPU for itself. */
struct cpu_state {
	u64 calls;         /* calls that ended, wanted and followed */
	u64 calls_lost;    /* those of them that found no place in the ring */
	u64 records;       /* records that were to be written */
	u64 records_lost;
	u64 lost_now;      /* records lost since the last that found a place */
	u64 lost_from_ns;
	u64 not_followed;  /* threads that found no place in the table */
	u64 softirq_from_ns[2];
	u64 softirq_last_ns[2];
};

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, u32);
	TYPE(value, struct thread);
} threads SEC(".maps");

struct {
	NUMBER(type, MAP_RINGBUF);
	NUMBER(max_entries, 8 << 20);
} ring SEC(".maps");

struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	NUMBER(max_entries, ROWS);
	TYPE(key, u32);
	TYPE(value, struct row);
} rows SEC(".maps");

/* By softirq (NET_TX, NET_RX), run and period. */
struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	NUMBER(max_entries, 4);
	TYPE(key, u32);
	TYPE(value, struct row);
} softirq_rows SEC(".maps");

struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	NUMBER(max_entries, CPU_STATES);
	TYPE(key, u32);
	TYPE(value, struct cpu_state);
} cpu_states SEC(".maps");

/* Not 0 when the watching is over. All programs end by it at the same moment: detaching them takes a while for each, and
 * calls that are reported without their switches would seem never to have waited. */
struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u32);
} over SEC(".maps");

INLINE int is_over(void)
{
	u32 only = 0;
	volatile u32 *said = map_lookup(&over, &only);
	return said && *said;
}

/* An interrupt may come between reading and writing a number of this CPU. */
#define ADD(where, amount) __sync_fetch_and_add(&(where), (amount))

INLINE struct cpu_state *state_of_cpu(void)
{
	u32 only = 0;
	return map_lookup(&cpu_states, &only);
}

INLINE struct thread *current_thread(void)
{
	u32 thread = (u32)current_pid_tgid();
	return is_over() ? 0 : map_lookup(&threads, &thread);
}

INLINE u32 bucket_of(u64 ns)
{
	u32 exponent = 0;
	u64 left = ns;

	if (ns < STEPS)
		return (u32)ns;
	if (left >> 32) { exponent += 32; left >>= 32; }
	if (left >> 16) { exponent += 16; left >>= 16; }
	if (left >> 8) { exponent += 8; left >>= 8; }
	if (left >> 4) { exponent += 4; left >>= 4; }
	if (left >> 2) { exponent += 2; left >>= 2; }
	if (left >> 1)
		exponent += 1;
	u32 step = (u32)(ns >> (exponent - STEP_BITS)) & (STEPS - 1);
	u32 bucket = (exponent - STEP_BITS + 1) * STEPS + step;
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* Rows are of one CPU, and a CPU is in one call's end, or in one softirq's, at a time. */
INLINE void count_into(struct row *row, u64 ns)
{
	u32 bucket = bucket_of(ns);

	row->count++;
	row->total_ns += ns;
	if (ns > row->max_ns)
		row->max_ns = ns;
	if (bucket < BUCKETS)
		row->buckets[bucket]++;
}

INLINE void note_loss(struct cpu_state *state, u64 at_ns)
{
	ADD(state->records_lost, 1);
	if (!state->lost_from_ns)
		state->lost_from_ns = at_ns;
	ADD(state->lost_now, 1);
}

/* After a loss the first that finds a place again is preceded by what was lost. */
INLINE void tell_loss(struct cpu_state *state, u64 at_ns)
{
	struct record *lost;

	if (!state->lost_now)
		return;
	lost = ring_reserve(&ring, sizeof(*lost), 0);
	if (!lost)
		return;
	__builtin_memset(lost, 0, sizeof(*lost));
	lost->kind = LOST;
	lost->process = (u32)state->lost_now;
	lost->value = (s32)cpu_number();
	lost->from_ns = state->lost_from_ns;
	lost->to_ns = at_ns;
	state->lost_now = 0;
	state->lost_from_ns = 0;
	ring_submit(lost, RING_NO_WAKEUP);
}

/* Room for a record, or 0: then its loss is counted. */
INLINE void *room_for(struct cpu_state *state, u64 size, u64 at_ns)
{
	void *room;

	ADD(state->records, 1);
	tell_loss(state, at_ns);
	room = ring_reserve(&ring, size, 0);
	if (!room)
		note_loss(state, at_ns);
	return room;
}

INLINE void write_record(struct record *record, u8 kind, u32 thread, u32 process, u64 from_ns, u64 to_ns)
{
	record->kind = kind;
	record->away = 0;
	record->number = 0;
	record->thread = thread;
	record->process = process;
	record->value = 0;
	record->from_ns = from_ns;
	record->to_ns = to_ns;
}
