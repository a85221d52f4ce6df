/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Gives new sockets of a control group a priority and TCP connections a pacing rate, before their program can use
 * them. bpf-helpers(7), linux/bpf.h. */
#include "../trace/bpf/kernel.h"

#define FAMILY_IPV4 2
#define FAMILY_IPV6 10
/* Calls of a sockops program: a connection is established, by this side or by the peer. */
#define ESTABLISHED_ACTIVE 4
#define ESTABLISHED_PASSIVE 5
/* asm-generic/socket.h */
#define LEVEL_SOCKET 1
#define OPTION_PRIORITY 12
#define OPTION_MAX_PACING_RATE 47

char licence[] SEC("license") = "Dual BSD/GPL";

static long (*set_option)(void *context, int level, int option, void *value, int bytes) = (void *)49;
static long (*get_option)(void *context, int level, int option, void *value, int bytes) = (void *)57;

/* The beginnings of struct bpf_sock and struct bpf_sock_ops. */
struct socket_context {
	u32 bound_interface;
	u32 family;
	u32 type;
	u32 protocol;
	u32 mark;
	u32 priority;
};
struct operation_context {
	u32 operation;
};

/* 0: leave it as it is. */
struct setting {
	u32 bytes_per_s;
	u32 priority;
};
struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct setting);
} settings SEC(".maps");

SEC("cgroup/sock_create") int on_create(struct socket_context *socket)
{
	u32 key = 0;
	struct setting *setting = map_lookup(&settings, &key);
	if (setting && setting->priority && (socket->family == FAMILY_IPV4 || socket->family == FAMILY_IPV6))
		socket->priority = setting->priority;
	return 1;
}

INLINE void set(void *context, int option, u32 value)
{
	if (value)
		set_option(context, LEVEL_SOCKET, option, &value, sizeof(value));
}

SEC("sockops") int on_operation(struct operation_context *context)
{
	u32 key = 0, own = ~0U;
	struct setting *setting;
	if (context->operation != ESTABLISHED_ACTIVE && context->operation != ESTABLISHED_PASSIVE)
		return 1;
	setting = map_lookup(&settings, &key);
	if (!setting)
		return 1;
	/* A program that limits itself is never sped up. Linux before 6.1 does not tell, and the rate is set. */
	if (get_option(context, LEVEL_SOCKET, OPTION_MAX_PACING_RATE, &own, sizeof(own)) || own > setting->bytes_per_s)
		set(context, OPTION_MAX_PACING_RATE, setting->bytes_per_s);
	/* An accepted connection does not inherit its listener's. */
	if (context->operation == ESTABLISHED_PASSIVE)
		set(context, OPTION_PRIORITY, setting->priority);
	return 1;
}
