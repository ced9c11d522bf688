/* Closed-loop load on an OpenAI-compatible chat completions endpoint: one thread, prints one JSON object.
 *
 *     load --port N [--path /v1/chat/completions] [--key SECRET] [--model bench-model] [--prompt-bytes 400]
 *          [--connections 64] [--warm-up 1] [--seconds 5] [--ramp 0] [--requests N] [--drain 10 | --cut]
 *          [--stream] [--chunks 20] [--pace-us 0] [--bytes 40] [--first-us 0] [--stall-ms 1000] [--pids 1,2]
 *
 * Each connection asks, reads the answer to its end and asks again. Connections open evenly over `ramp` seconds, then
 * come `warm-up` seconds that do not count and `seconds` that do. After them nobody asks again and open answers are
 * read to their end for up to `drain` seconds, or cut with --cut. --requests ends the asking after so many.
 *
 * The shape of the answers travels in the prompt, see mock.c, whose time stamps give each chunk's lag. Times are in
 * microseconds and exact: every sample is kept. `processes` are those of --pids, over the counted seconds.
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
#include <time.h>
#include <unistd.h>

#define MAX_CONNECTIONS 60000
#define MAX_PIDS 16
#define HEAD_BYTES 16384
#define READ_BYTES 262144
#define STAMP_DIGITS 19
#define SECOND 1000000000ull
#define SAMPLE_EVERY (SECOND / 4)

struct samples {
    uint32_t *tenths; /* of a microsecond */
    size_t count, room;
};

enum framing { BY_LENGTH, BY_CHUNKS };
enum chunk_part { SIZE_LINE, CHUNK_DATA, CHUNK_END, TRAILER };
enum doing { CLOSED, CONNECTING, ASKING, IN_HEAD, IN_BODY, IDLE };

struct connection {
    int fd;
    enum doing doing;
    bool watches_room;
    size_t asked; /* bytes of the request that are sent */
    uint64_t asked_ns, last_ns;
    bool has_first, stalled, done, closes;
    long chunks;
    enum framing framing;
    enum chunk_part part;
    size_t left; /* of the body or of the HTTP chunk */
    char size_line[32];
    size_t size_length;
    char *text; /* the head, then a line of the body that came in pieces */
    size_t text_length, text_room;
};

struct process {
    int pid;
    double cpu_start, cpu_seconds;
    long rss_start_kb, rss_end_kb, rss_top_kb;
};

static struct {
    int port, connections;
    const char *path, *key, *model, *pids;
    double warm_up, seconds, ramp, drain;
    long requests, prompt_bytes, chunks, pace_us, bytes, first_us, stall_ms;
    bool stream, cut;
} want = {.path = "/v1/chat/completions", .key = "", .model = "bench-model", .pids = "", .connections = 64,
          .warm_up = 1, .seconds = 5, .drain = 10, .prompt_bytes = 400, .chunks = 20, .bytes = 40, .stall_ms = 1000};

static struct connection *all;
static int opened, poller;
static char *request;
static size_t request_length;
static struct sockaddr_in address = {.sin_family = AF_INET};
static uint64_t start_ns, window_ns, end_ns, now;

static struct samples latency, first_chunk, lag;
static long started, finished, failed, finished_in_window, chunks_in_window, stalls, reconnects, bytes_in_window;
static char first_error[300];
static struct process processes[MAX_PIDS];
static int process_count;
static uint64_t window_began_ns, window_ended_ns;
static double own_cpu_start, own_cpu_seconds;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

/* -- samples ---------------------------------------------------------------------------------------------- */

static void sample(struct samples *s, uint64_t ns) {
    if (s->count == s->room) {
        s->room = s->room ? s->room * 2 : 65536;
        s->tenths = realloc(s->tenths, s->room * sizeof *s->tenths);
        if (!s->tenths) die("memory");
    }
    s->tenths[s->count++] = ns / 100 > UINT32_MAX ? UINT32_MAX : (uint32_t)(ns / 100);
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double quantile(const struct samples *s, double share) {
    if (!s->count) return 0;
    return s->tenths[(size_t)(share * (double)(s->count - 1) + 0.5)] / 10.0;
}

static void print_samples(const char *name, struct samples *s) {
    if (s->count) qsort(s->tenths, s->count, sizeof *s->tenths, by_size);
    printf("\"%s\":{\"count\":%zu,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f},", name, s->count,
           quantile(s, 0.5), quantile(s, 0.9), quantile(s, 0.99), quantile(s, 1));
}

/* -- processes -------------------------------------------------------------------------------------------- */

static double cpu_seconds(int pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = 0;
    unsigned long user = 0, kernel = 0;
    /* The name in parentheses may hold anything; the fields are counted from behind it. */
    char *fields = strrchr(text, ')');
    if (!fields || sscanf(fields + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel) != 2) return 0;
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

static long rss_kb(int pid) {
    char path[64];
    long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static double own_cpu(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void name_processes(void) {
    for (const char *at = want.pids; *at && process_count < MAX_PIDS;) {
        char *end;
        long pid = strtol(at, &end, 10);
        if (end == at) break;
        processes[process_count++] = (struct process){.pid = (int)pid, .rss_start_kb = rss_kb((int)pid)};
        at = *end ? end + 1 : end;
    }
}

static void look_at_memory(void) {
    for (struct process *p = processes; p < processes + process_count; p++) {
        p->rss_end_kb = rss_kb(p->pid);
        if (p->rss_end_kb > p->rss_top_kb) p->rss_top_kb = p->rss_end_kb;
    }
}

static void begin_window(void) {
    window_began_ns = now;
    own_cpu_start = own_cpu();
    for (struct process *p = processes; p < processes + process_count; p++) p->cpu_start = cpu_seconds(p->pid);
}

static void end_window(void) {
    window_ended_ns = now;
    own_cpu_seconds = own_cpu() - own_cpu_start;
    for (struct process *p = processes; p < processes + process_count; p++) p->cpu_seconds = cpu_seconds(p->pid) - p->cpu_start;
    look_at_memory();
}

static bool counts(void) { return now >= window_ns && now < end_ns; }

/* -- connections ------------------------------------------------------------------------------------------ */

static void watch(struct connection *c, bool room) {
    if (room == c->watches_room) return;
    struct epoll_event event = {.events = EPOLLIN | (room ? EPOLLOUT : 0u), .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
    c->watches_room = room;
}

static void drop(struct connection *c) {
    if (c->doing != CLOSED) close(c->fd);
    c->doing = CLOSED;
}

static bool is_asking(const struct connection *c) { return c->doing == ASKING || c->doing == IN_HEAD || c->doing == IN_BODY; }

static void open_socket(struct connection *c) {
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0) die("socket");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS) die("connect");
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event)) die("epoll_ctl");
    c->watches_room = true;
    c->doing = CONNECTING;
}

static void fail(struct connection *c, const char *why, const char *detail, size_t n) {
    failed++;
    if (!first_error[0]) {
        size_t used = (size_t)snprintf(first_error, sizeof first_error, "%s: ", why);
        for (size_t i = 0; i < n && used < sizeof first_error - 1; i++)
            first_error[used++] = detail[i] < ' ' || detail[i] == '"' || detail[i] == '\\' ? ' ' : detail[i];
    }
    drop(c);
    if (now < end_ns) {
        reconnects++;
        open_socket(c);
    }
}

static void send_rest(struct connection *c) {
    while (c->asked < request_length) {
        ssize_t n = send(c->fd, request + c->asked, request_length - c->asked, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            watch(c, true);
            return;
        }
        if (n < 0) {
            fail(c, "send", strerror(errno), strlen(strerror(errno)));
            return;
        }
        c->asked += (size_t)n;
    }
    watch(c, false);
    c->doing = IN_HEAD;
}

static void ask(struct connection *c) {
    if (now >= end_ns || (want.requests && started >= want.requests)) {
        c->doing = IDLE;
        watch(c, false);
        return;
    }
    started++;
    c->doing = ASKING;
    c->asked = c->text_length = c->size_length = 0;
    c->chunks = 0;
    c->has_first = c->stalled = c->done = false;
    c->asked_ns = c->last_ns = now_ns();
    send_rest(c);
}

static void finish(struct connection *c) {
    if (want.stream && (!c->done || c->chunks != want.chunks)) {
        char text[80];
        int n = snprintf(text, sizeof text, "%ld of %ld chunks%s", c->chunks, want.chunks, c->done ? "" : ", no [DONE]");
        fail(c, "incomplete stream", text, (size_t)n);
        return;
    }
    finished++;
    if (counts()) {
        finished_in_window++;
        sample(&latency, now - c->asked_ns);
    }
    if (c->closes) {
        drop(c);
        if (now < end_ns) open_socket(c);
    } else {
        ask(c);
    }
}

/* -- answers ---------------------------------------------------------------------------------------------- */

static void note_gap(struct connection *c) {
    if (!c->stalled && now - c->last_ns > (uint64_t)want.stall_ms * 1000000) {
        c->stalled = true;
        stalls++;
    }
    c->last_ns = now;
}

static void on_line(struct connection *c, const char *line, size_t n) {
    static const char mark[] = "\"t=";
    if (n < 6 || memcmp(line, "data:", 5)) return;
    const char *stamp = memmem(line, n, mark, sizeof mark - 1);
    if (!stamp || (size_t)(line + n - stamp) < sizeof mark - 1 + STAMP_DIGITS) {
        if (memmem(line, n, "[DONE]", 6)) c->done = true;
        return;
    }
    uint64_t sent_ns = 0;
    for (int i = 0; i < STAMP_DIGITS; i++) sent_ns = sent_ns * 10 + (uint64_t)(stamp[3 + i] - '0');
    note_gap(c);
    c->chunks++;
    if (!c->has_first) {
        c->has_first = true;
        if (counts()) sample(&first_chunk, now - c->asked_ns);
    }
    if (counts()) {
        chunks_in_window++;
        sample(&lag, now > sent_ns ? now - sent_ns : 0);
    }
}

static void keep_text(struct connection *c, const char *data, size_t n) {
    if (c->text_length + n > c->text_room) {
        c->text_room = (c->text_length + n) * 2 + 1024;
        c->text = realloc(c->text, c->text_room);
        if (!c->text) die("memory");
    }
    memcpy(c->text + c->text_length, data, n);
    c->text_length += n;
}

static void on_body(struct connection *c, const char *data, size_t n) {
    if (!want.stream) return;
    const char *end = data + n;
    for (const char *newline; (newline = memchr(data, '\n', (size_t)(end - data))) != NULL; data = newline + 1) {
        if (c->text_length) {
            keep_text(c, data, (size_t)(newline - data));
            on_line(c, c->text, c->text_length);
            c->text_length = 0;
        } else {
            on_line(c, data, (size_t)(newline - data));
        }
    }
    if (data < end) keep_text(c, data, (size_t)(end - data));
}

/* Reads one line of chunked framing; true when it is whole. */
static bool frame_line(struct connection *c, const char **data, const char *end) {
    while (*data < end) {
        char byte = *(*data)++;
        if (byte == '\n') return true;
        if (c->size_length < sizeof c->size_line - 1) c->size_line[c->size_length++] = byte;
    }
    return false;
}

/* True at the end of the body. */
static bool on_chunked(struct connection *c, const char *data, const char *end) {
    while (data < end) {
        if (c->part == CHUNK_DATA) {
            size_t n = (size_t)(end - data) < c->left ? (size_t)(end - data) : c->left;
            on_body(c, data, n);
            data += n;
            c->left -= n;
            if (!c->left) c->part = CHUNK_END;
            continue;
        }
        if (!frame_line(c, &data, end)) return false;
        c->size_line[c->size_length] = 0;
        bool is_blank = c->size_length == 0 || c->size_line[0] == '\r';
        c->size_length = 0;
        if (c->part == CHUNK_END) {
            c->part = SIZE_LINE;
        } else if (c->part == SIZE_LINE) {
            c->left = strtoul(c->size_line, NULL, 16);
            c->part = c->left ? CHUNK_DATA : TRAILER;
        } else if (is_blank) {
            return true;
        }
    }
    return false;
}

static bool on_sized(struct connection *c, const char *data, const char *end) {
    size_t n = (size_t)(end - data) < c->left ? (size_t)(end - data) : c->left;
    on_body(c, data, n);
    c->left -= n;
    return !c->left;
}

static const char *header(const char *head, size_t n, const char *name) {
    size_t length = strlen(name);
    for (const char *line = head, *end = head + n; (line = memmem(line, (size_t)(end - line), "\r\n", 2)) != NULL;) {
        line += 2;
        if ((size_t)(end - line) > length && line[length] == ':' && !strncasecmp(line, name, length)) {
            for (line += length + 1; *line == ' ';) line++;
            return line;
        }
    }
    return NULL;
}

/* The bytes behind the head in what is kept, or NULL while it is not whole or when it is a refusal. */
static const char *on_head(struct connection *c) {
    const char *blank = memmem(c->text, c->text_length, "\r\n\r\n", 4);
    if (!blank) {
        if (c->text_length > HEAD_BYTES) fail(c, "head too large", "", 0);
        return NULL;
    }
    size_t n = (size_t)(blank - c->text) + 2;
    if (c->text_length < 12 || memcmp(c->text + 9, "200", 3)) {
        fail(c, "refused", c->text, c->text_length);
        return NULL;
    }
    const char *length = header(c->text, n, "content-length"), *ending = header(c->text, n, "connection");
    c->closes = ending && !strncasecmp(ending, "close", 5);
    c->framing = length ? BY_LENGTH : BY_CHUNKS;
    c->left = length ? strtoul(length, NULL, 10) : 0;
    c->part = SIZE_LINE;
    c->doing = IN_BODY;
    return blank + 4;
}

static void on_data(struct connection *c, char *data, size_t n) {
    static char behind_head[HEAD_BYTES + READ_BYTES];
    const char *body = data, *end = data + n;
    if (c->doing == IN_HEAD) {
        keep_text(c, data, n);
        if (!(body = on_head(c))) return;
        n = (size_t)(c->text + c->text_length - body);
        memcpy(behind_head, body, n);
        c->text_length = 0;
        body = behind_head;
        end = body + n;
    }
    if (c->framing == BY_CHUNKS ? on_chunked(c, body, end) : on_sized(c, body, end)) finish(c);
}

static void on_readable(struct connection *c) {
    static char data[READ_BYTES];
    ssize_t n = recv(c->fd, data, sizeof data, 0);
    if (n < 0 && errno == EAGAIN) return;
    now = now_ns();
    if (n > 0 && (c->doing == IN_HEAD || c->doing == IN_BODY)) {
        if (counts()) bytes_in_window += n;
        on_data(c, data, (size_t)n);
    } else if (is_asking(c)) {
        fail(c, "connection closed", n < 0 ? strerror(errno) : "", n < 0 ? strlen(strerror(errno)) : 0);
    } else if (c->doing == CONNECTING) {
        die("connect");
    } else {
        drop(c);
    }
}

/* -- the run ---------------------------------------------------------------------------------------------- */

static void build_request(void) {
    char *prompt = malloc((size_t)want.prompt_bytes + 256), *body = malloc((size_t)want.prompt_bytes + 1024);
    if (!prompt || !body) die("memory");
    int n = sprintf(prompt, "[bench chunks=%ld pace_us=%ld bytes=%ld first_us=%ld] ", want.chunks, want.pace_us,
                    want.bytes, want.first_us);
    static const char words[] = "Tell me in two sentences what a gateway is for. ";
    for (; n < want.prompt_bytes; n++) prompt[n] = words[(size_t)n % (sizeof words - 1)];
    prompt[n] = 0;
    int length = sprintf(body,
                         "{\"model\":\"%s\",\"messages\":[{\"role\":\"system\",\"content\":\"You are a helpful assistant.\"},"
                         "{\"role\":\"user\",\"content\":\"%s\"}],\"temperature\":0.7,\"max_tokens\":1024%s}",
                         want.model, prompt, want.stream ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}" : "");
    int total = asprintf(&request,
                         "POST %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nauthorization: Bearer %s\r\naccept: */*\r\n"
                         "user-agent: bench\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s",
                         want.path, want.port, want.key, length, body);
    if (total < 0) die("memory");
    request_length = (size_t)total;
    free(prompt);
    free(body);
}

static int still_asking(void) {
    int n = 0;
    for (int i = 0; i < opened; i++) n += is_asking(&all[i]);
    return n;
}

static void open_due(void) {
    uint64_t ramp_ns = (uint64_t)(want.ramp * (double)SECOND);
    while (opened < want.connections && now < end_ns &&
           now - start_ns >= ramp_ns * (uint64_t)opened / (uint64_t)want.connections)
        open_socket(&all[opened++]);
}

static void turn(int wait_ms) {
    static struct epoll_event events[1024];
    int n = epoll_wait(poller, events, 1024, wait_ms);
    now = now_ns();
    for (int i = 0; i < n; i++) {
        struct connection *c = events[i].data.ptr;
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_readable(c);
        /* A connection made anew in this turn gets its event in the next one. */
        else if (events[i].events & EPOLLOUT && c->doing == CONNECTING) ask(c);
        else if (events[i].events & EPOLLOUT && c->doing == ASKING) send_rest(c);
    }
}

static bool is_over(void) { return now >= end_ns || (want.requests && started >= want.requests && !still_asking()); }

static void run(void) {
    uint64_t looked_ns = 0;
    now = start_ns = now_ns();
    window_ns = start_ns + (uint64_t)((want.ramp + want.warm_up) * (double)SECOND);
    end_ns = window_ns + (uint64_t)(want.seconds * (double)SECOND);
    while (!is_over()) {
        open_due();
        turn(opened < want.connections ? 1 : 20);
        if (!window_began_ns && now >= window_ns) begin_window();
        if (now - looked_ns >= SAMPLE_EVERY) {
            looked_ns = now;
            look_at_memory();
        }
    }
    if (!window_began_ns) begin_window();
    if (now < end_ns) end_ns = now;
    end_window();
    if (want.cut) return;
    uint64_t give_up_ns = now + (uint64_t)(want.drain * (double)SECOND);
    while (now < give_up_ns && still_asking()) turn(20);
}

static void count_silent(void) {
    for (int i = 0; i < opened; i++)
        if (is_asking(&all[i]) && want.stream) note_gap(&all[i]);
}

static void report(void) {
    double seconds = (double)(window_ended_ns - window_began_ns) / (double)SECOND;
    int in_flight = still_asking(), begun = 0;
    for (int i = 0; i < opened; i++) begun += is_asking(&all[i]) && all[i].has_first;
    printf("{\"seconds\":%.3f,\"connections\":%d,\"requests_per_second\":%.1f,\"chunks_per_second\":%.1f,"
           "\"bytes_per_second\":%.0f,",
           seconds, want.connections, (double)finished_in_window / seconds, (double)chunks_in_window / seconds,
           (double)bytes_in_window / seconds);
    printf("\"started\":%ld,\"finished\":%ld,\"failed\":%ld,\"in_flight\":%d,\"in_flight_begun\":%d,\"stalled\":%ld,"
           "\"reconnects\":%ld,\"first_error\":\"%s\",",
           started, finished, failed, in_flight, begun, stalls, reconnects, first_error);
    print_samples("latency_us", &latency);
    print_samples("first_chunk_us", &first_chunk);
    print_samples("lag_us", &lag);
    printf("\"own_cpu_seconds\":%.2f,\"processes\":[", own_cpu_seconds);
    for (int i = 0; i < process_count; i++)
        printf("%s{\"pid\":%d,\"cpu_seconds\":%.2f,\"rss_start_kb\":%ld,\"rss_end_kb\":%ld,\"rss_top_kb\":%ld}",
               i ? "," : "", processes[i].pid, processes[i].cpu_seconds, processes[i].rss_start_kb,
               processes[i].rss_end_kb, processes[i].rss_top_kb);
    printf("]}\n");
}

static void read_options(int count, char **values) {
    static const struct option options[] = {
        {"port", 1, 0, 'p'},     {"path", 1, 0, 'P'},    {"key", 1, 0, 'k'},      {"model", 1, 0, 'm'},
        {"connections", 1, 0, 'c'}, {"warm-up", 1, 0, 'w'}, {"seconds", 1, 0, 's'},  {"ramp", 1, 0, 'r'},
        {"drain", 1, 0, 'd'},    {"requests", 1, 0, 'n'}, {"prompt-bytes", 1, 0, 'b'}, {"stream", 0, 0, 'S'},
        {"cut", 0, 0, 'C'},      {"chunks", 1, 0, 'K'},  {"pace-us", 1, 0, 'u'},  {"bytes", 1, 0, 'B'},
        {"first-us", 1, 0, 'f'}, {"stall-ms", 1, 0, 't'}, {"pids", 1, 0, 'i'},     {0, 0, 0, 0}};
    for (int option; (option = getopt_long(count, values, "", options, NULL)) != -1;) {
        switch (option) {
            case 'p': want.port = atoi(optarg); break;
            case 'P': want.path = optarg; break;
            case 'k': want.key = optarg; break;
            case 'm': want.model = optarg; break;
            case 'i': want.pids = optarg; break;
            case 'c': want.connections = atoi(optarg); break;
            case 'w': want.warm_up = atof(optarg); break;
            case 's': want.seconds = atof(optarg); break;
            case 'r': want.ramp = atof(optarg); break;
            case 'd': want.drain = atof(optarg); break;
            case 'n': want.requests = atol(optarg); break;
            case 'b': want.prompt_bytes = atol(optarg); break;
            case 'K': want.chunks = atol(optarg); break;
            case 'u': want.pace_us = atol(optarg); break;
            case 'B': want.bytes = atol(optarg); break;
            case 'f': want.first_us = atol(optarg); break;
            case 't': want.stall_ms = atol(optarg); break;
            case 'S': want.stream = true; break;
            case 'C': want.cut = true; break;
            default: exit(2);
        }
    }
    if (want.port < 1 || want.connections < 1 || want.connections > MAX_CONNECTIONS || want.seconds <= 0) {
        fprintf(stderr, "--port is needed; --connections 1 to %d, --seconds above 0\n", MAX_CONNECTIONS);
        exit(2);
    }
}

int main(int count, char **values) {
    read_options(count, values);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)want.port);
    all = calloc((size_t)want.connections, sizeof *all);
    poller = epoll_create1(0);
    if (!all || poller < 0) die("epoll");
    build_request();
    name_processes();
    run();
    count_silent();
    report();
    return 0;
}
