/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Times the system calls of followed threads: one record a call into a ring (picture), or counts per duration (table).
 *
 * What is kept and written stands in state.h.
 * Only raw tracepoints are used: they cost the least and need neither kprobes nor tracefs. */
#include "state.h"

/* The kernel gives its helpers to programs whose licence it knows by these words (linux/license.h). */
char licence[] SEC("license") = "Dual BSD/GPL";

/* sys_enter(struct pt_regs *, long number) */
SEC("raw_tp/sys_enter")
int on_enter(struct raw_arguments *raw)
{
	u64 number = raw->args[1];
	struct thread *thread;
	u8 place;

	if (number >= CALLS)
		return 0;
	place = place_of[number];
	if (!place)
		return 0;
	thread = current_thread();
	if (!thread || thread->until_exec)
		return 0;
	thread->place = place;
	thread->number = (u16)number;
	thread->away = 0;
	thread->began_before = 0;
	thread->call_from_ns = now_ns();
	return 0;
}

INLINE void call_into_table(struct thread *thread, u64 ns, long returned)
{
	u32 index = (thread->place - 1) * 2 + (thread->away ? 1 : 0);
	struct row *row = map_lookup(&rows, &index);

	if (!row)
		return;
	count_into(row, ns);
	if (thread->away == PREEMPTED)
		row->preempted++;
	if (returned > 0)
		row->bytes += (u64)returned;
}

INLINE void call_into_ring(struct cpu_state *state, struct thread *thread, u64 now, s32 returned, u8 away)
{
	struct record *record = room_for(state, sizeof(*record), now);

	if (!record) {
		ADD(state->calls_lost, 1);
		return;
	}
	write_record(record, CALL, (u32)current_pid_tgid(), thread->process, thread->call_from_ns, now);
	record->away = away;
	record->number = thread->number;
	record->value = returned;
	ring_submit(record, RING_NO_WAKEUP);
}

/* sys_exit(struct pt_regs *, long returned) */
SEC("raw_tp/sys_exit")
int on_exit_of_call(struct raw_arguments *raw)
{
	struct thread *thread = current_thread();
	struct cpu_state *state;
	u64 now;

	if (!thread || !thread->place)
		return 0;
	if (thread->began_before) {
		thread->place = 0;
		return 0;
	}
	now = now_ns();
	state = state_of_cpu();
	if (!state)
		return 0;
	ADD(state->calls, 1);
	if (picture)
		call_into_ring(state, thread, now, (s32)raw->args[1], thread->away);
	else
		call_into_table(thread, now - thread->call_from_ns, (long)raw->args[1]);
	thread->place = 0;
	return 0;
}

INLINE void run_ends(struct thread *thread, u32 id, u64 now)
{
	struct cpu_state *state = state_of_cpu();
	struct record *record;

	if (!state)
		return;
	record = room_for(state, sizeof(*record), now);
	if (!record)
		return;
	write_record(record, RUN, id, thread->process, thread->run_from_ns, now);
	record->value = (s32)cpu_number();
	ring_submit(record, RING_NO_WAKEUP);
}

/* sched_switch(bool preempted, struct task_struct *before, struct task_struct *after, ...) */
SEC("raw_tp/sched_switch")
int on_switch(struct raw_arguments *raw)
{
	u32 id = (u32)current_pid_tgid();
	struct thread *thread = id ? map_lookup(&threads, &id) : 0;

	if (is_over())
		return 0;
	if (thread && !thread->until_exec) {
		thread->away |= raw->args[0] ? PREEMPTED : WAITED;
		if (picture && thread->run_from_ns)
			run_ends(thread, id, now_ns());
		thread->run_from_ns = 0;
	}
	if (picture) {
		struct task_struct *after = (struct task_struct *)raw->args[2];
		u32 next = 0;

		read_kernel(&next, sizeof(next), __builtin_preserve_access_index(&after->pid));
		thread = next ? map_lookup(&threads, &next) : 0;
		if (thread)
			thread->run_from_ns = now_ns();
	}
	return 0;
}

/* sched_process_fork(struct task_struct *parent, struct task_struct *child): a process or a thread, not running yet */
SEC("raw_tp/sched_process_fork")
int on_fork(struct raw_arguments *raw)
{
	struct task_struct *child = (struct task_struct *)raw->args[1];
	struct thread *parent = current_thread();
	struct cpu_state *state = state_of_cpu();
	struct thread followed = {};
	struct record *record;
	u32 id = 0;

	if (!parent || parent->until_exec || !state)
		return 0;
	read_kernel(&id, sizeof(id), __builtin_preserve_access_index(&child->pid));
	read_kernel(&followed.process, sizeof(u32), __builtin_preserve_access_index(&child->tgid));
	if (!id || map_update(&threads, &id, &followed, UPDATE_ANY)) {
		ADD(state->not_followed, 1);
		return 0;
	}
	u64 now = now_ns();
	record = room_for(state, sizeof(*record), now);
	if (record) {
		write_record(record, FORK, id, followed.process, now, now);
		record->value = (s32)(u32)current_pid_tgid();
		ring_submit(record, RING_NO_WAKEUP);
	}
	return 0;
}

INLINE void tell_name(u8 kind, struct cpu_state *state, struct thread *thread, u64 now)
{
	struct name_record *record = room_for(state, sizeof(*record), now);

	if (!record)
		return;
	write_record(&record->head, kind, (u32)current_pid_tgid(), thread->process, now, now);
	current_comm(record->name, sizeof(record->name));
	ring_submit(record, RING_NO_WAKEUP);
}

/* A thread that executes a program takes the number of its process's first thread, which has ended by then. */
INLINE struct thread *renamed_thread(u32 before)
{
	u32 id = (u32)current_pid_tgid();
	struct thread *thread = is_over() ? 0 : map_lookup(&threads, &before);
	struct thread moved;

	if (!thread)
		return 0;
	moved = *thread;
	map_delete(&threads, &before);
	map_update(&threads, &id, &moved, UPDATE_ANY);
	return map_lookup(&threads, &id);
}

/* sched_process_exec(struct task_struct *, pid_t before, struct linux_binprm *) */
SEC("raw_tp/sched_process_exec")
int on_exec(struct raw_arguments *raw)
{
	struct thread *thread = current_thread();
	struct cpu_state *state = state_of_cpu();

	if (!thread)
		thread = renamed_thread((u32)raw->args[1]);
	if (!thread || !state)
		return 0;
	u64 now = now_ns();
	if (thread->until_exec) {
		thread->until_exec = 0;
		thread->place = 0;
		thread->run_from_ns = now;
	}
	tell_name(NAME, state, thread, now);
	return 0;
}

/* sched_process_exit(struct task_struct *, ...): a thread ends; in a call if another thread ended the process */
SEC("raw_tp/sched_process_exit")
int on_exit_of_thread(struct raw_arguments *raw)
{
	struct thread *thread = current_thread();
	struct cpu_state *state = state_of_cpu();
	u32 id = (u32)current_pid_tgid();

	if (!thread || !state)
		return 0;
	u64 now = now_ns();
	if (thread->place) {
		struct record *record = room_for(state, sizeof(*record), now);

		if (record) {
			write_record(record, CALL, id, thread->process, thread->call_from_ns, now);
			record->away = UNFINISHED | (thread->began_before ? BEGAN_BEFORE : 0);
			record->number = thread->number;
			ring_submit(record, RING_NO_WAKEUP);
		}
	}
	if (picture && thread->run_from_ns)
		run_ends(thread, id, now);
	tell_name(EXIT, state, thread, now);
	map_delete(&threads, &id);
	return 0;
}

#define NET_TX 2

/* softirq_entry(unsigned int vector) */
SEC("raw_tp/softirq_entry")
int on_softirq(struct raw_arguments *raw)
{
	u32 which = (u32)raw->args[0] - NET_TX;
	struct cpu_state *state = which < 2 ? state_of_cpu() : 0;

	if (state)
		state->softirq_from_ns[which & 1] = now_ns();
	return 0;
}

INLINE void softirq_into_table(u32 which, u64 run_ns, u64 period_ns)
{
	u32 index = which * 2;
	struct row *row = map_lookup(&softirq_rows, &index);

	if (row)
		count_into(row, run_ns);
	index++;
	row = period_ns ? map_lookup(&softirq_rows, &index) : 0;
	if (row)
		count_into(row, period_ns);
}

/* softirq_exit(unsigned int vector) */
SEC("raw_tp/softirq_exit")
int on_exit_of_softirq(struct raw_arguments *raw)
{
	u32 which = (u32)raw->args[0] - NET_TX;
	struct cpu_state *state = which < 2 ? state_of_cpu() : 0;
	struct record *record;

	if (!state || is_over())
		return 0;
	which &= 1;
	u64 now = now_ns(), from = state->softirq_from_ns[which], last = state->softirq_last_ns[which];
	if (!from)
		return 0;
	state->softirq_from_ns[which] = 0;
	state->softirq_last_ns[which] = from;
	if (!picture) {
		softirq_into_table(which, now - from, last ? from - last : 0);
		return 0;
	}
	record = room_for(state, sizeof(*record), now);
	if (!record)
		return 0;
	write_record(record, SOFTIRQ, 0, 0, from, now);
	record->number = (u16)raw->args[0];
	record->value = (s32)cpu_number();
	ring_submit(record, RING_NO_WAKEUP);
	return 0;
}
