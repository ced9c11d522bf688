/* The upstream of the measurements: OpenAI-compatible, one thread, so cheap that what is measured is what stands
 * before it.
 *
 *     mock [--port N] [--chunks N] [--pace-us N] [--bytes N] [--first-us N]
 *
 * Listens on 127.0.0.1 (any free port without --port) and prints {"port": N} once it does.
 *
 *     GET  …/models             one model, bench-model
 *     GET  …/health             {}, which routers ask for
 *     GET  …/counts             {"requests": N, "streams": N, "open": N, "chunks": N}
 *     POST …/chat/completions   about 600 bytes of JSON with usage; with "stream": true as many chunks as asked
 *                               for, then finish reason, usage (where asked for) and [DONE]
 *
 * A prompt may hold "[bench chunks=20 pace_us=50000 bytes=120 first_us=0]", which overrides the command line for its
 * request: number of chunks, microseconds from one to the next (0: as fast as the socket takes them), bytes of text
 * in each, microseconds before the first. Each chunk is an event, an HTTP chunk and a send of its own; its text
 * begins with "t=" and CLOCK_MONOTONIC in 19 digits of nanoseconds, so that a reader on this machine sees its age.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MAX_PEERS 65536
#define MAX_REQUEST (32u << 20)
#define READ_BYTES 16384
#define MIN_TEXT 22 /* "t=", 19 digits, a space */
#define MAX_TEXT 60000
#define NOWHERE (-1)

struct buffer {
    char *bytes;
    size_t length, room;
};

struct shape {
    long chunks, pace_us, bytes, first_us;
};

enum doing { READING, ABOUT_TO_ANSWER, STREAMING };

struct peer {
    int fd;
    enum doing doing;
    bool stream, wants_usage, last, closed, blocked;
    struct buffer in, out;
    struct buffer event; /* the framed chunk, the same but for its time stamp */
    size_t stamp_at;
    long left;
    struct shape shape;
    uint64_t due_ns;
    int timer_at, ready_at;
};

static struct shape usual = {.chunks = 20, .pace_us = 0, .bytes = 40, .first_us = 0};
static int poller, alarm_fd;
static uint64_t alarm_ns; /* what the alarm is set to; 0: not set */
static struct peer *timers[MAX_PEERS]; /* binary heap by due_ns */
static struct peer *ready[MAX_PEERS];  /* streams without a pace whose socket takes more */
static struct peer *gone[MAX_PEERS];   /* hung up in this turn */
static int timer_count, ready_count, gone_count;
static long requests, streams, open_streams, chunks;

static const char MODELS[] =
    "{\"object\":\"list\",\"data\":[{\"id\":\"bench-model\",\"object\":\"model\",\"created\":1764547200,"
    "\"owned_by\":\"bench\"}]}";
static const char COMPLETION[] =
    "{\"id\":\"chatcmpl-bench0000000000000000000000\",\"object\":\"chat.completion\",\"created\":1764547200,"
    "\"model\":\"bench-model\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"The gateway "
    "passes this on as it is. It is as long as a short answer to a short question would be, two or three sentences of "
    "plain text, so that the cost of copying it is there but does not hide the cost of the rest.\"},\"logprobs\":null,"
    "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":112,\"completion_tokens\":48,\"total_tokens\":160,"
    "\"prompt_tokens_details\":{\"cached_tokens\":64}}}";
static const char STREAM_HEAD[] =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    "transfer-encoding: chunked\r\n\r\n";
#define CHUNK_START                                                                                             \
    "data: {\"id\":\"chatcmpl-bench0000000000000000000000\",\"object\":\"chat.completion.chunk\","                \
    "\"created\":1764547200,\"model\":\"bench-model\",\"choices\":["

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static char *room_for(struct buffer *b, size_t more) {
    if (b->length + more > b->room) {
        b->room = (b->length + more) * 2;
        b->bytes = realloc(b->bytes, b->room);
        if (!b->bytes) die("memory");
    }
    return b->bytes + b->length;
}

static void append(struct buffer *b, const char *data, size_t n) {
    memcpy(room_for(b, n), data, n);
    b->length += n;
}

static void drop_front(struct buffer *b, size_t n) {
    b->length -= n;
    memmove(b->bytes, b->bytes + n, b->length);
}

/* -- who is due when -------------------------------------------------------------------------------------- */

static void place_timer(struct peer *p, int at) {
    timers[at] = p;
    p->timer_at = at;
}

static void sift_up(struct peer *p, int at) {
    while (at > 0 && timers[(at - 1) / 2]->due_ns > p->due_ns) {
        place_timer(timers[(at - 1) / 2], at);
        at = (at - 1) / 2;
    }
    place_timer(p, at);
}

static void sift_down(struct peer *p, int at) {
    for (int child; (child = 2 * at + 1) < timer_count; at = child) {
        if (child + 1 < timer_count && timers[child + 1]->due_ns < timers[child]->due_ns) child++;
        if (timers[child]->due_ns >= p->due_ns) break;
        place_timer(timers[child], at);
    }
    place_timer(p, at);
}

static void unset_timer(struct peer *p) {
    int at = p->timer_at;
    if (at == NOWHERE) return;
    p->timer_at = NOWHERE;
    struct peer *last = timers[--timer_count];
    if (last == p) return;
    sift_up(last, at);
    sift_down(last, last->timer_at);
}

static void set_timer(struct peer *p, uint64_t due_ns) {
    unset_timer(p);
    p->due_ns = due_ns;
    sift_up(p, timer_count++);
}

static void set_alarm(void) {
    uint64_t wanted = timer_count ? timers[0]->due_ns : 0;
    if (wanted == alarm_ns) return;
    struct itimerspec at = {.it_value = {.tv_sec = (time_t)(wanted / 1000000000u), .tv_nsec = (long)(wanted % 1000000000u)}};
    if (timerfd_settime(alarm_fd, TFD_TIMER_ABSTIME, &at, NULL)) die("timerfd_settime");
    alarm_ns = wanted;
}

static void make_ready(struct peer *p) {
    if (p->ready_at != NOWHERE) return;
    p->ready_at = ready_count;
    ready[ready_count++] = p;
}

static void unmake_ready(struct peer *p) {
    if (p->ready_at == NOWHERE) return;
    ready[p->ready_at] = ready[--ready_count];
    ready[p->ready_at]->ready_at = p->ready_at;
    p->ready_at = NOWHERE;
}

/* -- sockets ---------------------------------------------------------------------------------------------- */

static void watch(struct peer *p, bool for_room) {
    struct epoll_event event = {.events = EPOLLIN | (for_room ? EPOLLOUT : 0u), .data.ptr = p};
    epoll_ctl(poller, EPOLL_CTL_MOD, p->fd, &event);
    p->blocked = for_room;
}

/* Freed at the end of the turn: its events may still point here. */
static void hang_up(struct peer *p) {
    if (p->closed) return;
    p->closed = true;
    gone[gone_count++] = p;
    if (p->doing == STREAMING) open_streams--;
    unset_timer(p);
    unmake_ready(p);
    close(p->fd);
}

static void put(struct peer *p, const char *data, size_t n) {
    if (p->closed) return;
    if (!p->out.length) {
        ssize_t sent = send(p->fd, data, n, MSG_NOSIGNAL);
        if (sent == (ssize_t)n) return;
        if (sent < 0 && errno != EAGAIN) {
            hang_up(p);
            return;
        }
        if (sent > 0) data += sent, n -= (size_t)sent;
        watch(p, true);
    }
    append(&p->out, data, n);
}

static void put_text(struct peer *p, const char *text) { put(p, text, strlen(text)); }

static void answer(struct peer *p, const char *status, const char *body) {
    char text[2048];
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", status,
                     strlen(body), body);
    put(p, text, (size_t)n);
}

/* -- answers ---------------------------------------------------------------------------------------------- */

static void put_chunk(struct peer *p, const char *event) {
    char framed[1024];
    int n = snprintf(framed, sizeof framed, "%zx\r\n%s\r\n", strlen(event), event);
    put(p, framed, (size_t)n);
}

static void prepare_event(struct peer *p) {
    static const char before[] = CHUNK_START "{\"index\":0,\"delta\":{\"content\":\"";
    static const char behind[] = "\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
    size_t text = (size_t)p->shape.bytes;
    char size[24];
    int n = snprintf(size, sizeof size, "%zx\r\n", sizeof before - 1 + text + sizeof behind - 1);
    p->event.length = 0;
    append(&p->event, size, (size_t)n);
    append(&p->event, before, sizeof before - 1);
    p->stamp_at = p->event.length + 2;
    memset(room_for(&p->event, text), 'x', text);
    memcpy(p->event.bytes + p->event.length, "t=", 2);
    p->event.bytes[p->event.length + MIN_TEXT - 1] = ' ';
    p->event.length += text;
    append(&p->event, behind, sizeof behind - 1);
    append(&p->event, "\r\n", 2);
}

static void send_event(struct peer *p) {
    char *digit = p->event.bytes + p->stamp_at + 19;
    uint64_t now = now_ns();
    for (int i = 0; i < 19; i++, now /= 10) *--digit = (char)('0' + now % 10);
    chunks++;
    p->left--;
    put(p, p->event.bytes, p->event.length);
}

static void start_stream(struct peer *p) {
    p->doing = STREAMING;
    p->left = p->shape.chunks;
    streams++;
    open_streams++;
    prepare_event(p);
    put_text(p, STREAM_HEAD);
}

static void end_stream(struct peer *p) {
    put_chunk(p, CHUNK_START "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\n");
    if (p->wants_usage) {
        char event[512];
        snprintf(event, sizeof event,
                 CHUNK_START "],\"usage\":{\"prompt_tokens\":112,\"completion_tokens\":%ld,\"total_tokens\":%ld}}\n\n",
                 p->shape.chunks, p->shape.chunks + 112);
        put_chunk(p, event);
    }
    put_text(p, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
    if (p->closed) return;
    p->doing = READING;
    open_streams--;
}

static void read_requests(struct peer *p);

/* What is due now: the whole answer, or one chunk and what comes after it. */
static void go_on(struct peer *p) {
    if (p->doing == ABOUT_TO_ANSWER) {
        if (p->stream) {
            start_stream(p);
        } else {
            p->doing = READING;
            answer(p, "200 OK", COMPLETION);
        }
    }
    if (p->doing == STREAMING && p->left > 0) send_event(p);
    if (p->closed) return;
    if (p->doing == STREAMING && p->left <= 0) end_stream(p);
    if (p->closed) return;
    if (p->doing == READING) {
        unmake_ready(p);
        if (p->last) hang_up(p);
        else read_requests(p);
    } else if (p->shape.pace_us) {
        /* From when it was due, not from now: a late chunk does not shift the ones behind it. */
        set_timer(p, p->due_ns + (uint64_t)p->shape.pace_us * 1000);
    } else if (p->blocked) {
        unmake_ready(p);
    } else {
        make_ready(p);
    }
}

/* -- requests --------------------------------------------------------------------------------------------- */

static const char *find(const char *in, size_t n, const char *what) { return memmem(in, n, what, strlen(what)); }

static const char *header(const char *head, size_t n, const char *name) {
    size_t length = strlen(name);
    const char *end = head + n;
    for (const char *line = find(head, n, "\r\n"); line; line = find(line, (size_t)(end - line), "\r\n")) {
        line += 2;
        if ((size_t)(end - line) > length && line[length] == ':' && !strncasecmp(line, name, length)) {
            line += length + 1;
            while (*line == ' ') line++;
            return line;
        }
    }
    return NULL;
}

static bool is_true(const char *body, size_t n, const char *quoted_name) {
    const char *at = find(body, n, quoted_name), *end = body + n;
    if (!at) return false;
    at += strlen(quoted_name);
    while (at < end && (*at == ' ' || *at == ':')) at++;
    return end - at >= 4 && !memcmp(at, "true", 4);
}

static void read_directive(const char *body, size_t n, struct shape *shape) {
    const char *at = find(body, n, "[bench ");
    const char *end = at ? memchr(at, ']', (size_t)(body + n - at)) : NULL;
    if (!end) return;
    char text[160];
    size_t length = (size_t)(end - at) - 7;
    if (length >= sizeof text) return;
    memcpy(text, at + 7, length);
    text[length] = 0;
    struct { const char *name; long *value; } fields[] = {
        {"chunks", &shape->chunks}, {"pace_us", &shape->pace_us}, {"bytes", &shape->bytes}, {"first_us", &shape->first_us}};
    char *rest = text;
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        char *value = strchr(word, '=');
        if (!value) continue;
        *value++ = 0;
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
            if (!strcmp(word, fields[i].name)) *fields[i].value = atol(value);
    }
}

static struct shape sane(struct shape shape) {
    if (shape.chunks < 1) shape.chunks = 1;
    if (shape.pace_us < 0) shape.pace_us = 0;
    if (shape.first_us < 0) shape.first_us = 0;
    if (shape.bytes < MIN_TEXT) shape.bytes = MIN_TEXT;
    if (shape.bytes > MAX_TEXT) shape.bytes = MAX_TEXT;
    return shape;
}

static void chat_completion(struct peer *p, const char *body, size_t n) {
    p->stream = is_true(body, n, "\"stream\"");
    p->wants_usage = is_true(body, n, "\"include_usage\"");
    p->shape = usual;
    read_directive(body, n, &p->shape);
    p->shape = sane(p->shape);
    p->doing = ABOUT_TO_ANSWER;
    if (p->shape.first_us || (p->stream && p->shape.pace_us)) p->due_ns = now_ns() + (uint64_t)p->shape.first_us * 1000;
}

static bool path_ends(const char *line, size_t n, const char *end) {
    const char *space = memchr(line, ' ', n);
    const char *behind = space ? memchr(space + 1, ' ', n - (size_t)(space + 1 - line)) : NULL;
    size_t length = strlen(end);
    return behind && (size_t)(behind - space) > length && !memcmp(behind - length, end, length);
}

static void dispatch(struct peer *p, const char *head, size_t head_bytes, const char *body, size_t body_bytes) {
    const char *connection = header(head, head_bytes, "connection");
    p->last = connection && !strncasecmp(connection, "close", 5);
    requests++;
    if (!memcmp(head, "POST ", 5) && path_ends(head, head_bytes, "/chat/completions")) {
        chat_completion(p, body, body_bytes);
    } else if (path_ends(head, head_bytes, "/models")) {
        answer(p, "200 OK", MODELS);
    } else if (path_ends(head, head_bytes, "/health")) {
        answer(p, "200 OK", "{}");
    } else if (path_ends(head, head_bytes, "/counts")) {
        char text[160];
        snprintf(text, sizeof text, "{\"requests\":%ld,\"streams\":%ld,\"open\":%ld,\"chunks\":%ld}", requests, streams,
                 open_streams, chunks);
        answer(p, "200 OK", text);
    } else {
        answer(p, "404 Not Found", "{\"error\":{\"message\":\"not here\"}}");
    }
}

/* Every whole request that has come and may be answered now; what is left of the next one stays. */
static void read_requests(struct peer *p) {
    while (p->doing == READING && !p->closed) {
        const char *head = p->in.bytes, *blank = p->in.length ? find(head, p->in.length, "\r\n\r\n") : NULL;
        if (!blank) return;
        size_t head_bytes = (size_t)(blank - head) + 2;
        const char *length = header(head, head_bytes, "content-length");
        size_t body_bytes = length ? strtoul(length, NULL, 10) : 0;
        if (header(head, head_bytes, "transfer-encoding") || body_bytes > MAX_REQUEST) {
            answer(p, "411 Length Required", "{}");
            hang_up(p);
            return;
        }
        size_t whole = head_bytes + 2 + body_bytes;
        if (p->in.length < whole) return;
        dispatch(p, head, head_bytes, blank + 4, body_bytes);
        if (p->closed) return;
        drop_front(&p->in, whole);
        if (p->doing == ABOUT_TO_ANSWER) {
            if (p->shape.first_us) set_timer(p, p->due_ns);
            else go_on(p);
        } else if (p->last) {
            hang_up(p);
        }
    }
}

static void on_readable(struct peer *p) {
    ssize_t n = recv(p->fd, room_for(&p->in, READ_BYTES), READ_BYTES, 0);
    if (n > 0) {
        p->in.length += (size_t)n;
        if (p->in.length > MAX_REQUEST) hang_up(p);
        else read_requests(p);
    } else if (n == 0 || errno != EAGAIN) {
        hang_up(p);
    }
}

static void on_writable(struct peer *p) {
    ssize_t n = send(p->fd, p->out.bytes, p->out.length, MSG_NOSIGNAL);
    if (n < 0) {
        if (errno != EAGAIN) hang_up(p);
        return;
    }
    drop_front(&p->out, (size_t)n);
    if (p->out.length) return;
    watch(p, false);
    if (p->doing == STREAMING && !p->shape.pace_us) make_ready(p);
}

static void accept_all(int listener) {
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct peer *p = calloc(1, sizeof *p);
        if (!p || fd >= MAX_PEERS) die("too many connections");
        p->fd = fd;
        p->timer_at = p->ready_at = NOWHERE;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = p};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
    }
}

static void release_gone(void) {
    while (gone_count) {
        struct peer *p = gone[--gone_count];
        free(p->in.bytes);
        free(p->out.bytes);
        free(p->event.bytes);
        free(p);
    }
}

static void on_event(struct epoll_event *event, int listener) {
    struct peer *p = event->data.ptr;
    if (!p) {
        accept_all(listener);
    } else if (event->data.ptr == (void *)&alarm_fd) {
        uint64_t times;
        alarm_ns = 0;
        if (read(alarm_fd, &times, sizeof times) < 0 && errno != EAGAIN) die("timerfd");
    } else {
        if (event->events & EPOLLOUT && !p->closed) on_writable(p);
        if (event->events & ~(uint32_t)EPOLLOUT && !p->closed) on_readable(p);
    }
}

static void serve(int listener) {
    static struct epoll_event events[512];
    for (;;) {
        set_alarm();
        int n = epoll_wait(poller, events, 512, ready_count ? 0 : -1);
        for (int i = 0; i < n; i++) on_event(&events[i], listener);
        for (uint64_t now = now_ns(); timer_count && timers[0]->due_ns <= now;) {
            struct peer *p = timers[0];
            unset_timer(p);
            go_on(p);
        }
        /* One chunk each, from the back: whoever leaves swaps places with one that has had its turn. */
        for (int i = ready_count - 1; i >= 0; i--)
            if (i < ready_count) go_on(ready[i]);
        release_gone();
    }
}

static void read_options(int count, char **values, uint16_t *port) {
    static const struct option options[] = {{"port", 1, 0, 'p'},    {"chunks", 1, 0, 'c'},   {"pace-us", 1, 0, 'd'},
                                            {"bytes", 1, 0, 'b'},   {"first-us", 1, 0, 'f'}, {0, 0, 0, 0}};
    for (int option; (option = getopt_long(count, values, "", options, NULL)) != -1;) {
        long value = optarg ? atol(optarg) : 0;
        switch (option) {
            case 'p': *port = (uint16_t)value; break;
            case 'c': usual.chunks = value; break;
            case 'd': usual.pace_us = value; break;
            case 'b': usual.bytes = value; break;
            case 'f': usual.first_us = value; break;
            default: exit(2);
        }
    }
}

int main(int count, char **values) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint16_t port = 0;
    read_options(count, values, &port);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max < MAX_PEERS ? files.rlim_max : MAX_PEERS;
    setrlimit(RLIMIT_NOFILE, &files);

    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    address.sin_port = htons(port);
    socklen_t length = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 4096)) die("listen");
    getsockname(listener, (struct sockaddr *)&address, &length);
    poller = epoll_create1(0);
    alarm_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event accepting = {.events = EPOLLIN, .data.ptr = NULL};
    struct epoll_event ringing = {.events = EPOLLIN, .data.ptr = &alarm_fd};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, listener, &accepting) || epoll_ctl(poller, EPOLL_CTL_ADD, alarm_fd, &ringing))
        die("epoll_ctl");
    printf("{\"port\": %u}\n", ntohs(address.sin_port));
    fflush(stdout);
    serve(listener);
}
