/* A front end for `kagiri daq`: COUNT sources that send SIZE bytes of each event to one builder.
 *
 * usage: frontend ADDR:PORT GROUP:PORT RUN FIRST COUNT SIZE [BUILDERS]        (cc -O2 -o frontend frontend.c)
 *
 * ADDR:PORT, GROUP:PORT and RUN are printed by `kagiri daq --front-ends COUNT --listen ADDR:PORT`; GROUP:PORT may be `-`, then
 * orders come over TCP only. FIRST is the number of the first source. BUILDERS (1 unless given) is how many builders share
 * the events modulo their number, 0 if by another rule. The format is described in docs/daq-wire.md; the steps below are numbered
 * as there. IPv4, and one thread. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TRIGGER = 1, GRANT, PULL, STOP, HELLO, FRAGMENT, SYNC, NACK };
enum { HEADER_BYTES = 64, CATCHUP = 2, EVENTS = 1 << 14 /* more than any builder has under way */, IDLE_TIMEOUT_MS = 60000 };

struct source {
    int connection;
    uint32_t number, sequence;
    uint64_t oldest;              /* older events are forgotten, and never sent again */
    uint8_t sent[EVENTS / 8];     /* of the events from `oldest` on, by number modulo EVENTS */
    uint8_t in[2048];             /* bytes read over TCP that are no whole order yet */
    size_t in_bytes;
};

static struct source *sources;
static struct pollfd *watched;    /* the connections, the group's UDP socket, the multicast socket */
static uint32_t run, count, size, builders = 1, crc_table[256], payload_crc;
static uint8_t *message;          /* a header and the payload behind it, written in one call */
static int is_known;              /* whether any order was of this run */

static void fail(const char *what) {
    fprintf(stderr, "frontend: %s: %s\n", what, strerror(errno));
    exit(1);
}
static void refuse(const char *why) {
    fprintf(stderr, "frontend: %s\n", why);
    exit(1);
}
static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
static void crc_init(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
        crc_table[byte] = crc;
    }
}
static uint32_t crc32c(const uint8_t *data, size_t bytes) {
    uint32_t crc = 0xFFFFFFFF;
    while (bytes--) crc = crc >> 8 ^ crc_table[(crc ^ *data++) & 255];
    return ~crc;
}
static void put16(uint8_t *at, uint16_t value) { value = htobe16(value); memcpy(at, &value, 2); }
static void put32(uint8_t *at, uint32_t value) { value = htobe32(value); memcpy(at, &value, 4); }
static void put64(uint8_t *at, uint64_t value) { value = htobe64(value); memcpy(at, &value, 8); }
static uint16_t get16(const uint8_t *at) { uint16_t value; memcpy(&value, at, 2); return be16toh(value); }
static uint32_t get32(const uint8_t *at) { uint32_t value; memcpy(&value, at, 4); return be32toh(value); }
static uint64_t get64(const uint8_t *at) { uint64_t value; memcpy(&value, at, 8); return be64toh(value); }

/* Step 3: a header. The send time is read here, right before the write. */
static void header(uint8_t *out, int kind, uint16_t flags, uint16_t builder, uint64_t event, const struct source *of,
                 uint32_t payload_bytes, uint32_t crc, uint64_t received_ns) {
    memset(out, 0, HEADER_BYTES);
    memcpy(out, "KGDQ\1", 5);
    out[5] = kind;
    put16(out + 6, HEADER_BYTES);
    put32(out + 8, run);
    put16(out + 12, flags);
    put16(out + 14, builder);
    put64(out + 16, event);
    put32(out + 24, of->number);
    put32(out + 28, payload_bytes);
    put64(out + 32, received_ns);
    put32(out + 52, of->sequence);
    put32(out + 56, crc);
    put64(out + 40, now_ns());
    put32(out + 60, crc32c(out, 60));
}
static void write_all(int connection, const uint8_t *data, size_t bytes) {
    while (bytes) {
        ssize_t written = send(connection, data, bytes, MSG_NOSIGNAL);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail(errno == EAGAIN ? "the builder did not read for 10 s" : "the connection to the builder");
        data += written, bytes -= written;
    }
}
/* Step 8: a fragment, unless it was sent before. */
static void fragment(struct source *of, uint16_t builder, uint64_t event, uint16_t flags, uint64_t received_ns) {
    uint8_t *sent = &of->sent[event % EVENTS / 8], bit = 1 << event % 8;
    if (*sent & bit) return;
    *sent |= bit;
    header(message, FRAGMENT, flags, builder, event, of, size, payload_crc, received_ns);
    write_all(of->connection, message, HEADER_BYTES + size);
    of->sequence++;
}
static void forget(struct source *of, uint64_t oldest) {
    if (oldest - of->oldest >= EVENTS) memset(of->sent, 0, sizeof of->sent);
    else for (uint64_t e = of->oldest; e < oldest; e++) of->sent[e % EVENTS / 8] &= ~(1 << e % 8);
    of->oldest = oldest;
}
static void event_order(struct source *of, const uint8_t *in, uint64_t received_ns) {
    uint64_t event = get64(in + 16), oldest = get64(in + 48), step = builders ? builders : 1;
    uint32_t first = get32(in + 32);
    if (oldest > event || event - oldest >= EVENTS) return;
    if (oldest > of->oldest) forget(of, oldest); /* orders may be reordered: forgotten events stay forgotten */
    if (of->number < first || of->number - first >= get32(in + 36) || event < of->oldest || event - of->oldest >= EVENTS) return;
    /* A trigger without a limit of bytes in flight (push) reveals lost ones before it; other orders are for their event alone. */
    if (in[5] == TRIGGER && get32(in + 44) == 0 && builders)
        for (uint64_t missed = event - (event - of->oldest) / step * step; missed < event; missed += step)
            fragment(of, get16(in + 14), missed, CATCHUP, received_ns);
    fragment(of, get16(in + 14), event, 0, received_ns);
}
/* Steps 5 to 9: an order by UDP (`only` is null) or over a source's connection. Returns 1 at the end of the run. */
static int order(const uint8_t *in, size_t bytes, uint64_t received_ns, struct source *only, const struct sockaddr_in *reply_to) {
    if (bytes < HEADER_BYTES || memcmp(in, "KGDQ\1", 5) || get32(in + 8) != run || crc32c(in, 60) != get32(in + 60)) return 0;
    is_known = 1;
    if (in[5] == STOP) return 1;
    if (in[5] == SYNC) {
        uint8_t answer[HEADER_BYTES];
        header(answer, SYNC, 0, get16(in + 14), get64(in + 16), only ? only : &sources[0], 0, 0, received_ns);
        if (only) write_all(only->connection, answer, HEADER_BYTES);
        else sendto(watched[count].fd, answer, HEADER_BYTES, 0, (const struct sockaddr *)reply_to, sizeof *reply_to);
    }
    if (in[5] == TRIGGER || in[5] == GRANT || in[5] == PULL) {
        if (only) event_order(only, in, received_ns);
        else for (uint32_t i = 0; i < count; i++) event_order(&sources[i], in, received_ns);
    }
    return 0;
}
/* Reads a connection: orders arrive whole, in parts, or several at once. */
static int read_orders(struct source *of) {
    ssize_t got = recv(of->connection, of->in + of->in_bytes, sizeof of->in - of->in_bytes, 0);
    uint64_t received_ns = now_ns();
    /* The builder closes connections of another run without a message. */
    if (!is_known && (got == 0 || (got < 0 && errno == ECONNRESET)))
        refuse("the builder closed the connection before any order: is RUN right?");
    if (got < 0) fail("the connection to the builder");
    if (got == 0) return 1;
    of->in_bytes += got;
    while (of->in_bytes >= HEADER_BYTES) {
        size_t bytes = get16(of->in + 6);
        if (memcmp(of->in, "KGDQ\1", 5) || bytes < HEADER_BYTES || bytes > 1024)
            refuse("the other end does not speak version 1 of this protocol");
        if (of->in_bytes < bytes) break;
        if (order(of->in, bytes, received_ns, of, NULL)) return 1;
        memmove(of->in, of->in + bytes, of->in_bytes -= bytes);
    }
    return 0;
}
static struct sockaddr_in address(const char *text) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    char host[64] = "";
    int port = 0;
    if (sscanf(text, "%63[0-9.]:%d", host, &port) != 2 || !inet_aton(host, &at.sin_addr) || port < 1 || port > 65535)
        refuse("an address is written as 10.0.0.1:7500");
    at.sin_port = htons(port);
    return at;
}
static void read_boot_id(uint8_t out[16]) { /* shows the builder whether we share its clock; zeros: unknown */
    unsigned digit;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    for (int i = 0; file && i < 32 && fscanf(file, " %*[-]") != EOF && fscanf(file, "%1x", &digit) == 1; i++)
        out[i / 2] |= digit << (i % 2 ? 0 : 4);
    if (file) fclose(file);
}
int main(int argc, char **argv) {
    if (argc < 7 || argc > 8) refuse("usage: frontend ADDR:PORT GROUP:PORT RUN FIRST COUNT SIZE [BUILDERS]");
    struct sockaddr_in builder = address(argv[1]), local = {.sin_family = AF_INET};
    uint32_t first = strtoul(argv[4], NULL, 0), udp_sockets = strcmp(argv[2], "-") ? 2 : 1, one = 1;
    socklen_t length = sizeof local;
    run = strtoul(argv[3], NULL, 0), count = strtoul(argv[5], NULL, 0), size = strtoul(argv[6], NULL, 0);
    if (argc == 8) builders = strtoul(argv[7], NULL, 0);
    if (count < 1 || count > 100000 || size > 64 << 20) refuse("COUNT is 1 to 100000, SIZE at most 67108864");
    crc_init();
    sources = calloc(count, sizeof *sources), watched = calloc(count + 2, sizeof *watched), message = malloc(HEADER_BYTES + (size_t)size);
    if (!sources || !watched || !message) fail("memory");
    for (uint32_t i = 0; i < size; i++) message[HEADER_BYTES + i] = i;
    payload_crc = crc32c(message + HEADER_BYTES, size);

    int udp = socket(AF_INET, SOCK_DGRAM, 0); /* step 1: the group's UDP port */
    if (udp < 0 || bind(udp, (struct sockaddr *)&local, sizeof local) ||
        getsockname(udp, (struct sockaddr *)&local, &length))
        fail("a UDP socket");
    watched[count] = (struct pollfd){udp, POLLIN, 0};
    uint16_t udp_port = ntohs(local.sin_port);
    for (uint32_t i = 0; i < count; i++) {
        struct timeval timeout = {10, 0};
        int connection = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
        if (connection < 0) fail(argv[1]);
        /* The builder listens once its line is printed, and not between two trials of a search. */
        for (int tries = 1; connect(connection, (struct sockaddr *)&builder, sizeof builder); tries++) {
            if (errno != ECONNREFUSED || tries == 30) fail(argv[1]);
            usleep(100000);
        }
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        sources[i].connection = connection, sources[i].number = first + i;
        watched[i] = (struct pollfd){connection, POLLIN, 0};
    }
    if (udp_sockets == 2) { /* step 2 */
        struct sockaddr_in group = address(argv[2]);
        struct ip_mreq join = {.imr_multiaddr = group.sin_addr};
        int multicast = socket(AF_INET, SOCK_DGRAM, 0);
        length = sizeof local;
        setsockopt(multicast, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(multicast, (struct sockaddr *)&group, sizeof group) ||
            getsockname(sources[0].connection, (struct sockaddr *)&local, &length))
            fail(argv[2]);
        join.imr_interface = local.sin_addr;
        if (setsockopt(multicast, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join)) fail(argv[2]);
        watched[count + 1] = (struct pollfd){multicast, POLLIN, 0};
    }
    uint8_t hello[HEADER_BYTES + 64] = {0}, *body = hello + HEADER_BYTES; /* step 4 */
    put64(body, now_ns() << 16 | (getpid() & 0xFFFF) | 1);
    read_boot_id(body + 8);
    put16(body + 24, udp_port);
    put32(body + 28, count);
    for (uint32_t i = 0; i < count; i++) {
        header(hello, HELLO, 0, 65535 /* any builder */, 0, &sources[i], 64, crc32c(body, 64), 0);
        write_all(sources[i].connection, hello, sizeof hello);
    }
    for (int over = 0; !over;) { /* step 10 */
        int ready = poll(watched, count + udp_sockets, IDLE_TIMEOUT_MS);
        if (ready == 0) refuse("the builder was silent for 60 s");
        if (ready < 0 && errno != EINTR) fail("poll");
        for (uint32_t i = 0; ready > 0 && i < count + udp_sockets && !over; i++) {
            if (!watched[i].revents) continue;
            uint8_t datagram[2048];
            struct sockaddr_in reply_to;
            length = sizeof reply_to;
            if (i < count) { over = read_orders(&sources[i]); continue; }
            ssize_t got = recvfrom(watched[i].fd, datagram, sizeof datagram, MSG_DONTWAIT, (struct sockaddr *)&reply_to, &length);
            /* A multicast group cannot be replied to: reply to the builder's port. */
            over = got > 0 && order(datagram, got, now_ns(), NULL, i == count ? &reply_to : &builder);
        }
    }
    uint64_t sent = 0;
    for (uint32_t i = 0; i < count; i++) sent += sources[i].sequence;
    printf("%llu fragments sent\n", (unsigned long long)sent);
    return 0;
}
