/* Client of a policy in force (kagiri qos run): a program states its class, the size of its messages and their
 * target itself, and reads what its sockets get. Never required. Link with -lkagiri_qos.
 *
 * No call takes longer than the client's deadline, raises a signal, or ends the program. A client is used by
 * one thread at a time. */
#ifndef KAGIRI_QOS_H
#define KAGIRI_QOS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A program's connection to the policy in force. */
typedef struct kagiri_qos kagiri_qos;

/* What is in force for the program. */
struct kagiri_qos_report {
  uint64_t rate_bit_per_s; /* sum of the limits of its sockets; KAGIRI_QOS_UNLIMITED unless all have one */
  uint64_t need_bit_per_s; /* rate at which one message arrives within its target; 0: bulk or not known */
  uint64_t size_bytes;     /* in force; 0: bulk, or not known yet */
  uint64_t target_us;      /* in force, microseconds; 0: bulk */
  uint64_t messages;       /* of the program since it connected */
  uint64_t in_time;        /* of these, within the target */
  uint32_t sockets;        /* TCP sockets that leave through the bottleneck */
  uint32_t paced;          /* of these, with a limit */
  char class_name[257];    /* UTF-8; empty: no socket of the program is in a class */
};

#define KAGIRI_QOS_UNLIMITED UINT64_MAX

/* Codes that calls return. */
enum {
  KAGIRI_QOS_OK = 0,
  KAGIRI_QOS_NO_POLICY = -1,     /* no policy is in force in this network namespace */
  KAGIRI_QOS_LATE = -2,          /* no answer within the deadline */
  KAGIRI_QOS_CLOSED = -3,        /* the policy closed the connection */
  KAGIRI_QOS_UNKNOWN_CLASS = -4, /* the policy has no class of this name */
  KAGIRI_QOS_NOT_PERMITTED = -5, /* the class does not have join = true */
  KAGIRI_QOS_INVALID = -6,       /* the class is no name, or the client is null */
  KAGIRI_QOS_INTERNAL = -100     /* the library failed */
};

/* Makes a client; each call waits up to deadline_ms for the policy, which answers every 50 ms. NULL: no memory.
 * It needs no policy: the calls below connect when one is in force. */
kagiri_qos *kagiri_qos_connect(unsigned deadline_ms);

/* States class, size and target of this process, in place of what it stated before. class_name: a class with
 * join = true, or NULL for the class that the policy finds; size_bytes and target_us: 0 for what the policy has.
 * report may be NULL. */
int kagiri_qos_state(kagiri_qos *client, const char *class_name, uint64_t size_bytes, uint64_t target_us,
                     struct kagiri_qos_report *report);

/* Asks what is in force now. report may be NULL. */
int kagiri_qos_rate(kagiri_qos *client, struct kagiri_qos_report *report);

/* Takes back what was stated. report may be NULL. */
int kagiri_qos_withdraw(kagiri_qos *client, struct kagiri_qos_report *report);

/* Ends a client, and with it what it stated. client may be NULL. */
void kagiri_qos_close(kagiri_qos *client);

/* What a code means, as text that stays. */
const char *kagiri_qos_text(int code);

#ifdef __cplusplus
}
#endif

#endif
